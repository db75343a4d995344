"""Bands of 90 % around predictions of Darcy flow: `chonn_ops.uncertainty` beside UQNO.

Two problems: neuraloperator's own files at 16 x 16, and our Darcy flow of contrast 10 at 16 x 16,
whose bands are also evaluated where the contrast is 1,000. All methods have the same samples. UQNO
and the learned spread of `fit_spread` split them into samples that train the base model and samples
that train a copy of it to predict errors, UQNO by its loss of quantiles. An ensemble needs no such
split: both of its members are trained on all samples, from two seeds. UQNO and the ensemble
evaluate two networks a prediction. All bands are calibrated on the same samples by the rule of
`conformal`, UQNO also by its own.

    python -m chonn_lab.studies.bands --data folder --output lab/results/bands.json

`folder` holds darcy_train_16.pt and darcy_test_16.pt; the other data are generated.
"""

from __future__ import annotations

import argparse
import copy
import functools
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from neuralop.losses.data_losses import PointwiseQuantileLoss
from neuralop.models import FNO, UQNO
from torch import Tensor, nn

from chonn_lab.experiments.base import relative_l2
from chonn_lab.experiments.modules import PLAIN, Neuralop, Standardized, Units
from chonn_lab.problems import darcy
from chonn_lab.results_file import drawn_data, read_record, run_missing
from chonn_ops import CHONNNetwork2d, CHONNUNet2d, CKBOptions, Network
from chonn_ops.uncertainty import Bands, Ensemble, conformal, fit_spread

LEVEL = 0.9
SHIFTED = 1000.0
# Samples to train on, to learn the spread from, to calibrate with and to test on.
SPLITS = {"neuralop": (500, 200, 150, 200), "darcy": (400, 200, 200, 512)}
NODES = {"neuralop": "left", "darcy": "centres"}
RATES = {"fno": 1e-2, "network": 1e-2, "unet": 1e-2}
MODELS = ("fno", "network")
Samples = tuple[Tensor, Tensor]


def main() -> None:
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    data = {problem: read(args, problem) for problem in args.problems}
    # Lists, because a file that is resumed is compared with what JSON makes of them.
    splits = {problem: list(sizes) for problem, sizes in SPLITS.items()}
    config = {"level": LEVEL, "epochs": args.epochs, "splits": splits, "shifted": SHIFTED}
    config = {**config, "resolution": args.resolution, "batch_size": args.batch_size}
    drawn: dict[str, Any] = {}
    for problem, parts in data.items():
        for name, fields in parts.items():
            drawn |= drawn_data(f"{problem}, {name}", *fields)
    packages = ("chonn-ops", "neuraloperator", "torch")
    record = read_record(args.output, "bands", config, packages, args.threads, drawn)
    wanted = [(p, m, seed) for seed in args.seeds for p in data for m in args.models]
    run = functools.partial(measure, args, data)
    run_missing(args.output, record, wanted, run, ("problem", "model", "seed"))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("data"), help="of the darcy_*.pt files")
    parser.add_argument("--output", type=Path, default=Path("runs/bands.json"))
    parser.add_argument("--problems", nargs="+", choices=list(SPLITS), default=list(SPLITS))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["fno"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=50)
    parser.add_argument("--resolution", type=int, default=16, help="of the generated data")
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def read(args: argparse.Namespace, problem: str) -> dict[str, Samples]:
    """Fields (N, 1, R, R) of each split, "shifted" those of the other contrast."""
    sizes = SPLITS[problem]
    names = ("train", "spread", "calibration", "test")
    if problem == "neuralop":
        parts = [
            torch.load(args.data / f"darcy_{name}_16.pt", weights_only=True)
            for name in ("train", "test")
        ]
        first = sum(sizes[:3])
        # The tested samples are the last ones: those of the test file, and some that are left over.
        x, y = (
            torch.cat((field[:first], field[-sizes[3] :]))
            for field in (
                torch.cat([part[key].float().reshape(-1, 1, 16, 16) for part in parts])
                for key in "xy"
            )
        )
    else:
        x, y = generated(args, sum(sizes), darcy.CONTRAST)
    fields = zip(x.split(sizes), y.split(sizes), strict=True)
    found = dict(zip(names, fields, strict=True))
    if problem == "darcy":
        found["shifted"] = generated(args, sizes[3], SHIFTED)
    return found


def generated(args: argparse.Namespace, n: int, contrast: float) -> Samples:
    """Samples of our Darcy flow; those of another contrast are media of another seed."""
    path = args.data / f"bands_{args.resolution}_contrast{contrast:g}_{n}.hdf5"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        seed = int(contrast != darcy.CONTRAST)
        darcy.generate(path, n, args.resolution, seed=seed, contrast=contrast, progress=False)
    x, y = darcy.read(path, 0, n)
    return torch.as_tensor(x)[:, None], torch.as_tensor(y)[:, None]


def measure(
    args: argparse.Namespace,
    data: dict[str, dict[str, Samples]],
    problem: str,
    model: str,
    seed: int,
) -> dict[str, Any]:
    """Bands of one kind of model by all methods."""
    found = data[problem]
    everything = joined(found["train"], found["spread"])
    held_out = Loader(found["spread"], args.batch_size, seed)
    calibration = Loader(found["calibration"], args.batch_size, seed)
    rate, seconds = RATES[model], {}

    def timed(name: str, make: Callable[..., Any], *given: Any, **options: Any) -> Any:
        start = time.process_time()
        made = make(*given, **options)
        seconds[name] = round(time.process_time() - start, 2)
        return made

    base = timed("base", trained, args, NODES[problem], model, found["train"], seed)
    residual = timed("uqno", trained_uqno, args, base, held_out, rate)
    options = {"epochs": args.epochs, "learning_rate": rate}
    spread = timed("learned", fit_spread, base, held_out, **options)
    members = [
        timed(f"member {k}", trained, args, NODES[problem], model, everything, seed + 1000 * k)
        for k in (0, 1)
    ]
    # As many steps as on the held-out samples.
    options["epochs"] = max(1, round(args.epochs * len(found["spread"][0]) / len(everything[0])))
    every = Loader(everything, args.batch_size, seed)
    pattern = timed("learned, all samples", fit_spread, members[0], every, **options)
    bands = {
        "base, constant": conformal(base, calibration, LEVEL),
        "uqno": conformal(base, calibration, LEVEL, spread=residual),
        "uqno, own rule": Bands(base, residual, own_scale(base, residual, found["calibration"])),
        "learned": conformal(base, calibration, LEVEL, spread=spread),
        "learned, all samples": conformal(members[0], calibration, LEVEL, spread=pattern),
        "member, constant": conformal(members[0], calibration, LEVEL),
        "ensemble": conformal(Ensemble(members), calibration, LEVEL),
    }
    tests = [name for name in ("test", "shifted") if name in found]
    return {
        "seconds": seconds,
        "bands": {
            name: {test: scores(made, found[test]) for test in tests}
            for name, made in bands.items()
        },
    }


def joined(*samples: Samples) -> Samples:
    first, second = (torch.cat(fields) for fields in zip(*samples, strict=True))
    return first, second


class Loader:
    """Batches of fields in an order that is drawn anew each time."""

    def __init__(self, fields: Samples, batch_size: int, seed: int) -> None:
        self.fields, self.batch_size = fields, batch_size
        self.generator = torch.Generator().manual_seed(seed)

    def __iter__(self) -> Iterator[Samples]:
        order = torch.randperm(len(self.fields[0]), generator=self.generator)
        for chosen in order.split(self.batch_size):
            yield self.fields[0][chosen], self.fields[1][chosen]


def built(model: str, nodes: str, train: Samples) -> nn.Module:
    """A small model that sees and predicts fields of about unit size; further channels of its input
    stay as they are."""
    x, y = train
    channels = x.shape[1]
    others = channels - 1
    units = Units(
        (x[:, :1].mean().item(), *[0.0] * others),
        (x[:, :1].std().item(), *[1.0] * others),
        y.mean().item(),
        y.std().item(),
    )
    if model == "network":
        options = CKBOptions(Network(num_networks=4, nodes=nodes))
        made: nn.Module = CHONNNetwork2d(channels, width=12, ckb=options)
    elif model == "unet":
        made = CHONNUNet2d(channels, 1, 4, ckb=PLAIN)
    else:
        made = Neuralop(FNO((8, 8), channels, 1, 12, n_layers=2))
    return Standardized(made, units)


def trained(
    args: argparse.Namespace, nodes: str, model: str, train: Samples, seed: int
) -> nn.Module:
    torch.manual_seed(seed)
    made = built(model, nodes, train)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return relative_l2(made(x), y).mean()

    fit(made, Loader(train, args.batch_size, seed), loss, args.epochs, RATES[model])
    return made.eval()


def fit(
    model: nn.Module,
    loader: Loader,
    loss: Callable[[Tensor, Tensor], Tensor],
    epochs: int,
    rate: float,
) -> None:
    """Adam with a cosine schedule, the training of all models here."""
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    model.train()
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss(x, y).backward()
            optimizer.step()
        schedule.step()


class Magnitude(nn.Module):
    """UQNO's residual model as a spread, whose output may be negative."""

    def __init__(self, residual: nn.Module) -> None:
        super().__init__()
        self.residual = residual

    def forward(self, x: Tensor) -> Tensor:
        return self.residual(x).abs()


def trained_uqno(
    args: argparse.Namespace, base: nn.Module, loader: Loader, rate: float
) -> nn.Module:
    """neuraloperator's residual model, trained by its loss of quantiles."""
    uqno = UQNO(copy.deepcopy(base))
    quantile = PointwiseQuantileLoss(alpha=1 - LEVEL)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        solution, residual = uqno(x)
        return quantile(residual, y - solution)

    fit(uqno.residual_model, loader, loss, args.epochs, rate)
    return Magnitude(uqno.residual_model).eval()


@torch.no_grad()
def own_scale(base: nn.Module, residual: nn.Module, calibration: Samples) -> float:
    """The scale of UQNO's paper for alpha = delta = 0.1, by its Algorithm 1.

    At least 90 % of the points of a field with probability 90 %, made safe for points that are
    drawn from a continuous domain: t = alpha / 3 plus a term of Hoeffding's bound is taken off.
    """
    alpha = delta = 1 - LEVEL
    x, y = calibration
    ratios = ((y - base(x)).abs() / residual(x)).flatten(1)
    samples, points = ratios.shape
    least = math.sqrt(-math.log(delta) / 2 / points)
    t = least + (alpha - least) / 3
    in_domain = math.ceil((alpha - t) * points)
    in_functions = math.ceil((samples + 1) * (delta - math.exp(-2 * points * t * t)))
    quantiles = ratios.topk(in_domain + 1, dim=1).values[:, -1]
    return quantiles.topk(in_functions + 1).values[-1].item()


@torch.no_grad()
def scores(bands: Bands, fields: Samples) -> dict[str, float]:
    """Error of the prediction; coverage of points and samples; widths.

    ``width_at_level`` has the scale that makes the coverage of these samples 90 % exactly, so that
    methods compare at equal coverage. Widths and errors are over the mean size of the solution.
    """
    found = []
    for x, y in zip(*(field.split(64) for field in fields), strict=True):
        band = bands(x)
        half = (band.upper - band.lower) / 2
        found.append(
            {
                "relative_l2": relative_l2(band.prediction, y),
                "share": ((band.lower <= y) & (y <= band.upper)).double().flatten(1).mean(dim=1),
                "width": 2 * half.double().flatten(1).mean(dim=1),
                "ratio": ((y - band.prediction).abs() / half).flatten(),
            }
        )
    all_of = {name: torch.cat([part[name] for part in found]) for name in found[0]}
    width = (all_of["width"].mean() / fields[1].abs().mean()).item()
    at_level = float(np.quantile(all_of["ratio"].numpy(), LEVEL))
    return {
        "relative_l2": all_of["relative_l2"].mean().item(),
        "coverage": all_of["share"].mean().item(),
        "samples_above_level": (all_of["share"] >= LEVEL).double().mean().item(),
        "lowest_tenth": all_of["share"].quantile(0.1).item(),
        "width": width,
        "width_at_level": width * at_level,
    }


if __name__ == "__main__":
    main()
