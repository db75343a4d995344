"""The routing ablation, small: CHONN variants on scikit-learn's digits, many seeds.

``baseline`` has one cell a block, ``parallel`` two side by side, ``serial`` two in series, and
``serial+constraints`` keeps them stable and dissipative (`chonn_ops.models.chonn.ROUTINGS`).
All get the same images, epochs, batches, optimiser and seeds; MLPs are widened until all have the
parameters of the last routing.
Digits of 8 x 8 are enlarged to 32 x 32, so that the first stage sees 8 x 8 positions.

The learning rate is the one of 1e-3, 3e-3 and 6e-3 with the best validation accuracy, mean over the
four variants, at a seed outside the five. Test images are scored once a run, by the last epoch's
model. Finished runs are kept in the results file, so a stopped ablation goes on where it was.

    python -m chonn_lab.studies.digits_ablation --output runs/digits.json
"""

from __future__ import annotations

import argparse
import functools
import time
from pathlib import Path
from typing import Any

import timm
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from chonn_lab.baselines.fields import count_parameters
from chonn_lab.pages import blocks
from chonn_lab.results_file import drawn_data, read_record, run_missing
from chonn_ops.models.chonn import ROUTINGS

SPLITS = {"train": 900, "validation": 300, "test": 597}
SIZE = 32
Split = dict[str, tuple[Tensor, Tensor]]


def main() -> None:
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    keys = ("epochs", "batch_size", "learning_rate", "weight_decay", "smoke")
    config = {"splits": SPLITS, "size": SIZE, **{key: getattr(args, key) for key in keys}}
    config["routings"] = {name: ROUTINGS[name] for name in args.models}
    packages = ("chonn-ops", "scikit-learn", "timm", "torch")
    images = digits()
    data = drawn_data("digits", *(tensor for split in images.values() for tensor in split))
    record = read_record(args.output, "digits_ablation", config, packages, args.threads, data)
    if args.smoke:
        images = {split: (x[:60], y[:60]) for split, (x, y) in images.items()}
    wanted = [(name, seed) for seed in args.seeds for name in args.models]
    run_missing(args.output, record, wanted, functools.partial(train, args, images))
    print(blocks.build("digits", record))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("runs/digits_ablation.json"))
    parser.add_argument("--models", nargs="+", choices=list(ROUTINGS), default=list(ROUTINGS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=60)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--weight-decay", type=float, default=0.05)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--smoke", action="store_true", help="60 images of each split, 2 epochs")
    args = parser.parse_args()
    if args.smoke:
        args.epochs = 2
    return args


def digits() -> Split:
    """Images (n, 1, 32, 32), normalised by the training images, and labels; fixed splits."""
    data = load_digits()
    images = torch.tensor(data["images"] / 16, dtype=torch.float32)[:, None]
    images = F.interpolate(images, size=(SIZE, SIZE), mode="bilinear")
    labels = torch.tensor(data["target"])
    rest = list(range(len(labels)))
    splits: Split = {}
    for split, count in SPLITS.items():
        chosen = rest
        if count < len(rest):
            chosen, rest = train_test_split(
                rest, train_size=count, stratify=labels[rest], random_state=0
            )
        splits[split] = images[chosen], labels[chosen]
    mean, std = splits["train"][0].mean(), splits["train"][0].std()
    return {split: ((x - mean) / std, y) for split, (x, y) in splits.items()}


def build(name: str, **changes: Any) -> nn.Module:
    options = {"num_classes": 10, "in_chans": 1, "drop_path_rate": 0.1, **changes}
    return timm.create_model("test_chonn", **ROUTINGS[name], **options)


def matched_mlp_ratio(name: str) -> float:
    """The MLP ratio that brings a variant nearest to the parameters of the full one."""
    full = count_parameters(build("serial+constraints"))
    ratios = [4 + step / 100 for step in range(151)]
    return min(ratios, key=lambda r: abs(count_parameters(build(name, mlp_ratio=r)) - full))


def train(args: argparse.Namespace, images: Split, name: str, seed: int) -> dict[str, Any]:
    """One run: train, follow the validation images, score the test images once."""
    begin = time.perf_counter()
    ratio = matched_mlp_ratio(name)
    torch.manual_seed(seed)
    model = build(name, mlp_ratio=ratio)
    x, y = images["train"]
    steps = len(x) // args.batch_size
    optimizer = torch.optim.AdamW(parameter_groups(model, args.weight_decay), lr=args.learning_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, args.learning_rate, total_steps=args.epochs * steps, pct_start=0.1
    )
    # Its own generator: every variant sees the same batches at the same seed.
    order = torch.Generator().manual_seed(seed)
    curve = []
    for epoch in range(args.epochs):
        model.train()
        total = 0.0
        for batch in torch.randperm(len(x), generator=order).split(args.batch_size)[:steps]:
            loss = F.cross_entropy(model(x[batch]), y[batch], label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            total += loss.item()
        validation = score(model, *images["validation"])
        curve.append({"epoch": epoch, "train_loss": total / steps, "validation": validation})
    return {
        "options": {**ROUTINGS[name], "mlp_ratio": ratio},
        "parameters": count_parameters(model),
        "metrics": {
            "validation": curve[-1]["validation"],
            "test": score(model, *images["test"]),
        },
        "seconds": time.perf_counter() - begin,
        "curve": curve,
    }


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """As timm does: no decay of vectors, nor of the parameters that the model names."""
    kept = model.no_weight_decay()  # type: ignore[operator]
    groups: dict[bool, list[nn.Parameter]] = {True: [], False: []}
    for name, parameter in model.named_parameters():
        groups[parameter.ndim > 1 and name not in kept].append(parameter)
    return [
        {"params": groups[True], "weight_decay": weight_decay},
        {"params": groups[False], "weight_decay": 0.0},
    ]


@torch.no_grad()
def score(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, float]:
    model.eval()
    logits = model(x)
    return {
        "accuracy": (logits.argmax(1) == y).double().mean().item(),
        "cross_entropy": F.cross_entropy(logits, y).item(),
    }


if __name__ == "__main__":
    main()
