"""Stack of Cascaded Kirchhoff Blocks on one-channel signals, for comparing order with depth."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import math

import torch
from torch import Tensor, nn

from chonn_ops.models._blocks import build_ckb
from chonn_ops.nn import CKBOptions
from chonn_ops.nn._checks import check_least, check_shape
from chonn_ops.nn.options import options_or_defaults

TOLERANCE = 0.02
MAX_RANK = 8


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
    ckb : CKBOptions, optional
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
        ckb: CKBOptions | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        ckb = options_or_defaults(ckb)
        check_least(1, depth=depth)
        factory = {"device": device, "dtype": dtype}
        self.lift = nn.Conv1d(in_channels, width, 1, **factory)
        self.blocks = nn.Sequential(
            *(build_ckb(width, 1, ckb, device, dtype) for _ in range(depth))
        )
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


def fit_parameters(
    parameters: int, width: int, depth: int = 1, *, ckb: CKBOptions
) -> tuple[int, CKBOptions]:
    """Width and options of a stack with a given number of parameters, to 2%.

    The expansion ratio of the blocks is changed, as far as needed the rank of their step
    projection, and the width only if nothing else hits the number.

    Parameters
    ----------
    parameters : int
        Number to match.
    width : int
        Least width.
    depth : int
        Number of blocks.
    ckb : CKBOptions
        Options of the blocks; all but `expand` and `dt_rank` are kept.

    Returns
    -------
    width : int
    ckb : CKBOptions

    Raises
    ------
    ValueError
        If nothing up to twice the width fits.
    """

    def count(candidate: int, options: CKBOptions) -> int:
        stack = CKBStack1d(candidate, ckb=options, device="meta")
        return count_parameters(stack) + (depth - 1) * count_parameters(stack.blocks)

    for candidate in range(width, 2 * width + 1):
        fits = []
        for dt_rank in range(1, MAX_RANK + 1):
            options = [
                dataclasses.replace(ckb, expand=expand, dt_rank=dt_rank)
                for expand in range(2, 2 * ckb.expand + 1)
            ]
            sizes = functools.partial(count, candidate)
            above = bisect.bisect(options, parameters, key=sizes)
            for option in options[max(above - 1, 0) : above + 1]:
                error = abs(sizes(option) / parameters - 1)
                usual = math.ceil(candidate * option.expand / 16)
                if error <= TOLERANCE:
                    fits.append((abs(dt_rank - usual), error, option))
        if fits:
            return candidate, min(fits, key=lambda fit: fit[:2])[2]
    raise ValueError(
        f"parameters: expected a number that widths from {width} to {2 * width} can reach to "
        f"{TOLERANCE:.0%} at depth {depth}, got {parameters}"
    )


def count_parameters(module: nn.Module) -> int:
    """Number of parameters of a module."""
    return sum(parameter.numel() for parameter in module.parameters())
