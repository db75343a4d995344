"""Inputs with noise and gaps: what becomes of errors and of 90 % bands.

Darcy flow and Poisson's equation at 16 x 16, whose sources have 6 x 6 modes; CHONN network, FNO and
U-Net. Noise is Gaussian, with a share of the input's standard deviation. Missing nodes hold the
input's mean, and a further channel, the mask, is 1 at the observed ones; each sample misses other
nodes. Models are trained, calibrated and tested on inputs of one kind, and those of clean inputs
are tested on noisy ones too.

    python -m chonn_lab.studies.gaps --output lab/results/gaps.json
"""

from __future__ import annotations

import argparse
import functools
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chonn_lab.baselines.fields import count_parameters
from chonn_lab.problems import darcy, poisson
from chonn_lab.results_file import drawn_data, read_record, run_missing
from chonn_lab.studies.bands import (
    LEVEL,
    NODES,
    RATES,
    Loader,
    Samples,
    generated,
    scores,
    trained,
)
from chonn_ops.uncertainty import conformal

PROBLEMS = {"darcy": NODES["darcy"], "poisson": "corners"}
# Of the input: noise over its standard deviation, and the share of the nodes that are observed.
INPUTS = {"clean": (0.0, 1.0), "noise": (0.3, 1.0), "gaps": (0.0, 0.5)}
SPLITS = {"train": 256, "calibration": 128, "test": 256}
MODES = 6  # of Poisson's sources


def main() -> None:
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    data = {problem: read(args, problem) for problem in args.problems}
    config = {"level": LEVEL, "inputs": INPUTS, "splits": SPLITS}
    config |= {"epochs": args.epochs, "resolution": args.resolution, "batch_size": args.batch_size}
    # JSON has lists.
    config["inputs"] = {name: list(kind) for name, kind in INPUTS.items()}
    drawn: dict[str, Any] = {}
    for problem, fields in data.items():
        drawn |= drawn_data(problem, *fields)
    record = read_record(args.output, "gaps", config, ("chonn-ops", "torch"), args.threads, drawn)
    wanted = [
        (problem, model, kind, seed)
        for seed in args.seeds
        for problem in data
        for kind in INPUTS
        for model in args.models
    ]
    run = functools.partial(measure, args, data)
    run_missing(args.output, record, wanted, run, ("problem", "model", "input", "seed"))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder for Darcy's")
    parser.add_argument("--output", type=Path, default=Path("runs/gaps.json"))
    parser.add_argument("--problems", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    parser.add_argument("--models", nargs="+", choices=list(RATES), default=list(RATES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--resolution", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def read(args: argparse.Namespace, problem: str) -> Samples:
    """All samples, fields (N, 1, R, R)."""
    n = sum(SPLITS.values())
    if problem == "darcy":
        return generated(args, n, darcy.CONTRAST)
    coefficients = np.random.default_rng(0).uniform(-1, 1, (n, MODES, MODES))
    x, y = (torch.as_tensor(f).float() for f in poisson.fields(coefficients, args.resolution))
    return x[:, None] / x.std(), y[:, None] / y.std()


def spoiled(x: Tensor, noise: float, observed: float, seed: int) -> Tensor:
    """Inputs (N, 1, R, R) with noise; with gaps (N, 2, R, R), the second channel the mask."""
    generator = torch.Generator().manual_seed(seed)
    x = x + noise * x.std() * torch.randn(x.shape, generator=generator)
    if observed == 1:
        return x
    mask = torch.rand(x.shape, generator=generator) < observed
    return torch.cat((torch.where(mask, x, x.mean()), mask.to(x.dtype)), dim=1)


def measure(
    args: argparse.Namespace,
    data: dict[str, Samples],
    problem: str,
    model: str,
    kind: str,
    seed: int,
) -> dict[str, Any]:
    """Train and calibrate a model on inputs of one kind."""
    x, y = data[problem]
    sizes = list(SPLITS.values())

    def split(kind: str) -> dict[str, Samples]:
        # Noise and gaps do not depend on the training's seed.
        parts = zip(spoiled(x, *INPUTS[kind], seed=1).split(sizes), y.split(sizes), strict=True)
        return dict(zip(SPLITS, parts, strict=True))

    samples = split(kind)
    made = trained(args, PROBLEMS[problem], model, samples["train"], seed)
    bands = conformal(made, Loader(samples["calibration"], 64, seed), LEVEL)
    found = {kind: scores(bands, samples["test"])}
    if kind == "clean":
        found["noise"] = scores(bands, split("noise")["test"])
    return {"tests": found, "parameters": count_parameters(made)}


if __name__ == "__main__":
    main()
