"""A real experiment of seconds: smoothing of periodic 1-D signals, from an HDF5 file.

With ``TINY_KILL=order2:37`` in the environment a process kills itself in the 37th step of that
variant.
"""

import dataclasses
import os
import signal

import numpy as np
import torch
from torch import nn

from chonn_lab.experiments.base import Config, Evaluation, Experiment, Variant, consecutive
from chonn_lab.problems.hdf5 import create_hdf5, dataset, open_hdf5
from chonn_ops import CKB, Scan

POINTS = 32


@dataclasses.dataclass(frozen=True, kw_only=True)
class TinyConfig(Config):
    width: int = 4
    dropout: float = 0.1
    noisy: bool = False
    spoiled_step: int = 0  # Its loss is NaN.
    modes: tuple[int, ...] = (1, 2)


class Network(nn.Sequential):
    def __init__(self, order, width, dropout):
        block = CKB(width, 1, cell=Scan(d_state=2), order=order, boundary="periodic")
        first, last = nn.Conv1d(1, width, 1), nn.Conv1d(width, 1, 1)
        super().__init__(first, block, nn.Dropout(dropout), last)
        self.name = f"order{order}"
        self.steps = 0


def model(order):
    return lambda config: Network(order, config.width, config.dropout)


def relative(model, batch):
    inputs, targets = batch
    return (model(inputs) - targets).norm(dim=(1, 2)) / targets.norm(dim=(1, 2))


class Tiny(Experiment[TinyConfig]):
    name = "tiny"
    title = "Smoothing of periodic signals"
    sources = {}  # noqa: RUF012
    scales = {  # noqa: RUF012
        scale: TinyConfig(
            n_train=n, n_validation=7, n_test=8, batch_size=8, epochs=epochs, schedule="cosine"
        )
        for scale, n, epochs in (("smoke", 32, 2), ("small", 96, 12), ("paper", 4096, 100))
    }

    def variants(self, config):  # noqa: ARG002
        return (
            Variant("order1", "Order 1", model(1), {"order": 1}),
            Variant("order2", "Order 2", model(2), {"order": 2}, {"learning_rate": 2e-3}, cost=1.5),
        )

    def path(self, config, folder):
        return folder / f"tiny{config.n_train}.hdf5"

    def prepare(self, config, folder, progress=True):  # noqa: ARG002
        path = self.path(config, folder)
        if path.exists():
            return
        n = config.n_train + config.n_validation + config.n_test
        inputs = np.random.default_rng(0).standard_normal((n, 1, POINTS), dtype="f4")
        smooth = 1 / (1 + np.fft.rfftfreq(POINTS, 1 / POINTS) ** 2)
        targets = np.fft.irfft(np.fft.rfft(inputs) * smooth).astype("f4")
        with create_hdf5(path, False) as file:
            file["inputs"] = inputs
            file["targets"] = targets

    def load(self, config, folder):
        with open_hdf5(self.path(config, folder)) as file:
            both = [torch.from_numpy(dataset(file, n)[...]) for n in ("inputs", "targets")]
        return consecutive(config, *both)

    def loss(self, config, model, batch):
        model.steps += 1
        if os.environ.get("TINY_KILL") == f"{model.name}:{model.steps}":
            os.kill(os.getpid(), signal.SIGKILL)
        inputs, targets = batch
        if config.noisy:
            inputs = inputs + 0.1 * torch.randn(inputs.shape)
        spoiled = model.steps == config.spoiled_step
        return relative(model, (inputs, targets)).mean() * (torch.nan if spoiled else 1)

    def errors(self, config, model, batch):  # noqa: ARG002
        return relative(model, batch)

    def evaluate(self, config, model, data):  # noqa: ARG002
        device = next(model.parameters()).device
        inputs, targets = (t.to(device) for t in data.tests["test"].tensors)
        error = relative(model, (inputs, targets))
        fields = {"target": targets[:1], "prediction": model(inputs[:1])}
        return Evaluation(
            {"test": {"relative_l2": error.mean().item()}}, {"by_sample": error.tolist()}, fields
        )

    def example(self, config):  # noqa: ARG002
        return (torch.zeros(1, 1, POINTS),)


EXPERIMENT = Tiny()
