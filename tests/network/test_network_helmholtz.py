"""Admittances of edges, time-harmonic waves and absorbing layers."""

import math
import warnings

import pytest
import torch
from network_cases import solve_helmholtz, uniform

from chonn_ops import absorbing_layer, helmholtz

KIND = {"dtype": torch.float64}


def test_digits_of_numbers_and_of_mixed_dtypes():
    """Numbers, and fields beside a float32 conductivity, were rounded to float32."""
    k, c, f = (0.5 + uniform(1, 9, 8, 1, seed=seed) for seed in range(3))
    k = k.float().double()
    same = torch.full_like(k, 1.3)
    u = solve_helmholtz(f, k, c, same, 2.0, 0.3)
    for given in ((k, 1.3), (k.float(), 1.3), (k.float(), same)):
        v = solve_helmholtz(f, given[0], c, given[1], 2.0, 0.3)
        assert v.dtype == torch.complex128
        assert (u - v).abs().max() < 1e-12 * u.abs().max()
    layers = absorbing_layer(k, 1.3, 1.0, 0.3), absorbing_layer(k, same, 1.0, 0.3)
    torch.testing.assert_close(*layers, rtol=1e-14, atol=0)


def test_several_sources_and_masks_of_samples():
    mask = torch.ones(2, 5, 4, 1, dtype=torch.bool)
    mask[0, 1, 1], mask[1, 3, 2] = False, False
    k, f = 0.5 + uniform(2, 5, 4, 1), uniform(2, 2, 5, 4, 1, seed=1)
    u = solve_helmholtz(f, k, 1.0, 0.1, 1.0, mask=mask)
    for i in range(2):
        one = solve_helmholtz(f[:, i], k, 1.0, 0.1, 1.0, mask=mask)
        torch.testing.assert_close(u[:, i], one)


def reflection(angle, thickness=0.0, cells=16):
    """Modulus of the wave that comes back from the ends of a strip, over that of the wave that
    meets them at an angle to their normal; the wavelength is 1."""
    h, omega, mode, n = 1 / cells, 2 * math.pi, 4 if angle else 0, 10 * cells
    across = omega * math.sin(math.radians(angle))
    rows = round(mode * math.pi / across * cells) if angle else 1
    across = mode * math.pi / (rows * h)
    shape = torch.cos(across * (torch.arange(rows, **KIND) + 0.5) * h)
    source = torch.zeros(1, n, rows, 1, **KIND)
    source[0, n // 2, :, 0] = shape / h
    k, ends = torch.ones_like(source), ("matched", "neumann")
    loss = absorbing_layer(k, 1.0, thickness, h, boundary=ends) if thickness else 0.0
    u = solve_helmholtz(source, k, 1.0, loss, omega, h, boundary=ends, backend="reference")
    line = (u[0, ..., 0] * shape).sum(1) / shape.square().sum()
    along = omega**2 - (2 - 2 * math.cos(across * h)) / h**2  # of the discrete Laplacian
    along = 2 / h * math.asin(h / 2 * math.sqrt(along))
    place = torch.arange(n // 2 + 2, n - 2 - round(thickness * cells))
    phase = torch.exp(1j * along * h * (place - n // 2).double())
    waves = torch.stack((phase, phase.conj()), 1)
    there, back = torch.linalg.lstsq(waves, line[place, None]).solution[:, 0].abs().tolist()
    return back / there


def test_matched_ends_absorb_waves_at_a_right_angle():
    assert reflection(0) < 1e-6


def test_an_absorbing_layer_takes_oblique_waves_too():
    assert reflection(60) > 0.2
    assert reflection(0, 2.0) < 0.01
    assert reflection(60, 2.0) < 0.05


def test_a_layer_is_at_matched_faces_only():
    k = 0.5 + uniform(1, 20, 10, 1)
    d = absorbing_layer(k, 2.0, 0.25, 1 / 20, boundary=(("matched", "neumann"), "dirichlet"))
    assert (d[:, 5:] == 0).all()
    assert (d[:, :5] > 0).all()
    torch.testing.assert_close(d[0, :5, 3] / d[0, :5, 4], (k[0, :5, 3] / k[0, :5, 4]).sqrt())


def _medium(grid=(6, 9), c=1.0):
    return torch.ones(1, *grid, 1, **KIND), torch.full((1, *grid, 1), c, **KIND)


@pytest.mark.parametrize("axis", [0, 1])
def test_few_nodes_a_wave_are_named(axis):
    """In the slowest node, along the coarsest axis; one warning a call."""
    k, c = _medium()
    steps = [0.1, 0.1]
    steps[axis] = 0.2
    c[0, 2, 3] = 4.0  # waves at 1 / 2 there: 2 pi / (2 omega) long
    for nodes, few in ((3.9, True), (4.1, False)):
        omega = 2 * math.pi / (2 * nodes * 0.2)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            helmholtz(k, c, 0.5, omega, steps)
        messages = [str(warning.message) for warning in caught]
        assert len(messages) == few
        assert not few or f"has 3.9 nodes along axis {axis} (spacing 0.2)" in messages[0]
        assert not few or caught[0].filename == __file__


def test_where_no_waves_are_nodes_do_not_count():
    k, c = _medium()
    k[0, 2, 3] = 0.0
    c[0, 4, 4] = 100.0
    mask = torch.ones(6, 9, dtype=torch.bool)
    mask[4, 4] = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solve_helmholtz(torch.ones_like(k), k, c, 0.5, 2 * math.pi / (4.1 * 0.1), 0.1, mask=mask)
    with pytest.warns(UserWarning, match="has 0.41 nodes"):
        solve_helmholtz(torch.ones_like(k), k, c, 0.5, 2 * math.pi / (4.1 * 0.1), 0.1)
