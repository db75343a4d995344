"""Train neuraloperator's FNO beside our models on Darcy flow; evaluate them at 16 and 32.

Data are neuraloperator's own ``darcy_{train,test}_{16,32}.pt``; training is its `Trainer`. All
models get the same data, epochs, batches, learning rate and seeds. Finished runs are kept in the
results file, so a stopped comparison goes on where it was.

    python -m chonn_lab.studies.neuralop_darcy --data folder --seeds 0 1 2
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from neuralop.data.datasets.darcy import DarcyDataset
from neuralop.losses import LpLoss
from neuralop.models import FNO
from neuralop.training import AdamW, Trainer
from torch import nn
from torch.utils.data import DataLoader

from chonn_lab.experiments.base import relative_l2
from chonn_lab.experiments.provenance import files
from chonn_lab.pages import blocks
from chonn_lab.results_file import read_record, run_missing
from chonn_plugins.clipping import clip_gradients
from chonn_plugins.neuralop import CHONNNetwork

RESOLUTIONS = (16, 32)
# neuraloperator's FNO, with keywords of ours.
FNOS: dict[str, dict[str, Any]] = {
    "FNO": {},
    "FNO, networks": {"spectral_mixer": "ckb"},
}
MODELS = ("chonn_network", *FNOS)


def main() -> None:
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    keys = ("epochs", "batch_size", "learning_rate", "modes", "width", "n_train")
    config = {key: getattr(args, key) for key in keys}
    packages = ("chonn-ops", "neuraloperator", "torch")
    names = ("train_16", *(f"test_{points}" for points in RESOLUTIONS))
    data = files(args.data / f"darcy_{name}.pt" for name in names)
    record = read_record(args.output, "neuralop_darcy", config, packages, args.threads, data)
    wanted = [(model, seed) for seed in args.seeds for model in args.models]
    run_missing(args.output, record, wanted, functools.partial(train, args))
    print(blocks.build("neuraloperator darcy", record))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
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
    return parser.parse_args()


def train(args: argparse.Namespace, name: str, seed: int) -> dict[str, Any]:
    """Train one model by neuraloperator's Trainer and score it on both test sets."""
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
    if name in FNOS:
        model = FNO((args.modes,) * 2, 1, 1, args.width, **FNOS[name])
    else:
        model = CHONNNetwork(1, 1)
    optimizer = AdamW(model.parameters(), lr=args.learning_rate, weight_decay=1e-4)
    if name not in FNOS:
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
    return {
        "parameters": sum(p.numel() * (1 + p.is_complex()) for p in model.parameters()),
        "relative_l2": errors,
        "seconds": seconds,
    }


@torch.no_grad()
def error_of(model: nn.Module, processor: Any, dataset: Any) -> float:
    """Mean over the samples of ||prediction - truth|| / ||truth||, in physical units."""
    errors = []
    for sample in DataLoader(dataset, batch_size=50):
        fields = processor.preprocess(dict(sample))
        prediction, fields = processor.postprocess(model(fields["x"]), fields)
        errors += relative_l2(prediction, fields["y"]).tolist()
    return statistics.fmean(errors)


if __name__ == "__main__":
    main()
