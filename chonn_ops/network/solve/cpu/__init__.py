"""The backend "cpu": the compiled kernel through ctypes, which releases the GIL.

Few networks are solved one after the other: slabs of one network fill the vectors, and all threads
share the grid. Many networks are solved in groups: the networks of a group fill the vectors, and
each thread solves groups of its own. Both run the same algorithm (`multigrid.h`).
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from chonn_ops import _library
from chonn_ops._dtypes import CODES, compute_dtype
from chonn_ops._library import CONSTANTS
from chonn_ops.checks import AXES
from chonn_ops.network.layout import Grid

ALIGNMENT = 64  # bytes
_LARGE = 8192  # nodes: above, the widest vectors were 1.1 to 1.7 times slower (128^2, 256^2)
# A thread solves up to one network for so many nodes of the grid one after the other. A group took
# the time of 3 networks of 16^3 nodes, of 4 of 24^3, 6 of 32^3, 16 of 48^3, over 16 of 520 x 520.
_NODES_A_NETWORK = 6000


class Arguments(_library.structure("network/solve/cpu/network.h", "network_args")):
    """The arguments of the kernel."""


class _Field(_library.structure("network/solve/cpu/network.h", "network_field")):
    """A tensor of the arguments."""


def kernel() -> _library.Operator | None:
    """The compiled solver, None where there is none."""
    return _library.operator("network", Arguments, ("solve", "cut_off"))


def isa_for(
    network: _library.Operator, networks: int, nodes: int, threads: int, double: bool
) -> int:
    """Vectors no wider than leave every thread a group: wider ones would be half empty. Nor wider
    than lets a group's fields of large grids stay near the cache."""
    wanted = -(-networks // threads) if nodes <= _LARGE else 1
    return network.isa_for("CHONN_NETWORK_ISA", wanted, double)


def field(tensor: Tensor, order: Sequence[int | None]) -> _Field:
    """``struct network_field`` of a tensor (B, \\*grid, C), axes in this order, None for one of
    one node."""
    batch, *node, channel = tensor.stride()
    strides = [0 if axis is None else node[axis] for axis in order]
    return _Field(
        tensor.data_ptr(), batch, (ctypes.c_int64 * AXES)(*strides), channel, CODES[tensor.dtype]
    )


@contextmanager
def zeros(size: int) -> Iterator[int]:
    """The address of a workspace of zeros, of which only what is written takes memory.

    The system has pages of zeros at hand. PyTorch writes its zeros, and NumPy asks for huge pages,
    whose first use took 0.3 to 0.6 s for 191 MiB of them, against 0.1 s for small ones.
    """
    python = ctypes.pythonapi
    python.PyMem_RawCalloc.restype = ctypes.c_void_p
    python.PyMem_RawCalloc.argtypes = (ctypes.c_size_t, ctypes.c_size_t)
    python.PyMem_RawFree.argtypes = (ctypes.c_void_p,)
    address = python.PyMem_RawCalloc(size + ALIGNMENT, 1)
    if not address:
        raise MemoryError(f"expected {size} bytes for the workspace of a network, got none")
    try:
        yield -(-address // ALIGNMENT) * ALIGNMENT
    finally:
        python.PyMem_RawFree(address)


def _are_few(networks: int, grid: Sequence[int]) -> bool:
    """Return whether slabs of one network fill the vectors, instead of networks."""
    nodes = math.prod(grid)
    threads = min(torch.get_num_threads(), max(1, nodes // CONSTANTS["NETWORK_PARALLEL"]))
    few = threads * max(1, nodes // _NODES_A_NETWORK)
    return networks <= few


def _strength(conductance: Tensor) -> float:
    """The typical conductance of an axis, by samples; steers the choice of coarser grids alone."""
    every = tuple(slice(None, None, max(1, n // 16)) for n in conductance.shape)
    mean = float(conductance[every].float().nanmean())
    return mean if math.isfinite(mean) and mean > 0 else 1e-30


def _order(grid: Sequence[int], longest_first: bool) -> list[int | None]:
    """The axes in the kernel's order: those of one node are left out, and None stands between the
    two of a plane and before the one of a line."""
    long = [axis for axis, n in enumerate(grid) if n > 1] or [0]
    if longest_first:
        long.sort(key=lambda axis: -grid[axis])
    return [*long[:-1], *[None] * (AXES - len(long)), long[-1]]


def _arguments(
    conductance: Sequence[Tensor],
    leak: Tensor,
    periodic: Sequence[bool],
    order: Sequence[int | None],
) -> Arguments:
    """Return what describes networks in a call."""
    B, *grid, C = leak.shape
    # The kernel takes as many threads as PyTorch, but none for less work than waking it takes.
    threads = max(1, min(torch.get_num_threads(), B * C, leak.numel() // 4096))
    arguments = Arguments(B, C, threads=threads)
    arguments.leak = field(leak, order)
    for i, axis in enumerate(order):
        arguments.grid[i] = 1 if axis is None else grid[axis]
        if axis is not None:
            arguments.periodic[i] = int(periodic[axis])
            arguments.edges[i] = field(conductance[axis], order)
    return arguments


def solve(
    source: Tensor,
    conductance: tuple[Tensor, ...],
    leak: Tensor,
    layout: Grid,
    tol: float,
    max_iterations: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Potentials (B, \\*grid, C), iterations and deviations (B, C), see `operator`."""
    network = kernel()
    assert network is not None
    B, *grid, C = source.shape
    dtype = compute_dtype(source, *conductance, leak)
    potential = source.new_empty(source.shape, dtype=dtype)
    iterations = torch.empty(B, C, dtype=torch.int32)
    deviation = torch.empty(B, C, dtype=torch.float64)
    double = dtype == torch.float64
    order = _order(grid, longest_first=True)
    arguments = _arguments(conductance, leak, layout.periodic, order)
    for i, axis in enumerate(order):
        if axis is not None:  # of one axis alone nothing is chosen
            arguments.strength[i] = _strength(conductance[axis]) if order[0] is not None else 1.0
    arguments.iterations_max, arguments.tolerance = max_iterations, tol
    arguments.source, arguments.potential = field(source, order), field(potential, order)
    arguments.iterations, arguments.deviation = iterations.data_ptr(), deviation.data_ptr()
    threads = arguments.threads
    if not potential.numel():
        return potential, iterations.zero_(), deviation.zero_().to(dtype)
    isa = isa_for(network, B * C, math.prod(grid), threads, double)
    # Lines always fill the vectors with networks.
    if alone := sum(n > 1 for n in grid) > 1 and _are_few(B * C, grid):
        isa = network.isa("CHONN_NETWORK_ISA")
        arguments.alone, arguments.threads = 1, torch.get_num_threads()
    size = network.workspace(isa, double, arguments)
    with zeros((1 if alone else threads) * size) as arguments.workspace:
        network.call["solve"](isa, double, arguments)
    return potential, iterations, deviation.to(dtype)


def cut_off(conductance: Sequence[Tensor], leak: Tensor, layout: Any) -> Tensor | None:
    """What `chonn_ops.network.solve.ground.cut_off` returns, and an empty tensor without a kernel
    and where an int32 does not number the nodes."""
    network = kernel()
    B, *grid, C = leak.shape
    if network is None or math.prod(grid) >= 2**31:
        return leak.new_empty(0)
    if not leak.numel():
        return None
    if (ends := layout.ends) is None:
        order = _order(grid, longest_first=False)
        arguments = _arguments(conductance, leak, layout.periodic, order)
    else:  # counts as a grid of one row
        row, ends = [None, None, 0], ends.contiguous()
        arguments = _arguments([leak], leak, [False], row)
        arguments.edges[AXES - 1] = field(conductance[0], row)
        arguments.ends, arguments.num_edges = ends.data_ptr(), ends.shape[1]
    has_parts = torch.empty(B, C, dtype=torch.int32)
    label = torch.full((B, C, *grid), -1, dtype=torch.int32)
    row = max(arguments.grid[AXES - 1], arguments.num_edges)
    size = -(-(5 * math.prod(grid) + row) // ALIGNMENT) * ALIGNMENT
    arguments.iterations, arguments.label = has_parts.data_ptr(), label.data_ptr()
    with zeros(arguments.threads * size) as arguments.workspace:
        network.call["cut_off"](0, False, arguments)
    return label.movedim(1, -1) if bool(has_parts.any()) else None
