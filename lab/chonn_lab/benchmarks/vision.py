"""Vision backbones of timm at 224 x 224 beside ours: inference and a training step on the CPU.

Contenders
    chonn_tiny and its peers of like size, built by ``timm.create_model`` with random weights

Columns
    forward, step   images a second: a forward pass in evaluation mode without autograd; forward,
                    loss, backward and Adam in training mode, drop-path at its default
    speed           images a second over those of the first peer
    peak_MiB        highest resident memory in a step, model and optimizer included
    scan_share      of the step, inside the scan operators
"""

from __future__ import annotations

import functools
from typing import Any

import timm
import torch
from torch import Tensor, nn

from chonn_lab.benchmarks.harness import Turns, arguments, environment, show, start, write_result
from chonn_lab.benchmarks.training import measure

MODELS = ("swin_tiny_patch4_window7_224", "chonn_tiny", "convnext_tiny", "mambaout_tiny")
SMOKE = ("test_vit", "test_chonn")
BATCH, RESOLUTION = 8, 224
COLUMNS = (
    *("forward_images_per_second", "forward_speed", "step_images_per_second", "step_speed"),
    *("peak_bytes", "scan_share"),
)


def build(name: str, points: int) -> nn.Module:
    torch.manual_seed(0)
    # Transformers with windows or positions need to know the size; others refuse the option.
    sized = {"img_size": points} if name.startswith(("swin", "test_vit")) else {}
    return timm.create_model(name, **sized)


def make(name: str, batch: int, points: int) -> tuple[nn.Module, tuple[Tensor, ...], Tensor]:
    torch.manual_seed(1)
    images, target = torch.randn(batch, 3, points, points), torch.randn(batch, 1000)
    return build(name, points).train(), (images,), target


def measure_models(
    names: tuple[str, ...], batch: int, points: int, turns: Turns
) -> list[dict[str, Any]]:
    makes = {name: functools.partial(make, name, batch, points) for name in names}
    rows = measure(makes, turns, evaluate=True)
    base = rows[names[0]]
    for row in rows.values():
        for key in ("forward", "step"):
            row[f"{key}_images_per_second"] = batch / row[f"{key}_ms"] * 1e3
            row[f"{key}_speed"] = base[f"{key}_ms"] / row[f"{key}_ms"]
    return list(rows.values())


def main(given: list[str] | None = None) -> None:
    options = start(arguments(__doc__, "vision"), given)
    names = SMOKE if options.smoke else MODELS
    batch, points = (2, 32) if options.smoke else (BATCH, RESOLUTION)
    turns = Turns(options.rounds, options.visit_ms, least=1)
    result: dict[str, Any] = {
        "environment": environment(options, ["timm"]),
        "batch": batch,
        "resolution": points,
        "rows": measure_models(names, batch, points, turns),
    }
    show(result["rows"], "name", "parameters", *COLUMNS)
    write_result(options.output, result)


if __name__ == "__main__":
    main()
