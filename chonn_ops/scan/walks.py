"""The lines of a field as sizes and strides, so that no backend transposes or flips a tensor.

A field is channels-last with its grid flattened, (B, P, C). A `Walk` visits every position once:
it runs through `lines`, and along each line through `steps`; both are nested loops, outermost
first, over ``(size, stride)`` in units of positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from chonn_ops._library import CONSTANTS
from chonn_ops.checks import check_choice

DIRECTIONS = ("raster", "bidirectional", "cross", "axial")
# The sign of the mirror image that continues a line beyond an end that reflects.
MIRROR = {"neumann": 1, "dirichlet": -1}

# Steps that backends handle together, and between the checkpoints of those that are not on CUDA.
CHUNK = CONSTANTS["SCAN_CHUNK"]
LINE = CONSTANTS["SCAN_LINE"]  # steps that the compiled kernel walks without checkpoints
CUDA_CHECKPOINT = 16  # steps between the checkpoints of the CUDA kernels: a tile of their backward

Loops = tuple[tuple[int, int], ...]


class Walk(NamedTuple):
    """A pass through all lines of a field; `reverse` goes from the last step to the first."""

    lines: Loops
    steps: Loops
    reverse: bool

    @property
    def line_count(self) -> int:
        return math.prod(size for size, _ in self.lines)

    @property
    def length(self) -> int:
        return math.prod(size for size, _ in self.steps)

    @property
    def in_order(self) -> bool:
        """Whether the steps of all lines follow each other in the field's own order."""
        return len(_merged((*self.lines, *self.steps))) == 1

    def positions(self, device: torch.device) -> Tensor:
        """The position of each step of each line, (lines * length,)."""
        at = torch.zeros(1, dtype=torch.long, device=device)
        for size, stride in (*self.lines, *self.steps):
            at = (at[:, None] + stride * torch.arange(size, device=device)).flatten()
        return at

    def to_lines(self, field: Tensor) -> Tensor:
        """(B, P, C) -> (B * lines, length, C): a view where lines lie one after the other."""
        if not self.in_order:
            field = field.index_select(1, self.positions(field.device))
        return field.reshape(-1, self.length, field.shape[2])

    def to_field(self, lines: Tensor) -> Tensor:
        """(B * lines, length, C) -> (B, P, C), the inverse of `to_lines`."""
        if self.in_order and self.line_count == 1:
            return lines  # autograd lets no view that a Function returns be modified in place
        field = lines.reshape(-1, self.line_count * self.length, lines.shape[2])
        if self.in_order:
            return field
        return torch.empty_like(field).index_copy(1, self.positions(field.device), field)


def _merged(loops: Loops) -> Loops:
    """The same positions in the same order, in as few loops as possible."""
    merged: list[tuple[int, int]] = []
    for size, stride in loops:
        if merged and merged[-1][1] == size * stride:
            merged[-1] = (merged[-1][0] * size, stride)
        elif size > 1:
            merged.append((size, stride))
    return tuple(merged) or ((1, 1),)


def axis_orders(n_axes: int, directions: str) -> list[tuple[int, ...]]:
    """Orders in which the axes of a field are walked, the last one fastest.

    They are rotations of ``(0, .., n_axes - 1)``, the identity first.
    """
    check_choice("directions", directions, DIRECTIONS)
    axes = tuple(range(n_axes))
    if directions in ("raster", "bidirectional"):
        return [axes]
    return [axes] + [axes[k:] + axes[:k] for k in range(1, n_axes)]


@lru_cache(maxsize=1024)
def walks_of(grid: tuple[int, ...], directions: str, reverse: bool = False) -> tuple[Walk, ...]:
    """The walks of a direction mode.

    Modes of both directions list the forward and the reverse walk of a line next to each other.
    `reverse` reverses the single walk of "raster".
    """
    strides = [math.prod(grid[axis + 1 :]) for axis in range(len(grid))]
    line_axes = 1 if directions == "axial" else len(grid)
    senses = (reverse,) if directions == "raster" else (False, True)
    walks = []
    for order in axis_orders(len(grid), directions):
        loops = tuple((grid[axis], strides[axis]) for axis in order)
        split = len(grid) - line_axes
        walks += [Walk(_merged(loops[:split]), _merged(loops[split:]), sense) for sense in senses]
    return tuple(walks)


def run_walks(
    walks: tuple[Walk, ...],
    boundary: str,
    start: Tensor | None,
    run: Callable[[int, Walk, Tensor | None], Any],
    *,
    adjoint: bool = False,
) -> Any:
    """Run all walks in the order that their boundary needs; returns the last one's final state.

    ``run(index, walk, start)`` runs a walk and returns its final state. With `adjoint`, states are
    gradients, and the last walk comes first. `_lines` says what walks start from.
    """
    end: Any = None
    for index in range(len(walks))[:: -1 if adjoint else 1]:
        mirrored = boundary in MIRROR and walks[index].reverse != adjoint
        if mirrored and boundary == "dirichlet":
            end = -end
        end = run(index, walks[index], end if mirrored else start)
    return end


def walks_whole_lines(grid: Sequence[int], directions: str) -> bool:
    """Whether the compiled kernel scans each line in both directions at once, without checkpoints.

    It does so in modes of both directions for lines of at most `LINE` steps.
    """
    longest = max(grid) if directions == "axial" else math.prod(grid)
    return directions != "raster" and longest <= LINE


def checkpoint_steps(device: str) -> int:
    """Steps between two checkpoints on a type of device, at most those of any of its backends."""
    return CUDA_CHECKPOINT if device == "cuda" else CHUNK


def checkpoint_numel(
    batch: int, grid: Sequence[int], directions: str, channels: int, states: int, every: int
) -> int:
    """The number of elements of checkpoints `every` so many steps.

    `grid` and `batch` may be symbolic.
    """
    size = math.prod(grid)
    if directions == "axial":
        sweeps = [(math.prod((*grid[:k], *grid[k + 1 :])), n) for k, n in enumerate(grid)]
    else:
        sweeps = [(1, size)] * len(axis_orders(len(grid), directions))
    scans = 1 if directions == "raster" else 2
    kept = sum(lines * -(-length // every) for lines, length in sweeps)
    return scans * batch * kept * states * channels


def split_checkpoints(
    checkpoints: Tensor | None, batch: int, walks: tuple[Walk, ...], channels: int, states: int
) -> list[Any]:
    """Views of the operator's flat checkpoints, (B * lines, S, N, D) for each walk; or all None.

    They are the states before each chunk of steps.
    """
    if checkpoints is None:
        return [None] * len(walks)
    parts = []
    for walk in walks:
        shape = (batch * walk.line_count, -(-walk.length // CHUNK), states, channels)
        part, checkpoints = checkpoints.tensor_split([math.prod(shape)])
        parts.append(part.view(shape))
    return parts
