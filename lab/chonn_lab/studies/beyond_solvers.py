"""Problems that no solver takes over, at equal CPU seconds: upscaling, and an unknown law.

Data are those of `chonn_lab.problems.upscaling` and `chonn_lab.problems.unknown_law`. Every model
gets the same fields at the nodes of a 64 x 64 grid: the 16 values of k in the block of a node, or
one porosity. Circuits get them as they are, the others as logarithms of mean 0 and deviation 1,
with coordinates. Training is AdamW with a cosine to zero on the relative L1 error, for the same
seconds of `time.process_time` on one thread. Before, Optuna tries as many settings for each model
(learning rate, size, depth and batch size) for half the seconds, with the error on validation data
and seeds that no result has. Models take turns, trial by trial and seed by seed, so a load of the
machine hits all alike. Finished runs are kept in the results file, so a stopped study goes on
where it was.

"equation" is no blind model: convolutions of the inputs give log k of each node and axis, and the
equation on the 64 x 64 grid gives u. Controls are solves with nothing learned, or, for the unknown
law, with the best monotone law. Milliseconds are CPU time a sample, in batches of four.

Expected, written before the first run of these lengths: on ``upscaling`` "equation" has less than
half the error of the best mean over all kinds, the CHONN network about that mean's and less than
half of the best other model's; no model is worth its training there, since the fine solve takes
12 ms. On ``unknown_law`` the CHONN network has a third of the best other model's error and is above
the fitted monotone law; "equation" is within twice the floor that the noise sets.

    python -m chonn_lab.studies.beyond_solvers --problem upscaling --data folder --seconds 60
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import optuna
import torch
from torch import Tensor, nn

from chonn_lab.baselines.fields import count_parameters, with_coordinates
from chonn_lab.experiments.provenance import files
from chonn_lab.problems import unknown_law, upscaling
from chonn_lab.results_file import Record, read_record, run_missing
from chonn_lab.studies.meshes import SEARCH_SEED, suggest
from chonn_ops import CHONNNetwork2d, CHONNUNet2d

PROBLEMS: dict[str, ModuleType] = {"upscaling": upscaling, "unknown_law": unknown_law}
# Widths and depths to choose from; the first trial has the middle ones. A depth of 0: fixed.
SIZES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "CHONN network": ((16, 24, 32), (1, 2, 3)),
    "CHONN U-Net": ((8, 16, 32), (0,)),
    "FNO (neuraloperator)": ((16, 24, 32), (3, 4, 5)),
    "UNO (neuraloperator)": ((16, 24, 32), (0,)),
    "TFNO (neuraloperator)": ((16, 24, 32), (3, 4, 5)),
    "U-Net (PDEBench)": ((8, 16, 32), (0,)),
    "equation": ((16, 32, 64), (1, 2, 3)),
}
MODES = 16
TIMED = 4  # samples of a batch whose inference is timed
REPEATS = 5


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
    else:
        from neuralop.models import FNO, TFNO, UNO

        shared: Any = {"in_channels": fields, "out_channels": 1, "positional_embedding": None}
        if name.startswith("UNO"):
            with contextlib.redirect_stdout(io.StringIO()):  # it prints what skips it has
                model = UNO(
                    hidden_channels=width,
                    lifting_channels=4 * width,
                    projection_channels=4 * width,
                    n_layers=5,
                    uno_out_channels=[width, 2 * width, 2 * width, 2 * width, width],
                    uno_n_modes=[[MODES] * 2] * 5,
                    uno_scalings=[[scale, scale] for scale in (1, 0.5, 1, 2, 1)],
                    channel_mlp_skip="linear",
                    **shared,
                )
        else:
            kind = TFNO if name.startswith("TFNO") else FNO
            model = kind(n_modes=(MODES, MODES), hidden_channels=width, n_layers=depth, **shared)
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


def relative_l1(prediction: Tensor, y: Tensor) -> Tensor:
    """The error of each sample."""
    return (prediction - y).abs().sum((1, 2, 3)) / y.abs().sum((1, 2, 3))


def train(
    model: nn.Module, data: Split, size: int, rate: float, scale: float, seconds: float
) -> int:
    """Train on random batches for so much CPU time; the steps done."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=1e-4)
    begin, step = time.process_time(), 0
    while (used := (time.process_time() - begin) / seconds) < 1:
        for group in optimizer.param_groups:
            group["lr"] = rate * (1 + np.cos(np.pi * used)) / 2
        which = torch.randperm(len(data.x))[:size]
        loss = relative_l1(model(data.x[which]) * scale, data.y[which]).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
    return step


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


def milliseconds(call: Callable[[], object]) -> float:
    """CPU time a sample of a call on `TIMED` of them: the median after a first one."""
    found = []
    for _ in range(REPEATS + 1):
        begin = time.process_time()
        call()
        found.append(time.process_time() - begin)
    return 1e3 * float(np.median(found[1:])) / TIMED


@torch.no_grad()
def predict(model: nn.Module, x: Tensor) -> Tensor:
    return torch.cat([model.eval()(part) for part in x.split(8)])


class Study:
    """Data of a problem, and the runs of its models."""

    def __init__(self, problem: str, path: Path, seconds: float, trials: int) -> None:
        self.problem, self.seconds, self.trials = problem, seconds, trials
        splits = [Split(PROBLEMS[problem].read(path, split)) for split in upscaling.SPLITS]
        self.train, self.validation, self.test = splits
        self.kinds = upscaling.KINDS if problem == "upscaling" else ("",)
        logs = self.train.x.log()
        self.units = logs.mean().item(), logs.std().item(), self.train.y.std().item()

    def run(self, record: Record, model: str, kind: str, number: int) -> dict[str, Any]:
        """One trial of the search, or the result of one seed with the best trial's settings."""
        trials = [r for r in record["results"] if (r["model"], r["kind"]) == (model, "trial")]
        if kind == "trial":
            settings = suggest(SIZES[model], trials, number)
            made, steps = self.trained(model, settings, SEARCH_SEED + number, self.seconds / 2)
            scaled = predict(made, self.validation.x) * self.units[2]
            error = relative_l1(scaled, self.validation.y).mean().item()
            return {"settings": settings, "steps": steps, "validation": error}
        best = min(trials, key=lambda trial: trial["validation"])["settings"]
        made, steps = self.trained(model, best, number, self.seconds)
        return {
            "settings": best,
            "steps": steps,
            "parameters": count_parameters(made),
            "milliseconds": milliseconds(lambda: predict(made, self.test.x[:TIMED])),
            **measures(predict(made, self.test.x) * self.units[2], self.test, self.kinds),
        }

    def trained(
        self, model: str, settings: dict[str, Any], seed: int, seconds: float
    ) -> tuple[nn.Module, int]:
        torch.manual_seed(seed)
        made = build(model, self.train.x.shape[1], settings["width"], settings["depth"], self.units)
        size, rate = settings["batch"], settings["rate"]
        return made, train(made, self.train, size, rate, self.units[2], seconds)

    def controls(self) -> list[dict[str, Any]]:
        """Errors and milliseconds of solves that are given what models have to learn."""
        samples, kinds = self.test.samples, self.kinds
        rows = []

        def add(name: str, solve: Callable[[Any], Any], *fields: np.ndarray) -> None:
            found = torch.tensor(np.asarray(solve(*fields)))
            taken = [field[:TIMED] for field in fields]
            rows.append(
                {
                    "control": name,
                    "milliseconds": milliseconds(lambda: solve(*taken)),
                    **measures(found.reshape(self.test.y.shape), self.test, kinds),
                }
            )

        def single(k: np.ndarray) -> np.ndarray:
            """The equation by this package's defaults, in float32."""
            return upscaling.solved(torch.tensor(k).float()).numpy()

        if self.problem == "upscaling":
            for name in upscaling.MEANS:

                def coarse(k: np.ndarray, name: str = name) -> np.ndarray:
                    return upscaling.coarse_solve(upscaling.coarse_conductivities(k, name))

                add(name, coarse, samples.k)
            add("fine solve in float32", lambda k: upscaling.blocks(single(k)).mean(-1), samples.k)
            scheme = lambda k: upscaling.blocks(upscaling.solve(k)).mean(-1)  # noqa: E731
            add("the data's own scheme", scheme, samples.k)
            return rows
        law = unknown_law.MonotoneLaw()
        begin = time.process_time()
        train(Law(law), self.train, 4, 0.1, 1.0, self.seconds)
        fitted = time.process_time() - begin
        p = samples.porosity

        @torch.no_grad()
        def monotone(p: np.ndarray) -> np.ndarray:
            return law(torch.tensor(p).float()).numpy()

        add("fitted monotone law", monotone, p)
        rows[-1]["seconds"] = fitted
        add(
            "the law without noise",
            lambda p: upscaling.solve(np.stack([*map(unknown_law.law, p)])),
            p,
        )
        add("solve in float32, k given", single, samples.k)
        add("the data's own scheme, k given", upscaling.solve, samples.k)
        return rows


class Law(nn.Module):
    """A law of the porosity as a model of fields (B, 1, R, R)."""

    def __init__(self, law: nn.Module) -> None:
        super().__init__()
        self.law = law

    def forward(self, x: Tensor) -> Tensor:
        return self.law(x[:, 0])[:, None]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--problem", choices=tuple(PROBLEMS), default="upscaling")
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the file")
    parser.add_argument("--output", type=Path, help="[runs/PROBLEM.json]")
    parser.add_argument("--models", nargs="+", choices=tuple(SIZES), default=list(SIZES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--seconds", type=float, default=60.0, help="CPU time of each training")
    parser.add_argument("--trials", type=int, default=6, help="of each model")
    parser.add_argument("--fraction", type=float, default=1.0, help="of the samples")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    path = args.data / f"{args.problem}.h5"
    if not path.exists():
        PROBLEMS[args.problem].generate(path, fraction=args.fraction)
    output = args.output or Path(f"runs/{args.problem}.json")
    config = {name: getattr(args, name) for name in ("problem", "seconds", "trials")}
    packages = ["chonn-ops", "torch", "optuna", "neuraloperator", "pdebench"]
    record = read_record(output, "beyond_solvers", config, packages, 1, files([path]))
    record["machine"] = "shared with other work; CPU seconds, models in turns"
    study = Study(args.problem, path, args.seconds, args.trials)
    if "controls" not in record:
        record["controls"] = study.controls()
    wanted = [
        (model, kind, number)
        for kind, numbers in (("trial", range(args.trials)), ("result", args.seeds))
        for number in numbers
        for model in args.models
    ]
    names = ("model", "kind", "seed")
    run_missing(output, record, wanted, functools.partial(study.run, record), names)


if __name__ == "__main__":
    main()
