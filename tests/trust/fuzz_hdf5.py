"""Data files of every problem: damaged bytes, and HDF5 files of another structure."""

from __future__ import annotations

import dataclasses
import random
import shutil
from pathlib import Path

import h5py
import numpy as np
from fuzz import Finding, clear, damaged, watched
from pdebench_settings import BASE, SMALL

from chonn_ops.experiments import get
from chonn_ops.problems import (
    darcy,
    darcy3d,
    fno_darcy,
    helmholtz,
    navier_stokes,
    order1d,
    origin,
    poisson,
    shallow_water,
)
from chonn_ops.problems.hdf5 import read_mask
from chonn_plugins.pdebench import JobError, preflight
from chonn_plugins.pdebench.job import resolve

SIZE = 16
NORM = poisson.Normalization(-1.0, 1.0, -1.0, 1.0)


EXPERIMENT = get("darcy")
CONFIG = dataclasses.replace(
    EXPERIMENT.scales["smoke"], resolution=SIZE, n_train=6, n_validation=2, n_test=4
)
(DARCY,) = (path.name for path in EXPERIMENT.files(CONFIG, Path()))
POISSON = poisson.file_name("IN", SIZE)


def _darcy(path):
    """As `chonn run darcy` reads it."""
    data = EXPERIMENT.load(CONFIG, path.parent)
    return [t.numpy() for split in (data.train, data.validation) for t in split.tensors]


def _pdebench(path):
    channels = {"model_name": "FNO", "num_channels": 1}
    place = {"data_path": str(path.parent), "filename": path.name}
    job = resolve({**BASE, **SMALL, "batch_size": 2, **channels, **place})
    preflight.check(job, reads_grouped_single=False)
    return []


def _ranges(path):
    return [np.array(list(vars(poisson.read_normalization(path.parent, SIZE)).values()), "f4")]


READERS = {
    "order1d.h5": (
        lambda path: list(order1d.read(path, "train", 2)),
        lambda path: list(order1d.read(path, "test", 4, 1)),
    ),
    DARCY: (_darcy, _pdebench),
    "masked.hdf5": (lambda path: [read_mask(path)], _pdebench),
    POISSON: (
        lambda path: list(poisson.read_samples(path, range(3), NORM)),
        _ranges,
    ),
    "flow.mat": (lambda path: [navier_stokes.read(path)],),
    "water.h5": (lambda path: [shallow_water.read(path)],),
    "helmholtz.hdf5": (lambda path: [t.numpy() for t in helmholtz.read(path)],),
    "darcy3d.hdf5": (lambda path: [t.numpy() for t in darcy3d.read(path)],),
    "fno.mat": (lambda path: [t.numpy() for t in fno_darcy.read(path, SIZE)],),
}


def prepare(folder: Path):
    quiet = {"progress": False}
    order1d.generate(folder / "order1d.h5", {"train": 3, "validation": 1, "test": 2}, **quiet)
    darcy.generate(folder / DARCY, 12, SIZE, workers=1, **quiet)
    darcy.generate(folder / "masked.hdf5", 12, SIZE, workers=1, domain="l-shape", **quiet)
    poisson.generate(folder, n_in=3, n_out=1, resolution=SIZE, **quiet)
    navier_stokes.generate(
        folder / "flow.mat",
        2,
        2,
        resolution=8,
        solver_resolution=8,
        step=0.1,
        device="cpu",
        **quiet,
    )
    with h5py.File(folder / "water.h5", "w") as file:
        for sample in range(3):
            file[f"{sample:04d}/data"] = np.ones((4, 8, 8, 1), "f4")
            file[f"{sample:04d}/grid/x"] = np.arange(8, dtype="f4")
    helmholtz.generate(folder / "helmholtz.hdf5", 2, 32, workers=1, **quiet)
    darcy3d.generate(folder / "darcy3d.hdf5", 2, 8, workers=1, **quiet)
    with h5py.File(folder / "fno.mat", "w", userblock_size=512) as file:
        for name in ("coeff", "sol"):
            file[name] = np.ones((SIZE, SIZE, 2))
    whole = {}
    for name, readers in READERS.items():
        content = (folder / name).read_bytes()
        whole[name] = content, [reader(folder / name) for reader in readers]
    for path in folder.iterdir():
        path.unlink()
    return whole


def _restructured(path: Path, draw: random.Random) -> None:
    """Another valid HDF5 file."""
    with h5py.File(path, "r+") as file:
        names: list[str] = []
        file.visit(names.append)
        name = draw.choice(names)
        node = file[name]
        value = node[()] if isinstance(node, h5py.Dataset) else None
        change = draw.randrange(12)
        if change == 0 or value is None or value.dtype.kind not in "fiub":
            del file[name]
        elif change == 1:
            del file[name]
            file.create_group(name)
        elif change in (2, 3):
            del file[name]
            kinds = ("c8", "i4", "u1", "f2", "f8", "S5", "b1", h5py.string_dtype(), "V7")
            kind = draw.choice(kinds)
            text = not isinstance(kind, str) or kind in ("S5", "V7")
            array = np.full(np.shape(value), b"7" * 7) if text else np.asarray(value).astype(kind)
            file.create_dataset(name, data=array, dtype=None if kind == "V7" else kind)
        elif change in (4, 5):
            del file[name]
            shape = list(np.shape(value))
            match draw.randrange(4):
                case 0 if shape:
                    shape[draw.randrange(len(shape))] = draw.choice((0, 1, 3, 17))
                case 1 if shape:
                    del shape[draw.randrange(len(shape))]
                case 2:
                    shape.insert(draw.randint(0, len(shape)), draw.choice((1, 2)))
                case _:
                    shape = []
            file[name] = np.resize(np.asarray(value), shape).astype(value.dtype)
        elif change == 6:
            # Declared, and never written.
            del file[name]
            shape = draw.choice(((2**40,), (2**20, 2**20), (7, 2**31, 2**31)))
            file.create_dataset(name, shape, "f4", chunks=(1,) * len(shape))
        elif change == 7:
            del file[name]
            file[name] = draw.choice(
                (
                    h5py.SoftLink("/" + name),
                    h5py.SoftLink("/nowhere"),
                    h5py.ExternalLink("elsewhere.h5", "/x"),
                    h5py.ExternalLink(path.name, "/" + name),
                )
            )
        elif change == 8:
            del file[name]
            file[name] = h5py.Empty("f4")
        elif change == 9:
            array = np.asarray(value).astype("f8" if value.dtype.kind == "f" else value.dtype)
            bad = draw.choice((np.nan, np.inf, -np.inf, 1e300, -1e300))
            if array.dtype.kind == "f" and array.size:
                array.flat[draw.randrange(array.size)] = bad
            del file[name]
            file[name] = array
        elif change == 10:
            for attribute in list(file.attrs):
                if draw.random() < 0.5:
                    del file.attrs[attribute]
                elif draw.random() < 0.5:
                    file.attrs[attribute] = draw.choice(
                        ([1, 2], "\udcff".encode("utf-8", "replace"), 3.5, "{", "[" * 3000, b"\xff")
                    )
        else:
            moved = f"{name}_"
            file.move(name, moved)


def _check(arrays, expected, name):
    for array, whole in zip(arrays, expected, strict=True):
        if array is None:  # no mask
            continue
        if array.dtype != whole.dtype or array.ndim != whole.ndim:
            raise Finding(
                f"{name}: expected {whole.dtype} {whole.shape}, got {array.dtype} {array.shape}"
            )


def attempt(whole, draw: random.Random, folder: Path) -> str:
    name = draw.choice(sorted(whole))
    content, expected = whole[name]
    place = folder / "place"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    path = place / name
    path.write_bytes(content)
    if draw.random() < 0.5:
        path.write_bytes(damaged(content, draw))
    else:
        _restructured(path, draw)
    outcomes = set()
    for reader, right in zip(READERS[name], expected, strict=True):
        outcomes.add(_read(reader, path, right))
    outcomes.add(_read(lambda path: [str(origin.identify(path))][1:], path, []))
    return "refused" if "refused" in outcomes else "right"


def _read(reader, path, right):
    try:
        with watched(path.parent):
            arrays = reader(path)
    except MemoryError:  # numpy's names shape and size
        return "refused"
    except (ValueError, FileNotFoundError, JobError) as error:
        return clear(error, path.name)
    _check(arrays, right, path.name)
    return "right"
