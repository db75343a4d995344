"""What each backend of the direct method returns."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Solution(NamedTuple):
    """What one solve returns: potentials (B, S, \\*grid, C); drops, one tensor of that shape an
    axis, with each node's potential less the next one's along it, 0 where no edge is, or of a graph
    one, (B, S, E, C), along its edges; and residuals.

    There are no drops where they were not wanted. Their rounding is relative to what potentials
    differ by around an edge, not to the potentials, which small leaks lift all alike. Residuals
    |s - A v| / |s|, (B, S, C), are float64 and not always there. Those of real networks are 0 where
    rounding alone leaves them. Those of complex ones are of the potentials in complex128, NaN where
    an input is not finite.
    """

    potential: Tensor
    drops: list[Tensor]
    residual: Tensor | None
