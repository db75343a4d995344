"""The compiled kernel, the C files beside this one: the arguments of a call."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import numpy as np

from chonn_ops import _library
from chonn_ops.network.direct.plan import LONG, SHORT, Plan

AXES = 3
FACTORIZE, SOLVE, SAMPLE, INVERT, ONCE = range(5)  # ``enum direct_call``
DETERMINED, NOT_FINITE = -1, -2  # ``enum direct_status``
_PAD = _library.CONSTANTS["DIRECT_PAD"]


class Arguments(ctypes.Structure):
    """``struct direct_args`` of ``direct.h``."""

    kept: list[Any]
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
        *((name, ctypes.c_void_p) for name in ("part_first", "part_last", "part_stack")),
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


@lru_cache(maxsize=32)
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


@lru_cache(maxsize=32)
def arguments_of(plan: Plan, batches: int, channels: int, rows: bool, threads: int) -> Arguments:
    """What all calls for networks of one plan have in common; to be copied, not changed."""
    arguments = Arguments(batches, channels, 1, plan.nodes, plan.regions, plan.largest_front)
    arguments.num_shares, arguments.item_shares = plan.num_shares, plan.num_shares + _PAD
    arguments.stack, arguments.rows, arguments.threads = plan.stack, rows, threads
    arguments.waiting, arguments.axes = plan.waiting, len(plan.grid)
    for axis, (n, periodic) in enumerate(zip(plan.grid, plan.periodic, strict=True)):
        arguments.grid[axis], arguments.closed[axis] = n, periodic and n > 1
    for name, address in plan.addresses.items():
        setattr(arguments, name, address)
    arguments.kept = [plan]  # the addresses stay good as long as the arguments
    if rows and threads > batches * channels:
        first, last, at, arguments.stack = _parts(plan, threads)
        arguments.kept += [first, last, at]
        arguments.parts = len(first)
        arguments.part_first, arguments.part_last = first.ctypes.data, last.ctypes.data
        arguments.part_stack = at.ctypes.data
    return arguments
