"""What the scan computes: split lines, directions, boundaries, and the paper's filter."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scan_cases import BACKENDS, make_case, rms_ratio
from scipy.signal import lfilter

from chonn_ops import kirchhoff_scan

EACH_BACKEND = pytest.mark.parametrize("backend", BACKENDS)
DIRECTIONS = pytest.mark.parametrize("reverse", [False, True], ids=["forth", "back"])
STREAMS = ("u", "delta", "b", "c")


def _map_streams(case, change):
    return case | {name: change(case[name]) for name in STREAMS}


@EACH_BACKEND
@DIRECTIONS
@pytest.mark.parametrize("cut", [1, 32, 50, 99])
def test_a_split_line_equals_the_whole(backend, reverse, cut):
    case = make_case(2, 100, 18, 5, dtype=torch.float64)
    options = {"reverse": reverse, "return_state": True, "backend": backend}
    y, state = kirchhoff_scan(**case, **options)
    parts = [_map_streams(case, lambda x: x[:, :cut]), _map_streams(case, lambda x: x[:, cut:])]
    outputs, carried = {}, case["initial_state"]
    for i in (1, 0) if reverse else (0, 1):
        outputs[i], carried = kirchhoff_scan(**(parts[i] | {"initial_state": carried}), **options)
    torch.testing.assert_close(torch.cat([outputs[0], outputs[1]], dim=1), y)
    torch.testing.assert_close(carried, state)


@EACH_BACKEND
@pytest.mark.parametrize("boundary", ["matched", "periodic"])
def test_reverse_equals_flip(backend, boundary):
    case = make_case(2, 70, 18, 5, dtype=torch.float64)
    if boundary == "periodic":
        del case["initial_state"]
    options = {"return_state": True, "backend": backend, "boundary": boundary}
    y, state = kirchhoff_scan(**case, reverse=True, **options)
    flipped, same_state = kirchhoff_scan(**_map_streams(case, lambda x: x.flip(1)), **options)
    torch.testing.assert_close(y, flipped.flip(1))
    torch.testing.assert_close(state, same_state)


@EACH_BACKEND
@DIRECTIONS
def test_ring_equals_many_turns(backend, reverse):
    case = make_case(2, 12, 5, 3, dtype=torch.float64)
    del case["initial_state"]
    options = {"reverse": reverse, "return_state": True, "backend": backend}
    periodic, closed = kirchhoff_scan(**case, boundary="periodic", **options)
    state = None
    for _ in range(100):
        y, state = kirchhoff_scan(**case, initial_state=state, **options)
    torch.testing.assert_close(periodic, y)
    torch.testing.assert_close(closed, state)


@EACH_BACKEND
def test_ring_has_no_seam(backend):
    """Rolling the inputs rolls the output."""
    case = make_case(2, 40, 5, 3, dtype=torch.float64)
    del case["initial_state"]
    y = kirchhoff_scan(**case, boundary="periodic", backend=backend)
    rolled = _map_streams(case, lambda x: x.roll(13, dims=1))
    shifted = kirchhoff_scan(**rolled, boundary="periodic", backend=backend)
    torch.testing.assert_close(shifted, y.roll(13, dims=1))


@EACH_BACKEND
def test_ring_that_hardly_decays_averages(backend):
    """As decay -> 0 the state tends to mean(delta b u) / (decay mean(delta)), not to 0 / 0."""
    case = make_case(1, 30, 4, 1, dtype=torch.float64)
    del case["initial_state"]
    case["decay"] = torch.full((4, 1), 1e-9, dtype=torch.float64)
    _, state = kirchhoff_scan(**case, boundary="periodic", return_state=True, backend=backend)
    delta = case["delta"]
    mean = (delta * case["b"] * case["u"]).sum(1) / delta.sum(1)
    assert rms_ratio(state[..., 0] * 1e-9, mean) < 1e-6


def _fixed_stage(u, delta, decay, b, c, d, backend):
    """One cell with constant coefficients, and its transfer function in powers of z."""
    constant = torch.ones(1, u.shape[1], 1, dtype=torch.float64)
    y = kirchhoff_scan(
        u,
        delta * constant,
        torch.tensor([[decay]], dtype=torch.float64),
        b * constant,
        c * constant,
        torch.tensor([d], dtype=torch.float64),
        backend=backend,
    )
    kept = np.exp(-delta * decay)
    return y, [c * b * (1 - kept) / decay + d, -d * kept], [1, -kept]


@EACH_BACKEND
def test_fixed_coefficients_and_cascades_match_the_transfer_function(backend):
    u = make_case(1, 200, 1, 1, dtype=torch.float64)["u"]
    y, top, bottom = u, np.ones(1), np.ones(1)
    for delta, decay, b, c, d in ((0.3, 0.5, 1.3, 0.7, 0.2), (1.0, 2.0, -0.4, 1.1, -0.5),
                                  (0.05, 0.1, 2.0, 0.9, 0.0)):  # fmt: skip
        y, numerator, denominator = _fixed_stage(y, delta, decay, b, c, d, backend)
        # Scans count in positions, whatever their steps are.
        top, bottom = np.polymul(top, numerator), np.polymul(bottom, denominator)
        expected = lfilter(top, bottom, u[0, :, 0].numpy())
        np.testing.assert_allclose(y[0, :, 0].numpy(), expected, rtol=1e-10, atol=1e-12)


def test_a_line_scanned_one_way_has_no_reflection():
    case = make_case(2, 9, 3, 4)
    del case["initial_state"]
    with pytest.raises(ValueError, match=r"'axial'.*got 'dirichlet'"):
        kirchhoff_scan(**case, boundary="dirichlet")
