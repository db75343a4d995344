"""Coordinates of fields, and the size of models."""

import torch
from torch import Tensor, nn


def coordinates(x: Tensor) -> Tensor:
    """Coordinates from 0 to 1 of the points of a field, (B, axes, \\*grid)."""
    lines = [torch.linspace(0, 1, n, dtype=x.dtype, device=x.device) for n in x.shape[2:]]
    return torch.stack(torch.meshgrid(*lines, indexing="ij")).expand(len(x), *[-1] * (x.ndim - 1))


def with_coordinates(x: Tensor) -> Tensor:
    """A field with its `coordinates` as channels behind its own."""
    return torch.cat((x, coordinates(x)), dim=1)


def count_parameters(module: nn.Module) -> int:
    """Number of parameters of a module; a complex number is one, as PDEBench counts."""
    return sum(parameter.numel() for parameter in module.parameters())
