"""The compiled kernel, the C files beside this one: the arguments of a call."""

from __future__ import annotations

from chonn_ops import _library
from chonn_ops.network.direct.plan import Plan

AXES = 3
_HEADER = "network/direct/alternating/alternating.h"
_CODES = _library.enumerators(_HEADER, "alternating_call")
_CODES |= _library.enumerators(_HEADER, "alternating_status")
FACTORIZE, SOLVE, ONCE, DETERMINED, NOT_FINITE, RAISED = (
    _CODES[f"ALTERNATING_{name}"]
    for name in ("FACTORIZE", "SOLVE", "ONCE", "DETERMINED", "NOT_FINITE", "RAISED")
)
_PAD = _library.CONSTANTS["DIRECT_PAD"]


class Arguments(_library.structure(_HEADER, "alternating_args")):
    """The arguments of the kernel, and the plan that its addresses belong to."""

    kept: Plan


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
