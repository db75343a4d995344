"""Data files say what made them; a generated one is never taken for a published one."""
# ruff: noqa: E402 - skipped before the imports where the extra is missing

import hashlib
import json
import re

import numpy as np
import pytest

h5py = pytest.importorskip("h5py")
pytest.importorskip("pooch")
pytest.importorskip("tqdm")

import chonn_ops
from chonn_lab import cli
from chonn_lab.problems import (
    advection,
    burgers,
    condiff,
    darcy,
    fno_darcy,
    helmholtz,
    helmholtz_open,
    maze,
    navier_stokes,
    order1d,
    origin,
    poisson,
    shallow_water,
)


def make_darcy(folder, **options):
    path = folder / darcy.OFFICIAL_NAME
    darcy.generate(path, 3, 16, seed=5, progress=False, domain="l-shape", **options)
    return path


def make_poisson(folder):
    return poisson.generate(folder, 3, 2, 64, seed=7, progress=False)[0]


def make_order1d(folder):
    path = folder / order1d.DEFAULT_NAME
    order1d.generate(path, 3, 2, 1, seed=4, progress=False)
    return path


def make_navier_stokes(folder):
    path = folder / navier_stokes.OFFICIAL_NAME
    options = {"field": "fno-code", "seed": 2, "device": "cpu", "progress": False}
    return navier_stokes.generate(path, 2, 2, 8, 16, 0.1, **options)


def make_shallow_water(folder):
    path = folder / shallow_water.OFFICIAL_NAME
    shallow_water.generate(path, 1, 8, seed=3, progress=False)
    return path


def make_advection(folder):
    path = folder / advection.file_name(0.4)
    return advection.generate(path, 2, 16, 0.4, 3, seed=1, progress=False)


def make_burgers(folder):
    path = folder / burgers.file_name(0.1)
    return burgers.generate(path, 2, 16, 0.1, 3, seed=2, progress=False)


def make_fno_darcy(folder):
    return fno_darcy.generate(folder, 2, 1, 11, seed=6, progress=False)[0]


def make_condiff(folder):
    path = folder / "c.hdf5"
    return condiff.generate(path, 2, 12, "exponential", 0.4, seed=11, progress=False)


def make_helmholtz(folder):
    return helmholtz.generate(folder / "h.hdf5", 2, 32, 12.0, seed=8, progress=False)


def make_helmholtz_open(folder):
    return helmholtz_open.generate(folder / "o.hdf5", 2, 16, 5.0, seed=9, progress=False)


def make_maze(folder):
    return maze.generate(folder / "m.hdf5", 2, 12, seed=12, progress=False)


GENERATORS = {
    "darcy": (make_darcy, 5, {"domain": "l-shape", "beta": 1.0, "margin": None, "first": 0}),
    "fno_darcy": (make_fno_darcy, 6, {"n_samples": 2, "resolution": 11}),
    "condiff": (make_condiff, 11, {"n_samples": 2, "covariance": "exponential", "variance": 0.4}),
    "maze": (make_maze, 12, {"n_samples": 2, "resolution": 12}),
    "helmholtz": (make_helmholtz, 8, {"n_samples": 2, "wavenumber": 12.0}),
    "helmholtz_open": (make_helmholtz_open, 9, {"wavenumber": 5.0, "contrast": 2.25, "first": 0}),
    "poisson": (make_poisson, 7, {"kind": "IN", "n_samples": 3, "domain": "square"}),
    "order1d": (make_order1d, 4, {"sizes": {"train": 3, "validation": 2, "test": 1}}),
    "navier_stokes": (make_navier_stokes, 2, {"field": "fno-code", "step": 0.1}),
    "shallow_water": (make_shallow_water, 3, {"n_samples": 1, "resolution": 8}),
    "advection": (make_advection, 1, {"n_samples": 2, "beta": 0.4, "n_frames": 3}),
    "burgers": (make_burgers, 2, {"n_samples": 2, "Nu": 0.1, "resolution": 16}),
}


@pytest.fixture
def _without_pyclaw(monkeypatch):
    x = np.zeros(8)
    frames = np.ones((shallow_water.N_STEPS + 1, 8, 8))
    monkeypatch.setattr(shallow_water, "simulate", lambda *_, **__: (frames, x, x))
    monkeypatch.setattr(maze, "simulate", lambda *_: np.ones((maze.N_STEPS + 1, 12, 12)))
    for module in (shallow_water, maze):
        monkeypatch.setattr(module, "load_pyclaw", lambda: None)


@pytest.mark.usefixtures("_without_pyclaw")
@pytest.mark.parametrize("name", GENERATORS)
def test_generated_file_says_what_made_it(tmp_path, name):
    make, seed, settings = GENERATORS[name]
    path = make(tmp_path)
    found = origin.read(path)
    assert (found.official, found.generator, found.generator_version) == (False, name, 1)
    assert (found.chonn_ops_version, found.seed) == (chonn_ops.__version__, seed)
    assert found.settings is not None
    assert found.settings.items() >= settings.items()
    known = origin.identify(path)
    assert known.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert known.size == path.stat().st_size
    with h5py.File(path) as file:
        assert not file.attrs["official"]
    assert json.loads(json.dumps(known.record()))["official"] is False


def test_official_name_does_not_make_a_file_official(tmp_path, capsys):
    path = make_darcy(tmp_path)
    assert path.name == "2D_DarcyFlow_beta1.0_Train.hdf5"
    assert cli.main(["data", "info", str(path)]) == 0
    out = capsys.readouterr().out
    assert "official: no, made by chonn-ops under an official file's name" in out
    assert f"generator: darcy, version 1, chonn-ops {chonn_ops.__version__}" in out
    assert "seed: 5" in out
    assert re.search("settings: n_samples 3, resolution 16, .*domain l-shape", out)
    assert hashlib.sha256(path.read_bytes()).hexdigest() in out


def test_published_checksum_makes_a_file_official(tmp_path, monkeypatch):
    path = tmp_path / "renamed.hdf5"
    with h5py.File(path, "w") as file:
        file["nu"] = np.zeros(3)
    assert origin.identify(path).official is None
    checksum = hashlib.md5(path.read_bytes()).hexdigest()
    monkeypatch.setattr(origin, "CHECKSUMS", {darcy.OFFICIAL_NAME: checksum})
    assert origin.identify(path).official is True
    assert "yes, it has the published checksum" in str(origin.identify(path))


@pytest.mark.parametrize(
    ("name", "official", "text"),
    [
        (darcy.OFFICIAL_NAME, False, "no, another checksum than the published file of this name"),
        (poisson.file_name("IN"), None, "unknown, .* no published checksum of this name known"),
        ("mine.hdf5", None, "unknown, no record in it$"),
    ],
)
def test_file_without_record(tmp_path, name, official, text):
    path = tmp_path / name
    with h5py.File(path, "w") as file:
        file["nu"] = np.zeros(3)
    assert origin.identify(path).official is official
    assert re.search(f"official: {text}", str(origin.identify(path)), flags=re.M)


def test_checksum_follows_the_content(tmp_path):
    path = make_order1d(tmp_path)
    before = origin.identify(path).sha256
    with h5py.File(path, "r+") as file:
        file["train/x"][0, 0] += 1
    after = origin.identify(path).sha256
    assert after != before
    assert after == hashlib.sha256(path.read_bytes()).hexdigest()


def test_same_settings_make_the_same_bytes(tmp_path):
    sums = set()
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        sums.add(origin.identify(make_darcy(tmp_path / place)).sha256)
    (tmp_path / "c").mkdir()
    assert origin.identify(make_darcy(tmp_path / "c", first=1)).sha256 not in sums
    assert len(sums) == 1


def test_other_files_and_damaged_ones(tmp_path, capsys):
    text = tmp_path / "data.mat"
    text.write_bytes(b"MATLAB 5.0 MAT-file")
    assert origin.identify(text).official is None
    assert cli.main(["data", "info", str(tmp_path / "none")]) == 1
    assert "no such file" in capsys.readouterr().err
    path = make_order1d(tmp_path)
    with h5py.File(path, "r+") as file:
        file.attrs["settings"] = "{"
    with pytest.raises(ValueError, match="its record of origin"):
        origin.read(path)
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(ValueError, match="damaged"):
        origin.read(path)
