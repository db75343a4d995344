"""The compiled kernel, the C files beside this one: the arguments of a call."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor

from chonn_ops import _library
from chonn_ops._dtypes import CODES

AXES = 3
ALIGNMENT = 64  # bytes
_LARGE = 8192  # nodes: above, the widest vectors were 1.1 to 1.7 times slower (128^2, 256^2)


class Arguments(_library.structure("network/cpu/network.h", "network_args")):
    """The arguments of the kernel."""


class _Field(_library.structure("network/cpu/network.h", "network_field")):
    """A tensor of the arguments."""


def kernel() -> _library.Operator | None:
    """The compiled solver, None where there is none."""
    return _library.operator("network", Arguments, ("solve", "cut_off"))


def available_isas() -> tuple[str, ...]:
    """Instruction sets that the build contains and this processor runs, slowest first."""
    network = kernel()
    return network.isas if network else ()


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


def _aligned(address: int) -> int:
    return -(-address // ALIGNMENT) * ALIGNMENT


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
        yield _aligned(address)
    finally:
        python.PyMem_RawFree(address)
