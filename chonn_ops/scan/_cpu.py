"""Loads the compiled kernel (``csrc/``) and calls it through ctypes, which releases the GIL."""

from __future__ import annotations

import ctypes
import math
import os
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from chonn_ops.scan._checkpoints import spacing

_ISAS = ("generic", "avx2", "avx512")  # slowest first; the index is what the kernel is called with
_STREAMS = ("u", "delta", "b", "c", "grad_y")
_TENSORS = (
    *("u", "delta", "decay", "b", "c", "d", "initial_state", "y", "state", "checkpoints"),
    *("grad_y", "grad_state", "grad_u", "grad_delta", "grad_decay", "grad_b", "grad_c", "grad_d"),
    *("grad_initial_state", "workspace"),
)


class _Arguments(ctypes.Structure):
    """``struct scan_args`` of ``csrc/scan.h``."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("batches", "steps", "channels", "states")),
        *((name, ctypes.c_int64) for name in ("groups", "spacing")),
        *((name, ctypes.c_int32) for name in ("reverse", "threads")),
        *((f"{name}_stride", ctypes.c_int64 * 2) for name in _STREAMS),
        *((name, ctypes.c_void_p) for name in _TENSORS),
    )


@cache
def _library() -> ctypes.CDLL | None:
    folder = Path(__file__).parent
    for path in sorted((*folder.glob("_kernel*.so"), *folder.glob("_kernel*.pyd"))):
        try:
            library = ctypes.CDLL(str(path))
        except OSError:  # built for another machine
            continue
        isa_and_precision = (ctypes.c_int32, ctypes.c_int32)
        library.chonn_scan_lanes.argtypes = isa_and_precision
        library.chonn_scan_lanes.restype = ctypes.c_int32
        library.chonn_scan_workspace.argtypes = (*isa_and_precision, ctypes.c_int64)
        library.chonn_scan_workspace.restype = ctypes.c_int64
        for call in (library.chonn_scan_forward, library.chonn_scan_backward):
            call.argtypes = (*isa_and_precision, ctypes.POINTER(_Arguments))
            call.restype = None
        return library
    return None


@cache
def available_isas() -> tuple[str, ...]:
    """Instruction sets that the build contains and this processor runs, slowest first."""
    library = _library()
    if library is None:
        return ()
    return tuple(isa for i, isa in enumerate(_ISAS) if library.chonn_scan_lanes(i, 0))


def _isa() -> int:
    known = available_isas()
    isa = os.environ.get("CHONN_SCAN_ISA") or known[-1]
    if isa not in known:
        raise ValueError(f"CHONN_SCAN_ISA: expected one of {', '.join(known)}, got {isa!r}")
    return _ISAS.index(isa)


def _streamable(tensor: Tensor) -> Tensor:
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _threads(sizes: tuple[int, ...]) -> int:
    """As many as PyTorch uses, but none for less work than it takes to wake it."""
    return min(torch.get_num_threads(), 1 + math.prod(sizes) // 32768)


def _arguments(
    sizes: tuple[int, ...],
    groups: int,
    reverse: bool,
    threads: int,
    tensors: dict[str, Tensor | None],
) -> _Arguments:
    """Holds addresses only: `tensors` must outlive the call."""
    arguments = _Arguments(*sizes, groups, spacing(sizes[-1]), reverse, threads)
    for name, tensor in tensors.items():
        if tensor is not None:
            setattr(arguments, name, tensor.data_ptr())
            if name in _STREAMS:
                getattr(arguments, f"{name}_stride")[:] = tensor.stride()[:2]
    return arguments


def _inputs(
    u: Tensor,
    delta: Tensor,
    decay: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor | None,
    initial_state: Tensor | None,
) -> dict[str, Tensor | None]:
    return {
        "u": _streamable(u),
        "delta": _streamable(delta),
        "decay": decay.contiguous(),
        "b": _streamable(b),
        "c": _streamable(c),
        "d": None if d is None else d.contiguous(),
        "initial_state": None if initial_state is None else initial_state.contiguous(),
    }


def forward(
    u: Tensor,
    delta: Tensor,
    decay: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor | None,
    initial_state: Tensor | None,
    reverse: bool,
    checkpoints: Tensor | None,
) -> tuple[Tensor, Tensor]:
    library = _library()
    assert library is not None
    tensors = _inputs(u, delta, decay, b, c, d, initial_state)
    tensors["y"] = y = torch.empty(u.shape, dtype=u.dtype)
    tensors["state"] = state = torch.empty(u.shape[0], *decay.shape, dtype=u.dtype)
    tensors["checkpoints"] = checkpoints
    sizes = (*u.shape, decay.shape[1])
    arguments = _arguments(sizes, 1, reverse, _threads(sizes), tensors)
    library.chonn_scan_forward(_isa(), u.dtype == torch.float64, arguments)
    return y, state


def _groups(batches: int, blocks: int, threads: int) -> int:
    """Channel groups that keep the threads busy where there are few batches."""
    if batches == 0 or batches % threads == 0 or batches >= 4 * threads:
        return 1
    return min(blocks, -(-2 * threads // batches))


def backward(
    grad_y: Tensor,
    grad_state: Tensor | None,
    u: Tensor,
    delta: Tensor,
    decay: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor | None,
    initial_state: Tensor | None,
    reverse: bool,
    checkpoints: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    library = _library()
    assert library is not None
    isa, is_double = _isa(), u.dtype == torch.float64
    B, L, D = u.shape
    N = decay.shape[1]
    threads = _threads((B, L, D, N))
    groups = _groups(B, -(-D // library.chonn_scan_lanes(isa, is_double)), threads)

    def empty(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=u.dtype)

    tensors = _inputs(u, delta, decay, b, c, d, initial_state)
    outputs = {
        "grad_u": empty(B, L, D),
        "grad_delta": empty(B, L, D),
        "grad_decay": empty(B, D, N),
        "grad_b": empty(groups, B, L, N),
        "grad_c": empty(groups, B, L, N),
        "grad_d": None if d is None else empty(B, D),
        "grad_initial_state": None if initial_state is None else empty(B, D, N),
    }
    tensors |= outputs
    tensors["grad_y"] = _streamable(grad_y)
    tensors["grad_state"] = None if grad_state is None else grad_state.contiguous()
    tensors["checkpoints"] = checkpoints
    tensors["workspace"] = empty(threads * library.chonn_scan_workspace(isa, is_double, spacing(N)))
    arguments = _arguments((B, L, D, N), groups, reverse, threads, tensors)
    library.chonn_scan_backward(isa, is_double, arguments)
    for name in ("grad_decay", "grad_b", "grad_c", "grad_d"):
        partial = outputs[name]
        if partial is not None:
            outputs[name] = partial[0] if partial.shape[0] == 1 else partial.sum(0)
    return tuple(outputs.values())
