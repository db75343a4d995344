"""The compiled kernel, the C files beside this one: the arguments of a call."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from chonn_ops import _library
from chonn_ops.network.direct.plan import LONG, SHORT, Array, Plan
from chonn_ops.network.direct.tiles import TiledPlan, in_lanes

AXES = 3
FACTORIZE, SOLVE, SAMPLE, INVERT, ONCE = range(5)  # ``enum direct_call``
DETERMINED, NOT_FINITE = -1, -2  # ``enum direct_status``
_PAD = _library.CONSTANTS["DIRECT_PAD"]


class Arguments(ctypes.Structure):
    """``struct direct_args`` of ``direct.h``."""

    kept: list[Any]
    nbytes: int  # of arrays that no plan has
    _fields_ = (
        *(
            (name, ctypes.c_int64)
            for name in (
                *("batches", "channels", "sources", "nodes", "regions", "largest_front"),
                *("num_shares", "stack", "item_shares", "waiting", "axes"),
            )
        ),
        ("grid", ctypes.c_int64 * AXES),
        ("closed", ctypes.c_int64 * AXES),
        *((name, ctypes.c_void_p) for name in (*LONG, *SHORT)),
        ("parts", ctypes.c_int64),
        *((f"part_{name}", ctypes.c_void_p) for name in ("first", "last", "stack", "group")),
        ("tile", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("groups", "group_at", "group_size")),
        *(
            (name, ctypes.c_void_p)
            for name in ("group_first", "tile_region", "tile_position", "tile_edge", "rim")
        ),
        *((name, ctypes.c_int32) for name in ("rows", "threads", "call")),
        ("leak", ctypes.c_void_p),
        ("conductance", ctypes.c_void_p * AXES),
        *((name, ctypes.c_void_p) for name in ("shares", "inverse", "grounded", "own_leak")),
        *((name, ctypes.c_void_p) for name in ("scale", "status")),
        *((name, ctypes.c_void_p) for name in ("source", "potential")),
        ("drop", ctypes.c_void_p * AXES),
        *((name, ctypes.c_void_p) for name in ("residual", "diagonal")),
        ("entry", ctypes.c_void_p * AXES),
        ("workspace", ctypes.c_void_p),
    )


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


def _arguments(plan: Plan, batches: int, channels: int) -> Arguments:
    """What the kernel reads of a plan."""
    arguments = Arguments(batches, channels, 1, plan.nodes, plan.regions, plan.largest_front)
    arguments.num_shares, arguments.item_shares = plan.num_shares, plan.num_shares + _PAD
    arguments.stack, arguments.waiting, arguments.axes = plan.stack, plan.waiting, len(plan.grid)
    for axis, (n, periodic) in enumerate(zip(plan.grid, plan.periodic, strict=True)):
        arguments.grid[axis], arguments.closed[axis] = n, periodic and n > 1
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
    tile = _arguments(tiles.plan, 1, 1)
    arguments.tile = ctypes.addressof(tile)
    arguments.kept += [*arrays.values(), tile]
    arguments.nbytes = sum(array.nbytes for array in arrays.values())
    arguments.groups = len(first) - 1
    arguments.largest_front = max(plan.largest_front, tiles.plan.largest_front)
    # Vectors of shares, and two numbers a node: inverse pivot and share of ground.
    arguments.group_size = tile.item_shares + 2 * tile.nodes
    arguments.group_at = -(-arguments.item_shares // lanes) * lanes
    arguments.item_shares = arguments.group_at + arguments.groups * arguments.group_size * lanes


def arguments_of(
    plan: Plan, batches: int, channels: int, rows: bool, threads: int, lanes: int
) -> Arguments:
    """What all calls for networks of one plan have in common; to be copied, not changed. `lanes`:
    of a vector."""
    arguments = _arguments(plan, batches, channels)
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
