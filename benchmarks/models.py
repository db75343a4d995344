"""A training step of PDEBench's U-Net and FNO, plain and with a CKB, and of the network model.

Sizes are PDEBench's for Darcy flow: 128 x 128 points, one frame in, one out; U-Net with 32 initial
features, FNO with width 20 and 12 modes. The step is forward, MSE, backward, Adam, on random data.

Contenders
    Unet, FNO               PDEBench's classes; where PDEBench is not installed, ours of order 0,
                            which equal them parameter by parameter
    chonn_unet, chonn_fno   with scans in the paper's place; " order n" for another order than 2
    chonn_network           `CHONNNetwork2d`; its ratios are to FNO

Columns
    step            milliseconds
    x               step over that of the plain model
    peak MiB, x     highest resident memory in a step, model and optimizer included, in a fresh
                    process; over that of the plain model
    scan            share of the step inside the scan and network operators
"""

from __future__ import annotations

from typing import Any

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

from chonn_ops import CHONNFNO2d, CHONNNetwork2d, CHONNUNet2d, CKBOptions

PLAIN = {"unet": "Unet", "fno": "FNO"}
BASE = {**PLAIN, "network": PLAIN["fno"]}
# Of step time and of peak memory, at order 2 and full size.
BOUNDS = {"unet": (1.3, 1.3), "fno": (1.6, 1.3)}


def has_pdebench() -> bool:
    try:
        import pdebench.models  # noqa: F401
    except ImportError:
        return False
    return True


def build(family: str, order: int, smoke: bool) -> nn.Module:
    """A model; order 0 is the plain one."""
    torch.manual_seed(0)
    features, modes, width = (4, 4, 6) if smoke else (32, 12, 20)
    plain = order == 0 and has_pdebench()
    if family == "network":
        return CHONNNetwork2d(1, 1, ckb=CKBOptions(cell="network", order=order))
    ckb = CKBOptions(order=order)
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


def prepare_steps(family: str, order: int, smoke: bool, batch: int, points: int) -> Call:
    """Build and train two steps: everything that training holds, the optimizer's state too."""

    def call() -> None:
        step = training_step(build(family, order, smoke), *data(family, batch, points))
        step()
        step()

    return call


def measure(
    orders: list[int], batch: int, points: int, smoke: bool, turns: Turns
) -> list[dict[str, Any]]:
    """A row for each contender, the plain model first in each family."""
    rows: dict[str, dict[str, Any]] = {}
    calls: dict[tuple[str, str], Call] = {}
    for family, base in BASE.items():
        inputs, target = data(family, batch, points)
        for order in (0, *orders) if family in PLAIN else (1,):
            suffix = "" if order == 2 or family == "network" else f" order {order}"
            name = f"chonn_{family}{suffix}" if order else base
            model = build(family, order, smoke)
            step = training_step(model, inputs, target)
            calls |= {(name, "forward"): inference(model, inputs), (name, "step"): step}
            rows[name] = {
                "name": name,
                "family": family,
                "order": order,
                "class": f"{type(model).__module__}.{type(model).__qualname__}",
                "parameters": parameter_count(model),
                "peak_bytes": fresh_peak(prepare_steps, family, order, smoke, batch, points),
                **profile(step),
            }
            if order == 2 and family in BOUNDS:
                rows[name]["bounds"] = dict(zip(("step", "peak"), BOUNDS[family], strict=True))
    fill(rows, turns.times(calls))
    for row in rows.values():
        base = rows[BASE[row["family"]]]
        for key in ("forward_ms", "step_ms", "peak_bytes", "parameters"):
            if base[key]:
                row[f"{key.split('_')[0]}_ratio"] = row[key] / base[key]
    return list(rows.values())


def rows_table(rows: list[dict[str, Any]]) -> str:
    header = ["model", "parameters", "forward", "step", "x", "peak MiB", "x", "scan", "at most"]
    cells = [
        [
            row["name"],
            f"{row['parameters']:,}",
            cell(row, "forward_ms", "{:.0f}"),
            cell(row, "step_ms", "{:.0f}"),
            cell(row, "step_ratio"),
            cell(row, "peak_bytes", "{:.0f}", 2**-20),
            cell(row, "peak_ratio"),
            cell(row, "scan_share", "{:.0%}"),
            ", ".join(f"{key} {bound}x" for key, bound in row.get("bounds", {}).items()) or "-",
        ]
        for row in rows
    ]
    return table(header, cells)


def main(given: list[str] | None = None) -> None:
    parser = arguments((__doc__ or "").splitlines()[0], "models")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--resolution", type=int, default=128)
    parser.add_argument("--order", type=int, action="append", help="repeatable; default 2")
    options = parser.parse_args(given)
    start(options)
    batch, points = (2, 16) if options.smoke else (options.batch, options.resolution)
    # A step is long enough to be timed singly.
    turns = Turns(options.rounds, options.visit_ms, least=1)
    result: dict[str, Any] = {
        "environment": environment(options, ["pdebench"]),
        "batch": batch,
        "resolution": points,
        "rows": measure(options.order or [2], batch, points, options.smoke, turns),
    }
    print(rows_table(result["rows"]), flush=True)
    write_result(options.output, result)


if __name__ == "__main__":
    main()
