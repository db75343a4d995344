"""A small one of each model of the package, and what it is called with."""

from functools import partial

import torch

import chonn_ops
from chonn_ops import CKBOptions, Network, Scan

# Tighter than the default, since a U-Net enlarges what a solve leaves.
CELLS = {"network": Network(tol=1e-6), "scan": Scan()}
GRIDS = {1: (16,), 2: (16, 16), 3: (8, 8, 8)}


def fields(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0)) + 0.5


def coordinates(*grid):
    lines = [(torch.arange(n) + 0.5) / n for n in grid]
    return torch.stack(torch.meshgrid(*lines, indexing="ij"), -1).expand(2, *grid, len(grid))


def made(name, *arguments, **options):
    """What makes the model, with `dtype` and `device` to come."""
    return partial(getattr(chonn_ops, name), *arguments, **options)


BLOCKS = {
    "KirchhoffCell": (made("KirchhoffCell", 4), (fields(2, 16, 4),)),
    "NetworkCell": (made("NetworkCell", 4, 2, Network(2)), (fields(2, 8, 8, 4),)),
    "CKB of scans": (made("CKB", 4, 2, cell=Scan()), (fields(2, 4, 16, 16),)),
    "CKB of networks": (made("CKB", 4, 2, cell=Network(2)), (fields(2, 4, 16, 16),)),
}
MODELS = {}
for axes, grid in GRIDS.items():
    MODELS[f"CHONNNetwork{axes}d"] = made(f"CHONNNetwork{axes}d"), (fields(2, 1, *grid),)
    MODELS[f"CHONNStep{axes}d"] = made(f"CHONNStep{axes}d"), (fields(2, 1, *grid),)
    for end, ckb in {"": None, " of scans": CKBOptions("scan")}.items():
        fno = made(f"CHONNFNO{axes}d", 1, *[2] * axes, 4, 2, ckb=ckb)
        MODELS[f"CHONNFNO{axes}d{end}"] = fno, (fields(2, *grid, 2), coordinates(*grid))
        unet = made(f"CHONNUNet{axes}d", init_features=2, ckb=ckb)
        MODELS[f"CHONNUNet{axes}d{end}"] = unet, (fields(2, 3, *[16] * axes),)
for cell, options in CELLS.items():
    sizes = {"n_layers": 1, "n_res": 1, "n_res_neck": 1, "channel_multiplier": 4}
    cno = made("CNOUNet", **sizes, ckb=CKBOptions(options))
    MODELS[f"CNOUNet of {cell}s"] = cno, (fields(2, 1, 16, 16),)
