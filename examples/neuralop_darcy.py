"""Train three models on neuraloperator's Darcy files with neuraloperator's own Trainer.

The first is neuraloperator's FNO. The second differs by ``spectral_mixer="ckb"`` alone, which puts
a block of networks behind the lifting. The third solves one circuit. The script downloads the
files ``darcy_{train,test}_{16,32}.pt`` into the folder if they are missing.

    python examples/neuralop_darcy.py --data folder --epochs 10
"""

import argparse
from pathlib import Path

from chonn_plugins.openmp import sleep_while_waiting

sleep_while_waiting()  # before torch is imported

import torch
from neuralop.data.datasets.darcy import DarcyDataset
from neuralop.losses import LpLoss
from neuralop.models import FNO
from neuralop.training import AdamW, Trainer
from torch import nn
from torch.utils.data import DataLoader

from chonn_plugins.neuralop import CHONNNetwork

RESOLUTIONS = (16, 32)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the darcy_*.pt files")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--n-train", type=int, default=1000)
    parser.add_argument("--width", type=int, default=24, help="hidden channels of FNOs")
    parser.add_argument("--modes", type=int, default=12, help="Fourier modes per axis")
    args = parser.parse_args(arguments)
    data = DarcyDataset(
        root_dir=args.data,
        n_train=args.n_train,
        n_tests=[50, 50],
        batch_size=32,
        test_batch_sizes=[50, 50],
        train_resolution=RESOLUTIONS[0],
        test_resolutions=list(RESOLUTIONS),
        download=not (args.data / "darcy_train_16.pt").exists(),
    )
    fourier = ((args.modes, args.modes), 1, 1, args.width)
    models: dict[str, tuple[nn.Module, float]] = {
        "FNO": (FNO(*fourier), 3e-3),
        "FNO with networks": (FNO(*fourier, spectral_mixer="ckb"), 3e-3),
        "circuit": (CHONNNetwork(1, 1), 1e-2),
    }
    for name, (model, rate) in models.items():
        errors = train(model, data, rate, args.epochs)
        shown = ", ".join(f"{n} x {n}: {error:.4f}" for n, error in errors.items())
        print(f"{name}, {sum(p.numel() for p in model.parameters()):,} parameters: {shown}")


def train(model: nn.Module, data: DarcyDataset, rate: float, epochs: int) -> dict[int, float]:
    """Train on the first grid; return the relative L2 errors on both test grids."""
    torch.manual_seed(0)
    optimizer = AdamW(model.parameters(), lr=rate, weight_decay=1e-4)
    if isinstance(model, CHONNNetwork):
        data.data_processor.train()
        first = data.data_processor.preprocess(
            next(iter(DataLoader(data.train_db, batch_size=256)))
        )
        model.calibrate(first["x"], first["y"])
    loss = LpLoss(d=2, p=2, reduction="mean")
    trainer = Trainer(
        model=model,
        n_epochs=epochs,
        device=torch.device("cpu"),
        data_processor=data.data_processor,
        eval_interval=epochs,
        verbose=False,
    )
    tests = {n: DataLoader(data.test_dbs[n], batch_size=50) for n in RESOLUTIONS}
    scores = trainer.train(
        train_loader=DataLoader(data.train_db, batch_size=32, shuffle=True),
        test_loaders=tests,
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs),
        training_loss=LpLoss(d=2, p=2),
        eval_losses={"l2": loss},
    )
    return {n: float(scores[f"{n}_l2"]) for n in RESOLUTIONS}


if __name__ == "__main__":
    main()
