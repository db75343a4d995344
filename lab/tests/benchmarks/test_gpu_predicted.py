"""Counts by hand, and what a prediction must do whatever the counts are."""

import pytest

pytest.importorskip("triton")

from chonn_lab.benchmarks import gpu_predicted as predicted
from chonn_lab.benchmarks.gpu_predicted import Code


def test_launches_of_a_grid_that_is_one_front():
    """16 nodes are not cut: one small front of three networks, which a program takes together."""
    found = predicted.circuit((4, 4), 3, count=False)
    names = [(kernel.__name__, grid) for kernel, grid in found]
    front = [(kernel, (1, 1)) for kernel in ("eliminate", "up", "down")]
    assert names == [("pack", (3, 1)), *front]


def test_instructions_of_nested_loops():
    code = Code([*range(0, 160, 16)], [(16, 128), (32, 64)], 64, 0)
    # Two outside, five more in the outer loop, three in the inner one.
    assert code.executed([10, 40]) == 2 + 5 * 10 + 3 * 40
    with pytest.raises(ValueError, match="expected 1 loops"):
        code.executed([10])
    assert code.held(4) == 65536 // (64 * 32 * 4) * 4 / 4


def test_ways_through_a_loop():
    """A loop of 102 instructions at least: one block may be left out, and one takes the general
    path, which is not counted."""
    lines = ["FFMA R0, R0, R0, R0"] * 98 + ["@P0 BRA 0x{skip:04x}", "STG [R0], R1", "STG [R0], R1"]
    lines += ["@P1 BRA 0x{skip:04x}"] + ["MUFU.EX2 R0, R1"] * 20 + ["IADD3 R0, R0, 1"] * 2
    lines += ["@P2 BRA 0x0000", "EXIT"]
    skip = 16 * (98 + 4 + 20)
    text = "".join(f"/*{16 * i:04x}*/  {x.format(skip=skip)} ;\n" for i, x in enumerate(lines))
    assert list(predicted.paths(text)) == [(98 + 1 + 3, 98 + 1 + 3 + 3)]


def test_the_probe_is_predicted():
    """Totals that the costs were not fitted to come out as near as the levels that they were."""
    costs = predicted.fit()
    assert predicted.deviation("totals", costs) < predicted.deviation("levels", costs) < 1.3
