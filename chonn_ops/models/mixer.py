"""Kirchhoff blocks as the only spatial coupling, between per-patch networks.

The layout of a transformer (or of an FNO) with a CKB in the place of the attention (or of the
spectral convolution): an embedding of square patches, then per layer one CKB and one pointwise
network, both residual, then the patches' points. Not in the CHONN paper.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops.models._blocks import build_ckb, check_field, with_coordinates
from chonn_ops.nn import CKBOptions
from chonn_ops.nn._checks import check_least
from chonn_ops.nn.options import options_or_defaults


class CHONNMixer2d(nn.Module):
    """Operator network whose points see each other through CKBs alone.

    The coordinates, -1/2 to 1/2 from wall to wall, are additional inputs.

    Parameters
    ----------
    in_channels, out_channels : int
        Channels of input and output fields.
    width : int
        Hidden channels.
    depth : int
        Layers.
    patch : int
        Points along the edge of a patch.
    mlp_ratio : int
        Hidden channels of the pointwise networks over `width`.
    ckb : CKBOptions, optional
        Options of the blocks. ``CKBOptions(order=0)`` leaves the pointwise networks, so that
        patches do not see each other.

    Raises
    ------
    ValueError
        For sizes below 1.
    """

    def __init__(
        self,
        in_channels: int = 1,
        out_channels: int = 1,
        width: int = 64,
        depth: int = 3,
        patch: int = 4,
        mlp_ratio: int = 2,
        *,
        ckb: CKBOptions | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        ckb = options_or_defaults(ckb)
        check_least(1, width=width, depth=depth, patch=patch, mlp_ratio=mlp_ratio)
        factory = {"device": device, "dtype": dtype}
        self.in_channels, self.patch = in_channels, patch
        self.lift = nn.Conv2d(in_channels + 2, width, patch, stride=patch, **factory)
        layers: list[nn.Module] = []
        for _ in range(depth):
            if ckb.order:
                layers.append(build_ckb(width, 2, ckb, device, dtype))
            layers.append(_Pointwise(width, mlp_ratio * width, factory))
        self.layers = nn.Sequential(*layers)
        self.head = nn.Sequential(
            nn.Conv2d(width, out_channels * patch**2, 1, **factory), nn.PixelShuffle(patch)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map fields to fields.

        Parameters
        ----------
        x : Tensor, shape (B, in_channels, H, W)
            H and W multiples of `patch`.

        Returns
        -------
        Tensor, shape (B, out_channels, H, W)

        Raises
        ------
        ValueError
            For another number of axes or channels, or a grid that the patches do not tile.
        """
        check_field(x, self.in_channels, 2, self.patch)
        return self.head(self.layers(self.lift(with_coordinates(x, -0.5, 0.5))))


class _Pointwise(nn.Module):
    """Residual two-layer network at every point, after a norm over the whole field."""

    def __init__(self, width: int, hidden: int, factory: dict) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(1, width, **factory)
        self.expand = nn.Conv2d(width, hidden, 1, **factory)
        self.contract = nn.Conv2d(hidden, width, 1, **factory)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.contract(F.gelu(self.expand(self.norm(x))))
