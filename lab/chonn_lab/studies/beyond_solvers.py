"""Problems that no solver takes over, at equal CPU seconds: upscaling, and an unknown law.

Data are those of `chonn_lab.problems.upscaling` and `chonn_lab.problems.unknown_law`. Every model
gets the same fields at the nodes of a 64 x 64 grid: the 16 values of k in the block of a node, or
one porosity. Circuits get them as they are, the others as logarithms of mean 0 and deviation 1,
with coordinates. Training is on the relative L1 error as `equal_seconds` says; a trial has half of
the seconds.

"equation" is no blind model: convolutions of the inputs give log k of each node and axis, and the
equation on the 64 x 64 grid gives u. Controls are solves with nothing learned, or, for the unknown
law, with the best monotone law. Milliseconds are CPU time a sample, in batches of four.

    python -m chonn_lab.studies.beyond_solvers --problem upscaling --data folder --seconds 60
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from chonn_lab.baselines.fields import count_parameters, with_coordinates
from chonn_lab.benchmarks.harness import milliseconds
from chonn_lab.experiments.base import relative_l1
from chonn_lab.experiments.models import darcy_uno
from chonn_lab.problems import unknown_law, upscaling
from chonn_lab.studies import equal_seconds
from chonn_lab.studies.equal_seconds import Sizes, adamw
from chonn_ops import CHONNNetwork2d, CHONNUNet2d

PROBLEMS: dict[str, ModuleType] = {"upscaling": upscaling, "unknown_law": unknown_law}
SIZES: dict[str, Sizes] = {  # a depth of 0: fixed
    "CHONN network": ((16, 24, 32), (1, 2, 3)),
    "CHONN U-Net": ((8, 16, 32), (0,)),
    "FNO (neuraloperator)": ((16, 24, 32), (3, 4, 5)),
    "UNO (neuraloperator)": ((16, 24, 32), (0,)),
    "U-Net (PDEBench)": ((8, 16, 32), (0,)),
    "equation": ((16, 32, 64), (1, 2, 3)),
}
MODES = 16
TIMED = 4  # samples of a batch whose inference is timed
REPEATS = 6
# By name, and the field that each is given.
Solves = dict[str, tuple[Callable[[np.ndarray], Any], np.ndarray]]


class Scaled(nn.Module):
    """A model of the logarithms of positive fields, with coordinates."""

    def __init__(self, model: nn.Module, mean: float, deviation: float) -> None:
        super().__init__()
        self.model, self.mean, self.deviation = model, mean, deviation

    def forward(self, x: Tensor) -> Tensor:
        return self.model(with_coordinates((x.log() - self.mean) / self.deviation))


class Equation(nn.Module):
    """-div(k grad u) = 1 with log k of each axis from convolutions of the inputs' logarithms."""

    def __init__(self, inputs: int, width: int, depth: int, scale: float) -> None:
        super().__init__()
        self.scale = scale
        layers: list[nn.Module] = []
        channels = inputs + 2
        for _ in range(depth):
            layers += [
                nn.Conv2d(channels, width, 3, padding=1, padding_mode="replicate"),
                nn.GELU(),
            ]
            channels = width
        self.law = nn.Sequential(*layers, nn.Conv2d(channels, 2, 1))

    def forward(self, x: Tensor) -> Tensor:
        # A conductivity beyond e^10 from 1 is none of these media.
        k = (10 * torch.tanh(self.law(x) / 10)).exp()
        return upscaling.solved(k[:, 0], k[:, 1])[:, None] / self.scale


def build(name: str, inputs: int, width: int, depth: int, units: Sequence[float]) -> nn.Module:
    """A model of positive fields (B, inputs, 64, 64); outputs in units of the training data's
    deviation. `units` are mean and deviation of the logarithms, and that deviation."""
    if name == "CHONN network":
        return CHONNNetwork2d(inputs, 1, width, depth)
    if name == "CHONN U-Net":
        return CHONNUNet2d(inputs, 1, width)
    fields = inputs + 2
    if name == "equation":
        model: nn.Module = Equation(inputs, width, depth, units[2])
    elif name == "U-Net (PDEBench)":
        from pdebench.models.unet.unet import UNet2d

        model = UNet2d(fields, 1, width)
    elif name.startswith("UNO"):
        model = darcy_uno(fields, 1, width, MODES, positional_embedding=None)
    else:
        from neuralop.models import FNO

        options: Any = {"n_layers": depth, "positional_embedding": None}
        model = FNO((MODES, MODES), fields, 1, width, **options)
    return Scaled(model, units[0], units[1])


class Split:
    """Inputs (S, inputs, 64, 64) and outputs (S, 1, 64, 64) of a split, and the kind of each."""

    def __init__(self, samples: Any) -> None:
        self.samples = samples
        if isinstance(samples, upscaling.Samples):
            x, self.kind = np.moveaxis(upscaling.blocks(samples.k), -1, 1), samples.kind
        else:
            x, self.kind = samples.porosity[:, None], np.zeros(len(samples.u), int)
        self.x = torch.tensor(x).float()
        self.y = torch.tensor(samples.u).float()[:, None]


def measures(prediction: Tensor, data: Split, names: Sequence[str]) -> dict[str, Any]:
    """Relative L1 and normalised RMSE, means over the samples, and relative L1 of each kind."""
    y = torch.tensor(data.samples.u)[:, None]  # float64, as the controls
    errors = relative_l1(prediction, y)
    squares = (prediction - y).square().sum((1, 2, 3)) / y.square().sum((1, 2, 3))
    kind = torch.tensor(data.kind)
    return {
        "relative_l1": errors.mean().item(),
        "nrmse": squares.sqrt().mean().item(),
        "kinds": {
            name: errors[kind == number].mean().item()
            for number, name in enumerate(names)
            if len(names) > 1
        },
    }


def cpu_ms(call: Callable[[], object]) -> float:
    """Of a sample in a batch of `TIMED`."""
    return milliseconds(call, REPEATS, time.process_time) / TIMED


def single(k: np.ndarray) -> np.ndarray:
    """The equation by this package's defaults, in float32."""
    return upscaling.solved(torch.tensor(k).float()).numpy()


@torch.no_grad()
def predict(model: nn.Module, x: Tensor) -> Tensor:
    return torch.cat([model.eval()(part) for part in x.split(8)])


class Study(equal_seconds.Study):
    """Data of a problem, and the runs of its models."""

    def __init__(self, problem: str, path: Path, seconds: float) -> None:
        super().__init__(SIZES, 1 / 2, seconds)
        self.problem = problem
        splits = [Split(PROBLEMS[problem].read(path, split)) for split in upscaling.SPLITS]
        self.train, self.validation, self.tests = splits
        self.kinds = upscaling.KINDS if problem == "upscaling" else ("",)
        logs = self.train.x.log()
        self.units = logs.mean().item(), logs.std().item(), self.train.y.std().item()

    def trained(
        self, model: str, settings: dict[str, Any], seed: int, seconds: float
    ) -> tuple[nn.Module, int]:
        torch.manual_seed(seed)
        made = build(model, self.train.x.shape[1], settings["width"], settings["depth"], self.units)
        loss = self.loss(lambda x: made(x) * self.units[2], settings["batch"])
        return made, equal_seconds.train(adamw(made, settings["rate"]), loss, seconds)

    def loss(self, model: Callable[[Tensor], Tensor], size: int) -> Callable[[], Tensor]:
        """The mean error of random batches of this size."""

        def loss() -> Tensor:
            which = torch.randperm(len(self.train.x))[:size]
            return relative_l1(model(self.train.x[which]), self.train.y[which]).mean()

        return loss

    def validate(self, made: nn.Module) -> float:
        scaled = predict(made, self.validation.x) * self.units[2]
        return relative_l1(scaled, self.validation.y).mean().item()

    def test(self, made: nn.Module) -> dict[str, Any]:
        found = predict(made, self.tests.x) * self.units[2]
        timed = cpu_ms(lambda: predict(made, self.tests.x[:TIMED]))
        about = {"parameters": count_parameters(made), "milliseconds": timed}
        return {**about, **measures(found, self.tests, self.kinds)}

    def controls(self) -> list[dict[str, Any]]:
        """Errors and milliseconds of solves that are given what models have to learn."""
        rows = []
        solves = self.means() if self.problem == "upscaling" else self.laws()
        for name, (solve, given) in solves.items():
            found = torch.tensor(np.asarray(solve(given))).reshape(self.tests.y.shape)
            row = {"control": name, "milliseconds": cpu_ms(lambda: solve(given[:TIMED]))}  # noqa: B023
            rows.append({**row, **measures(found, self.tests, self.kinds)})
        return rows

    def means(self) -> Solves:
        """The coarse equation with each mean of k; the fine one."""

        def coarse(name: str) -> Callable[[np.ndarray], Any]:
            return lambda k: upscaling.coarse_solve(upscaling.coarse_conductivities(k, name))

        k = self.tests.samples.k
        return {
            **{name: (coarse(name), k) for name in upscaling.MEANS},
            "fine solve in float32": (lambda k: upscaling.blocks(single(k)).mean(-1), k),
            "the data's own scheme": (lambda k: upscaling.blocks(upscaling.solve(k)).mean(-1), k),
        }

    def laws(self) -> Solves:
        """The best monotone law, fitted through the solver; the law; the conductivities."""
        law = unknown_law.MonotoneLaw()
        loss = self.loss(lambda x: law(x[:, 0])[:, None], 4)
        equal_seconds.train(adamw(law, 0.1), loss, self.seconds)
        fitted = torch.no_grad()(lambda p: law(torch.tensor(p).float()).numpy())
        known = lambda p: upscaling.solve(np.stack([*map(unknown_law.law, p)]))  # noqa: E731
        k, p = self.tests.samples.k, self.tests.samples.porosity
        return {
            "fitted monotone law": (fitted, p),
            "the law without noise": (known, p),
            "solve in float32, k given": (single, k),
            "the data's own scheme, k given": (upscaling.solve, k),
        }


def main(arguments: list[str] | None = None) -> None:
    args = equal_seconds.arguments(__doc__, PROBLEMS, SIZES).parse_args(arguments)
    path = args.data / f"{args.problem}.h5"
    generate = PROBLEMS[args.problem].generate
    settings = {"fraction": args.fraction}
    equal_seconds.make_data(path, lambda: generate(path, **settings), **settings)
    equal_seconds.carry_out(
        "beyond_solvers",
        args,
        path,
        ("neuraloperator", "pdebench"),
        lambda: Study(args.problem, path, args.seconds),
    )


if __name__ == "__main__":
    main()
