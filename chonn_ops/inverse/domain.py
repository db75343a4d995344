"""The grid that an unknown field lives on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral
from typing import Any, NamedTuple

import torch
from torch import Tensor

from chonn_ops.boundary import Boundary, Condition, Faces, Neumann, conditions
from chonn_ops.checks import error
from chonn_ops.network import Factorization, factorize
from chonn_ops.network.grids import Spacing, check_conditions, spacings, walls_of


class Domain(NamedTuple):
    """Grid, spacing of each axis, existing nodes, and the condition at each face."""

    grid: tuple[int, ...]
    steps: list[float]
    mask: Tensor
    faces: Faces

    @property
    def volume(self) -> float:
        """The volume of a cell."""
        return math.prod(self.steps)

    @property
    def periodic(self) -> list[bool]:
        """One an axis."""
        return [low.periodic for low, _ in self.faces]

    @property
    def inner(self) -> Condition | None:
        """What holds at faces towards missing nodes: the condition of all faces of the grid that
        are not periodic where it is one, else "neumann". None where no node is missing."""
        if bool(self.mask.all()):
            return None
        walls = {x for pair in self.faces for x in pair if not x.periodic}
        return walls.pop() if len(walls) == 1 else Neumann()

    def field(self, values: Tensor) -> Tensor:
        """(K, n) or (\\*grid) as (1, K, \\*grid, 1), 0 at missing nodes."""
        inside = values.reshape(-1, *self.grid)
        return torch.where(self.mask, inside, 0)[None, ..., None]

    def eliminate(self, edges: Sequence[Tensor], leak: Tensor) -> Factorization:
        """Networks whose leaks hold all conductances to ground."""
        return factorize(tuple(edges), leak, periodic=self.periodic)


def as_tensor(name: str, values: Any, device: torch.device | None = None) -> Tensor:
    """Numbers of any array as a Tensor; a ValueError for what is none."""
    try:
        return torch.as_tensor(values, device=device)
    except (TypeError, ValueError, RuntimeError) as failure:
        shown = repr(values)
        found = shown if len(shown) < 60 else type(values).__name__
        raise error(name, "numbers, as an array or a Tensor", found) from failure


def domain_of(
    grid: Sequence[int],
    spacing: Spacing,
    mask: Any,
    boundary: Boundary,
    device: torch.device,
) -> Domain:
    """Check the arguments and make a domain of them."""
    sizes = tuple(grid) if isinstance(grid, Sequence) else ()
    if not 1 <= len(sizes) <= 3 or not all(isinstance(n, Integral) and n > 0 for n in sizes):
        raise error("grid", "1 to 3 sizes of at least 1", grid)
    grid = tuple(map(int, sizes))
    if mask is None:
        exists = torch.ones(grid, dtype=torch.bool, device=device)
    else:
        exists = as_tensor("mask", mask, device)
        if exists.dtype != torch.bool:
            raise error("mask", "dtype torch.bool, True where a node exists", exists.dtype)
        if tuple(exists.shape) != grid:
            raise error("mask", f"shape (*grid) = {grid}", tuple(exists.shape))
        if not bool(exists.any()):
            raise error("mask", "at least one node", "none")
    steps, faces = spacings(spacing, len(grid)), conditions(boundary, len(grid))
    k = torch.ones(1, *grid, 1, dtype=torch.float64, device=device)
    check_conditions(faces, k)
    # All currents are in the source, and the leak is unknown where "matched" needs it.
    known = all(x.inner or x.periodic for pair in faces for x in pair)
    if not known or walls_of(k, steps, faces, k).current is not None:
        expected = "conditions other than 'matched', without a value or flux other than 0"
        raise error("boundary", expected, repr(boundary))
    return Domain(grid, steps, exists, faces)
