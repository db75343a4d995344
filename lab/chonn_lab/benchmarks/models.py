"""A training step of PDEBench's U-Net and FNO, plain and with a CKB, and of the network model.

Sizes are PDEBench's for Darcy flow: 128 x 128 points, one frame in, one out; U-Net with 32 initial
features, FNO with width 20 and 12 modes. The step is forward, MSE, backward, Adam, on random data.

Contenders
    Unet, FNO               PDEBench's classes
    chonn_unet, chonn_fno   with scans in the paper's place, of order 2
    chonn_network           `CHONNNetwork2d`; its ratios are to FNO

Columns
    forward_ms      without autograd, in evaluation mode
    step_ms         and step_ratio, over that of the plain model
    peak_MiB        highest resident memory in a step, model and optimizer included, in a fresh
                    process; peak_ratio, over that of the plain model
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from chonn_lab.benchmarks.harness import Row, Run, main_of
from chonn_ops import CHONNFNO2d, CHONNNetwork2d, CHONNUNet2d, CKBOptions

SCANS = CKBOptions("scan", order=2)
BASE = {"chonn_unet": "Unet", "chonn_fno": "FNO", "chonn_network": "FNO"}
NAMES = ("Unet", "chonn_unet", "FNO", "chonn_fno", "chonn_network")


def build(name: str, smoke: bool) -> nn.Module:
    from pdebench.models.fno.fno import FNO2d
    from pdebench.models.unet.unet import UNet2d

    features, modes, width = (4, 4, 6) if smoke else (32, 12, 20)
    fno: dict[str, Any] = {"modes1": modes, "modes2": modes, "width": width, "initial_step": 1}
    return {
        "Unet": lambda: UNet2d(1, 1, features),
        "chonn_unet": lambda: CHONNUNet2d(1, 1, features, ckb=SCANS),
        "FNO": lambda: FNO2d(1, **fno),
        "chonn_fno": lambda: CHONNFNO2d(1, **fno, ckb=SCANS),
        "chonn_network": lambda: CHONNNetwork2d(1, 1),
    }[name]()


def step_parts(
    build: Callable[[], nn.Module], samples: int, n: int, device: str = "cpu"
) -> tuple[nn.Module, tuple[Tensor, ...], Tensor]:
    """A model in training, random inputs and a target on n x n points, in its family's layout."""
    torch.manual_seed(0)
    model = build().to(device).train()
    x, target = torch.rand(2, samples, 1, n, n, device=device).unbind()
    if "FNO" not in type(model).__name__:
        return model, (x,), target
    # Channels last, with coordinates.
    grid = torch.rand(samples, n, n, 2, device=device)
    return model, (x.movedim(1, -1), grid), target.movedim(1, -1)[..., None, :]


def make(name: str, smoke: bool) -> tuple[nn.Module, tuple[Tensor, ...], Tensor]:
    return step_parts(functools.partial(build, name, smoke), *((2, 16) if smoke else (8, 128)))


def models(run: Run) -> list[Row]:
    """A row for each contender."""
    makes = {name: functools.partial(make, name, run.smoke) for name in NAMES}
    rows = {row["name"]: row for row in run.steps(makes)}
    for name, row in rows.items():
        base = rows[BASE.get(name, name)]
        for key in ("forward_ms", "step_ms", "peak_bytes"):
            if base[key]:
                row[f"{key.split('_')[0]}_ratio"] = row[key] / base[key]
    return list(rows.values())


main = main_of(__doc__, "models", {"rows": models}, ["pdebench"])

if __name__ == "__main__":
    main()
