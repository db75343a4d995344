"""Advection and Burgers on a line: exact solutions, PDEBench's law of waves, layout, resuming."""
# ruff: noqa: E402 - skipped before the imports where the extra is missing

import hashlib
import json
import math

import numpy as np
import pytest

h5py = pytest.importorskip("h5py")
pytest.importorskip("scipy")
pytest.importorskip("tqdm")

from scipy.special import ive

from chonn_lab.problems import advection, burgers, origin
from chonn_lab.problems.advection import Wave, draw_wave

GENERATORS = {"advection": (advection, "beta", 0.4), "burgers": (burgers, "nu", 0.1)}


def sine(n=1, phase=0.0, offset=0.0):
    """sin(2 pi n x + phase) + offset."""
    numbers = np.array([n, 0]), np.array([1.0, offset]), np.array([phase, np.pi / 2])
    return Wave(*numbers)


def wave_of(kind):
    """The first plain, absolute or windowed one."""
    return next(
        wave
        for wave in (draw_wave(0, i) for i in range(200))
        if (wave.absolute, bool(wave.window)) == (kind == "absolute", kind == "windowed")
    )


def centres(resolution):
    return (np.arange(resolution) + 0.5) / resolution


def test_waves_have_pdebenchs_law():
    waves = [draw_wave(3, i) for i in range(2000)]
    assert {wave.sign for wave in waves} == {-1.0, 1.0}
    for share in (np.mean([w.absolute for w in waves]), np.mean([bool(w.window) for w in waves])):
        assert 0.08 < share < 0.12
    counts = [tuple(wave.wavenumbers // [1, 2, 3, 4]) for wave in waves]
    assert all(sum(count) == 2 for count in counts)
    # The same one twice: one in four.
    assert 0.22 < np.mean([2 in count for count in counts]) < 0.28
    amplitudes = np.concatenate([wave.amplitudes for wave in waves])
    phases = np.concatenate([wave.phases for wave in waves]) / (2 * np.pi)
    for uniform in (amplitudes, phases):
        assert 0 <= uniform.min() < 0.01 < 0.99 < uniform.max() < 1
        assert uniform.mean() == pytest.approx(0.5, abs=0.02)
    windows = np.array([wave.window for wave in waves if wave.window])
    assert (windows.min(axis=0) > [0.1, 0.55]).all()
    assert (windows.max(axis=0) < [0.45, 0.9]).all()


@pytest.mark.parametrize("kind", ["plain", "absolute", "windowed"])
def test_waves_are_periodic_and_what_they_say(kind):
    wave = wave_of(kind)
    x = np.linspace(0, 1, 500, endpoint=False)
    expected = np.zeros(500)
    for a, n, p in zip(wave.amplitudes, wave.wavenumbers, wave.phases, strict=True):
        expected += a * np.sin(2 * np.pi * n * x + p)
    expected = wave.sign * (np.abs(expected) if wave.absolute else expected)
    if wave.window is None:
        np.testing.assert_allclose(wave(x), expected, atol=1e-12)
    else:
        low, high = wave.window
        inside = (x > low + 0.1) & (x < high - 0.1)
        outside = (x < low - 0.05) | (x > high + 0.05)
        np.testing.assert_allclose(wave(x)[inside], expected[inside], atol=1e-8)
        assert np.abs(wave(x)[outside]).max() < 2e-4
    np.testing.assert_allclose(wave(x + 3), wave(x), atol=1e-12)


def test_advection_shifts_by_whole_cells_exactly():
    # One cell a frame.
    u = advection.solve(draw_wave(1, 0), beta=0.5, resolution=64, n_frames=65)
    for frame in (1, 20, 64):
        np.testing.assert_allclose(u[frame], np.roll(u[0], frame), atol=1e-12)
    assert np.abs(u[0] - u[1]).max() > 0.01


def test_advection_between_cells():
    u = advection.solve(sine(2), beta=4.0, resolution=32, n_frames=201)
    t = 0.01 * np.arange(201)[:, None]
    np.testing.assert_allclose(u, np.sin(4 * np.pi * (centres(32) - 4 * t)), atol=1e-12)


@pytest.mark.parametrize("nu", [0.05, 0.4])
def test_burgers_of_a_sine_in_closed_form(nu):
    d, x = nu / math.pi, centres(32)
    u = burgers.solve(sine(), nu, 32, 201)
    for frame in (1, 30, 200):
        t = 0.01 * frame
        # phi at t = 0 is exp(a cos 2 pi x), whose coefficients are Bessel functions.
        n, a = np.arange(1, 40), 1 / (4 * np.pi * d)
        decay = 2 * ive(n, a) * np.exp(-d * (2 * np.pi * n) ** 2 * t)
        angle = 2 * np.pi * np.multiply.outer(x, n)
        phi = ive(0, a) + np.cos(angle) @ decay
        exact = 2 * d * (np.sin(angle) @ (2 * np.pi * n * decay)) / phi
        np.testing.assert_allclose(u[frame], exact, atol=1e-9 * max(1.0, np.abs(exact).max()))


@pytest.mark.parametrize("kind", ["absolute", "windowed"])
def test_burgers_of_the_thinnest_shocks_against_one_long_step(kind):
    """The formula from t = 0 at once, by brute force on a fine grid."""
    wave = wave_of(kind)
    nu, t, n = 1e-3, 0.3, 1 << 15
    d = nu / math.pi
    u = burgers.solve(wave, nu, 32, 201)[30]
    y = (np.arange(-2 * n, 3 * n) + 0.5) / n
    integral = np.cumsum(wave(y)) / n - wave(y) / (2 * n)
    for i in range(0, 32, 3):
        distance = centres(32)[i] - y
        exponent = -(distance**2 / (2 * t) + integral) / (2 * d)
        weight = np.exp(exponent - exponent.max())
        exact = (weight @ distance) / weight.sum() / t
        assert u[i] == pytest.approx(exact, abs=2e-4)


def test_burgers_solves_the_equation():
    """Against a Fourier method in time, which knows nothing of the transform."""
    n, nu = 128, 0.1
    d, wave = nu / math.pi, draw_wave(4, 2)
    assert wave.window is None
    assert not wave.absolute
    u = burgers.solve(wave, nu, n, 201)
    k = 2j * np.pi * np.fft.rfftfreq(n, 1 / n)
    dt = 2.5e-4
    decay = np.exp(d * k**2 * dt / 2)
    kept = np.abs(k) < 2 * np.pi * n / 3

    def rate(spectrum):
        return -k / 2 * np.fft.rfft(np.fft.irfft(spectrum, n) ** 2) * kept

    v = np.fft.rfft(wave(centres(n)))
    for _ in range(400):
        # Runge and Kutta's fourth order, diffusion by an integrating factor.
        a = rate(v)
        b = rate(decay * (v + dt / 2 * a))
        c = rate(decay * v + dt / 2 * b)
        e = rate(decay**2 * v + dt * decay * c)
        v = decay**2 * v + dt / 6 * (decay**2 * a + 2 * decay * (b + c) + e)
    np.testing.assert_allclose(u[10], np.fft.irfft(v, n), atol=1e-6)


def test_burgers_keeps_its_mean_its_range_and_the_frame_of_reference():
    wave = draw_wave(0, 1)
    u = burgers.solve(wave, 0.01, 256, 41)
    np.testing.assert_allclose(u.mean(axis=1), u[0].mean(), atol=2e-4)
    assert np.abs(u).max() <= np.abs(wave(np.linspace(0, 1, 5000))).max() + 1e-9
    # Seen from a frame that moves by one cell a frame.
    speed = 20 / 256
    rest, moving = (burgers.solve(sine(offset=o), 0.01, 256, 41) for o in (0.0, speed))
    for frame in (1, 13, 40):
        expected = speed + np.roll(rest[frame], frame)
        np.testing.assert_allclose(moving[frame], expected, atol=1e-9)


@pytest.mark.parametrize("kind", ["plain", "absolute", "windowed"])
def test_burgers_on_a_finer_grid_is_the_same(monkeypatch, kind):
    coarse = burgers.solve(wave_of(kind), 0.001, 16, 5)
    monkeypatch.setattr(burgers, "LEAST_POINTS", 6144)
    fine = burgers.solve(wave_of(kind), 0.001, 16, 5)
    np.testing.assert_allclose(coarse, fine, atol=1e-4)


@pytest.mark.parametrize("name", GENERATORS)
def test_layout_is_pdebenchs(tmp_path, name):
    problem, parameter, value = GENERATORS[name]
    path = problem.generate(
        tmp_path / "out.hdf5", 3, 32, value, n_frames=201, seed=5, progress=False
    )
    with h5py.File(path) as file:
        shapes = {key: (file[key].shape, file[key].dtype) for key in file}
        assert file.attrs[{"beta": "beta", "nu": "Nu"}[parameter]] == value
        np.testing.assert_allclose(file["t-coordinate"], 0.01 * np.arange(202), atol=1e-6)
        np.testing.assert_allclose(file["x-coordinate"], centres(32), atol=1e-7)
    assert shapes == {
        "tensor": ((3, 201, 32), np.float32),
        "x-coordinate": ((32,), np.float32),
        "t-coordinate": ((202,), np.float32),
    }
    u = problem.read(path)
    np.testing.assert_allclose(u[2], problem.solve(draw_wave(5, 2), value, 32, 201), atol=1e-6)
    np.testing.assert_array_equal(problem.read(path, 1, 2), u[1:2])
    assert origin.read(path).seed == 5


@pytest.mark.parametrize("name", GENERATORS)
def test_a_sample_is_the_same_in_any_company_and_on_any_grid(tmp_path, monkeypatch, name):
    problem, _, value = GENERATORS[name]
    small = problem.generate(tmp_path / "a", 2, 16, value, 5, seed=1, progress=False)
    monkeypatch.setattr(advection, "SAMPLES_PER_PART", 3)
    # Processes take seconds to start: for one of the two.
    workers = 2 if problem is burgers else 1
    large = tmp_path / "b"
    problem.generate(large, 5, 16, value, 5, seed=1, workers=workers, progress=False)
    np.testing.assert_array_equal(problem.read(small), problem.read(large, 0, 2))
    fine = problem.generate(tmp_path / "c", 2, 48, value, 5, seed=1, progress=False)
    np.testing.assert_allclose(problem.read(small), problem.read(fine)[..., 1::3], atol=2e-5)


@pytest.mark.parametrize("name", GENERATORS)
def test_goes_on_after_an_interruption(tmp_path, monkeypatch, name):
    problem, _, value = GENERATORS[name]
    monkeypatch.setattr(advection, "SAMPLES_PER_PART", 2)
    solve, drawn = draw_wave, []

    def interrupted(seed, sample):
        drawn.append(sample)
        if len(drawn) == 4:
            raise KeyboardInterrupt
        return solve(seed, sample)

    monkeypatch.setattr(problem, "draw_wave", interrupted)
    path = tmp_path / "out.hdf5"
    with pytest.raises(KeyboardInterrupt):
        problem.generate(path, 6, 16, value, 3, progress=False)
    assert not path.exists()
    problem.generate(path, 6, 16, value, 3, progress=False)
    assert drawn == [0, 1, 2, 3, 2, 3, 4, 5]
    assert [file.name for file in tmp_path.iterdir()] == ["out.hdf5"]
    whole = problem.generate(tmp_path / "whole", 6, 16, value, 3, progress=False)
    np.testing.assert_array_equal(problem.read(path), problem.read(whole))


@pytest.mark.parametrize(
    ("problem", "arguments", "message"),
    [
        (advection, {"beta": 0.0}, "beta: expected positive and finite, got 0.0"),
        (advection, {"beta": math.inf}, "beta: expected positive and finite, got inf"),
        (burgers, {"nu": 5e-4}, "nu: expected at least 0.001 and finite, got 0.0005"),
        (advection, {"resolution": 8}, "resolution: expected at least 16, got 8"),
        (burgers, {"n_frames": 1}, "n_frames: expected at least 2, got 1"),
        (burgers, {"seed": -1}, "seed: expected at least 0, got -1"),
    ],
)
def test_bad_arguments(tmp_path, problem, arguments, message):
    with pytest.raises(ValueError, match=message):
        problem.generate(tmp_path / "out", 2, **arguments)
    assert list(tmp_path.iterdir()) == []


def test_foreign_and_damaged_files(tmp_path):
    path = advection.generate(tmp_path / "out", 2, 16, 0.4, 3, progress=False)
    with pytest.raises(FileExistsError, match="output file exists"):
        advection.generate(path, 2, 16, 0.4, 3, progress=False)
    with pytest.raises(ValueError, match="expected samples 0 to 5, got a file of 2"):
        advection.read(path, 0, 5)
    with h5py.File(tmp_path / "darcy", "w") as file:
        file["tensor"] = np.zeros((2, 1, 4, 4))
    with pytest.raises(ValueError, match=r"tensor: expected 3 axes, got shape \(2, 1, 4, 4"):
        advection.read(tmp_path / "darcy")
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(ValueError, match="damaged"):
        burgers.read(path)


def test_names_and_checksums_of_the_published_files(tmp_path, monkeypatch):
    assert advection.file_name(0.4) == "1D_Advection_Sols_beta0.4.hdf5"
    assert burgers.file_name(1) == "1D_Burgers_Sols_Nu1.0.hdf5"
    path = tmp_path / advection.file_name(2)
    with h5py.File(path, "w") as file:
        file["tensor"] = np.zeros((1, 2, 3))
    assert origin.identify(path).official is False
    checksum = hashlib.md5(path.read_bytes()).hexdigest()
    monkeypatch.setattr(origin, "CHECKSUMS", {advection.file_name(2.0): checksum})
    assert origin.identify(path).official is True
    assert json.dumps(origin.identify(path).record())


def test_amplitudes_do_not_depend_on_rare_features():
    """So that a law with other shares of them has the same sines."""
    one = draw_wave(0, 5)
    rng = np.random.default_rng(np.random.SeedSequence(0, spawn_key=(5,)))
    drawn = rng.integers(1, advection.N_WAVENUMBERS + 1, 2)
    counts = [int((drawn == n).sum()) for n in (1, 2, 3, 4)]
    np.testing.assert_array_equal(one.wavenumbers, np.array([1, 2, 3, 4]) * counts)
    np.testing.assert_array_equal(one.amplitudes, rng.random(4))
