"""A disk that is full, or fails, while data are written: one error, and nothing is left."""
# ruff: noqa: E402 - skipped before the imports where the extra is missing

import errno
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch

h5py = pytest.importorskip("h5py")
pytest.importorskip("pooch")

from chonn_ops.problems import hdf5, navier_stokes, order1d, poisson, shallow_water

FLOW = {"n_frames": 2, "resolution": 8, "solver_resolution": 8, "step": 0.1}


def depths(radius, resolution):
    """Stands in for PyClaw."""
    x = np.linspace(0, 1, resolution)
    return np.full((3, resolution, resolution), radius), x, x


# In a process of its own, which used to crash. Files beyond the limit cannot be written there.
COMMANDS = """
import contextlib, io, json, os, resource, sys
from chonn_ops import cli
from chonn_ops.problems import shallow_water
import test_full_disk

shallow_water._pyclaw = lambda: None
shallow_water.simulate = test_full_disk.depths
answers = []
for command in json.loads(sys.argv[1]):
    errors = io.StringIO()
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, resource.RLIM_INFINITY))
    with contextlib.redirect_stderr(errors):
        code = cli.main(command)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    answers.append((code, errors.getvalue(), os.listdir()))
print(json.dumps(answers))
"""


@pytest.mark.slow
def test_one_line_and_nothing_left_for_every_command(tmp_path):
    pytest.importorskip("resource")
    folder = tmp_path / "empty"
    folder.mkdir()
    fields = {"x": torch.zeros(20, 16, 16), "y": torch.zeros(20, 16, 16)}
    torch.save(fields, tmp_path / "in.pt")
    small = ("--n", "40", "--resolution", "16")
    flow = ("--frames", "2", "--solver-resolution", "16", "--step", "0.1", "--device", "cpu")
    generate = {
        "order1d": ("--train", "40", "--validation", "1", "--test", "1"),
        "darcy": (*small, "--workers", "1"),
        "poisson": small,
        "navier_stokes": (*small, *flow),
        "shallow_water": (*small, "--workers", "1"),
    }
    commands = [["data", "generate", name, *options] for name, options in generate.items()]
    commands.append(["data", "convert", "../in.pt", "out.hdf5"])
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, json.dumps(commands)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.path.dirname(__file__)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    for command, (code, errors, left) in zip(commands, json.loads(done.stdout), strict=True):
        assert code == 1, command
        assert errors.count("\n") == 1, (command, errors)
        assert "chonn: error: [Errno 27] File too large: '" in errors
        assert "tmp" not in errors
        assert left == [], command


def write_poisson(folder):
    poisson.generate(folder, n_in=4, n_out=2, resolution=4, progress=False)


def write_order1d(folder):
    sizes = {"train": 2, "validation": 1, "test": 1}
    order1d.generate(folder / "out", sizes, progress=False)


def write_navier_stokes(folder):
    navier_stokes.generate(folder / "out", 3, batch_size=2, device="cpu", progress=False, **FLOW)


def write_shallow_water(folder):
    shallow_water.generate(folder / "out", 3, resolution=4, progress=False)


@pytest.mark.parametrize(
    "write", [write_poisson, write_order1d, write_navier_stokes, write_shallow_water]
)
def test_whichever_write_fails_first(tmp_path, monkeypatch, write):
    monkeypatch.setattr(shallow_water, "simulate", depths)
    monkeypatch.setattr(shallow_water, "_pyclaw", lambda: None)
    full = OSError(errno.ENOSPC, "full")
    writes, failing = 0, 0

    class Sink(hdf5._Sink):
        def write(self, data):
            nonlocal writes
            writes += 1
            if writes == failing:
                self._error = full
            return super().write(data)

    monkeypatch.setattr(hdf5, "_Sink", Sink)
    folder = tmp_path / "whole"
    folder.mkdir()
    write(folder)
    total, folder = writes, tmp_path / "failed"
    folder.mkdir()
    for failing in {*range(1, total, max(1, total // 25)), total}:  # noqa: B007
        writes = 0
        with pytest.raises(OSError, match=r"full: '.*failed") as error:
            write(folder)
        assert error.value.errno == errno.ENOSPC
        assert list(folder.iterdir()) == []


def test_interrupt_while_the_file_is_made_closes_it(tmp_path, monkeypatch):
    """Left open, it would be closed after its file: with a traceback at the end of the process."""
    made, make = [], hdf5.h5py.File

    def interrupted(*arguments, **options):
        signal.raise_signal(signal.SIGINT)
        made.append(make(*arguments, **options))
        return made[0]

    monkeypatch.setattr(hdf5.h5py, "File", interrupted)
    # Programs in the background are started without it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), hdf5.create_hdf5(tmp_path / "out", force=False):
            pytest.fail("the block must not begin")
    finally:
        signal.signal(signal.SIGINT, before)
    assert not made[0], "an open file is true"
    assert list(tmp_path.iterdir()) == []


def test_interrupt_while_hdf5_writes_comes_after_it(tmp_path, monkeypatch):
    class Sink(hdf5._Sink):
        def write(self, data):
            signal.raise_signal(signal.SIGINT)
            return super().write(data)

    monkeypatch.setattr(hdf5, "_Sink", Sink)
    # Programs in the background are started without it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    written = []

    def write():
        with hdf5.create_hdf5(tmp_path / "out", force=False) as output:
            with output.writing() as file:
                file["x"] = np.ones(1000)
                file.flush()
                written.append(file["x"][-1])
            pytest.fail("went on after Ctrl-C")

    try:
        with pytest.raises(KeyboardInterrupt):
            write()
    finally:
        signal.signal(signal.SIGINT, before)
    assert written == [1]
    assert list(tmp_path.iterdir()) == []
