"""Launches of the Triton elimination, recorded without a GPU."""

from typing import Any
from unittest import mock

# Pointers to what is of the dtype of the networks, and to integers.
REALS = {
    *("g0", "g1", "g2", "leak", "g", "own", "judged", "shares", "inverse", "grounded", "updates"),
    *("grounds", "W", "LW", "source", "x", "potential", "relative", "base", "drop"),
}
INTEGERS = {
    *("INFO", "KID", "COLUMN", "EDGE_AT", "BEFORE_AT", "BEFORE", "NODE", "ENTRY"),
    *("PLACE", "POSITION", "EDGE_OF", "NEAR", "FAR"),
}


def recorded(layout, *, networks=1, sources=1, dtype="float32", drops=True):
    """(kernel, constants, warps) of each launch of an elimination with one solve, the solve's last
    ones being those of another solve, too; and how many belong to the elimination."""
    import torch

    from chonn_ops.network.direct import triton as backend

    launches: list[tuple[Any, dict[str, Any], int]] = []

    def record(kernel, grid, *args, warps, **constants):
        assert len(grid) == 1 or max(grid[1:]) < 2**16  # what CUDA takes
        names = [x for x in kernel.arg_names if x not in constants]
        assert len(names) == len(args), (kernel, names, args)
        launches.append((kernel, constants, warps))

    kind = getattr(torch, dtype)
    leak = torch.ones(networks, *layout.shape, 1, dtype=kind)
    plan = backend.plan_of(layout)
    conductance = [leak.new_ones(networks, *layout.edge_shape, 1) for _ in layout.shape]
    with mock.patch.object(backend, "_launch", record):
        factors = backend.Factors(plan, conductance, leak)
        eliminated = len(launches)
        factors.solve(torch.ones(networks, sources, *layout.shape, 1, dtype=kind), drops=drops)
    return launches, eliminated


def arguments_of(launch, dtype):
    """What `compile_triton` takes for a launch for networks of a dtype, up to the capability."""
    kernel, constants, warps = launch
    real, bits = ("fp32", "i32") if dtype == "float32" else ("fp64", "i64")
    kinds = dict.fromkeys(INTEGERS, "*i32") | dict.fromkeys(REALS, f"*{real}")
    kinds |= {"most": f"*{bits}"} | dict.fromkeys(("level", "handed", "V", "whole"), "*fp64")
    types = {x: kinds.get(x, "i32") for x in kernel.arg_names if x not in constants}
    return kernel, types, [x for x in types if x in kinds and x != "judged"], constants, warps
