"""The pointwise networks between the couplings of network models and rollouts."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops.nn._linear import PositionLinear, position_linear
from chonn_ops.nn._recompute import recomputed


class Pointwise(nn.Module):
    """What a two-layer network adds at every point. Without a norm: one over the field hides its
    amplitude, in which a linear problem is linear."""

    def __init__(self, width: int, hidden: int, factory: dict[str, Any]) -> None:
        super().__init__()
        self.expand = PositionLinear(width, hidden, **factory)
        self.contract = PositionLinear(hidden, width, **factory)

    def forward(self, field: Tensor) -> Tensor:
        weights = (self.expand.weight, self.expand.bias, self.contract.weight, self.contract.bias)
        return recomputed(_pointwise, field, *weights)


def _pointwise(field: Tensor, inner: Tensor, b: Tensor, outer: Tensor, c: Tensor) -> Tensor:
    return position_linear(F.silu(position_linear(field, inner, b)), outer, c)
