"""Order-defined benchmark: targets against closed forms and an independent solver."""
# ruff: noqa: E402 - skipped before the imports where the extra is missing

import numpy as np
import pytest
import scipy.special

h5py = pytest.importorskip("h5py")

from chonn_lab.problems import order1d

SIZES = {"train": 5, "validation": 3, "test": 2}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "order1d.hdf5"
    order1d.generate(path, *SIZES.values(), progress=False)
    return path


@pytest.mark.parametrize("mode", [0, 1, 7, 63])
def test_single_mode_closed_form(mode):
    s = np.arange(256) / 256
    x = np.cos(2 * np.pi * mode * s + 0.3)
    for order, y in enumerate(order1d.targets(x), start=1):
        # -d_ss cos(ks) = k^2 cos(ks) with the angular k.
        expected = x / (1 + 0.08**2 * (2 * np.pi * mode) ** 2) ** order
        np.testing.assert_allclose(y, expected, atol=1e-14)


def finite_difference_operator(n, tau):
    """(n, n) of I - tau^2 d_ss, second order, periodic."""
    second = -2 * np.eye(n) + np.eye(n, k=1) + np.eye(n, k=-1)
    second[0, -1] = second[-1, 0] = 1
    return np.eye(n) - tau**2 * n**2 * second


@pytest.mark.parametrize("order", order1d.ORDERS)
def test_converges_to_a_dense_finite_difference_solve(order):
    errors = []
    for n in (256, 512, 1024):
        x = order1d.draw_signals(2, seed=3, resolution=n)
        operator = finite_difference_operator(n, order1d.TAU)
        solution = x.T
        for _ in range(order):
            solution = np.linalg.solve(operator, solution)
        y = order1d.targets(x)[:, order - 1]
        errors.append(np.linalg.norm(solution.T - y) / np.linalg.norm(y))
    assert errors[0] < 5e-3
    ratios = np.log2(np.array(errors[:-1]) / errors[1:])
    np.testing.assert_allclose(ratios, 2, atol=0.1)


def test_target_is_exact_for_the_continuous_equation():
    coarse = order1d.draw_signals(20, seed=5, resolution=256)
    fine = order1d.draw_signals(20, seed=5, resolution=1024)
    np.testing.assert_allclose(fine[:, ::4], coarse, atol=1e-12)
    np.testing.assert_allclose(order1d.targets(fine)[..., ::4], order1d.targets(coarse), atol=1e-12)


def test_pulse_has_the_free_space_solution():
    """T1 of a narrow pulse is the Gaussian convolved with exp(-|s| / tau) / (2 tau)."""
    s = np.arange(2048) / 2048
    tau, width = 0.01, 0.02
    x = np.exp(-0.5 * ((s - 0.5) / width) ** 2)
    z, a, b = s - 0.5, width / tau, np.sqrt(2) * width
    tails = [
        np.exp(a**2 / 2 + sign * z / tau) * scipy.special.erfc((sign * z + width * a) / b)
        for sign in (1, -1)
    ]
    expected = width / tau * np.sqrt(np.pi / 2) / 2 * sum(tails)
    near = np.abs(z) < 0.2
    np.testing.assert_allclose(order1d.targets(x, tau)[0, near], expected[near], atol=1e-8)


def test_input_statistics():
    x = order1d.draw_signals(3000, seed=0)
    power = (np.abs(np.fft.rfft(x) / 256) ** 2).mean(0) * 2
    # Pulses add to both bands, their power falling off with the wavenumber.
    assert power[1:5].sum() == pytest.approx(1, rel=0.25)
    assert power[5:65].sum() == pytest.approx(0.25, rel=0.4)
    assert power[60:65].sum() == pytest.approx(5 / 240, rel=0.1)
    assert power[80:].sum() < 1e-3
    excess = x - x.mean(1, keepdims=True)
    assert ((excess**4).mean() / (excess**2).mean() ** 2) > 3


def test_layout(path):
    with h5py.File(path) as file:
        assert sorted(file) == ["s", "test", "train", "validation"]
        assert file.attrs["tau"] == 0.08
        assert "order1d generator" in file.attrs["source"]
        assert [file[split].attrs["seed"] for split in SIZES] == [42, 43, 44]
        for split, n in SIZES.items():
            x, y = file[split]["x"], file[split]["y"]
            assert (x.shape, y.shape) == ((n, 256), (n, 4, 256))
            assert x.dtype == y.dtype == np.float32
            np.testing.assert_allclose(y, order1d.targets(x[...]), atol=1e-6)
        np.testing.assert_array_equal(file["s"], (np.arange(256) / 256).astype("f4"))


def test_splits_differ_and_are_reproducible(path, tmp_path):
    x, y = order1d.read(path, "train", 2)
    assert (x.shape, y.shape, x.dtype) == ((5, 256), (5, 256), np.float32)
    other, _ = order1d.read(path, "test", 2)
    assert not np.array_equal(x[:2], other)
    more = tmp_path / "more.hdf5"
    order1d.generate(more, 9, 1, 1, progress=False)
    x_more, y_more = order1d.read(more, "train", 2)
    # One more row may change the last bit of a matrix product.
    np.testing.assert_allclose(x_more[:5], x, atol=1e-6)
    np.testing.assert_allclose(y_more[:5], y, atol=1e-6)


def test_read_takes_the_first_samples(path):
    x, y = order1d.read(path, "train", 4, n_samples=2)
    whole_x, whole_y = order1d.read(path, "train", 4)
    np.testing.assert_array_equal(x, whole_x[:2])
    np.testing.assert_array_equal(y, whole_y[:2])
    with pytest.raises(ValueError, match="6 samples of train asked for, 5 there"):
        order1d.read(path, "train", 4, n_samples=6)


@pytest.mark.parametrize(
    ("split", "order"), [("val", 1), ("train", 0), ("train", 5)], ids=["split", "0", "5"]
)
def test_read_checks_its_arguments(path, split, order):
    with pytest.raises(ValueError, match=r"expected a split of .* and an order of"):
        order1d.read(path, split, order)


def test_damaged_file(path, tmp_path):
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"order1d\.hdf5: damaged, or not the expected"):
        order1d.read(path, "train", 1)
    with pytest.raises(FileNotFoundError, match="no such file"):
        order1d.read(tmp_path / "other.hdf5", "train", 1)
    with h5py.File(tmp_path / "empty.hdf5", "w"):
        pass
    with pytest.raises(ValueError, match=r"empty\.hdf5: damaged, or not the expected"):
        order1d.read(tmp_path / "empty.hdf5", "train", 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_test": 0}, "n_test: expected at least 1, got 0"),
        ({"seed": -1}, "seed: expected at least 0, got -1"),
        ({"resolution": 128}, "resolution: expected at least 256, got 128"),
    ],
    ids=["empty-split", "seed", "resolution"],
)
def test_bad_arguments(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        order1d.generate(tmp_path / "x.hdf5", progress=False, **arguments)
    assert list(tmp_path.iterdir()) == []


def test_existing_file_is_kept_without_force(path):
    before = path.read_bytes()
    with pytest.raises(FileExistsError, match="--force"):
        order1d.generate(path, *SIZES.values(), progress=False)
    assert path.read_bytes() == before
    order1d.generate(path, *SIZES.values(), seed=1, force=True, progress=False)
    assert path.read_bytes() != before
