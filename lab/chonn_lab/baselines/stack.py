"""Stack of Cascaded Kirchhoff Blocks on one-channel signals, for comparing order with depth."""

from __future__ import annotations

from torch import Tensor, nn

from chonn_ops.checks import check_least, check_shape
from chonn_ops.nn import CKB, CKBOptions


class CKBStack1d(nn.Module):
    """Pointwise lifting, CKBs one after the other, pointwise head: (B, 1, L) -> (B, 1, L).

    Order n and depth 1 is the CHONN of the paper's order benchmark, order 1 and depth n its
    depth-stacked baseline, order m and depth k its "m x k".

    Parameters
    ----------
    width : int
        Channels between blocks.
    depth : int
        Number of blocks.
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
        *,
        ckb: CKBOptions,
    ) -> None:
        super().__init__()
        check_least(1, depth=depth)
        self.lift = nn.Conv1d(1, width, 1)
        self.blocks = nn.Sequential(*(CKB(width, 1, **vars(ckb)) for _ in range(depth)))
        self.head = nn.Conv1d(width, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map signals to signals.

        Parameters
        ----------
        x : Tensor, shape (B, 1, L)

        Returns
        -------
        Tensor, shape (B, 1, L)
        """
        check_shape("x", x, "B", 1, "L")
        return self.head(self.blocks(self.lift(x)))
