"""A block that always runs on one grid, so that a trained model can be evaluated on other grids."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class FixedGridCKB(nn.Module):
    """A CKB that runs on the grid it was trained on, whatever grid its input has::

        Y = X + up(CKB(down X) - down X)

    A scan takes one step a grid point and a depthwise convolution reaches to the next point, so a
    trained block belongs to one spacing; on a finer grid it would act over a shorter range. Here
    the block always runs at the spacing it was trained at, as a spectral convolution always uses
    the same modes, and the residual path keeps the input's resolution. On the training grid this is
    the block itself.

    Fields are taken as samples at ``i / n``, ``i = 0..n-1``, of a unit interval an axis (the grid
    of neuraloperator's positional embedding): a grid of 2n points contains the grid of n points,
    and `down` then picks those points. Otherwise both `down` and `up` interpolate by cubic
    convolution (Keys, "Cubic convolution interpolation for digital image processing", 1981), and
    extrapolate linearly outside.

    Parameters
    ----------
    ckb : CKB
        Block for channels-first fields of `ckb.spatial_dims` axes.
    grid : tuple of int, optional
        The grid to run on. Default: that of the first pass in training mode, which the state dict
        keeps; until then, the input's.

    Raises
    ------
    ValueError
        For a block of sequences, or a grid of another number of axes or with less than one point.
    """

    def __init__(self, ckb: nn.Module, grid: tuple[int, ...] | None = None) -> None:
        super().__init__()
        if ckb.spatial_dims is None:
            raise ValueError("ckb: expected a block with spatial_dims, got one for sequences")
        self.ckb = ckb
        self.grid = None if grid is None else self._checked(grid)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block to a field (B, dim, \\*grid)."""
        grid = tuple(x.shape[2:])
        if self.training and self.grid is None:
            self.grid = grid
        if self.grid in (None, grid) or len(grid) != self.ckb.spatial_dims:
            return self.ckb(x)  # which also refuses fields of another number of axes
        coarse = resample(x, self.grid)
        return x + resample(self.ckb(coarse) - coarse, grid)

    def get_extra_state(self) -> Tensor:
        """The grid, for the state dict; empty while unknown."""
        return torch.tensor(self.grid or (), dtype=torch.long)

    def set_extra_state(self, state: Tensor) -> None:
        self.grid = self._checked(state.tolist()) if len(state) else None

    def extra_repr(self) -> str:
        return f"grid={self.grid}"

    def _checked(self, grid: tuple[int, ...] | list[int]) -> tuple[int, ...]:
        if len(grid) != self.ckb.spatial_dims or any(n < 1 for n in grid):
            raise ValueError(
                f"grid: expected {self.ckb.spatial_dims} positive sizes, got {tuple(grid)}"
            )
        return tuple(int(n) for n in grid)


def resample(x: Tensor, grid: tuple[int, ...]) -> Tensor:
    """Fields (B, C, \\*old), samples at ``i / n`` along each axis, at the points of another grid
    (B, C, \\*grid), by cubic convolution along each axis."""
    for axis, points in enumerate(grid, start=2):
        if x.shape[axis] != points:
            weights = _cubic(x.shape[axis], points, x)
            x = (x.movedim(axis, -1) @ weights).movedim(-1, axis)
    return x


def _cubic(old: int, new: int, like: Tensor) -> Tensor:
    """Interpolation weights (old, new) between the grids i / old and j / new."""
    position = torch.arange(new, device=like.device, dtype=torch.float64) * old / new
    base = position.floor()
    weights = torch.zeros(old, new, device=like.device, dtype=torch.float64)
    for tap in range(-1, 3):
        distance = (position - base - tap).abs()
        near = (1.5 * distance - 2.5) * distance**2 + 1
        far = ((-0.5 * distance + 2.5) * distance - 4) * distance + 2
        weight = torch.where(distance <= 1, near, far)
        index = base.long() + tap
        inside = index.clamp(0, max(old - 2, 0))  # f(index) = f(inside) + slope (index - inside)
        slope = weight * (index - inside) if old > 1 else torch.zeros_like(weight)
        weights.scatter_add_(0, inside[None], (weight - slope)[None])
        weights.scatter_add_(0, (inside + 1).clamp_max(old - 1)[None], slope[None])
    return weights.to(like.dtype)
