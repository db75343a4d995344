"""Vision backbones of timm at 224 x 224 beside ours: inference and a training step on the CPU.

Contenders
    chonn_tiny and its peers of like size, built by ``timm.create_model`` with random weights

Columns
    inference, step     images a second: a forward pass in evaluation mode without autograd;
                        forward, loss, backward and Adam in training mode, drop-path at its default
    x                   images a second over those of the first peer
    peak MiB            highest resident memory in a step, model and optimizer included
    scan                share of the step inside the scan operators
"""

from __future__ import annotations

from typing import Any

import timm
import torch
from _harness import (
    Call,
    Turns,
    arguments,
    cell,
    environment,
    fill,
    fresh_peak,
    profile,
    start,
    table,
    write_result,
)
from _training import inference, parameter_count, training_step
from torch import Tensor, nn

MODELS = ("swin_tiny_patch4_window7_224", "chonn_tiny", "convnext_tiny", "mambaout_tiny")
SMOKE = ("test_vit", "test_chonn")
# Images a second over those of the first model.
BOUNDS = {"forward": 0.7, "step": 0.6}


def build(name: str, points: int) -> nn.Module:
    torch.manual_seed(0)
    # Transformers with windows or positions need to know the size; others refuse the option.
    sized = {"img_size": points} if name.startswith(("swin", "test_vit")) else {}
    return timm.create_model(name, **sized)


def data(batch: int, points: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(batch, 3, points, points), torch.randn(batch, 1000)


def step(name: str, batch: int, points: int) -> Call:
    images, target = data(batch, points)
    return training_step(build(name, points).train(), (images,), target)


def prepare_steps(name: str, batch: int, points: int) -> Call:
    """Build and train two steps: everything that training holds, the optimizer's state too."""

    def call() -> None:
        once = step(name, batch, points)
        once()
        once()

    return call


def measure(names: tuple[str, ...], batch: int, points: int, turns: Turns) -> list[dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    calls: dict[tuple[str, str], Call] = {}
    for name in names:
        model = build(name, points).eval()
        calls[name, "forward"] = inference(model, (data(batch, points)[0],))
        calls[name, "step"] = train = step(name, batch, points)
        rows[name] = {
            "name": name,
            "parameters": parameter_count(model),
            "peak_bytes": fresh_peak(prepare_steps, name, batch, points),
            **profile(train),
        }
    fill(rows, turns.times(calls))
    base = rows[names[0]]
    for row in rows.values():
        for key in BOUNDS:
            row[f"{key}_images_per_second"] = batch / row[f"{key}_ms"] * 1e3
            row[f"{key}_speed"] = base[f"{key}_ms"] / row[f"{key}_ms"]
        row["peak_ratio"] = row["peak_bytes"] / base["peak_bytes"] if base["peak_bytes"] else None
    if "chonn_tiny" in rows:
        rows["chonn_tiny"]["bounds"] = BOUNDS
    return list(rows.values())


def rows_table(rows: list[dict[str, Any]]) -> str:
    header = ["model", "parameters", "inference", "x", "step", "x", "peak MiB", "scan", "at least"]
    cells = [
        [
            row["name"],
            f"{row['parameters']:,}",
            cell(row, "forward_images_per_second", "{:.1f}"),
            cell(row, "forward_speed"),
            cell(row, "step_images_per_second", "{:.1f}"),
            cell(row, "step_speed"),
            cell(row, "peak_bytes", "{:.0f}", 2**-20),
            cell(row, "scan_share", "{:.0%}"),
            ", ".join(f"{key} {bound}x" for key, bound in row.get("bounds", {}).items()) or "-",
        ]
        for row in rows
    ]
    return table(header, cells)


def main(given: list[str] | None = None) -> None:
    parser = arguments((__doc__ or "").splitlines()[0], "vision")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--resolution", type=int, default=224)
    parser.add_argument("--model", action="append", help="repeatable; the first is the measure")
    options = parser.parse_args(given)
    start(options)
    names = tuple(options.model or (SMOKE if options.smoke else MODELS))
    batch, points = (2, 32) if options.smoke else (options.batch, options.resolution)
    turns = Turns(options.rounds, options.visit_ms, least=1)
    result: dict[str, Any] = {
        "environment": environment(options, ["timm"]),
        "batch": batch,
        "resolution": points,
        "rows": measure(names, batch, points, turns),
    }
    print(rows_table(result["rows"]), flush=True)
    write_result(options.output, result)


if __name__ == "__main__":
    main()
