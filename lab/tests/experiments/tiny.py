"""A real problem of seconds: smoothing of periodic 1-D signals, from an HDF5 file.

With ``TINY_KILL=order2:37`` in the environment a process kills itself in the 37th step of that
model; with ``TINY_KILL_ONCE=file`` as well only the first process that gets there does.
"""

import dataclasses
import os
import signal
from pathlib import Path

import numpy as np
import torch
from torch import nn

from chonn_lab.experiments.base import Problem, consecutive
from chonn_lab.problems.hdf5 import create_hdf5, dataset, open_hdf5
from chonn_ops import CKB, Scan

POINTS = 32


class Network(nn.Sequential):
    def __init__(self, order, width, dropout):
        block = CKB(width, 1, cell=Scan(d_state=2), order=order, boundary="periodic")
        first, last = nn.Conv1d(1, width, 1), nn.Conv1d(width, 1, 1)
        super().__init__(first, block, nn.Dropout(dropout), last)
        self.name = f"order{order}"
        self.steps = 0


def network(problem, order, width, dropout):  # noqa: ARG001
    return Network(order, width, dropout)


def kill(at):
    """End this process where the environment says so."""
    if os.environ.get("TINY_KILL") != at:
        return
    if once := os.environ.get("TINY_KILL_ONCE"):
        try:
            Path(once).touch(exist_ok=False)
        except FileExistsError:
            return
    os.kill(os.getpid(), signal.SIGKILL)


@dataclasses.dataclass(kw_only=True)
class Tiny(Problem):
    noisy: bool
    spoiled_step: int  # Its loss is NaN.

    def makers(self, folder):
        return {folder / f"tiny{self.n_train}.hdf5": self.make}

    def make(self, path):
        inputs = np.random.default_rng(0).standard_normal((self.n_samples, 1, POINTS), dtype="f4")
        smooth = 1 / (1 + np.fft.rfftfreq(POINTS, 1 / POINTS) ** 2)
        with create_hdf5(path, False) as file:
            file["inputs"] = inputs
            file["targets"] = np.fft.irfft(np.fft.rfft(inputs) * smooth).astype("f4")

    def load(self, folder):
        (path,) = self.makers(folder)
        with open_hdf5(path) as file:
            both = [torch.from_numpy(dataset(file, n)[...]) for n in ("inputs", "targets")]
        return consecutive(self, *both)

    def loss(self, model, batch):
        model.steps += 1
        kill(f"{model.name}:{model.steps}")
        inputs, targets = batch
        if self.noisy:
            inputs = inputs + 0.1 * torch.randn(inputs.shape)
        spoiled = model.steps == self.spoiled_step
        return self.errors(model, (inputs, targets)).mean() * (torch.nan if spoiled else 1)
