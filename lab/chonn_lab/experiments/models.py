"""Models by name: conf/model/*.yaml gives these functions their sizes.

The first argument is the problem, which knows the numbers of channels and wraps the result. A model
with ``in_data_units``, or one that calibrates itself, takes fields as the data have them.
"""

import contextlib
import io
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from chonn_lab.baselines.cno import CNO
from chonn_lab.baselines.ffno import FFNO
from chonn_lab.baselines.fields import coordinates
from chonn_lab.experiments.solvers import OwnScheme
from chonn_ops.models import (
    CHONNFNO1d,
    CHONNFNO2d,
    CHONNNetwork2d,
    CHONNNetwork3d,
    CHONNStep1d,
    CHONNStep2d,
    CHONNUNet1d,
    CHONNUNet2d,
)
from chonn_ops.models.cno import CNOUNet
from chonn_ops.nn import CKB, CKBOptions, Scan

PLAIN = CKBOptions(order=0)
# The U-Net and the CNO halve the grid, the U-Net four times.
MULTIPLE = 16


def unet(problem: Any, features: int) -> nn.Module:
    """PDEBench's U-Net."""
    sizes = (problem.in_channels, problem.out_channels, features)
    kind = CHONNUNet1d if problem.axes == 1 else CHONNUNet2d
    return Extended(kind(*sizes, ckb=PLAIN))


def fno(problem: Any, width: int, modes: int, ckb: CKBOptions = PLAIN) -> nn.Module:
    """PDEBench's FNO."""
    # Input channels are passed as frames, since PDEBench's FNO returns as many channels as it gets.
    fields = problem.out_channels
    kind: Any = CHONNFNO1d if problem.axes == 1 else CHONNFNO2d
    sizes = fields, *[modes] * problem.axes, width
    return GridFNO(kind(*sizes, initial_step=problem.in_channels // fields, ckb=ckb))


def chonn_fno(problem: Any, order: int, d_state: int, **sizes: Any) -> nn.Module:
    """The paper's FNO with a block of the flattened field, scanned in one direction."""
    block = CKBOptions(Scan(directions="raster", d_state=d_state), order=order)
    return fno(problem, ckb=block, **sizes)


def fno_neuralop(problem: Any, width: int, depth: int, modes: int, padding: float) -> nn.Module:
    """neuraloperator's FNO, which adds the coordinates."""
    from neuralop.models import FNO

    sizes = ((modes,) * problem.axes, problem.in_channels, problem.out_channels, width)
    return FNO(*sizes, n_layers=depth, domain_padding=padding)


def uno(problem: Any, width: int, modes: int, padding: float = 0.0) -> nn.Module:
    """neuraloperator's UNO, which adds the coordinates, with the shape of its Darcy example: the
    three middle layers have half the grid and twice the channels."""
    from neuralop.models import UNO

    wide = 2 * width
    with contextlib.redirect_stdout(io.StringIO()):  # it prints what skips it has
        return UNO(
            problem.in_channels,
            problem.out_channels,
            width,
            lifting_channels=2 * wide,
            projection_channels=2 * wide,
            n_layers=5,
            uno_out_channels=[width, wide, wide, wide, width],
            uno_n_modes=[[modes] * 2] * 5,
            uno_scalings=[[scale, scale] for scale in (1, 0.5, 1, 2, 1)],
            channel_mlp_skip="linear",
            domain_padding=padding,
        )


def ffno(problem: Any, **sizes: Any) -> nn.Module:
    """F-FNO, which no package has."""
    return FFNO(problem.in_channels, problem.out_channels, **sizes)


def cno(problem: Any, **sizes: int) -> nn.Module:
    """CNO, which no package has."""
    return Extended(CNO(problem.in_channels, problem.out_channels, **sizes))


def backbone(problem: Any, order: int, d_state: int, **sizes: Any) -> nn.Module:
    """The paper's CHONN: a CNO with blocks in its deepest stages; of order 0 none."""
    # Without a norm the initial outputs of orders above 2 overflow.
    ckb = CKBOptions(Scan(d_state=d_state, selective_norm=True), order=order)
    sizes |= {"in_channels": problem.in_channels, "out_channels": problem.out_channels}
    return Extended(CNOUNet(**sizes, ckb=ckb))


def network(problem: Any, width: int | None, depth: int) -> nn.Module:
    """The model of one circuit, which takes the units of the data itself."""
    sizes = problem.in_channels, problem.out_channels, width, depth
    kind = CHONNNetwork3d if problem.axes == 3 else CHONNNetwork2d
    return kind(*sizes, nodes=problem.physics.nodes)


def own_scheme(problem: Any) -> nn.Module:
    """The control that is given the equation and the scheme that made the data."""
    if problem.scheme is None:
        raise ValueError(
            "own_scheme: expected a problem whose inputs suffice for the data's scheme, got "
            f"{problem.name}"
        )
    return problem.scheme() if isinstance(problem.scheme, type) else OwnScheme(problem.scheme)


def step(problem: Any, **options: Any) -> nn.Module:
    """The model that solves one circuit a frame."""
    kind = CHONNStep1d if problem.axes == 1 else CHONNStep2d
    return kind(problem.out_channels, **options)


def persistence(_: Any) -> nn.Module:
    """The control whose next frame is the last one."""
    return OwnScheme(lambda frames: frames[:, -1])


def ckb_stack(
    _: Any, order: int, depth: int, width: int, d_state: int, directions: str, **options: Any
) -> nn.Module:
    """Blocks of an order, one behind the other, for signals (B, 1, L).

    Order n and depth 1 is the CHONN of the paper's order benchmark, order 1 and depth n its
    depth-stacked baseline, order m and depth k its "m x k".
    """
    # Without the norm of the selection orders 3 and 4 and the deepest stack diverge at the small
    # scale's learning rate.
    cell = Scan(d_state, directions, selective_norm=True)
    blocks = (CKB(width, 1, cell=cell, order=order, **options) for _ in range(depth))
    return nn.Sequential(nn.Conv1d(1, width, 1), *blocks, nn.Conv1d(width, 1, 1))


class Extended(nn.Module):
    """A model that sees fields (B, C, \\*grid) beyond their ends, where the outermost values go on,
    so that `MULTIPLE` divides the numbers of points; what is added is cut off again."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        grid = x.shape[2:]
        padding = [side for n in reversed(grid) for side in (0, -n % MULTIPLE)]
        y = self.model(F.pad(x, padding, mode="replicate"))
        return y[(..., *(slice(n) for n in grid))]


class GridFNO(nn.Module):
    """Calls PDEBench's FNO, whose arguments are (x, grid), with fields (B, C, \\*grid)."""

    def __init__(self, fno: nn.Module) -> None:
        super().__init__()
        self.fno = fno

    def forward(self, x: Tensor) -> Tensor:
        y = self.fno(x.movedim(1, -1), coordinates(x).movedim(1, -1))
        return y.squeeze(-2).movedim(-1, 1)
