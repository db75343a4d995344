"""Configurations and runs, in this process and by the command."""

import json
import os
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn

from chonn_lab.experiments.configuration import build_model, build_problem, compose, resolved
from chonn_lab.experiments.runner import run

HERE = Path(__file__).parent
TINY = ("problem=tiny", "model=tiny", "scale=smoke", f"hydra.searchpath=[file://{HERE / 'conf'}]")


class Work:
    """A run of the tiny problem in a folder; `overrides` are the command's."""

    def __init__(self, folder, *overrides):
        places = (f"output={folder / 'runs'}", f"data={folder / 'data'}", "device=cpu")
        self.config = compose([*TINY, *places, *overrides])
        self.found = resolved(self.config)
        name = f"{self.config.model.name}-seed{self.config.seed}"
        self.folder = folder / "runs" / "tiny" / "smoke" / name
        self.result = self.folder.with_name(f"{name}.json")
        self.checkpoint = self.folder / "last.ckpt"
        self.data = folder / "data" / "tiny" / "tiny32.hdf5"

    def run(self):
        return run(self.config, self.folder)


def problem(*overrides):
    """A problem at scale smoke; later overrides win."""
    return build_problem(resolved(compose(["scale=smoke", *overrides])))


def smoke(name, *overrides):
    """A problem at scale smoke, with settings of its own."""
    return problem(f"problem={name}", *(f"problem.{override}" for override in overrides))


def model(found, name, *overrides):
    """A model of a problem that `problem` made, at scale smoke."""
    torch.manual_seed(0)
    config = compose(["scale=smoke", f"problem={found.name}", f"model={name}", *overrides])
    return build_model(resolved(config), found)


def command(folder, *arguments, name="run", **environment):
    """``chonn-lab run`` of the tiny problem in a process of its own, on one thread: sums of
    several threads round differently from those of one."""
    path = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    arguments = [f"--config-dir={HERE / 'conf'}", *TINY[:3], "device=cpu", *arguments]
    own = {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(path), **environment}
    options = {"capture_output": True, "text": True, "timeout": 300, "check": False}
    program = [sys.executable, "-m", "chonn_lab.cli", name, *arguments]
    return subprocess.run(program, cwd=folder, env={**os.environ, **own}, **options)


def numbers(found):
    """Numbers that must not depend on interruptions or on the number of workers."""
    record = found if isinstance(found, dict) else vars(found)
    return {name: record[name] for name in ("curve", "metrics", "curves", "parameters")}


def read(path):
    return json.loads(Path(path).read_text())


class One(nn.Module):
    """A function as a model."""

    def __init__(self, function):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.function = function

    def forward(self, x):
        return self.weight * self.function(x)
