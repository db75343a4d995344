"""What a direct finite-volume solve on the input's own grid makes of neuraloperator's Darcy files.

The control that asks what a trained network adds to a solver: the two-phase medium as it is given,
at 16 or 32 points. Fitted to the training file: its contrast, the share of the arithmetic mean in
the conductivity of a face (the rest is the harmonic one) and the scale of the pressure.

    python -m chonn_lab.studies.direct_solve --data folder --output runs/darcy_direct.json
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from chonn_lab.experiments.base import relative_l2
from chonn_lab.experiments.provenance import code, files
from chonn_lab.results_file import read_record
from chonn_ops import diffusion, kirchhoff_network
from chonn_ops.files import write_json

RESOLUTIONS = (16, 32)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the darcy_*.pt files")
    parser.add_argument("--output", type=Path, default=Path("runs/darcy_direct.json"))
    args = parser.parse_args()
    inside, truth = read(args.data / "darcy_train_16.pt")

    def misfit(medium: np.ndarray) -> float:
        pressure = solve(inside, math.exp(medium[0]), medium[1])
        return error(scale(pressure, truth) * pressure, truth)

    bounds = [(0.0, math.log(1000)), (0.0, 1.0)]
    fit = minimize(misfit, (math.log(10), 0.5), method="Nelder-Mead", bounds=bounds)
    contrast, share = math.exp(fit.x[0]), float(fit.x[1])
    factor = scale(solve(inside, contrast, share), truth)
    config = {"fitted_to": "darcy_train_16.pt"}
    packages = ("chonn-ops", "torch", "scipy")
    names = ("train_16", *(f"test_{points}" for points in RESOLUTIONS))
    data = files(args.data / f"darcy_{name}.pt" for name in names)
    threads = torch.get_num_threads()
    record = read_record(args.output, "direct_solve", config, packages, threads, data)
    errors = {}
    for points in RESOLUTIONS:
        inside, truth = read(args.data / f"darcy_test_{points}.pt")
        errors[str(points)] = error(factor * solve(inside, contrast, share), truth)
    record["results"] = [
        {
            "contrast": contrast,
            "arithmetic": share,
            "scale": factor,
            "relative_l2": errors,
            **code(),
        }
    ]
    write_json(args.output, record)
    print(record["results"][0])


def read(path: Path) -> tuple[Tensor, Tensor]:
    """Where the medium conducts well, and the pressure, (N, R, R)."""
    data = torch.load(path, weights_only=True)
    return data["x"] > 0.5, data["y"].double().reshape(data["x"].shape)


def solve(inside: Tensor, contrast: float, arithmetic: float) -> Tensor:
    """Pressure of a unit source, 0 at the walls; points lie at i / n, the first on its wall."""
    k = torch.where(inside, contrast, 1.0).double()[..., None]
    h = 1 / k.shape[1]
    leak = torch.zeros_like(k)
    for axis in (1, 2):  # a short at the first point; a step of conductance k behind the last
        leak.select(axis, 0).add_(1e6)
        leak.select(axis, k.shape[axis] - 1).add_(k.select(axis, k.shape[axis] - 1))
    means = ((k + k.roll(-1, axis)) / 2 for axis in (1, 2))
    g = tuple(
        torch.where(harmonic > 0, torch.lerp(harmonic, mean, arithmetic), 0)
        for harmonic, mean in zip(diffusion(k, h).conductance, means, strict=True)
    )
    return kirchhoff_network(torch.full_like(k, h * h), g, leak, tol=1e-8)[..., 0]


def scale(pressure: Tensor, truth: Tensor) -> float:
    return ((pressure * truth).sum() / pressure.square().sum()).item()


def error(prediction: Tensor, truth: Tensor) -> float:
    return relative_l2(prediction, truth).mean().item()


if __name__ == "__main__":
    main()
