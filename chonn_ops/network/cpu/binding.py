"""The compiled kernel, the C files beside this one: the arguments of a call."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence

from torch import Tensor

from chonn_ops import _library
from chonn_ops._dtypes import CODES

AXES = 3
_LARGE = 8192  # nodes: above, the widest vectors were 1.1 to 1.7 times slower (128^2, 256^2)


class _Field(ctypes.Structure):
    """``struct network_field`` of ``network.h``."""

    _fields_ = (
        ("at", ctypes.c_void_p),
        ("batch", ctypes.c_int64),
        ("node", ctypes.c_int64 * AXES),
        ("channel", ctypes.c_int64),
        ("type", ctypes.c_int64),
    )


class Arguments(ctypes.Structure):
    """``struct network_args`` of ``network.h``."""

    _fields_ = (
        ("batches", ctypes.c_int64),
        ("channels", ctypes.c_int64),
        ("grid", ctypes.c_int64 * AXES),
        ("periodic", ctypes.c_int32 * AXES),
        *((name, ctypes.c_int32) for name in ("threads", "iterations_max", "eliminate", "alone")),
        ("tolerance", ctypes.c_double),
        ("strength", ctypes.c_double * AXES),
        ("source", _Field),
        ("leak", _Field),
        ("edges", _Field * AXES),
        ("potential", _Field),
        *((name, ctypes.c_void_p) for name in ("iterations", "residual", "workspace")),
    )


def kernel() -> _library.Operator | None:
    """The compiled solver, None where there is none."""
    return _library.operator("network", Arguments, ("solve",))


def available_isas() -> tuple[str, ...]:
    """Instruction sets that the build contains and this processor runs, slowest first."""
    network = kernel()
    return network.isas if network else ()


def isa_for(
    network: _library.Operator, networks: int, nodes: int, threads: int, double: bool
) -> int:
    """Vectors no wider than leave every thread a group: wider ones would be half empty. Nor wider
    than lets a group's fields of large grids stay near the cache.

    The generic ones round otherwise (no fused products), and a network's numbers should not depend
    on how many there are beside it.
    """
    widest = network.isa("CHONN_NETWORK_ISA")
    if os.environ.get("CHONN_NETWORK_ISA"):
        return widest
    known = [_library.ISAS.index(isa) for isa in network.isas[1:] or network.isas]
    wanted = -(-networks // threads) if nodes <= _LARGE else 1
    return next((i for i in known if network.lanes(i, double) >= wanted), widest)


def field(tensor: Tensor, order: Sequence[int]) -> _Field:
    """``struct network_field`` of a tensor (B, \\*grid, C), axes in this order."""
    batch, *node, channel = tensor.stride()
    strides = [0] * (AXES - len(order)) + [node[axis] for axis in order]
    return _Field(
        tensor.data_ptr(), batch, (ctypes.c_int64 * AXES)(*strides), channel, CODES[tensor.dtype]
    )
