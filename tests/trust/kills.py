"""SIGKILL at random places of every writer: ``python kills.py SEED COUNT FOLDER [WRITER...]``.

Each of COUNT kills is a process forked from this one, which has imported everything, and ended by
its own timer, without a chance to clean up, somewhere between its start and a little after its end.
What it leaves is whole or absent; the same call goes on to the same bytes and leaves nothing else.

It prints a JSON object: for each writer the kills, and how many came before its files were whole.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch

SMALL = {"progress": False}


def _order1d(folder):
    from chonn_ops.problems import order1d

    order1d.generate(folder / "out.h5", {"train": 40, "validation": 2, "test": 2}, **SMALL)


def _darcy(folder):
    from chonn_ops.problems import darcy

    darcy.generate(folder / "out.hdf5", 6, 16, workers=1, **SMALL)


def _poisson(folder):
    from chonn_ops.problems import poisson

    poisson.generate(folder, n_in=6, n_out=4, resolution=16, **SMALL)


def _navier_stokes(folder):
    from chonn_ops.problems import navier_stokes

    navier_stokes.generate(
        folder / "out.mat", 4, 2, 16, 16, 0.1, batch_size=2, device="cpu", **SMALL
    )


def _depths(radius, resolution):
    x = np.linspace(0, 1, resolution)
    return np.full((3, resolution, resolution), radius), x, x


def _shallow_water(folder):
    from chonn_ops.problems import shallow_water

    shallow_water._pyclaw, shallow_water.simulate = (lambda: None), _depths
    shallow_water.generate(folder / "out.h5", 6, 8, workers=1, **SMALL)


def _helmholtz(folder):
    from chonn_ops.problems import helmholtz

    helmholtz.generate(folder / "out.hdf5", 4, 32, workers=1, **SMALL)


def _darcy3d(folder):
    from chonn_ops.problems import darcy3d

    darcy3d.generate(folder / "out.hdf5", 4, 8, workers=1, **SMALL)


def _convert(folder):
    from chonn_ops.problems.convert import convert

    convert(folder.parent / "fields.pt", folder / "out.hdf5")


def _run(folder):
    from running import job

    from chonn_ops.experiments import runs

    runs.execute(job(folder, "epochs=4"))


def _collect(folder):
    from chonn_ops.experiments import summaries

    summaries.collect(folder.parent / "results" / "shallow_water" / "small", folder)


def _report(folder):
    from chonn_ops.experiments import report

    report.write(folder.parent / "results", folder)


def _pdebench(folder):
    from chonn_plugins.pdebench.results import write_report

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


# A run's files hold times; its numbers are compared instead.
WRITERS = {
    name: globals()[f"_{name}"]
    for name in (
        *("order1d", "darcy", "poisson", "navier_stokes", "shallow_water", "helmholtz", "darcy3d"),
        *("convert", "run", "collect", "report", "pdebench"),
    )
}


def _forked(write, folder: Path, seconds: float | None) -> int:
    """Exit code of a process that writes, negative where its timer ended it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if seconds is not None:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6))
            write(folder)
            code = 0
        except BaseException as error:
            print(f"{write.__name__}: {error!r}", file=sys.stderr)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _found(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def _numbers(name: str, content: bytes):
    """What must be the same of a file after any number of kills."""
    if name.endswith(".json") and b'"curve"' in content:
        record = json.loads(content)
        if "curve" not in record:  # a collection of results
            return content
        return {key: record[key] for key in ("curve", "metrics", "curves", "parameters")}
    return content


def _results(found: dict[str, bytes]) -> dict[str, object]:
    """Files whose bytes are known: not the checkpoints and logs, which hold times."""
    return {
        name: _numbers(name, content)
        for name, content in found.items()
        if not name.startswith(".") and not set(Path(name).parts) & {"csv", "tensorboard"}
        if not name.endswith((".ckpt", ".lock")) and not Path(name).name.startswith(".")
    }


def _attempt(name: str, draw: random.Random, folder: Path, expected, seconds: float) -> bool:
    place = folder / "place"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    bystander = place / "mine.txt"
    bystander.write_text("mine")
    killed = _forked(WRITERS[name], place, draw.uniform(0, 1.1 * seconds)) != 0
    left = _found(place)
    for file, content in _results(left).items():
        assert file == "mine.txt" or content == expected[file], (
            f"{name}: {file} was left, and is not whole"
        )
    checkpoints = [path for path in place.rglob("*.ckpt") if not path.name.startswith(".")]
    for path in checkpoints:
        torch.load(path, weights_only=True)
    whole = set(expected) <= set(_results(left))
    if not whole or name in ("report", "collect", "pdebench", "run"):
        assert _forked(WRITERS[name], place, None) == 0, f"{name}: does not go on"
    found = _found(place)
    assert bystander.read_text() == "mine"
    again = _results(found)
    del again["mine.txt"]
    assert again == expected, f"{name}: other numbers after a kill: {sorted(again)}"
    remains = [n for n in found if n.endswith((".tmp", ".partial")) or "parts" in n]
    assert not remains, f"{name}: {remains} are left"
    return killed and not whole


def main(seed: str, count: str, folder: str, *names: str) -> None:
    place = Path(folder)
    torch.set_num_threads(1)
    torch.save({"x": torch.ones(9, 32, 32), "y": torch.ones(9, 32, 32)}, place / "fields.pt")
    if not names or {"report", "collect"} & set(names):
        import result_files

        result_files.write(place / "results", list(result_files.shallow_water(1)), resolution=8)
    counts = {}
    for name in names or WRITERS:
        # Once in this process, for the imports; then the time and the files of a whole one.
        for _ in range(2):
            whole = place / "place"
            shutil.rmtree(whole, ignore_errors=True)
            whole.mkdir()
            if _ == 0:
                WRITERS[name](whole)
            else:
                start = time.perf_counter()
                assert _forked(WRITERS[name], whole, None) == 0
                seconds = time.perf_counter() - start
        expected = _results(_found(whole))
        assert expected, name
        draw = random.Random(f"{seed} {name}")
        early = [_attempt(name, draw, place, expected, seconds) for _ in range(int(count))]
        counts[name] = [len(early), sum(early)]
    print(json.dumps(counts))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))
    main(*sys.argv[1:])
