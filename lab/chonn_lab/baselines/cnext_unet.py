"""U-Net of ConvNeXt blocks, The Well's baseline CNextU-Net (Ohana et al., NeurIPS 2024).

Written from the descriptions of U-Net (Ronneberger et al. 2015, arXiv 1505.04597) and ConvNeXt (Liu
et al., CVPR 2022, arXiv 2201.03545) and The Well's table of sizes; module names are ours, no
checkpoint of the original loads.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from chonn_lab.baselines.fields import check_field
from chonn_ops.checks import check_least

KERNEL, EXPANSION = 7, 4
# ConvNeXt's initial scale of a branch.
SCALE = 1e-6


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels of fields (B, C, H, W)."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.movedim(1, -1)).movedim(-1, 1)


class ConvNeXtBlock(nn.Module):
    """ConvNeXt's block: a depthwise 7 x 7 convolution, a norm, two pointwise layers with a GELU
    between them, a scale for each channel, and a residual.

    Parameters
    ----------
    channels : int
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            nn.Conv2d(channels, channels, KERNEL, padding=KERNEL // 2, groups=channels),
            ChannelNorm(channels, eps=1e-6),
            nn.Conv2d(channels, EXPANSION * channels, 1),
            nn.GELU(),
            nn.Conv2d(EXPANSION * channels, channels, 1),
        )
        self.scale = nn.Parameter(torch.full((channels, 1, 1), SCALE))

    def forward(self, z: Tensor) -> Tensor:
        return z + self.scale * self.branch(z)


def _stage(channels: int, depth: int) -> nn.Sequential:
    return nn.Sequential(*(ConvNeXtBlock(channels) for _ in range(depth)))


class CNextUNet(nn.Module):
    """CNextU-Net: (B, C, H, W) -> (B, C', H, W).

    A convolution lifts the fields. On each level `depth` blocks follow; then a norm and a 2 x 2
    convolution of stride 2 halve the grid and double the channels. A block works on the
    coarsest grid. On the way back a norm and a transposed convolution double the grid, a pointwise
    convolution takes the result and the features of the level, and `depth` blocks follow. A
    pointwise convolution reads out. Fields are padded with zeros.

    Parameters
    ----------
    in_channels, out_channels : int
    width : int
        Channels of the finest level.
    depth : int
        Blocks of a level, each way.
    levels : int
        How often the grid is halved.

    Raises
    ------
    ValueError
        For sizes below 1, or an input whose shape does not fit.
    """

    def __init__(
        self,
        in_channels: int = 1,
        out_channels: int = 1,
        width: int = 42,
        depth: int = 2,
        levels: int = 4,
    ) -> None:
        super().__init__()
        sizes = {"in_channels": in_channels, "out_channels": out_channels, "width": width}
        check_least(1, **sizes, depth=depth, levels=levels)
        self.in_channels, self.multiple = in_channels, 2**levels
        self.lift = nn.Conv2d(in_channels, width, 3, padding=1)
        widths = [width * 2**level for level in range(levels)]
        self.down = nn.ModuleList(_stage(c, depth) for c in widths)
        self.coarsen = nn.ModuleList(
            nn.Sequential(ChannelNorm(c, eps=1e-6), nn.Conv2d(c, 2 * c, 2, stride=2))
            for c in widths
        )
        self.neck = _stage(width * 2**levels, 1)
        self.refine = nn.ModuleList(
            nn.Sequential(ChannelNorm(2 * c, eps=1e-6), nn.ConvTranspose2d(2 * c, c, 2, stride=2))
            for c in widths
        )
        self.join = nn.ModuleList(nn.Conv2d(2 * c, c, 1) for c in widths)
        self.up = nn.ModuleList(_stage(c, depth) for c in widths)
        self.head = nn.Conv2d(width, out_channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map fields (B, in_channels, H, W) to fields (B, out_channels, H, W)."""
        check_field(x, self.in_channels)
        if any(n % self.multiple for n in x.shape[2:]):
            raise ValueError(
                f"x: expected a grid of multiples of {self.multiple}, got {tuple(x.shape[2:])}"
            )
        z, levels = self.lift(x), []
        for stage, coarsen in zip(self.down, self.coarsen, strict=True):
            levels.append(stage(z))
            z = coarsen(levels[-1])
        z = self.neck(z)
        for refine, join, stage in zip(
            self.refine[::-1], self.join[::-1], self.up[::-1], strict=True
        ):
            z = stage(join(torch.cat((refine(z), levels.pop()), 1)))
        return self.head(z)
