"""A training step of PDEBench's U-Net and FNO, plain and with a CKB, and of the network model.

Sizes are PDEBench's for Darcy flow: 128 x 128 points, one frame in, one out; U-Net with 32 initial
features, FNO with width 20 and 12 modes. The step is forward, MSE, backward, Adam, on random data.

Contenders
    Unet, FNO               PDEBench's classes; where PDEBench is not installed, ours of order 0,
                            which equal them parameter by parameter
    chonn_unet, chonn_fno   with scans in the paper's place, of order 2
    chonn_network           `CHONNNetwork2d`; its ratios are to FNO

Columns
    forward_ms      without autograd
    step_ms         and step_ratio, over that of the plain model
    peak_MiB        highest resident memory in a step, model and optimizer included, in a fresh
                    process; peak_ratio, over that of the plain model
    scan_share      of the step, inside the scan and network operators
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn

from chonn_lab.benchmarks.harness import (
    Turns,
    arguments,
    environment,
    show,
    start,
    version,
    write_result,
)
from chonn_lab.benchmarks.training import measure
from chonn_ops import CHONNFNO2d, CHONNNetwork2d, CHONNUNet2d, CKBOptions

# Family and order by name; order 0 is the plain model.
MODELS = {
    "Unet": ("unet", 0),
    "chonn_unet": ("unet", 2),
    "FNO": ("fno", 0),
    "chonn_fno": ("fno", 2),
    "chonn_network": ("network", 1),
}
BASE = {"unet": "Unet", "fno": "FNO", "network": "FNO"}
BATCH, RESOLUTION = 8, 128
COLUMNS = ("forward_ms", "step_ms", "step_ratio", "peak_bytes", "peak_ratio", "scan_share")


def build(family: str, order: int, smoke: bool) -> nn.Module:
    torch.manual_seed(0)
    features, modes, width = (4, 4, 6) if smoke else (32, 12, 20)
    plain = order == 0 and version("pdebench")
    if family == "network":
        return CHONNNetwork2d(1, 1, ckb=CKBOptions(order=order))
    ckb = CKBOptions("scan", order=order)
    if family == "unet":
        if plain:
            from pdebench.models.unet.unet import UNet2d

            return UNet2d(1, 1, features)
        return CHONNUNet2d(1, 1, features, ckb=ckb)
    if plain:
        from pdebench.models.fno.fno import FNO2d

        return FNO2d(1, modes, modes, width, 1)
    return CHONNFNO2d(1, modes, modes, width, 1, ckb=ckb)


def data(family: str, batch: int, points: int) -> tuple[tuple[Tensor, ...], Tensor]:
    """Inputs and target, in each family's layout."""
    torch.manual_seed(1)
    field = (batch, points, points)
    if family != "fno":
        return (torch.randn(batch, 1, *field[1:]),), torch.randn(batch, 1, *field[1:])
    return (torch.randn(*field, 1), torch.rand(*field, 2)), torch.randn(*field, 1, 1)


def make(
    family: str, order: int, smoke: bool, batch: int, points: int
) -> tuple[nn.Module, tuple[Tensor, ...], Tensor]:
    return build(family, order, smoke), *data(family, batch, points)


def measure_models(batch: int, points: int, smoke: bool, turns: Turns) -> list[dict[str, Any]]:
    """A row for each contender, the plain model first in each family."""
    makes = {n: functools.partial(make, *kind, smoke, batch, points) for n, kind in MODELS.items()}
    rows = measure(makes, turns)
    for name, row in rows.items():
        family, order = MODELS[name]
        model = type(build(family, order, smoke))
        row |= {"family": family, "order": order}
        row["class"] = f"{model.__module__}.{model.__qualname__}"
        base = rows[BASE[family]]
        for key in ("forward_ms", "step_ms", "peak_bytes", "parameters"):
            if base[key]:
                row[f"{key.split('_')[0]}_ratio"] = row[key] / base[key]
    return list(rows.values())


def main(given: list[str] | None = None) -> None:
    options = start(arguments(__doc__, "models"), given)
    batch, points = (2, 16) if options.smoke else (BATCH, RESOLUTION)
    # A step is long enough to be timed singly.
    turns = Turns(options.rounds, options.visit_ms, least=1)
    result: dict[str, Any] = {
        "environment": environment(options, ["pdebench"]),
        "batch": batch,
        "resolution": points,
        "rows": measure_models(batch, points, options.smoke, turns),
    }
    show(result["rows"], "name", "parameters", *COLUMNS)
    write_result(options.output, result)


if __name__ == "__main__":
    main()
