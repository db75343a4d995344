"""What only the compiled kernel does: lines split over threads, narrow blocks, widening reads."""

from __future__ import annotations

import pytest
import torch
from scan_cases import TOLERANCE, assert_close, make_case, run, truth

from chonn_ops.scan import available_backends, cpu
from chonn_ops.scan.cpu import available_isas

pytestmark = pytest.mark.skipif("cpu" not in available_backends(), reason="no compiled kernel")
FOUR_THREADS = pytest.mark.usefixtures("four_threads")
# Pieces shorter than are worth it, and so many that some are empty; the kernel's own, here two.
PIECES = pytest.mark.parametrize(
    ("length", "piece"), [(890, 100), pytest.param(9000, None, marks=pytest.mark.thorough)]
)


@pytest.fixture
def four_threads(set_threads):
    set_threads(4)


@pytest.fixture
def _pieces(monkeypatch, piece):
    if piece:
        monkeypatch.setattr(cpu, "_SEGMENT", piece)


def _slow(case):
    """Steps so short that what enters a piece of the line still matters at its end."""
    return case | {"delta": case["delta"] * 1e-4}


@FOUR_THREADS
@PIECES
@pytest.mark.usefixtures("_pieces")
@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("reverse", [False, True], ids=["forth", "back"])
@pytest.mark.parametrize("scale", [_slow, lambda case: case], ids=["slow", "fast"])
def test_a_line_split_over_threads(monkeypatch, set_threads, isa, reverse, scale, length):
    """One line of few channels: pieces of it are the only work to share."""
    monkeypatch.setenv("CHONN_SCAN_ISA", isa)
    case = scale(make_case(1, length, 2, 2, torch.float64))
    actual = run(case, backend="cpu", reverse=reverse)
    set_threads(1)
    whole = run(case, backend="cpu", reverse=reverse)
    assert_close(actual, whole, 1e-11)
    assert_close(whole, run(case, backend="torch", reverse=reverse), 1e-11)


@FOUR_THREADS
@PIECES
@pytest.mark.usefixtures("_pieces")
@pytest.mark.parametrize("scale", [_slow, lambda case: case], ids=["slow", "fast"])
def test_a_ring_split_over_threads(set_threads, scale, length):
    case = scale(make_case(1, length, 2, 40, torch.float64))
    del case["initial_state"]
    split = run(case, backend="cpu", boundary="periodic")
    set_threads(1)
    whole = run(case, backend="cpu", boundary="periodic")
    assert_close(split, whole, 1e-10)
    assert_close(whole, run(case, backend="torch", boundary="periodic"), 1e-10)


def test_narrow_streams_beside_wide_ones():
    """Autocast hands over bfloat16 projections beside float32 parameters."""
    case = make_case(2, 65, 20, 3)
    for name in ("delta", "b", "c"):
        case[name] = case[name].bfloat16()
    actual, expected = run(case, backend="cpu"), truth(case)
    for name in ("grad_delta", "grad_b", "grad_c"):
        expected[name] = expected[name].bfloat16()
    assert_close(actual, expected, TOLERANCE[torch.float32])
