"""Poisson data: the series against an independent solver, CNO's layout, the download."""
# ruff: noqa: E402 - skipped before the imports where the extra is missing

import hashlib
import io
import zipfile

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg

h5py = pytest.importorskip("h5py")
pooch = pytest.importorskip("pooch")

from chonn_lab.problems import download as downloading
from chonn_lab.problems import poisson


def direct_solve(f):
    """5-point finite differences with u = 0 on the boundary nodes, which are in the grid."""
    n = len(f)
    inner, h = n - 2, 1 / (n - 1)
    second = scipy.sparse.diags([1.0, -2.0, 1.0], [-1, 0, 1], shape=(inner, inner)) / h**2
    identity = scipy.sparse.identity(inner)
    laplace = scipy.sparse.kron(second, identity) + scipy.sparse.kron(identity, second)
    u = np.zeros_like(f)
    u[1:-1, 1:-1] = scipy.sparse.linalg.spsolve(-laplace.tocsc(), f[1:-1, 1:-1].ravel()).reshape(
        inner, inner
    )
    return u


@pytest.mark.parametrize("k", [3, poisson.K_IN])
def test_converges_to_a_sparse_direct_solve(k):
    a = np.random.default_rng(0).uniform(-1, 1, (k, k))
    errors = []
    for n in (65, 129, 257):
        f, u = poisson.fields(a, n)
        errors.append(np.linalg.norm(direct_solve(f) - u) / np.linalg.norm(u))
    assert errors[-1] < 2e-3
    # Second order.
    ratios = np.log2(np.array(errors[:-1]) / errors[1:])
    np.testing.assert_allclose(ratios, 2, atol=0.05)


def test_series_as_written_in_the_paper():
    k, n = 4, 9
    a = np.random.default_rng(1).uniform(-1, 1, (k, k))
    expected = np.zeros((n, n))
    for p in range(n):
        for q in range(n):
            x, y = p / (n - 1), q / (n - 1)
            for i in range(1, k + 1):
                for j in range(1, k + 1):
                    mode = np.sin(np.pi * i * x) * np.sin(np.pi * j * y)
                    expected[p, q] += np.pi / k**2 * a[i - 1, j - 1] * (i**2 + j**2) ** 0.5 * mode
    f, u = poisson.fields(a, n)
    np.testing.assert_allclose(f, expected, atol=1e-12)
    for field in (f, u):
        assert not field[[0, -1]].any()
        assert not field[:, [0, -1]].any()


@pytest.fixture
def folder(tmp_path):
    poisson.generate(tmp_path, n_in=1160, n_out=3, progress=False)
    return tmp_path


def test_layout(folder):
    names = [poisson.file_name(kind) for kind in ("IN", "OUT")]
    assert names == ["PoissonData_64x64_IN.h5", "PoissonData_64x64_OUT.h5"]
    assert sorted(path.name for path in folder.iterdir()) == names
    ranges = ["max_inp", "max_out", "min_inp", "min_out"]
    with h5py.File(folder / names[0]) as file:
        assert sorted(set(file) - {f"Sample_{i}" for i in range(1160)}) == ranges
        assert file["min_inp"].shape == ()
        assert (file["Sample_7/input"].shape, file["Sample_7/input"].dtype) == ((64, 64), "f4")
        training = np.stack([file[f"Sample_{i}/output"][...] for i in range(1024)])
        assert file["min_out"][()] == pytest.approx(training.min(), rel=1e-6)
        assert file["max_out"][()] == pytest.approx(training.max(), rel=1e-6)
        in_spectrum = sine_coefficients(file["Sample_0/input"][...])
    with h5py.File(folder / names[1]) as file:
        assert sorted(file) == ["Sample_0", "Sample_1", "Sample_2"]
        out_spectrum = sine_coefficients(file["Sample_0/input"][...])
    # K = 16 and K = 20.
    assert np.abs(in_spectrum[15]).max() > 0.05
    assert np.abs(in_spectrum[16:]).max() < 1e-5
    assert np.abs(out_spectrum[19]).max() > 0.05
    assert np.abs(out_spectrum[20:]).max() < 1e-5


def sine_coefficients(f):
    nodes = np.linspace(0, 1, len(f))
    sine = np.sin(np.pi * np.arange(1, len(f) - 1)[:, None] * nodes)
    return 4 / (len(f) - 1) ** 2 * sine @ f @ sine.T


def test_read_normalises_with_the_training_ranges(folder):
    f, u = poisson.read(folder, "train")
    assert (f.shape, u.shape, f.dtype) == ((1024, 64, 64), (1024, 64, 64), np.float32)
    for field in (f, u):
        assert field.min() == pytest.approx(0, abs=1e-6)
        assert field.max() == pytest.approx(1, abs=1e-6)
    normalization = poisson.read_normalization(folder)
    with h5py.File(folder / poisson.file_name("IN")) as file:
        expected = normalization.output(file["Sample_5/output"][...])
        np.testing.assert_allclose(u[5], expected, atol=1e-6)
        validation = file["Sample_1030/input"][...]
    f, _ = poisson.read(folder, "validation", 10)
    assert len(f) == 10
    np.testing.assert_allclose(f[6], normalization.input(validation), atol=1e-6)
    outside, _ = poisson.read(folder, "out_of_distribution", 3)
    with h5py.File(folder / poisson.file_name("OUT")) as file:
        expected = normalization.input(file["Sample_2/input"][...])
    np.testing.assert_allclose(outside[2], expected, atol=1e-6)


def test_same_seed_same_samples(folder, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    poisson.generate(other, n_in=2, n_out=1, progress=False)
    for kind in ("IN", "OUT"):
        with (
            h5py.File(folder / poisson.file_name(kind)) as more,
            h5py.File(other / poisson.file_name(kind)) as few,
        ):
            np.testing.assert_array_equal(more["Sample_0/output"], few["Sample_0/output"])
    poisson.generate(other, n_in=2, n_out=1, resolution=127, progress=False)
    with (
        h5py.File(other / poisson.file_name("IN", 127)) as fine,
        h5py.File(other / poisson.file_name("IN")) as coarse,
    ):
        np.testing.assert_allclose(
            fine["Sample_1/output"][::2, ::2], coarse["Sample_1/output"], atol=1e-6
        )
    poisson.generate(other, n_in=2, n_out=1, seed=1, force=True, progress=False)
    with (
        h5py.File(folder / poisson.file_name("IN")) as first,
        h5py.File(other / poisson.file_name("IN")) as second,
    ):
        assert not np.allclose(first["Sample_0/input"], second["Sample_0/input"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_in": 0}, "n_in: expected at least 1, got 0"),
        ({"n_out": 0}, "n_out: expected at least 1, got 0"),
        ({"resolution": 2}, "resolution: expected at least 3, got 2"),
        ({"seed": -1}, "seed: expected at least 0, got -1"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_bad_arguments(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        poisson.generate(tmp_path, progress=False, **arguments)
    assert list(tmp_path.iterdir()) == []


def test_existing_file_stops_before_any_work(tmp_path):
    (tmp_path / poisson.file_name("OUT")).write_text("mine")
    with pytest.raises(FileExistsError, match="--force"):
        poisson.generate(tmp_path, n_in=1, n_out=1, progress=False)
    assert [path.name for path in tmp_path.iterdir()] == [poisson.file_name("OUT")]


def test_read_errors(tmp_path):
    with pytest.raises(ValueError, match=r"expected a split of .*, got 'val'"):
        poisson.read(tmp_path, "val")
    with pytest.raises(FileNotFoundError, match="no such file"):
        poisson.read(tmp_path, "train")
    poisson.generate(tmp_path, n_in=2, n_out=1, progress=False)
    with pytest.raises(ValueError, match="n_samples: expected 1 to 128 for validation, got 129"):
        poisson.read(tmp_path, "validation", 129)
    with pytest.raises(
        ValueError, match=r"IN\.h5: damaged, or not the expected.*no data set Sample_2/input"
    ):
        poisson.read(tmp_path, "train", 3)
    path = tmp_path / poisson.file_name("OUT")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"OUT\.h5: damaged"):
        poisson.read(tmp_path, "out_of_distribution", 1)


@pytest.fixture
def record(monkeypatch):
    """A Zenodo record whose archive is `content`; the addresses asked for."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for kind in ("IN", "OUT"):
            archive.writestr(f"data/{poisson.file_name(kind)}", kind * 5000)
            archive.writestr(f"__MACOSX/data/{poisson.file_name(kind)}", "hidden")
        archive.writestr("data/other.h5", "other")
    asked = []

    def load(record):
        record.registry["data.zip"] = f"md5:{hashlib.md5(buffer.getvalue()).hexdigest()}"
        asked.append(record.base_url)

    def download(url, known_hash, output, force):  # noqa: ARG001
        assert known_hash == f"md5:{hashlib.md5(buffer.getvalue()).hexdigest()}"
        asked.append(url)
        output.write_bytes(buffer.getvalue())

    monkeypatch.setattr(pooch.Pooch, "load_registry_from_doi", load)
    monkeypatch.setattr(downloading, "download", download)
    return asked


def test_fetch(tmp_path, record):
    assert poisson.fetch(tmp_path) is True
    assert record == [
        "doi:10.5281/zenodo.10406879/",
        "https://zenodo.org/records/10406879/files/data.zip?download=1",
    ]
    contents = {path.name: path.read_text()[:3] for path in tmp_path.iterdir()}
    assert contents == {poisson.file_name("IN"): "INI", poisson.file_name("OUT"): "OUT"}
    assert poisson.fetch(tmp_path) is False
    assert len(record) == 2
    assert poisson.fetch(tmp_path, force=True) is True


def test_fetch_uses_the_archive_of_an_interrupted_call(tmp_path, record, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(downloading, "extract", stop)
        with pytest.raises(KeyboardInterrupt):
            poisson.fetch(tmp_path)
    assert [path.suffix for path in tmp_path.iterdir()] == [".zip"]
    assert poisson.fetch(tmp_path) is True
    assert len(list(tmp_path.iterdir())) == 2
    assert record


def test_download_without_the_file_or_damaged(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data/x.h5", bytes(range(256)) * 100)
    both = [tmp_path / "x.h5", tmp_path / "y.h5"]
    with pytest.raises(ValueError, match=r"expected one y\.h5 in it, found \[\]"):
        downloading.extract(path, both, force=False)
    whole = path.read_bytes()
    for damaged in (whole[:100] + bytes(50) + whole[150:], whole[:-30]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="damaged archive"):
            downloading.extract(path, both[:1], force=False)
    assert list(tmp_path.iterdir()) == [path]
