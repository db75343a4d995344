"""neuraloperator's FNO beside our network on its Darcy files, trained at 16 and evaluated at 32.

Training is neuraloperator's `Trainer`; all models get the same data, epochs, batches, learning rate
and seeds. "direct solve" asks what training adds to a solver: a finite-volume solve on the input's
own grid, with the contrast, the share of the arithmetic mean in the conductivity of a face (the
rest is harmonic) and the scale of the pressure fitted to the training file. Finished runs are kept.

    python -m chonn_lab.studies.neuralop_darcy --data folder --seeds 0 1 2
"""

from __future__ import annotations

import argparse
import functools
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from neuralop.data.datasets.darcy import DarcyDataset
from neuralop.losses import LpLoss
from neuralop.models import FNO
from neuralop.training import AdamW, Trainer
from scipy.optimize import minimize
from torch import Tensor, nn
from torch.utils.data import DataLoader

from chonn_lab.experiments.base import relative_l2
from chonn_lab.experiments.provenance import files
from chonn_lab.pages import blocks
from chonn_lab.results_file import read_record, run_missing
from chonn_ops import diffusion, kirchhoff_network
from chonn_plugins.clipping import clip_gradients
from chonn_plugins.neuralop import CHONNNetwork

RESOLUTIONS = (16, 32)
NETWORK, CONTROL = "chonn_network", "direct solve"
# neuraloperator's FNO, with keywords of ours.
FNOS: dict[str, dict[str, Any]] = {"FNO": {}, "FNO, networks": {"spectral_mixer": "ckb"}}
MODELS = (NETWORK, *FNOS, CONTROL)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the darcy_*.pt files")
    parser.add_argument("--output", type=Path, default=Path("runs/neuralop_darcy.json"))
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--modes", type=int, default=12, help="Fourier modes an axis")
    parser.add_argument("--width", type=int, default=24, help="hidden channels")
    parser.add_argument("--n-train", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    keys = ("epochs", "batch_size", "learning_rate", "modes", "width", "n_train")
    config = {key: getattr(args, key) for key in keys}
    names = ("train_16", *(f"test_{points}" for points in RESOLUTIONS))
    data = files(args.data / f"darcy_{name}.pt" for name in names)
    packages = ("chonn-ops", "neuraloperator", "torch")
    record = read_record(args.output, "neuralop_darcy", config, packages, args.threads, data)
    # Nothing of the control is random.
    wanted = [
        (model, seed)
        for seed in args.seeds
        for model in args.models
        if model != CONTROL or seed == args.seeds[0]
    ]
    run_missing(args.output, record, wanted, functools.partial(run, args))
    print(blocks.build("neuraloperator darcy", record))


def run(args: argparse.Namespace, name: str, seed: int) -> dict[str, Any]:
    """Train one model and score it on both test sets."""
    if name == CONTROL:
        return control(args.data)
    torch.manual_seed(seed)
    data = DarcyDataset(
        root_dir=args.data,
        n_train=args.n_train,
        n_tests=[50, 50],
        batch_size=args.batch_size,
        test_batch_sizes=[50, 50],
        train_resolution=RESOLUTIONS[0],
        test_resolutions=list(RESOLUTIONS),
        download=False,
    )
    ours = name == NETWORK
    model = CHONNNetwork(1, 1) if ours else FNO((args.modes,) * 2, 1, 1, args.width, **FNOS[name])
    optimizer = AdamW(model.parameters(), lr=args.learning_rate, weight_decay=1e-4)
    if ours:
        clip_gradients(optimizer)
    trainer = Trainer(
        model=model,
        n_epochs=args.epochs,
        device=torch.device("cpu"),
        data_processor=data.data_processor,
        eval_interval=args.epochs + 1,
        verbose=False,
    )
    start = time.perf_counter()
    trainer.train(
        train_loader=DataLoader(data.train_db, batch_size=args.batch_size, shuffle=True),
        test_loaders={},
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs),
        training_loss=LpLoss(d=2, p=2),
        eval_losses={},
    )
    seconds = time.perf_counter() - start
    model.eval()
    data.data_processor.eval()
    errors = {
        str(points): error_of(model, data.data_processor, data.test_dbs[points])
        for points in RESOLUTIONS
    }
    parameters = sum(p.numel() * (1 + p.is_complex()) for p in model.parameters())
    return {"parameters": parameters, "relative_l2": errors, "seconds": seconds}


@torch.no_grad()
def error_of(model: nn.Module, processor: Any, dataset: Any) -> float:
    """Mean over the samples of ||prediction - truth|| / ||truth||, in physical units."""
    errors = []
    for sample in DataLoader(dataset, batch_size=50):
        fields = processor.preprocess(dict(sample))
        prediction, fields = processor.postprocess(model(fields["x"]), fields)
        errors += relative_l2(prediction, fields["y"]).tolist()
    return float(np.mean(errors))


def control(folder: Path) -> dict[str, Any]:
    """The fitted direct solve on both test sets."""

    def read(name: str) -> tuple[Tensor, Tensor]:
        """Where the medium conducts well, and the pressure, (N, R, R)."""
        data = torch.load(folder / f"darcy_{name}.pt", weights_only=True)
        return data["x"] > 0.5, data["y"].double().reshape(data["x"].shape)

    inside, truth = read("train_16")

    def fitted(medium: np.ndarray) -> tuple[float, float]:
        """The best scale of the pressure, and the error with it."""
        pressure = solve(inside, math.exp(medium[0]), medium[1])
        scale = ((pressure * truth).sum() / pressure.square().sum()).item()
        return scale, relative_l2(scale * pressure, truth).mean().item()

    bounds = [(0.0, math.log(1000)), (0.0, 1.0)]
    begin = (math.log(10), 0.5)
    fit = minimize(lambda medium: fitted(medium)[1], begin, method="Nelder-Mead", bounds=bounds)
    contrast, share, scale = math.exp(fit.x[0]), float(fit.x[1]), fitted(fit.x)[0]
    errors = {}
    for points in RESOLUTIONS:
        inside, truth = read(f"test_{points}")
        pressure = scale * solve(inside, contrast, share)
        errors[str(points)] = relative_l2(pressure, truth).mean().item()
    found = {"parameters": 3, "contrast": contrast, "arithmetic": share, "scale": scale}
    return {**found, "relative_l2": errors}


def solve(inside: Tensor, contrast: float, arithmetic: float) -> Tensor:
    """Pressure of a unit source, 0 at the walls; points lie at i / n, the first on its wall."""
    k = torch.where(inside, contrast, 1.0).double()[..., None]
    h = 1 / k.shape[1]
    leak = torch.zeros_like(k)
    for axis in (1, 2):  # a short at the first point; a step of conductance k behind the last
        leak.select(axis, 0).add_(1e6)
        leak.select(axis, -1).add_(k.select(axis, -1))
    means = ((k + k.roll(-1, axis)) / 2 for axis in (1, 2))
    g = tuple(
        torch.where(harmonic > 0, torch.lerp(harmonic, mean, arithmetic), 0)
        for harmonic, mean in zip(diffusion(k, h).conductance, means, strict=True)
    )
    return kirchhoff_network(torch.full_like(k, h * h), g, leak, tol=1e-8)[..., 0]


if __name__ == "__main__":
    main()
