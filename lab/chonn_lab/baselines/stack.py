"""Stack of Cascaded Kirchhoff Blocks on one-channel signals, for comparing order with depth."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from chonn_ops.checks import check_least, check_shape
from chonn_ops.nn import CKB, CKBOptions


class CKBStack1d(nn.Module):
    """Pointwise lifting, CKBs one after the other, pointwise head: (B, C, L) -> (B, C', L).

    Order n and depth 1 is the CHONN of the paper's order benchmark, order 1 and depth n its
    depth-stacked baseline, order m and depth k its "m x k".

    Parameters
    ----------
    width : int
        Channels between blocks.
    depth : int
        Number of blocks.
    in_channels, out_channels : int
    ckb : CKBOptions
        Options of the blocks; the order is at least 1 here.

    Raises
    ------
    ValueError
        For unfit options, or an input whose shape does not fit.
    """

    def __init__(
        self,
        width: int,
        depth: int = 1,
        in_channels: int = 1,
        out_channels: int = 1,
        *,
        ckb: CKBOptions,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_least(1, depth=depth)
        factory: Any = {"device": device, "dtype": dtype}
        self.lift = nn.Conv1d(in_channels, width, 1, **factory)
        self.blocks = nn.Sequential(*(CKB(width, 1, **vars(ckb), **factory) for _ in range(depth)))
        self.head = nn.Conv1d(width, out_channels, 1, **factory)

    def forward(self, x: Tensor) -> Tensor:
        """Map signals to signals.

        Parameters
        ----------
        x : Tensor, shape (B, in_channels, L)

        Returns
        -------
        Tensor, shape (B, out_channels, L)
        """
        check_shape("x", x, "B", self.lift.in_channels, "L")
        return self.head(self.blocks(self.lift(x)))
