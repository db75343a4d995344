"""The functions of `chonn_ops.nn.fused` by PyTorch's operations, which have every derivative.

Each returns a tuple. Fields are (B, \\*grid, C).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from chonn_ops.boundary import CELL_CONDITIONS, Dirichlet
from chonn_ops.network.grids import blended_edges, walls_of
from chonn_ops.nn.bounded import bounded


def position_linear(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`F.linear`, as one product a sample where that is faster: see `PositionLinear`."""
    if input.dim() < 3 or input.device.type != "cpu" or torch.compiler.is_compiling():
        return F.linear(input, weight, bias)
    positions = math.prod(input.shape[1:-1])
    if weight.numel() > positions * sum(weight.shape):
        return F.linear(input, weight, bias)
    lines = input.flatten(1, -2)
    weights = weight.mT.expand(input.shape[0], *weight.mT.shape)
    output = torch.bmm(lines, weights) if bias is None else torch.baddbmm(bias, lines, weights)
    return output.unflatten(1, input.shape[1:-1])


def linear(
    bias: Tensor | None, weight: Tensor, x: Tensor, gain: float, silu: bool
) -> tuple[Tensor, Tensor]:
    """gain (weight x + bias), or that of SiLU(x); and x."""
    if gain != 1:
        bias, weight = None if bias is None else gain * bias, gain * weight
    return position_linear(F.silu(x) if silu else x, weight, bias), x


def gated(x: Tensor, gate: Tensor) -> tuple[Tensor]:
    """x SiLU(gate), in the dtype of the gate."""
    # SiLU of a slice of few channels takes ten times as long on the CPU.
    return (x.to(gate.dtype) * F.silu(gate.contiguous()),)


def bounded_sum(h: Tensor, x: Tensor, most: float) -> tuple[Tensor]:
    """h + `bounded` x."""
    return (h + bounded(x, most),)


def conductivity(raw: Tensor, bias: Tensor, largest: float) -> tuple[Tensor]:
    """Conductivities whose logarithm is raw + bias where that is small, and below `largest`."""
    return (torch.exp(largest * torch.tanh((bias + raw) / largest)),)


def grid_circuit(
    k: Tensor,
    mean: Tensor,
    wall: Tensor | None,
    leak: Tensor,
    steps: Sequence[float],
    words: Sequence[str],
    distances: Sequence[Sequence[float]],
    gains: Sequence[float],
) -> tuple[Tensor, ...]:
    """Edges of each axis, leaks with walls, and the walls' conductances if there are any.

    Parameters
    ----------
    k : Tensor, shape (B, \\*grid, C)
    mean, wall, leak : Tensor, shape (C,)
        Over their `gains`, the logit of the weight of the arithmetic mean, and the logarithms of
        the distance behind "robin" faces at which the potential is 0 and of the leaks per volume.
    steps, words : one an axis
        Distance of the nodes, and the word of both faces: "robin", "dirichlet", "neumann" or
        "periodic".
    distances : pairs of float, one an axis
        As in `walls_of`.
    """
    known = dict(CELL_CONDITIONS)
    if wall is not None:
        known["robin"] = Dirichlet(0.0, torch.exp(gains[1] * wall))
    faces = tuple((known[word], known[word]) for word in words)
    leak = torch.exp(gains[2] * leak) * math.prod(steps)
    added = walls_of(k, steps, faces, leak.expand_as(k), distances=distances).conductance
    edges = blended_edges(k, list(steps), torch.sigmoid(gains[0] * mean))
    return (*edges, leak.expand_as(k)) if added is None else (*edges, leak + added, added)
