"""Parameters and multiply-adds of vision backbones at 224 x 224, ours and timm's, by one counter.

Counted are convolutions, matrix products and scans, in a forward pass of one image; norms,
activations and other elementwise work are not, as in published counts; see
`chonn_lab.cost`. Models live on the meta device: no weights, no arithmetic.

Published counts beside them: VMamba (Liu et al. 2024, whose models of these names the paper
compares with), Swin (Liu et al. 2021), ConvNeXt (Liu et al. 2022).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import timm
import torch

from chonn_lab import cost
from chonn_lab.benchmarks.harness import show, version, write_result
from chonn_lab.experiments.provenance import code
from chonn_lab.paths import RESULTS

MODELS = (
    "chonn_tiny",
    "chonn_small",
    "chonn_base",
    "swin_tiny_patch4_window7_224",
    "convnext_tiny",
    "mambaout_tiny",
)
# Millions of parameters and 10^9 multiply-adds ("FLOPs" there).
PUBLISHED = {
    "VMamba-T": (30, 4.9),
    "VMamba-S": (50, 8.7),
    "VMamba-B": (89, 15.4),
    "Swin-T": (28, 4.5),
    "ConvNeXt-T": (28.6, 4.5),
}
BESIDE = {
    "chonn_tiny": "VMamba-T",
    "chonn_small": "VMamba-S",
    "chonn_base": "VMamba-B",
    "swin_tiny_patch4_window7_224": "Swin-T",
    "convnext_tiny": "ConvNeXt-T",
}


def measure(name: str, points: int) -> dict[str, Any]:
    model = timm.create_model(name, device="meta").eval()
    size = cost.measure(model, [torch.empty(1, 3, points, points, device="meta")])
    row: dict[str, Any] = {"name": name, **size._asdict()}
    if beside := BESIDE.get(name):
        parameters, multiply_adds = PUBLISHED[beside]
        row["published"] = {
            "name": beside,
            "parameters": parameters * 1e6,
            "multiply_adds": multiply_adds * 1e9,
        }
    return row


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", action="append", help="repeatable; default: all of the table")
    parser.add_argument("--resolution", type=int, default=224)
    parser.add_argument("--output", type=Path, default=RESULTS / "vision_size.json")
    options = parser.parse_args(given)
    result = {
        "environment": {"versions": {name: version(name) for name in ("torch", "timm")}, **code()},
        "resolution": options.resolution,
        "rows": [measure(name, options.resolution) for name in options.model or MODELS],
    }
    show(result["rows"], "name", "parameters", "multiply_adds", "scan_multiply_adds")
    write_result(options.output, result)


if __name__ == "__main__":
    main()
