"""FNO's Darcy flow: scheme, law of the coefficient, files in the published layout, reader."""
# ruff: noqa: E402 - skipped before the imports where the extra is missing

import numpy as np
import pytest
import torch

h5py = pytest.importorskip("h5py")
scipy_io = pytest.importorskip("scipy.io")
pytest.importorskip("tqdm")

from kirchhoff import node_residual

import chonn_ops
from chonn_lab.problems import fno_darcy, origin
from chonn_lab.problems.domains import nodes

TRAIN, TEST = "piececonst_r9_N5_smooth1.mat", "piececonst_r9_N2_smooth2.mat"


def generate(folder, n_train=5, n_test=2, resolution=9, **options):
    folder.mkdir(exist_ok=True)
    return fno_darcy.generate(folder, n_train, n_test, resolution, progress=False, **options)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fno_darcy")
    generate(folder)
    return folder


def medium(resolution=9, sample=0):
    return np.where(fno_darcy.draw(0, "train", sample, resolution), 12.0, 3.0)


def test_second_order_convergence():
    errors = []
    for resolution in (17, 33, 65):
        x, y = np.meshgrid(*[nodes(resolution)] * 2, indexing="ij")
        a = 2 + x * y**2 + x
        u = np.sin(np.pi * x) * np.sin(2 * np.pi * y)
        u_x = np.pi * np.cos(np.pi * x) * np.sin(2 * np.pi * y)
        u_y = 2 * np.pi * np.sin(np.pi * x) * np.cos(2 * np.pi * y)
        f = 5 * np.pi**2 * a * u - (y**2 + 1) * u_x - 2 * x * y * u_y
        errors.append(np.abs(fno_darcy.solve(a, f) - u).max())
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert (orders > 1.9).all(), (errors, orders)
    assert errors[-1] < 1e-3


def test_kirchhoffs_law_at_every_node():
    a = medium(13)
    assert set(np.unique(a)) == {3.0, 12.0}
    u = fno_darcy.solve(a)
    assert np.abs(node_residual(a, u)).max() < 1e-10
    walls = np.concatenate([u[0], u[-1], u[:, 0], u[:, -1]])
    assert not walls.any()
    assert (u[1:-1, 1:-1] > 0).all()


def test_symmetries():
    a = medium(13, sample=1)
    u = fno_darcy.solve(a)
    assert not np.allclose(u, u.T)
    for change in (np.transpose, np.flipud, np.fliplr):
        np.testing.assert_allclose(fno_darcy.solve(change(a).copy()), change(u), rtol=1e-10)
    np.testing.assert_allclose(fno_darcy.solve(4 * a), u / 4, rtol=1e-10)


def test_coefficient_is_one_function_on_all_grids():
    fine, coarse = (fno_darcy.draw(3, "test", 7, resolution) for resolution in (41, 11))
    np.testing.assert_array_equal(fine[::4, ::4], coarse)


def test_coefficient_has_the_papers_law():
    """Both values alike likely, and neighbours alike as the covariance has it."""
    drawn = np.array([fno_darcy.draw(0, "train", i, 5) for i in range(60)])
    assert 0.4 < drawn.mean() < 0.6
    k = np.arange(64)
    variance = (np.pi**2 * (k[:, None] ** 2 + k**2) + 9) ** -2.0
    variance[0, 0] = 0
    weight = np.where(k[:, None], 2, 1) * np.where(k, 2, 1)
    here, there = (np.cos(np.pi * k * x) for x in (0.5, 0.75))

    def covariance(p, q):
        return (variance * weight * np.outer(p * q, here**2)).sum()

    correlation = covariance(here, there) / np.sqrt(
        covariance(here, here) * covariance(there, there)
    )
    # Signs of two jointly normal numbers differ with the probability acos(correlation) / pi.
    expected = np.arccos(correlation) / np.pi
    both = np.concatenate([drawn[:, 2, 2] != drawn[:, 3, 2], drawn[:, 2, 2] != drawn[:, 2, 3]])
    assert both.mean() == pytest.approx(expected, abs=0.12)


def test_layout_is_the_published_files_as_matlab_7_3(made):
    assert {path.name for path in made.iterdir()} == {TRAIN, TEST}
    assert (made / TRAIN).read_bytes().startswith(b"MATLAB 7.3 MAT-file")
    with h5py.File(made / TRAIN) as file:
        assert set(file) == {"coeff", "sol"}
        # What FNO's reader does with such a file.
        coeff, sol = (np.transpose(file[name][()]) for name in ("coeff", "sol"))
        assert file["sol"].attrs["MATLAB_class"] == b"single"
    assert (coeff.shape, sol.shape, coeff.dtype, sol.dtype) == (*[(5, 9, 9)] * 2, *["f4"] * 2)
    for sample in range(5):
        a = medium(sample=sample)
        np.testing.assert_array_equal(coeff[sample], a)
        np.testing.assert_allclose(sol[sample], fno_darcy.solve(a), rtol=1e-6)
    assert not np.array_equal(coeff[0], coeff[0].T)


def test_origin(made):
    for name, split, n_samples in ((TRAIN, "train", 5), (TEST, "test", 2)):
        found = origin.read(made / name)
        assert (found.official, found.generator, found.seed) == (False, "fno_darcy", 0)
        assert found.settings == {"split": split, "n_samples": n_samples, "resolution": 9}
        assert found.chonn_ops_version == chonn_ops.__version__


def test_samples_do_not_depend_on_their_number_or_workers(made, tmp_path):
    generate(tmp_path / "parallel", workers=2)
    for name in (TRAIN, TEST):
        assert (tmp_path / "parallel" / name).read_bytes() == (made / name).read_bytes()
    few = generate(tmp_path / "few", n_train=2, n_test=1)
    for path, name in zip(few, (TRAIN, TEST), strict=True):
        for one, all_ in zip(fno_darcy.read(path, 9), fno_darcy.read(made / name, 9), strict=True):
            torch.testing.assert_close(one, all_[: len(one)], rtol=0, atol=0)


def test_splits_and_seeds_differ(made, tmp_path):
    train, test = (fno_darcy.read(made / name, 9)[0] for name in (TRAIN, TEST))
    assert not torch.equal(train[:2], test)
    other = fno_darcy.read(generate(tmp_path, seed=1)[0], 9)[0]
    assert not torch.equal(train, other)


def test_reader_subsamples(made):
    a, u = fno_darcy.read(made / TRAIN, 3, start=1, stop=4)
    whole_a, whole_u = fno_darcy.read(made / TRAIN, 9)
    assert (a.shape, a.dtype, u.shape, u.dtype) == (*[(3, 3, 3), torch.float32] * 2,)
    assert torch.equal(a, whole_a[1:4, ::4, ::4])
    assert torch.equal(u, whole_u[1:4, ::4, ::4])


def test_reader_takes_matlab_5(made, tmp_path):
    a, u = fno_darcy.read(made / TRAIN, 9)
    path = tmp_path / "piececonst_r421_N1024_smooth1.mat"
    scipy_io.savemat(path, {"coeff": a.double().numpy(), "sol": u.double().numpy()})
    for found, expected in zip(fno_darcy.read(path, 5, 2), (a, u), strict=True):
        assert torch.equal(found, expected[2:, ::2, ::2])
    scipy_io.savemat(path, {"coeff": a.numpy()})
    with pytest.raises(ValueError, match="damaged, or not the expected MATLAB file"):
        fno_darcy.read(path, 5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((4,), r"smooth1\.mat: expected a resolution of 1 \+ a divisor of 8, got 4"),
        ((1,), "expected a resolution of 1 . a divisor of 8, got 1"),
        ((17,), "expected a resolution of 1 . a divisor of 8, got 17"),
        ((9, 2, 6), "expected samples 2 to 6, got a file of 5"),
    ],
)
def test_reader_refuses(made, arguments, message):
    with pytest.raises(ValueError, match=message):
        fno_darcy.read(made / TRAIN, *arguments)


def test_reader_of_other_files(made, tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        fno_darcy.read(tmp_path / "none.mat")
    cut = tmp_path / "cut.mat"
    cut.write_bytes((made / TRAIN).read_bytes()[:3000])
    with pytest.raises(ValueError, match="damaged"):
        fno_darcy.read(cut)
    with h5py.File(tmp_path / "other", "w") as file:
        file["coeff"] = np.zeros((3, 3, 2))
        file["sol"] = np.zeros((3, 4, 2))
    with pytest.raises(ValueError, match=r"one shape \(N, R, R\), got \(2, 3, 3\) and \(2, 4, 3\)"):
        fno_darcy.read(tmp_path / "other", 3)


def test_interrupted_call_goes_on_to_the_same_bytes(made, tmp_path, monkeypatch):
    solved, stop_after = [], 4

    def solve(a):
        if len(solved) == stop_after:
            raise KeyboardInterrupt
        solved.append(a)
        return earlier(a)

    earlier = fno_darcy.solve
    monkeypatch.setattr(fno_darcy, "solve", solve)
    with pytest.raises(KeyboardInterrupt):
        generate(tmp_path)
    parts = tmp_path / f".{TRAIN}.parts"
    # Whole parts only, of four samples.
    assert len(list(parts.rglob("output.pkl"))) == 1
    assert list(tmp_path.iterdir()) == [parts]
    solved.clear()
    stop_after = 1000
    generate(tmp_path)
    assert len(solved) == 1 + 2
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {
        p.name: p.read_bytes() for p in made.iterdir()
    }


def test_missing_file_is_made_the_same_and_others_are_refused(made, tmp_path):
    generate(tmp_path)
    (tmp_path / TEST).unlink()
    generate(tmp_path)
    assert (tmp_path / TEST).read_bytes() == (made / TEST).read_bytes()
    with pytest.raises(FileExistsError, match="output file exists"):
        generate(tmp_path)
    (tmp_path / TEST).unlink()
    with pytest.raises(FileExistsError, match=r"output file exists: .*smooth1\.mat"):
        generate(tmp_path, seed=1)
    (tmp_path / TRAIN).write_text("mine")
    with pytest.raises(FileExistsError, match=r"output file exists: .*smooth1\.mat"):
        generate(tmp_path)
    assert (tmp_path / TRAIN).read_text() == "mine"
    generate(tmp_path, force=True)
    assert (tmp_path / TRAIN).read_bytes() == (made / TRAIN).read_bytes()


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"n_train": 0}, "n_train: expected at least 1, got 0"),
        ({"n_test": 0}, "n_test: expected at least 1, got 0"),
        ({"resolution": 2}, "resolution: expected at least 3, got 2"),
        ({"seed": -1}, "seed: expected at least 0, got -1"),
        ({"workers": 0}, "workers: expected at least 1, got 0"),
    ],
)
def test_bad_arguments(tmp_path, argument, message):
    with pytest.raises(ValueError, match=message):
        generate(tmp_path, **argument)
    assert list(tmp_path.iterdir()) == []


def test_names_are_in_the_published_style():
    assert fno_darcy.OFFICIAL_NAMES == (
        "piececonst_r421_N1024_smooth1.mat",
        "piececonst_r421_N1024_smooth2.mat",
    )
    assert fno_darcy.file_name("train", 1000) not in fno_darcy.OFFICIAL_NAMES
    with pytest.raises(ValueError, match="split: expected one of train, test, got 'validation'"):
        fno_darcy.file_name("validation", 3)
