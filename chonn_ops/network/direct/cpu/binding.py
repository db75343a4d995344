"""The compiled kernel, the C files beside this one: the arguments of a call."""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any

import numpy as np
import torch

from chonn_ops import _library
from chonn_ops.network.direct.plan import Array, Plan
from chonn_ops.network.direct.tiles import TiledPlan, in_lanes

AXES = 3
_HEADER = "network/direct/cpu/direct.h"
_CODES = _library.enumerators(_HEADER, "direct_call") | _library.enumerators(
    _HEADER, "direct_status"
)
FACTORIZE, SOLVE, SAMPLE, INVERT, PAIRS, ONCE, DETERMINED, NOT_FINITE = (
    _CODES[f"DIRECT_{name}"]
    for name in (
        "FACTORIZE",
        "SOLVE",
        "SAMPLE",
        "INVERT",
        "PAIRS",
        "ONCE",
        "DETERMINED",
        "NOT_FINITE",
    )
)
_PAD = _library.CONSTANTS["DIRECT_PAD"]
_KINDS = _library.enumerators(_HEADER, "direct_kind")
# The kernel's code of the numbers of a call.
KIND_OF = {
    torch.float32: _KINDS["DIRECT_FLOAT"],
    torch.float64: _KINDS["DIRECT_DOUBLE"],
    torch.complex64: _KINDS["DIRECT_COMPLEX_FLOAT"],
    torch.complex128: _KINDS["DIRECT_COMPLEX_DOUBLE"],
}


class Arguments(_library.structure(_HEADER, "direct_args")):
    """The arguments of the kernel, and what its addresses belong to."""

    kept: list[Any]
    nbytes: int  # of arrays that no plan has


def kernel() -> _library.Operator | None:
    """The compiled elimination, None where there is none."""
    return _library.operator("direct", Arguments, ("run",))


def available_isas() -> tuple[str, ...]:
    """Instruction sets that the build contains and this processor runs, slowest first."""
    direct = kernel()
    return direct.isas if direct else ()


def _parts(plan: Plan, threads: int) -> tuple[Any, Any, Any, int]:
    """Subtrees for threads to share, where their updates wait, and how many entries wait.

    One a thread: the larger the subtrees, the less is left for later, one front at a time. Four a
    thread took 7 to 13 % longer with two threads (64 x 64 to 512 x 512, 24 x 24 x 24).
    """
    first, last = np.array(plan.subtrees(threads), np.int64).T.copy()
    parts = list(zip(first, last, strict=True))
    at = np.zeros(len(parts) + 1, np.int64)
    # The kernel moves whole vectors, which reach beyond the last update of a subtree.
    np.cumsum([plan.stack_of(*part) + _PAD for part in parts], out=at[1:])
    left = plan.update.copy()
    for part in parts:
        left[slice(*part)] = 0
    return first, last, at, max(plan.stack, int(at[-1] + left.sum()))


def _arguments(plan: Plan, axes: int, entries: int, batches: int, channels: int) -> Arguments:
    """Collect what the kernel reads of a plan with `axes` fields of `entries` conductances."""
    arguments = Arguments(batches, channels, 1, plan.nodes, plan.regions, plan.largest_front)
    arguments.axes, arguments.entries = axes, entries
    arguments.num_shares, arguments.item_shares = plan.num_shares, plan.num_shares + _PAD
    arguments.stack, arguments.waiting = plan.stack, plan.waiting
    for name, address in plan.addresses.items():
        setattr(arguments, name, address)
    arguments.kept, arguments.nbytes = [plan], 0  # the addresses stay good as long as the arguments
    return arguments


def _set_tiles(arguments: Arguments, plan: TiledPlan, parts: Array, lanes: int) -> None:
    """Groups of tiles: as many as a vector has lanes, all of one part (first region, one after the
    last)."""
    tiles = plan.tiles
    first, part_group = [0], []
    for end in np.searchsorted(tiles.region, parts[:, 1]):
        part_group.append(len(first) - 1)
        first += [*range(first[-1] + lanes, int(end), lanes), int(end)]
    arrays = {
        "part_group": np.array(part_group, np.int64),
        "group_first": np.array(first, np.int64),
        "tile_region": tiles.region.astype(np.int64),
        "tile_position": in_lanes(tiles.position, first, lanes),
        "tile_edge": in_lanes(tiles.edge, first, lanes),
        "rim": tiles.rim.astype(np.int32),
    }
    for name, array in arrays.items():
        setattr(arguments, name, array.ctypes.data)
    tile = _arguments(tiles.plan, 1, len(tiles.plan.edge), 1, 1)
    arguments.tile = ctypes.addressof(tile)
    arguments.kept += [*arrays.values(), tile]
    arguments.nbytes = sum(array.nbytes for array in arrays.values())
    arguments.groups = len(first) - 1
    arguments.largest_front = max(plan.largest_front, tiles.plan.largest_front)
    # Vectors of shares, and of each node: inverse pivot, share of ground, two for `over_sum`.
    arguments.group_size = tile.item_shares + 4 * tile.nodes
    arguments.group_at = -(-arguments.item_shares // lanes) * lanes
    arguments.item_shares = arguments.group_at + arguments.groups * arguments.group_size * lanes


def arguments_of(
    plan: Plan, batches: int, channels: int, rows: bool, threads: int, lanes: int
) -> Arguments:
    """Make what all calls for networks of one plan share; callers change copies. `lanes`: of
    a vector."""
    arguments = _arguments(plan, len(plan.grid), prod(plan.edge_grid), batches, channels)
    arguments.runs, arguments.num_runs = plan.runs.ctypes.data, len(plan.runs)
    arguments.rows, arguments.threads = rows, threads
    parts = np.array([[0, plan.regions]])
    if rows and threads > batches * channels:
        first, last, at, arguments.stack = _parts(plan, threads)
        arguments.kept += [first, last, at]
        arguments.parts = len(first)
        arguments.part_first, arguments.part_last = first.ctypes.data, last.ctypes.data
        arguments.part_stack = at.ctypes.data
        parts = np.stack([first, last], 1)
    if isinstance(plan, TiledPlan):
        _set_tiles(arguments, plan, parts, lanes)
    return arguments
