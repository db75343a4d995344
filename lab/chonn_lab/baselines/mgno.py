"""Multigrid neural operator (He, Liu and Xu, ICLR 2024, arXiv 2310.19809).

Written from the paper's equations; module names are ours, no checkpoint of the original loads.
"""

from __future__ import annotations

import itertools

import torch.nn.functional as F
from torch import Tensor, nn

from chonn_lab.baselines.fields import check_field, with_coordinates
from chonn_ops.checks import check_least


class _Level(nn.Module):
    """What one grid does on the way down: smoothed u and, but on the coarsest, what it leaves.

    As in the paper's Darcy benchmark, there is one smoothing on the way down, none on the way up,
    and one more on the coarsest level.
    """

    def __init__(self, in_channels: int, out_channels: int, coarsest: bool) -> None:
        super().__init__()

        def convs(channels: int, features: int, count: int) -> nn.ModuleList:
            return nn.ModuleList(
                nn.Conv2d(channels, features, 3, padding=1, bias=False) for _ in range(count)
            )

        self.smoothers = convs(in_channels, out_channels, 1 + coarsest)
        self.systems = convs(out_channels, in_channels, 1)

    def forward(self, f: Tensor) -> tuple[Tensor, Tensor]:
        first, *another = self.smoothers
        u = first(f)
        residual = f - self.systems[0](u)
        for smoother in another:
            u = u + smoother(residual)
        return u, residual


class VCycle(nn.Module):
    r"""A linear operator in the form of one multigrid V-cycle: (B, C, H, W) -> (B, C', H, W).

    On level l, from the finest to the coarsest, starting with u = 0::

        u <- u + B_l * (f - A_l * u)        smoothing
        f_{l+1} = R_l * (f - A_l * u)       restriction, every other point

    and back ``u_l <- u_l + P_l * u_{l+1}``. All stars are convolutions over 3 points an axis with
    learned weights, no activation in between, zeros outside of the grid.

    Parameters
    ----------
    in_channels, out_channels : int
    levels : int
        Grids, each with half the points an axis of the one before, rounded up.

    Raises
    ------
    ValueError
        For sizes below 1; when called on a grid that cannot be halved so often.
    """

    def __init__(self, in_channels: int, out_channels: int, levels: int) -> None:
        super().__init__()
        check_least(1, in_channels=in_channels, out_channels=out_channels, levels=levels)
        options = {"kernel_size": 3, "padding": 1, "bias": False}

        self.levels = nn.ModuleList(
            _Level(in_channels, out_channels, level == levels - 1) for level in range(levels)
        )
        self.restrictions = nn.ModuleList(
            nn.Conv2d(in_channels, in_channels, stride=2, **options) for _ in range(levels - 1)
        )
        self.prolongations = nn.ModuleList(
            nn.ConvTranspose2d(out_channels, out_channels, stride=2, **options)
            for _ in range(levels - 1)
        )

    def forward(self, f: Tensor) -> Tensor:
        least, smallest = 2 ** len(self.restrictions), min(f.shape[2:])
        if smallest < least:
            raise ValueError(
                f"levels: expected a grid of at least {least} points an axis for "
                f"{len(self.levels)} of them, got {smallest}"
            )
        solutions = []
        for level, restriction in itertools.zip_longest(self.levels, self.restrictions):
            u, residual = level(f)
            solutions.append(u)
            if restriction is not None:
                f = restriction(residual)
        u = solutions.pop()
        for prolongation in reversed(self.prolongations):
            finer = solutions.pop()
            u = finer + prolongation(u, output_size=finer.shape)
        return u


class MgNO(nn.Module):
    r"""MgNO: (B, C, H, W) -> (B, C', H, W).

    Layers :math:`\sigma(\mathcal W u + B u + b)` with a V-cycle :math:`\mathcal W` and a pointwise
    B, then a pointwise readout; no lifting. The coordinates, 0 to 1, are additional inputs, which
    the paper has not.

    Parameters
    ----------
    in_channels, out_channels : int
    width : int
        Hidden channels.
    depth : int
        Layers.
    levels : int
        Grids of a V-cycle.

    Raises
    ------
    ValueError
        For sizes below 1; when called with another shape, or a grid that cannot be halved so
        often.
    """

    def __init__(
        self,
        in_channels: int = 1,
        out_channels: int = 1,
        width: int = 24,
        depth: int = 5,
        levels: int = 6,
    ) -> None:
        super().__init__()
        check_least(1, in_channels=in_channels, out_channels=out_channels)
        check_least(1, width=width, depth=depth, levels=levels)
        self.in_channels = in_channels
        widths = [in_channels + 2] + [width] * (depth - 1)
        self.cycles = nn.ModuleList(VCycle(n, width, levels) for n in widths)
        self.pointwise = nn.ModuleList(nn.Conv2d(n, width, 1) for n in widths)
        self.head = nn.Conv2d(width, out_channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map fields (B, in_channels, H, W) to fields (B, out_channels, H, W)."""
        check_field(x, self.in_channels)
        u = with_coordinates(x)
        for cycle, pointwise in zip(self.cycles, self.pointwise, strict=True):
            u = F.gelu(cycle(u) + pointwise(u))
        return self.head(u)
