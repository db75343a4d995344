"""What the programs measure with: turns, peaks, slopes, floors."""

from __future__ import annotations

import functools
import sys

import pytest
import torch

from chonn_lab.benchmarks import floors, harness, scan

MEBIBYTE = 2**20


def fill_memory(mebibytes):
    """A call that needs so much for a moment."""
    return functools.partial(torch.ones, mebibytes * MEBIBYTE // 4)


def test_contenders_take_turns():
    order = []
    calls = {name: functools.partial(order.append, name) for name in "ab"}
    times = harness.Turns(rounds=2, visit_ms=0, least=2).times(calls)
    assert "".join(order) == "aaabbb" * 2  # one call to warm up, two that count
    assert [len(values) for values in times.values()] == [4, 4]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_peak_memory_is_that_of_the_call():
    peak = harness.fresh_peak(fill_memory, 48)
    assert peak / MEBIBYTE == pytest.approx(48, abs=1)


def test_allocated_peak_is_exact():
    def call():
        first = torch.ones(1000)
        second = first + 1
        del first
        return second + 1

    assert harness.allocated_peak(call) == pytest.approx(8000, abs=256)  # rounded up to lines


def test_slope_is_the_exponent_of_a_power_law():
    sizes = [1, 10, 100, 1000]
    assert harness.slope(sizes, [3 * size**1.5 for size in sizes]) == pytest.approx(1.5)


def test_floors_count_what_a_scan_cannot_avoid():
    counts = floors.unavoidable_bytes((2, 10, 4, 3))
    assert counts == {"forward": 4 * (3 * 80 + 2 * 60), "both": 4 * (8 * 80 + 6 * 60)}


def test_fast_exponentials_are_exponentials():
    try:
        run = floors.TightExponentials()
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    run()
    torch.testing.assert_close(run.y, run.x.exp(), rtol=1e-5, atol=0)


def test_contenders_agree():
    inputs = scan.make_inputs((2, 37, 5, 3))
    expected = scan.loop(*inputs)
    for name, contender in scan.contenders(with_compiled=False).items():
        torch.testing.assert_close(contender(*inputs), expected, rtol=1e-4, atol=1e-4, msg=name)
