"""Every backend on fields: direction modes and terminations against float64 loops over copies."""

from __future__ import annotations

import pytest
import torch
from scan_cases import (
    BACKENDS,
    TOLERANCE,
    assert_close,
    field_truth,
    make_field,
    run_field,
)

from chonn_ops.scan import DIRECTIONS, TERMINATIONS

EACH_BACKEND = pytest.mark.parametrize("backend", BACKENDS)
MODES = [
    (directions, termination)
    for directions in DIRECTIONS
    for termination in TERMINATIONS
    if directions != "raster" or termination in ("matched", "ring")
]
EACH_MODE = pytest.mark.parametrize(("directions", "termination"), MODES)
GRIDS = [(7,), (4, 5), (3, 4, 2), (1,), (33,), (2, 65)]


@pytest.fixture(autouse=True)
def _poisoned_memory():
    """`torch.empty` returns NaN: nothing may be read, or returned, before it is written."""
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    yield
    torch.use_deterministic_algorithms(False)


@EACH_MODE
@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_modes(directions, termination, grid, dtype):
    modes = {"directions": directions, "termination": termination}
    case = make_field(2, grid, 5, 3, dtype)
    expected = field_truth(case, **modes)
    for backend in BACKENDS:
        actual = run_field(case, backend=backend, **modes)
        if termination == "ring" and grid == (1,):
            # A ring of one step rests at b u / decay whatever the step: a difference of equals.
            left = actual.pop("grad_delta").norm()
            assert left <= TOLERANCE[dtype] * expected["grad_decay"].norm()
            actual["grad_delta"] = expected["grad_delta"]
        # Odd walls subtract states: on a line of one step almost all of them.
        factor = 2 if termination == "short" else 1
        assert_close(actual, expected, factor * TOLERANCE[dtype])
