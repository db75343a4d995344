"""Dilated residual network (Stachenfeld et al., ICLR 2022, arXiv 2112.15275).

Written from the paper's description; module names are ours, no checkpoint of the original loads.
"""

from __future__ import annotations

from torch import Tensor, nn

from chonn_lab.baselines.fields import check_field
from chonn_ops.checks import check_least

DILATIONS = (1, 2, 4, 8, 4, 2, 1)


class DilResNet(nn.Module):
    """Dil-ResNet: (B, C, H, W) -> (B, C', H, W).

    A convolution lifts the fields; blocks :math:`z + B(z)` follow, each of seven 3 x 3 convolutions
    with the dilations 1, 2, 4, 8, 4, 2, 1 and a ReLU behind every one; a convolution reads out. A
    block sees 22 points in every direction. The paper has four blocks of 48 channels. Fields are
    padded with zeros.

    Parameters
    ----------
    in_channels, out_channels : int
    width : int
        Hidden channels.
    depth : int
        Blocks.

    Raises
    ------
    ValueError
        For sizes below 1, or an input whose shape does not fit.
    """

    def __init__(
        self,
        in_channels: int = 1,
        out_channels: int = 1,
        width: int = 48,
        depth: int = 4,
    ) -> None:
        super().__init__()
        sizes = {"in_channels": in_channels, "out_channels": out_channels, "width": width}
        check_least(1, **sizes, depth=depth)
        self.in_channels = in_channels
        self.lift = nn.Conv2d(in_channels, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                *(
                    layer
                    for dilation in DILATIONS
                    for layer in (
                        nn.Conv2d(width, width, 3, padding=dilation, dilation=dilation),
                        nn.ReLU(),
                    )
                )
            )
            for _ in range(depth)
        )
        self.head = nn.Conv2d(width, out_channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Map fields (B, in_channels, H, W) to fields (B, out_channels, H, W)."""
        check_field(x, self.in_channels)
        z = self.lift(x)
        for block in self.blocks:
            z = z + block(z)
        return self.head(z)
