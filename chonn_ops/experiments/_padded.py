"""Models that halve the grid, on grids of any size."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class Padded(nn.Module):
    """A model of fields (B, C, \\*grid) whose sizes are multiples of some number, for all sizes.

    The last points of each axis are repeated, and cut off again.
    """

    def __init__(self, model: nn.Module, multiple: int) -> None:
        super().__init__()
        self.model, self.multiple = model, multiple

    def forward(self, x: Tensor) -> Tensor:
        grid = x.shape[2:]
        padding = [side for n in reversed(grid) for side in (0, -n % self.multiple)]
        y = self.model(F.pad(x, padding, mode="replicate"))
        return y[(..., *(slice(n) for n in grid))]
