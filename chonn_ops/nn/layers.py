"""Layers that blocks and models are made of, and how they save memory.

All of them map channels-last fields (B, \\*grid, C).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}

# Below so many elements recomputation is switched off: a batch keeps a few MiB at most.
RECOMPUTE_FROM = 2**19


class PositionLinear(nn.Linear):
    """`torch.nn.Linear` with the same parameters, computed as one matrix product a sample where
    that is faster.

    A weight gradient of few channels over 10^5 positions is a product so tall and thin that BLAS
    spends longer on it than on all the rest; one sample at a time it is several times faster.
    Batched products also read a channels-first field in place, where `Linear` would copy it. They
    store the weight gradients of all samples at once, so they are used only where activations are
    larger than that.
    """

    def forward(self, input: Tensor) -> Tensor:
        return position_linear(input, self.weight, self.bias)


def position_linear(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`PositionLinear` as a function."""
    if input.dim() < 3 or input.device.type != "cpu" or torch.compiler.is_compiling():
        return F.linear(input, weight, bias)
    positions = math.prod(input.shape[1:-1])
    if weight.numel() > positions * sum(weight.shape):
        return F.linear(input, weight, bias)
    lines = input.flatten(1, -2)
    weights = weight.mT.expand(input.shape[0], *weight.mT.shape)
    output = torch.bmm(lines, weights) if bias is None else torch.baddbmm(bias, lines, weights)
    return output.unflatten(1, input.shape[1:-1])


class Pointwise(nn.Module):
    """A two-layer network at every position: linear, SiLU, linear.

    It has no norm. A norm over the field would remove the field's amplitude, in which a linear
    problem is linear.

    Parameters
    ----------
    width, hidden : int
        Channels outside and inside.
    gain : float
        Parameters are stored divided by it, so that a step of Adam, whose size is the learning
        rate, moves the network by so many times as much (equalised learning rates: Karras et al.,
        "Progressive growing of GANs", ICLR 2018).
    """

    def __init__(
        self,
        width: int,
        hidden: int,
        gain: float = 1.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.expand = PositionLinear(width, hidden, device=device, dtype=dtype)
        self.contract = PositionLinear(hidden, width, device=device, dtype=dtype)
        self.gain = gain
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.div_(gain)

    def forward(self, field: Tensor) -> Tensor:
        stored = (self.expand.weight, self.expand.bias, self.contract.weight, self.contract.bias)
        return recomputed(_pointwise, field, *(self.gain * parameter for parameter in stored))


def _pointwise(field: Tensor, inner: Tensor, b: Tensor, outer: Tensor, c: Tensor) -> Tensor:
    return position_linear(F.silu(position_linear(field, inner, b)), outer, c)


class FieldNorm(nn.GroupNorm):
    """One mean and one variance a sample, over channels and positions."""

    def __init__(
        self,
        dim: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(1, dim, device=device, dtype=dtype)

    def forward(self, input: Tensor) -> Tensor:
        field = input.movedim(-1, 1)
        return F.group_norm(field, 1, self.weight, self.bias, self.eps).movedim(1, -1)


NORMS: dict[str, Callable[..., nn.Module]] = {
    "group": FieldNorm,
    "layer": nn.LayerNorm,
    "rms": nn.RMSNorm,
    "none": nn.Identity,
}


def recomputed(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function; for large fields autograd keeps its arguments only and calls it again in the
    backward pass.

    Everything the function depends on must be an argument: a module's attributes may have other
    values in the backward pass (`torch.func.functional_call`).

    Compilers choose themselves what to keep, and reverse mode under `torch.func` does not support
    checkpoints: there this is a plain call.
    """
    if (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or not torch.is_grad_enabled()
        or args[0].numel() < RECOMPUTE_FROM
    ):
        return function(*args)
    return checkpoint(function, *args, use_reentrant=False, preserve_rng_state=False)
