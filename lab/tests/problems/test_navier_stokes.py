"""Navier-Stokes data: solver against exact flows and itself, random field, MATLAB's versions."""

import math

import numpy as np
import pytest
import scipy.io
import torch

from chonn_lab.problems import navier_stokes
from chonn_lab.problems.navier_stokes import solve

SMALL = {"resolution": 8, "solver_resolution": 16, "step": 0.05, "progress": False}


def relative(a, b):
    return ((a - b).norm() / b.norm()).item()


def grid(n):
    x = torch.arange(n, dtype=torch.float64) / n
    return torch.meshgrid(x, x, indexing="ij")


def flow(seed, n_samples, n):
    """Strong vorticity, on which errors show."""
    return 6.1 * navier_stokes.draw_vorticity(np.random.default_rng(seed), n_samples, n)


@pytest.mark.parametrize("step", [0.1, 0.05])
def test_taylor_green_decay(step):
    """Transport vanishes for one Laplace eigenfunction: w decays as exp(-nu k^2 t)."""
    x, y = grid(32)
    w0 = torch.sin(2 * math.pi * x) * torch.sin(2 * math.pi * y)
    rate = 0.01 * 2 * (2 * math.pi) ** 2
    w = solve(w0[None], torch.zeros(32, 32), 3, step, nu=0.01)[0]
    for t, frame in enumerate(w, start=1):
        # Crank-Nicolson's error: rate^3 step^2 t / 12.
        expected = math.exp(-rate * t) * w0
        assert relative(frame, expected) == pytest.approx(rate**3 * step**2 * t / 12, rel=0.1)


def test_forcing_as_written_in_the_paper():
    f = navier_stokes.forcing(8)
    for i, j in ((0, 0), (1, 0), (3, 6)):
        z = 2 * math.pi * (i / 8 + j / 8)
        assert f[i, j].item() == pytest.approx(0.1 * (math.sin(z) + math.cos(z)))


def test_rate_of_change_in_closed_form():
    """Signs and factors: the first moments against derivatives taken by hand."""
    x, y = (2 * math.pi * axis for axis in grid(32))
    nu, k, step = 0.02, 2 * math.pi, 1e-4
    w0 = torch.cos(x) + torch.sin(2 * y) + 0.5 * torch.cos(x + y)
    psi = torch.cos(x) + torch.sin(2 * y) / 4 + 0.25 * torch.cos(x + y)  # Times 1 / k^2.
    w_x = -torch.sin(x) - 0.5 * torch.sin(x + y)
    w_y = 2 * torch.cos(2 * y) - 0.5 * torch.sin(x + y)
    psi_x = -torch.sin(x) - 0.25 * torch.sin(x + y)
    psi_y = 0.5 * torch.cos(2 * y) - 0.25 * torch.sin(x + y)
    laplace = -(k**2) * (torch.cos(x) + 4 * torch.sin(2 * y) + torch.cos(x + y))
    assert psi.mean().abs() < 1e-12
    f = navier_stokes.forcing(32)
    expected = -(psi_y * w_x - psi_x * w_y) + nu * laplace + f
    w = solve(w0[None], f, 1, step, interval=step, nu=nu)[0, 0]
    torch.testing.assert_close((w - w0) / step, expected, rtol=0, atol=1e-2)


def test_half_the_step_twice_the_grid_and_too_long_a_step():
    w0, coarse_w0, f = flow(1, 2, 64), flow(1, 2, 32), navier_stokes.forcing(64)
    whole, half, quarter = (solve(w0, f, 2, step) for step in (0.02, 0.01, 0.005))
    first, second = relative(whole, half), relative(half, quarter)
    assert first < 1e-4
    assert math.log2(first / second) == pytest.approx(2, abs=0.2)
    coarse = solve(coarse_w0, navier_stokes.forcing(32), 2, 0.01)
    assert relative(coarse, half[..., ::2, ::2]) < 1e-3
    with pytest.raises(ValueError, match=r"step 0\.5 is too long"):
        solve(30 * w0[:1], f, 20, 0.5)


def test_random_field_has_the_stated_covariance():
    w = navier_stokes.draw_vorticity(np.random.default_rng(0), 300, 16)
    power = (torch.fft.fft2(w, norm="forward").abs() ** 2).mean(0)
    for mode in ((1, 0), (0, 1), (2, 1), (3, -2)):
        expected = 7**1.5 * (4 * math.pi**2 * (mode[0] ** 2 + mode[1] ** 2) + 49) ** -2.5
        assert power[mode].item() == pytest.approx(expected, rel=0.25)
    assert power[0, 0] < 1e-20


def test_file_of_both_versions(tmp_path):
    path = navier_stokes.generate(tmp_path / "a.mat", 5, 3, seed=2, batch_size=2, **SMALL)
    # SciPy recognises version 7.3 and refers to HDF5, which is what readers of these files expect.
    with pytest.raises(NotImplementedError, match="HDF"):
        scipy.io.loadmat(path)
    w0 = navier_stokes.draw_vorticity(np.random.default_rng(2), 5, 16)
    w = solve(w0, navier_stokes.forcing(16), 3, 0.05).numpy()[:, :, ::2, ::2]
    np.testing.assert_allclose(navier_stokes.read(path), w, atol=1e-6)
    scipy.io.savemat(tmp_path / "5.mat", {"u": w.transpose(0, 2, 3, 1)})
    np.testing.assert_array_equal(navier_stokes.read(tmp_path / "5.mat", 1, 3), w[1:3].astype("f4"))
    for wrong in ({"v": w}, {"u": w[0]}):
        scipy.io.savemat(tmp_path / "6.mat", wrong)
        with pytest.raises(ValueError, match=r"6\.mat: (damaged|expected u of 4 axes)"):
            navier_stokes.read(tmp_path / "6.mat")


def test_inviscid_flow_keeps_energy_and_enstrophy():
    w0 = flow(0, 1, 48)
    w = torch.cat([w0[:, None], solve(w0, torch.zeros(48, 48), 2, 0.01, nu=0.0)], dim=1)[0]
    k1, k2 = navier_stokes.angular_wavenumbers(48, w0.device)
    square = k1**2 + k2**2
    square[0, 0] = 1
    weights = torch.full((25,), 2.0, dtype=torch.float64)
    weights[0] = weights[-1] = 1
    spectrum = torch.fft.rfft2(w).abs() ** 2 * weights
    for invariant in (spectrum.sum((1, 2)), (spectrum / square).sum((1, 2))):
        torch.testing.assert_close(invariant[1:], invariant[:1].expand(2), rtol=1e-4, atol=0)
    assert relative(w[2], w[0]) > 0.3
