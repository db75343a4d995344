"""Parameters and multiply-adds of vision backbones at 224 x 224, ours and timm's, by one counter.

Counted are convolutions, matrix products and scans, in a forward pass of one image; norms,
activations and other elementwise work are not, as in published counts. The counter is PyTorch's
(`torch.utils.flop_counter`), halved. Models live on the meta device: no weights, no arithmetic.

Published counts beside them: VMamba (Liu et al. 2024, whose models of these names the paper
compares with), Swin (Liu et al. 2021), ConvNeXt (Liu et al. 2022).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import timm
import torch
from _harness import FOLDER, cell, table, version, write_result
from torch.utils.flop_counter import FlopCounterMode, register_flop_formula

from chonn_ops.scan._walks import plan

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


@register_flop_formula(torch.ops.chonn_ops.kirchhoff_scan)
def scan_flops(
    u: Sequence[int],
    delta: Sequence[int],  # noqa: ARG001
    decay: Sequence[int],
    b: Sequence[int],  # noqa: ARG001
    c: Sequence[int],  # noqa: ARG001
    d: Sequence[int] | None,  # noqa: ARG001
    initial_state: Sequence[int] | None,  # noqa: ARG001
    grid: Sequence[int],
    directions: str,
    *modes: object,  # noqa: ARG001
    **outputs: object,  # noqa: ARG001
) -> int:
    """Two a multiply-add.

    A state of a channel takes, at each position, four products for all walks (exponent and
    injection ``(1 - alpha) * (1 / decay) * b * u``), and for each walk one multiply-add to relax
    and inject and one to read out. The skip and the mean over walks take one each a channel.
    """
    batch, positions, channels = u
    states = decay[1]
    walks = len(plan(tuple(grid), directions))
    return 2 * batch * positions * channels * (states * (4 + 2 * walks) + 2)


def measure(name: str, points: int) -> dict[str, Any]:
    model = timm.create_model(name, device="meta").eval()
    with FlopCounterMode(display=False) as counter:
        model(torch.empty(1, 3, points, points, device="meta"))
    counts = counter.get_flop_counts()["Global"]
    row: dict[str, Any] = {
        "name": name,
        "parameters": sum(p.numel() for p in model.parameters()),
        "multiply_adds": counter.get_total_flops() // 2,
        "scan_multiply_adds": counts.get(torch.ops.chonn_ops.kirchhoff_scan, 0) // 2,
    }
    if beside := BESIDE.get(name):
        parameters, multiply_adds = PUBLISHED[beside]
        row["published"] = {
            "name": beside,
            "parameters": parameters * 1e6,
            "multiply_adds": multiply_adds * 1e9,
        }
    return row


def rows_table(rows: list[dict[str, Any]]) -> str:
    header = ["model", "parameters, M", "multiply-adds, G", "in scans, G", "published", "M", "G"]
    cells = []
    for row in rows:
        published = row.get("published", {})
        cells.append(
            [
                row["name"],
                cell(row, "parameters", "{:.1f}", 1e-6),
                cell(row, "multiply_adds", "{:.2f}", 1e-9),
                cell(row, "scan_multiply_adds", "{:.2f}", 1e-9),
                published.get("name", "-"),
                cell(published, "parameters", "{:g}", 1e-6),
                cell(published, "multiply_adds", "{:.1f}", 1e-9),
            ]
        )
    return table(header, cells)


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", action="append", help="repeatable; default: all of the table")
    parser.add_argument("--resolution", type=int, default=224)
    parser.add_argument("--output", type=Path, default=FOLDER / "results" / "vision_size.json")
    options = parser.parse_args(given)
    result = {
        "versions": {name: version(name) for name in ("torch", "timm")},
        "resolution": options.resolution,
        "rows": [measure(name, options.resolution) for name in options.model or MODELS],
    }
    print(rows_table(result["rows"]))
    write_result(options.output, result)


if __name__ == "__main__":
    main()
