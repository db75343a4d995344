"""The compiled kernel, the C files beside this one: the arguments of a call."""

from __future__ import annotations

import ctypes

from chonn_ops import _library
from chonn_ops.network.direct.plan import LONG, SHORT, Plan

AXES = 3
FACTORIZE, SOLVE, ONCE = range(3)  # ``enum alternating_call``
DETERMINED, NOT_FINITE, RAISED = -1, -2, -3  # ``enum alternating_status``
_PAD = _library.CONSTANTS["DIRECT_PAD"]


class Arguments(ctypes.Structure):
    """``struct alternating_args`` of ``alternating.h``."""

    kept: Plan
    _fields_ = (
        *(
            (name, ctypes.c_int64)
            for name in (
                *("batches", "channels", "sources", "nodes", "regions", "largest_front"),
                *("stack", "item_shares", "axes"),
            )
        ),
        ("grid", ctypes.c_int64 * AXES),
        ("closed", ctypes.c_int64 * AXES),
        *((name, ctypes.c_void_p) for name in (*LONG, *SHORT)),
        ("refinements", ctypes.c_int64),
        *((name, ctypes.c_int32) for name in ("threads", "call")),
        ("single", ctypes.c_int64),
        ("tol", ctypes.c_double),
        ("leak", ctypes.c_void_p),
        ("conductance", ctypes.c_void_p * AXES),
        *((name, ctypes.c_void_p) for name in ("shares", "inverse", "scale", "status")),
        *((name, ctypes.c_void_p) for name in ("source", "potential")),
        ("drop", ctypes.c_void_p * AXES),
        *((name, ctypes.c_void_p) for name in ("residual", "workspace")),
    )


def kernel() -> _library.Operator | None:
    """The compiled elimination, None where there is none."""
    return _library.operator("alternating", Arguments, ("run",))


def available_isas() -> tuple[str, ...]:
    """Instruction sets that the build contains and this processor runs, slowest first."""
    found = kernel()
    return found.isas if found else ()


def arguments_of(plan: Plan, batches: int, channels: int, threads: int) -> Arguments:
    """What all calls for networks of one plan have in common."""
    arguments = Arguments(batches, channels, 1, plan.nodes, plan.regions, plan.largest_front)
    arguments.stack, arguments.item_shares = plan.stack, plan.num_shares + _PAD
    arguments.threads, arguments.axes = threads, len(plan.grid)
    for axis, (n, periodic) in enumerate(zip(plan.grid, plan.periodic, strict=True)):
        arguments.grid[axis], arguments.closed[axis] = n, periodic and n > 1
    arguments.kept = plan  # the addresses stay good as long as the arguments
    for name, address in plan.addresses.items():
        setattr(arguments, name, address)
    return arguments
