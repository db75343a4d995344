"""What only the compiled kernel does: lines split over threads, narrow blocks, widening reads."""

import pytest
import torch
from rows import thorough
from scan_cases import ISAS, TOLERANCE, assert_close, make_case, run, truth

from chonn_ops.scan import available_backends, cpu

pytestmark = pytest.mark.skipif("cpu" not in available_backends(), reason="no compiled kernel")


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


@pytest.mark.usefixtures("four_threads", "_pieces")
# Pieces shorter than are worth it, and so many that some are empty; the kernel's own, here two.
@pytest.mark.parametrize(("length", "piece"), [(890, 100), thorough(9000, None)])
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("options", [{}, {"reverse": True}, {"boundary": "periodic"}], ids=str)
@pytest.mark.parametrize("scale", [_slow, lambda case: case], ids=["slow", "fast"])
def test_a_line_split_over_threads(monkeypatch, set_threads, isa, options, scale, length):
    """One line of few channels: pieces of it are the only work to share."""
    monkeypatch.setenv("CHONN_SCAN_ISA", isa)
    case = scale(make_case(1, length, 2, 40 if "boundary" in options else 2, torch.float64))
    tolerance = 1e-10 if "boundary" in options else 1e-11
    if "boundary" in options:
        del case["initial_state"]
    actual = run(case, backend="cpu", **options)
    set_threads(1)
    whole = run(case, backend="cpu", **options)
    assert_close(actual, whole, tolerance)
    assert_close(whole, run(case, backend="torch", **options), tolerance)


def test_narrow_streams_beside_wide_ones():
    """Autocast hands over bfloat16 projections beside float32 parameters."""
    case = make_case(2, 65, 20, 3)
    for name in ("delta", "b", "c"):
        case[name] = case[name].bfloat16()
    actual, expected = run(case, backend="cpu"), truth(case)
    for name in ("grad_delta", "grad_b", "grad_c"):
        expected[name] = expected[name].bfloat16()
    assert_close(actual, expected, TOLERANCE[torch.float32])
