"""A linear map of channels at every position, quick for long channels-last fields on the CPU."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PositionLinear(nn.Linear):
    """`torch.nn.Linear`, to the last parameter, as one matrix product a sample where that pays.

    A weight gradient of few channels over 10^5 positions is a product so tall and thin that BLAS
    spends longer on it than on all else; a sample at a time it is several times quicker. Batched
    products also read a channels-first field in place, where `Linear` would copy it. They need the
    weight gradients of all samples at once, so they are kept to where activations are larger.
    """

    def forward(self, input: Tensor) -> Tensor:
        if torch.jit.is_scripting():
            return F.linear(input, self.weight, self.bias)
        else:
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
