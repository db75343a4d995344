"""Which method solves a network: elimination (`direct`) or iterations (`multigrid`)."""

from __future__ import annotations

import math
from functools import lru_cache

import torch

from chonn_ops.network.direct import predicted_bytes

# Bytes that the factors of one call may take.
MEMORY = 2 * 2**30
# Most nodes of a grid by its axes of more than one node: 512 x 512 and 32 x 32 x 32.
NODES = (1, 2**18, 2**18, 2**15)
# Residuals below this are worth an elimination: iterations gain about a digit each.
TIGHT = 1e-4
# Nodes of a volume that are eliminated as fast as iterations reach a tight residual.
SMALL_VOLUME = 12**3
# Iterations after which "auto" eliminates what multigrid has not solved, by axes of more than one
# node: about what an elimination costs. Smooth networks take 3 to 8.
PATIENCE = (12, 12, 12, 40)


# Plans of large grids take a while to ask.
bytes_of = lru_cache(maxsize=256)(predicted_bytes)


def networks_at_once(
    grid: tuple[int, ...], periodic: tuple[bool, ...], count: int, dtype: torch.dtype
) -> int:
    """How many of `count` networks the direct method takes at once within `MEMORY`; 0 if none."""
    if math.prod(grid) > NODES[sum(n > 1 for n in grid)]:
        return 0
    while count and bytes_of(grid, periodic, count, dtype) > MEMORY:
        count //= 2
    return count


def eliminates(
    grid: tuple[int, ...],
    periodic: tuple[bool, ...],
    count: int,
    dtype: torch.dtype,
    tol: float,
    compiled: bool,
) -> bool:
    """Whether ``method="auto"`` eliminates networks at once, without iterations: the whole rule.

    It does where all of these hold:

    - the compiled kernel runs (the fronts of the PyTorch backend are slower than its iterations);
    - the grid has two axes and at most 512 x 512 nodes, or three and at most 12 x 12 x 12;
    - the factors of one network are predicted to take at most 2 GiB: groups of networks are
      eliminated one after the other so that no group takes more;
    - `tol` is below 1e-4: iterations reach a looser one sooner.

    All others are iterated. Those that are above `tol` after 12 iterations (40 on three axes) are
    eliminated then, if the grid has at most 512 x 512 nodes, or 32 x 32 x 32, and the factors of
    one network take at most 2 GiB.
    Lines are eliminated by the kernel of the iterations.
    """
    axes = sum(n > 1 for n in grid)
    small = axes == 2 or (axes == 3 and math.prod(grid) <= SMALL_VOLUME)
    if not (compiled and small and tol < TIGHT):
        return False
    return networks_at_once(grid, periodic, count, dtype) > 0
