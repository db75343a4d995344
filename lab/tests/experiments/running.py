"""Configurations and runs, in this process and by the command."""

import json
import os
import sys
from pathlib import Path

import commands
import torch
from torch import nn

from chonn_lab.experiments.configuration import build_model, build_problem, compose, resolved
from chonn_lab.experiments.runner import run

HERE = Path(__file__).parent
TINY = ("problem=tiny", "model=tiny", "scale=smoke", f"hydra.searchpath=[file://{HERE / 'conf'}]")


def places(folder):
    """Settings with which runs read and write below this folder only."""
    return f"output={folder / 'runs'}", f"data={folder / 'data'}", "device=cpu"


class Work:
    """A run of the tiny problem in a folder; `overrides` are the command's."""

    def __init__(self, folder, *overrides):
        self.config = compose([*TINY, *places(folder), *overrides])
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


def command(folder, *arguments, name="run", code=0, **environment):
    """``chonn-lab run`` of the tiny problem in a process of its own, which ends with this exit
    code; on one thread, as sums of several threads round differently."""
    path = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    arguments = [f"--config-dir={HERE / 'conf'}", *TINY[:3], "device=cpu", *arguments]
    env = {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(path), **environment}
    program = [sys.executable, "-m", "chonn_lab.cli", name, *arguments]
    return commands.run(*program, code=code, cwd=folder, env=env, timeout=300)


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
