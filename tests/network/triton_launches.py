"""Launches of the Triton elimination, recorded without a GPU, and their kernels compiled."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

# Pointers to what is not of the dtype of the networks.
INTEGERS = {
    *("INFO", "REGION", "KID", "COLUMN", "EDGE", "NODE", "ENTRY", "BESIDE", "PLACE", "POSITION"),
    *("EDGE_OF", "NEAR", "FAR"),
}


def recorded(grid, periodic, *, networks=1, sources=1, dtype="float32", drops=True):
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
    leak = torch.ones(networks, *grid, 1, dtype=kind)
    with mock.patch.object(backend, "_launch", record):
        factors = backend.Factors(backend.plan_of(grid, periodic), [leak] * len(grid), leak)
        eliminated = len(launches)
        factors.solve(torch.ones(networks, sources, *grid, 1, dtype=kind), drops=drops)
    return launches, eliminated


def compiled(kernel, constants, warps, dtype="fp32", capability=90):
    """A kernel compiled for networks of a dtype and for a GPU of a capability."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kinds = {"most": "*i32" if dtype == "fp32" else "*i64", "level": "*fp64"}
    pointers = set(kernel.params[0].name if False else ()) | POINTERS
    signature = {}
    for name in kernel.arg_names:
        if name in constants:
            signature[name] = "constexpr"
        elif name in INTEGERS:
            signature[name] = "*i32"
        else:
            signature[name] = kinds.get(name, f"*{dtype}" if name in pointers else "i32")
    source = ASTSource(kernel, signature, constants)
    options = {"num_warps": warps}
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)


POINTERS = {
    *("g0", "g1", "g2", "leak", "g", "own", "judged", "shares", "inverse", "grounded", "updates"),
    *("grounds", "W", "LW", "source", "x", "handed", "V", "potential", "relative", "base"),
    "drop",
}


def registers_and_stack(kernel) -> tuple[int, int]:
    """Registers of a thread, and its bytes of stack: what it spills."""
    import triton

    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        text = subprocess.run(
            [tool, "-res-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", text)
    assert found, text
    return int(found[1]), int(found[2])
