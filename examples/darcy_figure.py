"""Figure of a Darcy comparison: input, truth, every model's prediction and its error map."""

from __future__ import annotations

import argparse
import dataclasses
import os
from pathlib import Path

import h5py
import matplotlib
import torch
from torch import Tensor

from chonn_ops import CHONNFNO2d, CHONNUNet2d, CKBOptions

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def draw_fields(results: list[dict], data: Path, output: Path, args: argparse.Namespace) -> None:
    """Write ``fields.png`` for the first validation sample (PDEBench validates on the first tenth).

    Parameters
    ----------
    results : list of dict
        One finished run a model, as written by ``pdebench_darcy.py``.
    data : Path
        File in PDEBench's Darcy layout.
    output : Path
        Folder of the comparison; holds ``runs/<model>-seed<k>/*.pt``.
    args : Namespace
        The comparison's settings.
    """
    with h5py.File(data) as file:
        nu, truth = torch.tensor(file["nu"][0]), torch.tensor(file["tensor"][0, 0])
        axes = [torch.tensor(file[f"{axis}-coordinate"][:]) for axis in "xy"]
    grid = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)
    predictions = {
        result["model"]: predict(load(result, output, args), nu, grid) for result in results
    }
    largest = max(float((field - truth).abs().max()) for field in predictions.values())

    columns = 2 + len(predictions)
    figure, panels = plt.subplots(
        2, columns, figsize=(2.25 * columns + 0.8, 5.0), squeeze=False, layout="compressed"
    )
    field_range = {"vmin": float(truth.min()), "vmax": float(truth.max()), "cmap": "viridis"}
    error_range = {"vmin": -largest, "vmax": largest, "cmap": "RdBu_r"}
    show(panels[0, 0], nu, r"input $\nu$", cmap="cividis")
    shown = show(panels[0, 1], truth, "truth $u$", **field_range)
    for column, (name, field) in enumerate(predictions.items(), start=2):
        show(panels[0, column], field, name, **field_range)
        error = field - truth
        relative = float(error.norm() / truth.norm())
        error_shown = show(
            panels[1, column], error, f"error, rel. L2 {100 * relative:.1f}%", **error_range
        )
    figure.colorbar(shown, ax=panels[0, :], shrink=0.8)
    figure.colorbar(error_shown, ax=panels[1, :], shrink=0.8)
    for panel in panels[1, :2]:
        panel.set_axis_off()
    temporary = output / f".fields.{os.getpid()}.png"
    figure.savefig(temporary, dpi=130)
    plt.close(figure)
    temporary.replace(output / "fields.png")


def show(panel, field: Tensor, title: str, **options):
    panel.set_title(title, fontsize=10)
    panel.set_xticks([])
    panel.set_yticks([])
    # x runs to the right and y upwards, as on the unit square.
    return panel.imshow(field.T, origin="lower", **options)


def load(result: dict, output: Path, args: argparse.Namespace) -> torch.nn.Module:
    """The trained model; order 0 of ours is the stock one to the last parameter."""
    name = result["model"]
    placement = dict(result["options"])  # of the block; the rest are the block's own options
    block = {
        field.name: placement.pop(field.name)
        for field in dataclasses.fields(CKBOptions)
        if field.name in placement
    }
    ckb = CKBOptions(**(block or {"order": 0}))
    if "fno" in name.lower():
        modes = (args.modes, args.modes)
        model = CHONNFNO2d(1, *modes, args.width, initial_step=1, ckb=ckb, **placement)
    else:
        model = CHONNUNet2d(1, 1, ckb=ckb, **placement)
    (path,) = (output / "runs" / f"{name}-seed{result['seed']}").glob("*.pt")
    model.load_state_dict(torch.load(path, weights_only=True)["model_state_dict"])
    return model.eval()


@torch.no_grad()
def predict(model: torch.nn.Module, nu: Tensor, grid: Tensor) -> Tensor:
    if isinstance(model, CHONNFNO2d):
        return model(nu[None, ..., None], grid[None])[0, ..., 0, 0]
    return model(nu[None, None])[0, 0]
