"""Navier-Stokes data: solver against exact flows and itself, random field, layout, reader."""
# ruff: noqa: E402 - skipped before the imports where the extra is missing

import math

import numpy as np
import pytest
import torch

h5py = pytest.importorskip("h5py")
scipy_io = pytest.importorskip("scipy.io")
pytest.importorskip("tqdm")

from chonn_lab.problems import navier_stokes, vorticity_solver
from chonn_lab.problems.vorticity_solver import solve

SMALL = {"resolution": 8, "solver_resolution": 16, "step": 0.05, "progress": False}


def relative(a, b):
    return ((a - b).norm() / b.norm()).item()


def grid(n):
    x = torch.arange(n, dtype=torch.float64) / n
    return torch.meshgrid(x, x, indexing="ij")


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


def test_forced_laminar_flow():
    """The forcing's own mode grows from rest as f (1 - exp(-nu k^2 t)) / (nu k^2)."""
    f = navier_stokes.forcing(32)
    rate = 1e-3 * 2 * (2 * math.pi) ** 2
    w = solve(torch.zeros(1, 32, 32, dtype=torch.float64), f, 8, 0.02)[0]
    for t, frame in enumerate(w, start=1):
        expected = f * (1 - math.exp(-rate * t)) / rate
        torch.testing.assert_close(frame, expected, rtol=1e-6, atol=1e-12)


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


def test_inviscid_flow_keeps_energy_and_enstrophy():
    w0 = navier_stokes.draw_vorticity(np.random.default_rng(0), 1, 48, "fno-code")
    w = torch.cat([w0[:, None], solve(w0, torch.zeros(48, 48), 2, 0.01, nu=0.0)], dim=1)[0]
    k1, k2 = vorticity_solver.angular_wavenumbers(48, w0.device)
    square = k1**2 + k2**2
    square[0, 0] = 1
    weights = torch.full((25,), 2.0, dtype=torch.float64)
    weights[0] = weights[-1] = 1
    spectrum = torch.fft.rfft2(w).abs() ** 2 * weights
    for invariant in (spectrum.sum((1, 2)), (spectrum / square).sum((1, 2))):
        torch.testing.assert_close(invariant[1:], invariant[:1].expand(2), rtol=1e-4, atol=0)
    assert relative(w[2], w[0]) > 0.3


def test_half_the_step_and_twice_the_grid():
    w0 = navier_stokes.draw_vorticity(np.random.default_rng(1), 2, 64, "fno-code")
    coarse_w0 = navier_stokes.draw_vorticity(np.random.default_rng(1), 2, 32, "fno-code")
    f = navier_stokes.forcing(64)
    whole, half, quarter = (solve(w0, f, 2, step) for step in (0.02, 0.01, 0.005))
    first, second = relative(whole, half), relative(half, quarter)
    assert first < 1e-4
    assert math.log2(first / second) == pytest.approx(2, abs=0.2)
    coarse = solve(coarse_w0, navier_stokes.forcing(32), 2, 0.01)
    assert relative(coarse, half[..., ::2, ::2]) < 1e-3


def test_too_long_a_step_is_an_error():
    w0 = navier_stokes.draw_vorticity(np.random.default_rng(1), 1, 64, "fno-code")
    with pytest.raises(ValueError, match=r"step 0\.5 is too long"):
        solve(30 * w0, navier_stokes.forcing(64), 20, 0.5)


def test_steps_divide_the_interval():
    w0 = navier_stokes.draw_vorticity(np.random.default_rng(1), 1, 16, "paper")
    f = navier_stokes.forcing(16)
    # 0.3 does not divide 1: four steps of 0.25 it is. 0.1 does, though not in binary.
    torch.testing.assert_close(solve(w0, f, 1, 0.3), solve(w0, f, 1, 0.25), rtol=0, atol=0)
    assert not torch.equal(solve(w0, f, 1, 0.1), solve(w0, f, 1, 1 / 11))


@pytest.mark.parametrize(("field", "factor"), [("paper", 7**1.5), ("fno-code", 2 * 7**3)])
def test_random_field_has_the_stated_covariance(field, factor):
    n = 16
    w = navier_stokes.draw_vorticity(np.random.default_rng(0), 300, n, field)
    power = (torch.fft.fft2(w, norm="forward").abs() ** 2).mean(0)
    for mode in ((1, 0), (0, 1), (2, 1), (3, -2)):
        expected = factor * (4 * math.pi**2 * (mode[0] ** 2 + mode[1] ** 2) + 49) ** -2.5
        assert power[mode].item() == pytest.approx(expected, rel=0.25)
    assert power[0, 0] < 1e-20
    assert w.dtype == torch.float64


def test_fno_code_field_is_that_of_the_fno_generator():
    """Its recipe: real part of the transform of 2 N(0, 1) noises times size^2 sqrt(2) sigma ..."""
    n, tau, alpha = 16, 7, 2.5
    k = 2 * math.pi * np.fft.fftfreq(n, 1 / n)
    root = (
        n**2 * math.sqrt(2) * tau ** (alpha - 1) * (k[:, None] ** 2 + k**2 + tau**2) ** (-alpha / 2)
    )
    root[0, 0] = 0
    noise = np.random.default_rng(0).standard_normal((2, 400, n, n))
    theirs = np.fft.ifft2(root * (noise[0] + 1j * noise[1])).real
    ours = navier_stokes.draw_vorticity(np.random.default_rng(1), 400, n, "fno-code").numpy()
    assert ours.std() == pytest.approx(theirs.std(), rel=0.05)


def test_same_seed_same_field_on_another_grid():
    fine = navier_stokes.draw_vorticity(np.random.default_rng(0), 2, 256)
    coarse = navier_stokes.draw_vorticity(np.random.default_rng(0), 2, 64)
    # What the coarse grid cannot carry is cut, not folded back.
    assert relative(fine[:, ::4, ::4], coarse) < 1e-2


@pytest.fixture
def path(tmp_path):
    return navier_stokes.generate(tmp_path / "ns.mat", 5, 3, seed=2, batch_size=2, **SMALL)


def test_layout_is_that_of_the_published_file(path):
    with open(path, "rb") as raw:
        header = raw.read(128)
    assert header.startswith(b"MATLAB 7.3 MAT-file")
    assert header[124:] == b"\x00\x02IM"
    # SciPy recognises version 7.3 and refers to HDF5, which is what readers of these files expect.
    with pytest.raises(NotImplementedError, match="HDF"):
        scipy_io.loadmat(path)
    with h5py.File(path) as file:
        shapes = {name: (file[name].shape, file[name].dtype) for name in file}
        assert shapes == {
            "a": ((8, 8, 5), np.float32),
            "u": ((3, 8, 8, 5), np.float32),
            "t": ((3, 1), np.float32),
        }
        np.testing.assert_array_equal(file["t"][:, 0], [1, 2, 3])
        assert file["u"].attrs["MATLAB_class"] == b"single"
        assert "seed 2, field paper, solver 16, step 0.05" in file.attrs["source"]
        # Readers reverse the axes: (N, R, R, T).
        a, u = file["a"][...].T, file["u"][...].T
    w0 = navier_stokes.draw_vorticity(np.random.default_rng(2), 5, 16)
    w = solve(w0, navier_stokes.forcing(16), 3, 0.05).numpy()
    np.testing.assert_allclose(a, w0[:, ::2, ::2], atol=1e-6)
    np.testing.assert_allclose(u, w[:, :, ::2, ::2].transpose(0, 2, 3, 1), atol=1e-6)
    np.testing.assert_allclose(navier_stokes.read(path), w[:, :, ::2, ::2], atol=1e-6)


def test_data_do_not_depend_on_the_batch(path, tmp_path):
    other = navier_stokes.generate(tmp_path / "b.mat", 3, 3, seed=2, batch_size=3, **SMALL)
    np.testing.assert_allclose(navier_stokes.read(other), navier_stokes.read(path, 0, 3), atol=1e-6)
    third = navier_stokes.generate(tmp_path / "c.mat", 3, 3, seed=3, batch_size=3, **SMALL)
    assert not np.allclose(navier_stokes.read(third), navier_stokes.read(other))


def test_read_of_a_version_5_file(tmp_path):
    u = np.random.default_rng(0).random((4, 6, 6, 3)).astype("f4")
    scipy_io.savemat(tmp_path / "v5.mat", {"u": u, "a": u[..., 0], "t": np.arange(3)})
    np.testing.assert_array_equal(
        navier_stokes.read(tmp_path / "v5.mat", 1, 3), u[1:3].transpose(0, 3, 1, 2)
    )
    with pytest.raises(ValueError, match="expected samples 0 to 5, got a file of 4"):
        navier_stokes.read(tmp_path / "v5.mat", 0, 5)


def test_read_errors(path, tmp_path):
    with pytest.raises(ValueError, match="expected samples 5 to None, got a file of 5"):
        navier_stokes.read(path, 5)
    with pytest.raises(FileNotFoundError, match="no such file"):
        navier_stokes.read(tmp_path / "none.mat")
    (tmp_path / "garbage.mat").write_bytes(bytes(range(256)) * 10)
    with pytest.raises(ValueError, match=r"garbage\.mat: damaged, or not the expected MATLAB"):
        navier_stokes.read(tmp_path / "garbage.mat")
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(ValueError, match=r"ns\.mat: damaged"):
        navier_stokes.read(path)
    scipy_io.savemat(tmp_path / "other.mat", {"v": np.zeros(3)})
    with pytest.raises(ValueError, match=r"other\.mat: damaged, or not the expected MATLAB"):
        navier_stokes.read(tmp_path / "other.mat")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_samples": 0}, "n_samples: expected at least 1, got 0"),
        ({"n_frames": 0}, "n_frames: expected at least 1, got 0"),
        ({"resolution": 2}, "resolution: expected at least 4, got 2"),
        ({"seed": -1}, "seed: expected at least 0, got -1"),
        ({"batch_size": 0}, "batch_size: expected at least 1, got 0"),
        ({"solver_resolution": 96}, "a multiple of resolution 64, got 96"),
        ({"solver_resolution": 32}, "a multiple of resolution 64, got 32"),
        ({"step": 0.0}, "step: expected above 0 and at most 1, got 0"),
        ({"field": "fno"}, r"field: expected one of \['paper', 'fno-code'\], got 'fno'"),
    ],
    ids=lambda value: "-".join(map(str, *value.items())) if isinstance(value, dict) else None,
)
def test_bad_arguments(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        navier_stokes.generate(tmp_path / "x.mat", **arguments)
    assert list(tmp_path.iterdir()) == []


def test_default_name():
    assert navier_stokes.default_name() == "ns_V1e-3_N1200_T50.mat"
