"""Files of all problems: layout, record, refusals, interruptions, the same bytes of a seed."""

import hashlib
import importlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

import chonn_ops
from chonn_lab import cli
from chonn_lab.problems import darcy, generation, origin, poisson, shallow_water

QUIET = {"progress": False}
# Arguments of `generate` after the place, and shapes in the first file.
AXES = ("x-coordinate", "y-coordinate")
WAVES = {"k": (2, 48, 48), "f": (2, 48, 48), "tensor": (2, 2, 48, 48)}
PLATE = {"tensor": (9, 1, 8, 12), "nu": (9, 8, 12), AXES[0]: (8,), AXES[1]: (12,)}
CASES = {
    "flux_law": ((9, 8), dict.fromkeys(("f", "k", "u"), (9, 8, 8))),
    "darcy": ((9, 8), {"tensor": (9, 1, 8, 8), "nu": (9, 8, 8), **dict.fromkeys(AXES, (8,))}),
    "fno_darcy": ((5, 2, 9), {"coeff": (9, 9, 5), "sol": (9, 9, 5)}),
    "helmholtz": ((2, 48), WAVES | dict.fromkeys(AXES, (48,))),
    "meshes": (("holes", 0, 8, 5, 1, 2), {"train/0/k": (5, 115), "train/0/points": (81, 2)}),
    "navier_stokes": ((5, 3, 8, 16, 0.05), {"a": (8, 8, 5), "u": (3, 8, 8, 5), "t": (3, 1)}),
    "order1d": ((5, 3, 2), {"s": (256,), "train/x": (5, 256), "test/y": (2, 4, 256)}),
    "pdebench_series": ((2, 8), {"tensor": (2, 41, 2, 8, 8), "t-coordinate": (41,)}),
    "poisson": ((19, 3, 8), {"Sample_18/input": (8, 8), "Sample_0/output": (8, 8), "min_inp": ()}),
    "rectangle": ((9, 12), PLATE),
    "shallow_water": ((2, 8), {"0005/data": (101, 8, 8, 1), "0006/grid/t": (101,)}),
    "unknown_law": ((0, 8, 3, 1, 1), {"train/porosity": (3, 8, 8)}),
    "upscaling": ((0, 16, 3, 3, 3), {"test/k": (3, 16, 16), "test/u": (3, 4, 4)}),
}
FOLDERS = ("fno_darcy", "poisson")
MATLAB = ("fno_darcy", "navier_stokes")
GROUPS = ("meshes", "unknown_law", "upscaling")
PLAIN = (*GROUPS, "order1d", "pdebench_series")  # without a bar
PARALLEL = sorted(set(CASES) - {*PLAIN, "navier_stokes"})


def generate(name, folder, **options):
    """The first file of a problem in a new folder."""
    package = {"shallow_water": "clawpack", "pdebench_series": "pdebench"}.get(name, "torch")
    pytest.importorskip(package, reason="missing: make setup, make setup-pyclaw")
    folder.mkdir(exist_ok=True)
    arguments = list(CASES[name][0])
    if name in GROUPS:
        arguments[arguments.index(0)] = options.pop("seed", 0)
    elif name not in PLAIN:
        options |= QUIET
    place = folder if name in FOLDERS else folder / "out"
    made = module(name).generate(place, *arguments, **options)
    return made[0] if name in FOLDERS else made


def module(name):
    return importlib.import_module(f"chonn_lab.problems.{name}")


def read(name, path, count):
    """The first samples of a file of a problem, as its reader gives them."""
    if name == "poisson":
        return poisson.read_samples(path, range(count), poisson.Normalization(0, 1, 0, 1))
    arguments = {"fno_darcy": (9, 0, count), "order1d": ("train", 1, count)}
    arguments |= dict.fromkeys(GROUPS, ("train",))
    return module(name).read(path, *arguments.get(name, (0, count)))


@pytest.mark.parametrize("name", CASES)
def test_layout_record_and_bytes_of_a_seed(tmp_path, name):
    path = generate(name, tmp_path / "a", seed=5)
    _, shapes = CASES[name]
    with h5py.File(path) as file:
        found = {key: file[key].shape for key in shapes}
        assert set(file) == set(shapes) or any("/" in key for key in shapes)
        assert name in GROUPS or {file[k].dtype for k in shapes if file[k].ndim} == {np.dtype("f4")}
    if name in MATLAB:
        header = path.read_bytes()[:128]
        assert header.startswith(b"MATLAB 7.3 MAT-file")
        assert header[124:] == b"\x00\x02IM"
    assert found == shapes
    record = origin.read(path)
    told = {"official": False, "generator": name, "generator_version": 1, "seed": 5}
    assert record.items() >= {**told, "chonn_ops_version": chonn_ops.__version__}.items()
    assert f": {json.dumps(CASES[name][0][-1])}" in json.dumps(record["settings"])
    again = generate(name, tmp_path / "b", seed=5, force=True)
    assert path.read_bytes() == again.read_bytes()
    other = generate(name, tmp_path / "c", seed=6)
    assert origin.identify(other)["sha256"] != origin.identify(path)["sha256"]
    for some, theirs in zip(read(name, path, 1), read(name, other, 1), strict=True):
        assert name in ("meshes", "upscaling") or (np.asarray(some) != np.asarray(theirs)).any()


@pytest.mark.parametrize("name", CASES)
def test_other_files_are_refused_and_none_is_replaced(tmp_path, name):
    path = generate(name, tmp_path / "a")
    whole = path.read_bytes()
    with pytest.raises(FileExistsError, match="output file exists"):
        generate(name, path.parent)
    assert path.read_bytes() == whole
    if name not in GROUPS:
        with pytest.raises(ValueError, match=r"expected samples 0 to 99|no data set Sample_19"):
            read(name, path, 99)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=f"{path.name}: damaged"):
        read(name, path, 1)
    with h5py.File(path, "w") as file:
        file["others"] = np.zeros(3)
    with pytest.raises(ValueError, match=str(path)):
        read(name, path, 1)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="no such file"):
        read(name, path, 1)


@pytest.mark.parametrize("name", PARALLEL)
def test_interrupted_generation_leaves_nothing(tmp_path, monkeypatch, name):
    def stop(*_):
        raise KeyboardInterrupt

    generate(name, tmp_path / "whole")  # skips where a package is missing
    monkeypatch.setattr(generation.tqdm, "update", stop)
    with pytest.raises(KeyboardInterrupt):
        generate(name, tmp_path / "stopped")
    assert list((tmp_path / "stopped").iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs process groups")
def test_killed_command_leaves_no_worker_and_no_file(tmp_path, wait_for_end):
    command = [sys.executable, "-m", "chonn_lab.cli", "data", "generate", "darcy"]
    command += ["--resolution", "16", "--n-samples", "1000000", "--workers", "2", "--output", "out"]
    options = {"cwd": tmp_path, "stderr": subprocess.DEVNULL, "start_new_session": True}
    process = subprocess.Popen(command, **options)
    deadline = time.monotonic() + 300
    while sum(path.stat().st_size for path in tmp_path.iterdir()) < 2**16:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.kill()
    process.wait()
    wait_for_end(process.pid, 60)
    path = tmp_path / "out"
    assert not path.exists()
    assert darcy.generate(path, 2, 16, **QUIET) == path


@pytest.mark.skipif(os.name != "posix", reason="needs a parent's number")
def test_worker_that_starts_after_its_parent_was_killed_ends():
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    code = f"from chonn_lab.problems.generation import _end_with; _end_with({gone.pid}); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as worker:
        assert worker.wait(60) == 1


def test_data_do_not_depend_on_workers_and_fewer_are_the_first_ones(tmp_path):
    options = {"seed": 4, **QUIET}
    one, three = (darcy.generate(tmp_path / str(n), 25, 8, workers=n, **options) for n in (1, 3))
    assert one.read_bytes() == three.read_bytes()
    few = darcy.generate(tmp_path / "few", 3, 8, seed=4, **QUIET)
    for some, whole in zip(darcy.read(few), darcy.read(one, 0, 3), strict=True):
        np.testing.assert_array_equal(some, whole)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 3, 8, 8), "expected tensor (N, 1, R, R), got"),
        ((2, 1, 4, 4), "expected samples on one grid, got"),
        ((1, 1, 8, 8), "expected samples on one grid, got"),
    ],
)
def test_fields_of_other_shapes_are_refused(tmp_path, shape, message):
    with h5py.File(tmp_path / "other", "w") as file:
        file["nu"], file["tensor"] = np.zeros((2, 8, 8)), np.zeros(shape)
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path / 'other'}: {message}")):
        darcy.read(tmp_path / "other", 0, 1)


@pytest.mark.parametrize("name", FOLDERS)
def test_the_missing_one_of_two_files_is_made_the_same(tmp_path, name):
    kept = generate(name, tmp_path / "a")
    (other,) = (path for path in kept.parent.iterdir() if path != kept)
    before = {path: path.read_bytes() for path in (kept, other)}
    other.unlink()
    with pytest.raises(FileExistsError, match=f"output file exists: .*{kept.name}"):
        generate(name, kept.parent, seed=1)
    assert not other.exists()
    generate(name, kept.parent)
    assert {path: path.read_bytes() for path in kept.parent.iterdir()} == before
    kept.write_text("mine")
    other.unlink()
    with pytest.raises(FileExistsError, match=f"output file exists: .*{kept.name}"):
        generate(name, kept.parent)
    assert kept.read_text() == "mine"


def test_a_published_checksum_makes_a_file_official(tmp_path, monkeypatch, capsys):
    assert {darcy.OFFICIAL_NAME, shallow_water.OFFICIAL_NAME} <= origin.CHECKSUMS.keys()
    assert len(set(origin.CHECKSUMS.values())) == len(origin.CHECKSUMS)
    path = tmp_path / darcy.OFFICIAL_NAME
    path.write_bytes(b"theirs")
    assert origin.identify(path)["official"] is False
    monkeypatch.setattr(origin, "CHECKSUMS", {})
    assert "official" not in origin.identify(path)
    md5 = hashlib.md5(b"theirs").hexdigest()
    monkeypatch.setattr(origin, "CHECKSUMS", {path.name: md5})
    assert origin.identify(path)["official"] is True
    darcy.generate(path, 2, 8, seed=5, force=True, **QUIET)
    assert cli.main(["data", "info", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "official: False\n  generator: darcy" in shown
    assert "settings: {'n_samples': 2, 'resolution': 8, " in shown
    assert origin.identify(path)["sha256"] in shown
    with h5py.File(path, "r+") as file:
        file.attrs["settings"] = "{"
    with pytest.raises(ValueError, match="damaged"):
        origin.read(path)
    assert cli.main(["data", "info", str(tmp_path / "none")]) == 1
    assert "no such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("darcy", {"workers": 0}, "workers: expected an integer of at least 1, got 0"),
        ("darcy", {"seed": -1}, "seed: expected an integer of at least 0, got -1"),
        ("darcy", {"first": -1}, "first: expected an integer of at least 0, got -1"),
        ("darcy", {"margin": -0.1}, "margin: expected at least 0 and finite, got -0.1"),
        ("darcy", {"contrast": 1e7}, "contrast: expected 1 to 1e.06, got 10000000.0"),
        ("meshes", {"problem": "part", "resolution": 16}, "a multiple of 12 for part, got 16"),
        ("navier_stokes", {"solver_resolution": 96}, "a multiple of resolution 64, got 96"),
        ("navier_stokes", {"step": 0.0}, "step: expected above 0 and at most 1, got 0"),
        ("rectangle", {"resolution": 16}, "resolution: expected a multiple of 12, got 16"),
        ("rectangle", {"hole": "square"}, "hole: expected .*'insulated'.*, got 'square'"),
        ("unknown_law", {"seed": -1}, "seed: expected an integer of at least 0, got -1"),
        ("upscaling", {"resolution": 30}, "expected a multiple of 4, got 30"),
    ],
)
def test_bad_arguments(tmp_path, monkeypatch, name, arguments, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        module(name).generate(**arguments)
    assert list(tmp_path.iterdir()) == []


def test_missing_pyclaw_and_folders_are_explained(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"folder of the output file.*nowhere"):
        darcy.generate(tmp_path / "nowhere" / "darcy.hdf5")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "clawpack", None)
    with pytest.raises(ImportError, match=r"PyClaw, which is not installed: `make setup-pyclaw`"):
        module("shallow_water").generate(Path("out"), 1)
    assert list(tmp_path.iterdir()) == []
