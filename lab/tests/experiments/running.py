"""Jobs of the tiny experiment, and the command in a process of its own."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tiny import EXPERIMENT

from chonn_lab.experiments import schedule

NAME = "tiny:EXPERIMENT"


def prepared(data):
    """The folder, with the data of all scales but the largest."""
    folder = Path(data) / EXPERIMENT.name
    folder.mkdir(parents=True, exist_ok=True)
    for scale in ("smoke", "small"):
        EXPERIMENT.prepare(EXPERIMENT.scales[scale], folder)
    return data


def job(folder, *assignments, variant="order2", scale="smoke", **options):
    """One job whose data are there."""
    options = {"output": folder / "runs", "data": prepared(folder / "data"), **options}
    (found,) = schedule.plan(NAME, scale, variants=[variant], assignments=assignments, **options)
    return found


def start(folder, *arguments, name=NAME, **environment):
    """``chonn-lab run`` that Ctrl-C reaches, even if whoever started the tests ignores it."""
    path = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "chonn_lab.cli", "run", name, *map(str, arguments)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    finally:
        signal.signal(signal.SIGINT, before)


def numbers(run):
    """Numbers that must not depend on interruptions or on the number of workers."""
    return {name: getattr(run, name) for name in ("curve", "metrics", "curves", "parameters")}


def read(path):
    return json.loads(Path(path).read_text())
