"""Bands of 90 % around predictions of Darcy flow: `chonn_ops.uncertainty` beside UQNO.

Two problems: neuraloperator's own files at 16 x 16, and our Darcy flow of contrast 10 at 16 x 16.
All methods have the same samples, and models are small FNOs. UQNO and the learned spread of
`fit_spread` split them into samples that train the base model and samples that train a copy of it
to predict errors, UQNO by its loss of quantiles. An ensemble needs no such split: both of its
members are trained on all samples, from two seeds. UQNO and the ensemble evaluate two networks a
prediction. All bands are calibrated on the same samples by the rule of `conformal`, UQNO also by
its own.

    python -m chonn_lab.studies.bands --data folder --output lab/results/bands.json

`folder` holds darcy_train_16.pt and darcy_test_16.pt; the other data are generated.
"""

from __future__ import annotations

import argparse
import copy
import functools
import hashlib
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
from chonn_lab.experiments.modules import Neuralop, Standardized, Units
from chonn_lab.problems import darcy
from chonn_lab.results_file import read_record, run_missing
from chonn_ops.uncertainty import Bands, Ensemble, conformal, fit_spread

LEVEL, RATE = 0.9, 1e-2
# Samples to train on, to learn the spread from, to calibrate with and to test on.
SPLITS = {"neuralop": (500, 200, 150, 200), "darcy": (400, 200, 200, 512)}
NAMES = ("train", "spread", "calibration", "test")
Samples = tuple[Tensor, Tensor]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("data"), help="of the darcy_*.pt files")
    parser.add_argument("--output", type=Path, default=Path("runs/bands.json"))
    parser.add_argument("--problems", nargs="+", choices=list(SPLITS), default=list(SPLITS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=50)
    args = parser.parse_args()
    torch.set_num_threads(1)
    data = {problem: read(args.data, problem) for problem in args.problems}
    # Lists, because a file that is resumed is compared with what JSON makes of them.
    splits = {problem: list(sizes) for problem, sizes in SPLITS.items()}
    config = {"level": LEVEL, "epochs": args.epochs, "splits": splits, "resolution": 16}
    config |= {"batch_size": args.batch_size}
    drawn = {}
    for problem, parts in data.items():
        for name, fields in parts.items():
            content = b"".join(field.contiguous().numpy().tobytes() for field in fields)
            drawn[f"{problem}, {name}"] = {"sha256": hashlib.sha256(content).hexdigest()}
    packages = ("chonn-ops", "neuraloperator", "torch")
    record = read_record(args.output, "bands", config, packages, 1, drawn)
    wanted = [(problem, seed) for seed in args.seeds for problem in data]
    run = functools.partial(measure, args, data)
    run_missing(args.output, record, wanted, run, ("problem", "seed"))


def read(folder: Path, problem: str) -> dict[str, Samples]:
    """Fields (N, 1, 16, 16) of each split."""
    sizes = SPLITS[problem]
    if problem == "neuralop":
        paths = (folder / f"darcy_{name}_16.pt" for name in ("train", "test"))
        parts = [torch.load(path, weights_only=True) for path in paths]
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
        path = folder / f"bands_16_contrast{darcy.CONTRAST:g}_{sum(sizes)}.hdf5"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            darcy.generate(path, sum(sizes), 16, seed=0, contrast=darcy.CONTRAST, progress=False)
        x, y = (torch.as_tensor(field)[:, None] for field in darcy.read(path, 0, sum(sizes)))
    return dict(zip(NAMES, zip(x.split(sizes), y.split(sizes), strict=True), strict=True))


def measure(
    args: argparse.Namespace, data: dict[str, dict[str, Samples]], problem: str, seed: int
) -> dict[str, Any]:
    """Bands by all methods."""
    found, seconds = data[problem], {}
    x, y = (torch.cat(fields) for fields in zip(found["train"], found["spread"], strict=True))
    held_out, calibration, every = (
        Loader(fields, args.batch_size, seed)
        for fields in (found["spread"], found["calibration"], (x, y))
    )

    def timed(name: str, make: Callable[..., Any], *given: Any, **options: Any) -> Any:
        start = time.process_time()
        made = make(*given, **options)
        seconds[name] = round(time.process_time() - start, 2)
        return made

    base = timed("base", trained, args, found["train"], seed)
    residual = timed("uqno", trained_uqno, base, held_out, args.epochs)
    options = {"epochs": args.epochs, "learning_rate": RATE}
    spread = timed("learned", fit_spread, base, held_out, **options)
    members = [timed(f"member {k}", trained, args, (x, y), seed + 1000 * k) for k in (0, 1)]
    # As many steps as on the held-out samples.
    options["epochs"] = max(1, round(args.epochs * len(found["spread"][0]) / len(x)))
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
    tested = {name: scores(made, found["test"]) for name, made in bands.items()}
    return {"seconds": seconds, "bands": tested}


class Loader:
    """Batches of fields in an order that is drawn anew each time."""

    def __init__(self, fields: Samples, batch_size: int, seed: int) -> None:
        self.fields, self.batch_size = fields, batch_size
        self.generator = torch.Generator().manual_seed(seed)

    def __iter__(self) -> Iterator[Samples]:
        order = torch.randperm(len(self.fields[0]), generator=self.generator)
        for chosen in order.split(self.batch_size):
            yield self.fields[0][chosen], self.fields[1][chosen]


def trained(args: argparse.Namespace, train: Samples, seed: int) -> nn.Module:
    """A small FNO that sees and predicts fields of about unit size."""
    torch.manual_seed(seed)
    x, y = train
    units = Units((x.mean().item(),), (x.std().item(),), y.mean().item(), y.std().item())
    made = Standardized(Neuralop(FNO((8, 8), 1, 1, 12, n_layers=2)), units)
    loss = lambda x, y: relative_l2(made(x), y).mean()  # noqa: E731
    fit(made, Loader(train, args.batch_size, seed), loss, args.epochs)
    return made.eval()


def fit(
    model: nn.Module, loader: Loader, loss: Callable[[Tensor, Tensor], Tensor], epochs: int
) -> None:
    """Adam with a cosine schedule, the training of all models here."""
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
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


def trained_uqno(base: nn.Module, loader: Loader, epochs: int) -> nn.Module:
    """neuraloperator's residual model, trained by its loss of quantiles."""
    uqno = UQNO(copy.deepcopy(base))
    quantile = PointwiseQuantileLoss(alpha=1 - LEVEL)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        solution, residual = uqno(x)
        return quantile(residual, y - solution)

    fit(uqno.residual_model, loader, loss, epochs)
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
    x, y = fields
    made = [bands(part) for part in x.split(64)]
    prediction, lower, upper = (
        torch.cat([getattr(band, name) for band in made])
        for name in ("prediction", "lower", "upper")
    )
    half = (upper - lower) / 2
    share = ((lower <= y) & (y <= upper)).double().flatten(1).mean(dim=1)
    width = (2 * half.double().mean() / y.abs().mean()).item()
    ratio = ((y - prediction).abs() / half).flatten().numpy()
    return {
        "relative_l2": relative_l2(prediction, y).mean().item(),
        "coverage": share.mean().item(),
        "samples_above_level": (share >= LEVEL).double().mean().item(),
        "lowest_tenth": share.quantile(0.1).item(),
        "width": width,
        "width_at_level": width * float(np.quantile(ratio, LEVEL)),
    }


if __name__ == "__main__":
    main()
