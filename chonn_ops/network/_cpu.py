"""The backend "cpu": the compiled kernel (``csrc/``) through ctypes, which releases the GIL.

Networks fill the lanes of the vectors, so that every sweep, however sequential along the grid, runs
on whole vectors; groups of them are shared out to as many threads as PyTorch uses.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Sequence

import torch
from torch import Tensor

from chonn_ops import _library
from chonn_ops._dtypes import compute_dtype

_AXES = 3
_TYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
_ELIMINATE = 24  # the band up to which elimination alone is faster than iterations
_LARGE = 8192  # nodes: above, the widest vectors were 1.1 to 1.7 times slower (128^2, 256^2)
_ALIGNMENT = 64


class _Field(ctypes.Structure):
    """``struct network_field`` of ``csrc/network.h``."""

    _fields_ = (
        ("at", ctypes.c_void_p),
        ("batch", ctypes.c_int64),
        ("node", ctypes.c_int64 * _AXES),
        ("channel", ctypes.c_int64),
        ("type", ctypes.c_int64),
    )


class _Arguments(ctypes.Structure):
    """``struct network_args`` of ``csrc/network.h``."""

    _fields_ = (
        ("batches", ctypes.c_int64),
        ("channels", ctypes.c_int64),
        ("grid", ctypes.c_int64 * _AXES),
        ("ring", ctypes.c_int32 * _AXES),
        *((name, ctypes.c_int32) for name in ("threads", "iterations_max", "eliminate")),
        ("tolerance", ctypes.c_double),
        ("strength", ctypes.c_double * _AXES),
        ("source", _Field),
        ("leak", _Field),
        ("edges", _Field * _AXES),
        ("potential", _Field),
        *((name, ctypes.c_void_p) for name in ("iterations", "residual", "workspace")),
    )


def _operator() -> _library.Operator | None:
    return _library.operator("network", _Arguments, ("solve",))


def available_isas() -> tuple[str, ...]:
    """Instruction sets that the build contains and this processor runs, slowest first."""
    operator = _operator()
    return operator.isas if operator else ()


def _isa(operator: _library.Operator, networks: int, nodes: int, threads: int, double: bool) -> int:
    """Vectors no wider than leave every thread a group: wider ones would be half empty. Nor wider
    than lets a group's fields of large grids stay near the cache.

    The generic ones round otherwise (no fused products), and a network's numbers should not depend
    on how many there are beside it.
    """
    widest = operator.isa("CHONN_NETWORK_ISA")
    if os.environ.get("CHONN_NETWORK_ISA"):
        return widest
    known = [_library.ISAS.index(isa) for isa in operator.isas[1:] or operator.isas]
    wanted = -(-networks // threads) if nodes <= _LARGE else 1
    return next((i for i in known if operator.lanes(i, double) >= wanted), widest)


def _field(tensor: Tensor, order: Sequence[int]) -> _Field:
    batch, *node, channel = tensor.stride()
    strides = [0] * (_AXES - len(order)) + [node[axis] for axis in order]
    return _Field(
        tensor.data_ptr(), batch, (ctypes.c_int64 * _AXES)(*strides), channel, _TYPES[tensor.dtype]
    )


def _strength(conductance: Tensor) -> float:
    """The typical conductance of an axis, by samples; steers the choice of coarser grids alone."""
    every = tuple(slice(None, None, max(1, n // 16)) for n in conductance.shape)
    mean = float(conductance[every].float().nanmean())
    return mean if math.isfinite(mean) and mean > 0 else 1e-30


def solve(
    source: Tensor,
    conductance: tuple[Tensor, ...],
    leak: Tensor,
    ring: tuple[bool, ...],
    tol: float,
    max_iterations: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Potentials (B, \\*grid, C), iterations and relative residuals (B, C), see `_op`."""
    operator = _operator()
    assert operator is not None
    B, *grid, C = source.shape
    dtype = compute_dtype(source, *conductance, leak)
    potential = source.new_empty(source.shape, dtype=dtype)
    iterations = torch.empty(B, C, dtype=torch.int32)
    residual = torch.empty(B, C, dtype=torch.float64)
    double = dtype == torch.float64
    # Axes of one node come first: the kernel's rows run along the last one.
    order = sorted(range(len(grid)), key=lambda axis: grid[axis] > 1)
    missing = _AXES - len(order)
    # As many threads as PyTorch uses, but none for less work than it takes to wake it.
    threads = max(1, min(torch.get_num_threads(), B * C, source.numel() // 4096))
    arguments = _Arguments(B, C, threads=threads, iterations_max=max_iterations)
    arguments.eliminate, arguments.tolerance = _ELIMINATE, tol
    arguments.grid[:] = [1] * missing + [grid[axis] for axis in order]
    arguments.ring[:] = [0] * missing + [int(ring[axis]) for axis in order]
    if len(grid) > 1 and B:
        arguments.strength[:] = [0.0] * missing + [_strength(conductance[axis]) for axis in order]
    arguments.source, arguments.leak = _field(source, order), _field(leak, order)
    for axis, index in enumerate(order):
        arguments.edges[missing + axis] = _field(conductance[index], order)
    arguments.potential = _field(potential, order)
    arguments.iterations, arguments.residual = iterations.data_ptr(), residual.data_ptr()
    if not potential.numel():
        return potential, iterations.zero_(), residual.zero_().to(dtype)
    isa = _isa(operator, B * C, math.prod(grid), threads, double)
    size = operator.workspace(isa, double, arguments)
    workspace = torch.empty(threads * size + _ALIGNMENT, dtype=torch.uint8)
    arguments.workspace = -(-workspace.data_ptr() // _ALIGNMENT) * _ALIGNMENT
    operator.call["solve"](isa, double, arguments)
    return potential, iterations, residual.to(dtype)
