"""Files are whole or absent after a kill anywhere, on a full disk, and with two writers at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("resource")
for needed in ("h5py", "pooch", "matplotlib"):
    pytest.importorskip(needed)
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

HERE = Path(__file__).parent
EXPERIMENTS = HERE.parent / "experiments"
ENVIRONMENT = os.environ | {
    "OMP_NUM_THREADS": "1",
    "MPLBACKEND": "agg",
    "PYTHONPATH": str(EXPERIMENTS),
}


WRITERS = (
    *("order1d", "darcy", "poisson", "navier_stokes", "shallow_water", "helmholtz", "darcy3d"),
    *("convert", "run", "collect", "report", "pdebench"),
)
# One of each kind of writer, quickly; all of them more often where time allows.
QUICK = {"darcy3d", "poisson", "collect", "pdebench"}


@pytest.mark.parametrize(
    ("writer", "kills"),
    [
        *((writer, 6) for writer in WRITERS if writer in QUICK),
        *(
            pytest.param(writer, int(os.environ.get("CHONN_KILLS", "40")), marks=pytest.mark.slow)
            for writer in WRITERS
        ),
    ],
)
def test_killed_anywhere(writer, kills, tmp_path):
    command = [sys.executable, str(HERE / "kills.py"), writer, "0", str(kills), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr[-3000:]
    counts = json.loads(done.stdout.splitlines()[-1])
    # Most kills come before the end; where few do, a writer is not being tested.
    assert counts["unfinished"] > kills / 6, counts


def chonn(folder, *arguments, limit=None):
    """``chonn`` in a process that may write no file beyond so many bytes, as on a full disk."""
    code = (
        "import resource, signal, sys\n"
        "limit = int(sys.argv.pop(1))\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "from chonn_ops import cli\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))\n"
        "sys.exit(cli.main(sys.argv[1:]))\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, str(limit if limit else -1), *map(str, arguments)],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


RUN = ("run", "tiny:EXPERIMENT", "--scale", "smoke", "--jobs", "1", "--variants", "order2")


@pytest.mark.parametrize("limit", [100, 1500, 9000])
def test_run_on_a_full_disk(tmp_path, limit):
    """Data, logs, checkpoint, fields or result do not fit: one reason, and it goes on later."""
    if limit > 100:  # the data are there
        assert chonn(tmp_path, *RUN, "--seeds", "1").wait() == 0
        for path in (tmp_path / "runs").rglob("*"):
            if path.is_file():
                path.unlink()
    full = chonn(tmp_path, *RUN, limit=limit)
    _, errors = full.communicate(timeout=120)
    assert full.returncode == 1, errors
    assert "Traceback" not in errors
    assert "File too large" in errors
    assert not list((tmp_path / "runs").rglob("*.json"))
    again = chonn(tmp_path, *RUN)
    again.communicate(timeout=120)
    assert again.returncode == 0
    found = list((tmp_path / "runs").rglob("order2-seed0.json"))
    assert len(found) == 1
    assert json.loads(found[0].read_text())["curve"]["epoch"] == [1, 2]
    assert not list(tmp_path.rglob("*.tmp"))


def test_report_on_a_full_disk(tmp_path):
    sys.path.insert(0, str(EXPERIMENTS))
    import result_files

    result_files.write(tmp_path / "runs", list(result_files.shallow_water(1)), resolution=8)
    for limit in (300, 20_000):
        full = chonn(tmp_path, "report", limit=limit)
        _, errors = full.communicate(timeout=120)
        assert full.returncode == 1, errors
        assert "Traceback" not in errors
        assert "File too large" in errors
        assert not list(tmp_path.rglob("*.tmp"))
        for path in (tmp_path / "report").rglob("*"):
            assert path.is_dir() or path.stat().st_size <= limit


def test_two_runs_in_one_folder(tmp_path):
    """One trains, or both in turn; none spoils what the other writes."""
    both = [chonn(tmp_path, *RUN) for _ in range(2)]
    answers = [process.communicate(timeout=180)[1] for process in both]
    codes = sorted(process.returncode for process in both)
    assert codes in ([0, 0], [0, 1]), answers
    for process, errors in zip(both, answers, strict=True):
        assert "Traceback" not in errors
        if process.returncode:
            assert "another process trains this run" in errors
    (result,) = (tmp_path / "runs").rglob("order2-seed0.json")
    assert json.loads(result.read_text())["metrics"]["test"]["relative_l2"] > 0
    assert not list(tmp_path.rglob("*.tmp"))
    assert len(list((tmp_path / "data").rglob("*.hdf5"))) == 1


@pytest.mark.parametrize("problem", ["darcy", "order1d"])
def test_two_generators_of_one_file(tmp_path, problem):
    """The first that is ready wins; the other's work does not replace it."""
    size = {
        "darcy": ("--n", "8", "--resolution", "16", "--workers", "1"),
        "order1d": ("--train", "40", "--validation", "2", "--test", "2"),
    }[problem]
    command = ("data", "generate", problem, *size, "--output", "out.h5")
    both = [chonn(tmp_path, *command) for _ in range(3)]
    answers = [process.communicate(timeout=120)[1] for process in both]
    assert sorted(process.returncode for process in both) == [0, 1, 1], answers
    for process, errors in zip(both, answers, strict=True):
        assert (process.returncode == 0) != ("output file exists" in errors)
    assert [path.name for path in tmp_path.iterdir()] == ["out.h5"]
    alone = tmp_path / "alone"
    alone.mkdir()
    assert chonn(alone, *command).wait() == 0
    assert (alone / "out.h5").read_bytes() == (tmp_path / "out.h5").read_bytes()
