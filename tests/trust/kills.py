"""SIGKILL anywhere in a writer: ``python kills.py WRITER SEED COUNT FOLDER``.

Every kill ends a process without a chance to clean up: half of them before a random one of its file
operations, half after a random share of its time. What it leaves is whole or absent; the next call
goes on to the same bytes and leaves nothing else.

The processes are forked from one that has only imported, so that a kill costs no imports; tqdm's
lock is one of threads, not one that a killed process could hold for all. One that does not end in
time is a finding.

It prints a JSON object: kills, those that came before the files were whole, and those after.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from chonn_ops.experiments import runs, schedule
from chonn_ops.problems import (
    darcy,
    darcy3d,
    helmholtz,
    navier_stokes,
    order1d,
    poisson,
    shallow_water,
)
from chonn_ops.problems.convert import convert
from chonn_ops.report import page
from chonn_plugins.pdebench.results import write_report

sys.path.append(str(Path(__file__).parents[2] / "tools"))
from keep_results import collect

SMALL = {"progress": False}
SECONDS = 300
# Audited events that change a folder; opening for writing is another.
OPERATIONS = ("os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")
WHOLE = 3


def _depths(radius, resolution):
    x = np.linspace(0, 1, resolution)
    return np.full((3, resolution, resolution), radius), x, x


def _shallow_water(folder):
    shallow_water._pyclaw, shallow_water.simulate = (lambda: None), _depths
    shallow_water.generate(folder / "out.h5", 6, 8, workers=1, **SMALL)


def _run(folder):
    import running

    places = {"output": folder / "runs", "data": folder / "data"}
    (job,) = schedule.plan(
        running.NAME, "smoke", variants=["order2"], assignments=["epochs=4"], **places
    )
    job.prepare()
    runs.execute(job)


def _pdebench(folder):
    frames = {"first": 0, "last": 1, "what": "predicted frames only"}
    content = {
        "label": "a",
        "data": "b",
        "samples": 3,
        "split": "validation",
        "parameters": 4,
        "frames": frames,
        "versions": {},
        "metrics": {"rmse": 1.0},
        "not_finite": {},
        "pdebench_note": "note",
        "args": list(range(20_000)),
    }
    write_report(str(folder / "job"), content)


WRITERS: dict[str, Callable[[Path], object]] = {
    "order1d": lambda folder: order1d.generate(
        folder / "out.h5", {"train": 40, "validation": 2, "test": 2}, **SMALL
    ),
    "darcy": lambda folder: darcy.generate(folder / "out.hdf5", 6, 16, workers=1, **SMALL),
    "poisson": lambda folder: poisson.generate(folder, n_in=6, n_out=4, resolution=16, **SMALL),
    "navier_stokes": lambda folder: navier_stokes.generate(
        folder / "out.mat", 4, 2, 16, 16, 0.1, batch_size=2, device="cpu", **SMALL
    ),
    "shallow_water": _shallow_water,
    "helmholtz": lambda folder: helmholtz.generate(folder / "out.hdf5", 10, 32, workers=1, **SMALL),
    "darcy3d": lambda folder: darcy3d.generate(folder / "out.hdf5", 10, 8, workers=1, **SMALL),
    "convert": lambda folder: convert(folder.parent / "fields.pt", folder / "out.hdf5"),
    "run": _run,
    "collect": lambda folder: collect(
        folder.parent / "results" / "shallow_water" / "small", folder
    ),
    "report": lambda folder: page.write_report(folder.parent / "results", folder),
    "pdebench": _pdebench,
}


class Process:
    """A fork that writes; ``operations`` of it are known when it has ended by itself."""

    def __init__(self, write, folder: Path, at: int | None = None, seconds: float | None = None):
        receiving, sending = os.pipe()
        start = time.perf_counter()
        self._child = os.fork()
        if self._child == 0:
            os.close(receiving)
            self._write(write, folder, at, seconds, sending)
        os.close(sending)
        self.code = self._ended()
        self.seconds = time.perf_counter() - start
        with open(receiving, "rb") as pipe:
            self.operations = int(pipe.read() or b"0")

    def _ended(self) -> int:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            child, status = os.waitpid(self._child, os.WNOHANG)
            if child:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.002)
        os.kill(self._child, signal.SIGKILL)
        os.waitpid(self._child, 0)
        raise AssertionError(f"it did not end in {SECONDS} s")

    @staticmethod
    def _write(write, folder, at, seconds, sending) -> None:
        count = 0

        def audit(event: str, arguments: tuple) -> None:
            nonlocal count
            writes = event == "open" and isinstance(arguments[1], str) and arguments[1][:1] in "wax"
            if writes or event in OPERATIONS:
                if count == at:
                    os.kill(os.getpid(), signal.SIGKILL)
                count += 1

        code = 1
        try:
            sys.addaudithook(audit)
            if seconds is not None:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6))
            write(folder)
            code = 0
        except FileExistsError as error:
            code = WHOLE if "output file exists" in str(error) else 1
        except BaseException as error:
            print(repr(error), file=sys.stderr)
        finally:
            os.write(sending, str(count).encode())
            os._exit(code)


def _found(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def _results(found: dict[str, bytes]) -> dict[str, object]:
    """Files whose content is known: not checkpoints, logs and times."""
    return {
        name: _numbers(name, content)
        for name, content in found.items()
        if Path(name).suffix not in (".ckpt", ".lock", ".csv")
        and "events.out.tfevents" not in name
        and not any(part.startswith(".") for part in Path(name).parts)
    }


def _numbers(name: str, content: bytes) -> object:
    record = json.loads(content) if name.endswith(".json") else {}
    if "checksum" not in record:
        return content
    return {key: record[key] for key in ("curve", "metrics", "curves", "parameters")}


def _attempt(write, place: Path, expected, at: int | None, seconds: float | None) -> str:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    (place / "mine.txt").write_text("mine")
    killed = Process(write, place, at, seconds)
    left = _found(place)
    for name, content in _results(left).items():
        assert name == "mine.txt" or content == expected[name], f"{name} is left, and not whole"
    for path in place.rglob("[!.]*.ckpt"):
        torch.load(path, weights_only=True)
    whole = set(expected) <= set(_results(left))
    again = Process(write, place)
    assert again.code == 0 or (whole and again.code == WHOLE), f"exit code {again.code}"
    found = _found(place)
    results = _results(found)
    assert results.pop("mine.txt") == b"mine"
    assert results == expected, f"other content after a kill: {sorted(results)}"
    remains = [p for p in place.rglob("*") if p.name.endswith((".tmp", ".partial", ".parts"))]
    assert not remains, f"{remains} are left"
    return "unharmed" if killed.code == 0 else "whole" if whole else "unfinished"


def main(name: str, seed: str, count: str, folder: str) -> None:
    top = Path(folder)
    torch.set_num_threads(1)
    tqdm.set_lock(threading.RLock())
    torch.save({"x": torch.ones(9, 32, 32), "y": torch.ones(9, 32, 32)}, top / "fields.pt")
    if name in ("report", "collect"):
        import result_files

        result_files.write(top / "results", list(result_files.shallow_water(1)), resolution=8)
    write, place = WRITERS[name], top / "place"
    place.mkdir()
    undisturbed = Process(write, place)
    assert undisturbed.code == 0
    expected = _results(_found(place))
    assert expected
    draw = random.Random(f"{seed} {name}")
    outcomes = {"unfinished": 0, "whole": 0, "unharmed": 0}
    for case in range(int(count)):
        at = draw.randrange(undisturbed.operations) if case % 2 else None
        seconds = None if case % 2 else draw.uniform(0, 1.1 * undisturbed.seconds)
        try:
            outcomes[_attempt(write, place, expected, at, seconds)] += 1
        except Exception as error:
            raise AssertionError(
                f"{name}, case {case}, before operation {at} or after {seconds} s"
            ) from error
    print(json.dumps({**outcomes, "operations": undisturbed.operations}))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))
    main(*sys.argv[1:])
