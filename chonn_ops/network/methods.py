"""Which method solves a network: elimination (`direct`) or iterations (`multigrid`)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from chonn_ops.network.direct import predicted_bytes
from chonn_ops.network.edges import used_edges

# Bytes that the factors of one call may take.
MEMORY = 2 * 2**30
# Most nodes of a grid by its axes of more than one node: 512 x 512 and 32 x 32 x 32.
NODES = (1, 2**18, 2**18, 2**15)
# Below this `tol` iterations go further than asked, and differences of potentials are found apart.
TIGHT = 1e-4
# Nodes of a volume that are eliminated about as fast as iterations solve it.
SMALL_VOLUME = 12**3
# Iterations after which "auto" eliminates what multigrid has not solved, by axes of more than one
# node: about what an elimination costs. Smooth networks take 3 to 8.
PATIENCE = (12, 12, 12, 40)
# Where rounding the largest potential is a larger part of the largest difference along an axis than
# this times `tol`, differences have too few digits for gradients of conductances, products of two.
LIFTING = 0.4
# The `tol` of lines, in units of rounding: they are eliminated, whatever the call's is.
ROUNDED = 80
# How far below a tight `tol` iterations go where elimination is the alternative: at a residual of
# `tol` itself, errors of potentials were up to 3.4 times as large.
SAFETY = 4


def networks_at_once(
    grid: tuple[int, ...], periodic: tuple[bool, ...], count: int, dtype: torch.dtype
) -> int:
    """How many of `count` networks the direct method takes at once within `MEMORY`; 0 if none."""
    if math.prod(grid) > NODES[sum(n > 1 for n in grid)]:
        return 0
    while count and predicted_bytes(grid, periodic, count, dtype) > MEMORY:
        count //= 2
    return count


def eliminates(
    grid: tuple[int, ...],
    periodic: tuple[bool, ...],
    count: int,
    dtype: torch.dtype,
    fast: bool,
) -> bool:
    """Whether ``method="auto"`` eliminates networks at once, without iterations: the whole rule.

    It does where all of these hold:

    - `fast`: the compiled kernel runs, or the networks are on a GPU and no CUDA graph is recorded
      (on a CPU the fronts of the PyTorch backend are slower than its iterations; while a graph is
      recorded the values that elimination checks cannot be read);
    - the grid has two axes and at most 512 x 512 nodes, or three and at most 12 x 12 x 12;
    - the factors of one network are predicted to take at most 2 GiB: groups of networks are
      eliminated one after the other so that no group takes more.

    All others are iterated. Those that are above `tol` after 12 iterations (40 on three axes) are
    eliminated then, if the grid has at most 512 x 512 nodes, or 32 x 32 x 32, and the factors of
    one network take at most 2 GiB. All networks of a call with such a grid are eliminated at once
    if in one the leaks, all or those of a part, are below the rounding of its conductances
    (`exceed_digits`). A `tol` below 1e-4 is iterated to a quarter of it.
    Other lines are eliminated by the kernel of the iterations.
    """
    axes = sum(n > 1 for n in grid)
    small = axes == 2 or (axes == 3 and math.prod(grid) <= SMALL_VOLUME)
    if not (fast and small):
        return False
    return networks_at_once(grid, periodic, count, dtype) > 0


def exceed_digits(
    conductance: Sequence[Tensor],
    leak: Tensor,
    periodic: Sequence[bool],
    dtype: torch.dtype,
) -> bool:
    """Whether in a network rounding the largest conductance changes more than the leaks of the
    network, or of a part of it, are.

    Then a small residual is no small error: iterations of such volumes ended below a `tol` of 1e-5
    with errors of up to 4e-4 (conductances of 1 to 1e12, boundary "matched"), those of planes with
    errors of 5e-3. A part is what edges below that rounding separate; what grounds it, a leak or
    such an edge, is below it, too.
    """
    eps = torch.finfo(dtype).eps
    largest = torch.stack([g.amax() for g in conductance]).amax()
    if bool(eps * largest <= leak.amin()):  # the usual case, and the faster question
        return False
    pairs = zip(conductance, periodic, strict=True)
    used = (used_edges(g, axis, closed) for axis, (g, closed) in enumerate(pairs))
    edges = [edge.flatten(1, -2) for edge in used if edge.numel()]
    if not edges:
        return False
    leaks = leak.flatten(1, -2)
    rounding = eps * torch.stack([edge.amax(1) for edge in edges]).amax(0)
    # An infinity makes the potentials of its own network NaN, and tells nothing of the others.
    rounding = torch.where(rounding.isfinite(), rounding, 0)
    if bool((rounding > leaks.amax(1)).any()):
        return True
    separate = torch.stack([edge.amin(1) < rounding for edge in edges]).any(0)
    if not bool(separate.any()):
        return False
    small = [((x > 0) & (x < rounding[:, None])).any(1) for x in (leaks, *edges)]
    return bool((separate & torch.stack(small).any(0)).any())


def lifted(v: Tensor, drops: Sequence[Tensor], tol: float) -> Tensor:
    """(B, C): whether leaks of a network lift its potentials so far that differences lose digits.

    Above `tol` = 1 / `LIFTING` rounding is larger than all differences along an axis.
    """
    size, *most = (x.abs().flatten(1, -2).amax(1) for x in (v, *drops))
    rounding, found = torch.finfo(v.dtype).eps * size, torch.zeros_like(size, dtype=torch.bool)
    # An axis of one node has no differences. A NaN tells nothing.
    for n, x in zip(v.shape[1:-1], most, strict=False):
        if n > 1:
            found = found | (rounding > LIFTING * tol * x)
    return found
