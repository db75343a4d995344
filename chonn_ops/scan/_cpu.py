"""Loads the compiled kernel (``csrc/``) and calls it through ctypes, which releases the GIL.

One call of the kernel is one walk through the field; walks add to the same outputs. bfloat16 and
float16 streams are widened as the kernel reads them; what it writes is float32 or float64.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from chonn_ops.scan._checkpoints import spacing
from chonn_ops.scan._walks import Loops, Walk, split_checkpoints

_ISAS = ("generic", "avx2", "avx512")  # slowest first; the index is what the kernel is called with
_TYPES = {torch.bfloat16: 1, torch.float16: 2}  # enum scan_type of csrc/scan.h; 0 for the rest
_STREAMS = ("u", "delta", "b", "c", "grad_y", "y", "grad_u", "grad_delta", "grad_b", "grad_c")
_TENSORS = (
    *("decay", "d", "initial_state", "state", "checkpoints", "grad_state", "grad_initial_state"),
    *("grad_decay", "grad_d", "table", "ends", "turns", "workspace"),
)
_SEGMENT = 4096  # steps: shorter pieces of a line are not worth finding out what enters them


class _Loops(ctypes.Structure):
    """``struct scan_loops`` of ``csrc/scan.h``."""

    _fields_ = (("size", ctypes.c_int64 * 2), ("stride", ctypes.c_int64 * 2))


class _Stream(ctypes.Structure):
    """``struct scan_stream`` of ``csrc/scan.h``."""

    _fields_ = (
        ("at", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("batch", "position", "type")),
    )


class _Arguments(ctypes.Structure):
    """``struct scan_args`` of ``csrc/scan.h``."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("batches", "channels", "states")),
        *((name, _Loops) for name in ("lines", "steps")),
        *((name, ctypes.c_int64) for name in ("groups", "segments", "spacing")),
        *((name, ctypes.c_int32) for name in ("reverse", "accumulate", "ring", "threads")),
        *((name, _Stream) for name in _STREAMS),
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
        for name in ("workspace", "forward", "backward"):
            call = getattr(library, f"chonn_scan_{name}")
            call.argtypes = (*isa_and_precision, ctypes.POINTER(_Arguments))
            call.restype = ctypes.c_int64 if name == "workspace" else None
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


def _loops(loops: Loops) -> _Loops:
    (outer, outer_stride), (inner, inner_stride) = ((1, 0), *loops)[-2:]
    return _Loops((outer, inner), (outer_stride, inner_stride))


class _Call:
    """The kernel's arguments for all walks of one operator call, and the tensors they point to.

    Parameters
    ----------
    u : Tensor, shape (B, P, D)
    decay : Tensor, shape (D, N)
    dtype : torch.dtype
        float32 or float64: what the kernel computes and writes.
    walks : tuple of Walk
    """

    def __init__(
        self, u: Tensor, decay: Tensor, dtype: torch.dtype, walks: tuple[Walk, ...]
    ) -> None:
        library = _library()
        assert library is not None
        self.library, self.isa, self.double = library, _isa(), dtype == torch.float64
        self.dtype = dtype
        (B, P, D), N = u.shape, decay.shape[1]
        lanes = library.chonn_scan_lanes(self.isa, self.double)
        self.blocks, self.lanes = -(-D // lanes), lanes
        # As many threads as PyTorch uses, but none for less work than it takes to wake it.
        self.threads = min(torch.get_num_threads(), 1 + B * P * D * N // 32768)
        self.groups = max(self._groups(B * walk.line_count) for walk in walks)
        self.arguments = _Arguments(B, D, N, groups=self.groups, spacing=spacing(N))
        self.arguments.threads = self.threads
        self.kept: dict[str, Tensor] = {}
        self.set(decay=decay.t(), table=self.empty(self.blocks, N, 3, lanes))

    def _groups(self, lines: int) -> int:
        """Channel groups that keep the threads busy where there are few lines."""
        if lines % self.threads == 0 or lines >= 4 * self.threads:
            return 1
        return min(self.blocks, -(-2 * self.threads // max(lines, 1)))

    def empty(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=self.dtype)

    def set(self, **tensors: Tensor | None) -> None:
        """Point to tensors, contiguous ones in the call's dtype; None for an absent one."""
        for name, tensor in tensors.items():
            if tensor is not None:
                tensor = self.kept[name] = tensor.to(self.dtype).contiguous()
            setattr(self.arguments, name, None if tensor is None else tensor.data_ptr())

    def stream(self, **tensors: Tensor) -> None:
        """Point to (B, P, C) tensors of any strides but the last."""
        for name, tensor in tensors.items():
            if tensor.dtype not in _TYPES:
                tensor = tensor.to(self.dtype)
            if tensor.stride(-1) != 1 and tensor.shape[-1] != 1:
                tensor = tensor.contiguous()
            self.kept[name] = tensor
            batch, position, _ = tensor.stride()[-3:]
            setattr(
                self.arguments,
                name,
                _Stream(tensor.data_ptr(), batch, position, _TYPES.get(tensor.dtype, 0)),
            )

    def run(self, name: str, walk: Walk, ring: bool, accumulate: bool) -> None:
        """Call the kernel for one walk; the work splits by lines, channels, then segments."""
        arguments = self.arguments
        lines = arguments.batches * walk.line_count
        arguments.lines, arguments.steps = _loops(walk.lines), _loops(walk.steps)
        arguments.reverse, arguments.ring, arguments.accumulate = walk.reverse, ring, accumulate
        jobs = lines * self.groups
        arguments.segments = segments = (
            1
            if jobs >= self.threads
            else max(1, min(-(-2 * self.threads // max(jobs, 1)), walk.length // _SEGMENT))
        )
        if segments > 1:
            ends = (lines, segments, self.blocks, arguments.states, self.lanes)
            self.set(ends=self.empty(*ends), turns=self.empty(*ends[:3], self.lanes))
        size = self.library.chonn_scan_workspace(self.isa, self.double, arguments)
        self.set(workspace=self.empty(self.threads * size))
        getattr(self.library, f"chonn_scan_{name}")(self.isa, self.double, arguments)


def _dtype(*tensors: Tensor | None) -> torch.dtype:
    wide = any(tensor is not None and tensor.dtype == torch.float64 for tensor in tensors)
    return torch.float64 if wide else torch.float32


def _mean_readout(c: Tensor, walks: tuple[Walk, ...], dtype: torch.dtype) -> Tensor:
    """The mean over walks, taken on the smaller of the tensors that it could be taken on."""
    return c if len(walks) == 1 else c.to(dtype) / len(walks)


def _reflected(termination: str, walk: Walk) -> bool:
    return termination in ("open", "short") and walk.reverse


def forward(
    u: Tensor,
    delta: Tensor,
    decay: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor | None,
    initial_state: Tensor | None,
    walks: tuple[Walk, ...],
    termination: str,
    checkpoints: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Output (B, P, D) and the last walk's final states (B * lines, D, N)."""
    dtype = _dtype(u, delta, decay, b, c, d, initial_state)
    call = _Call(u, decay, dtype, walks)
    (B, _, D), N = u.shape, decay.shape[1]
    y = call.empty(*u.shape)
    call.stream(u=u, delta=delta, b=b, c=_mean_readout(c, walks, dtype), y=y)
    call.set(d=d)
    parts = None if checkpoints is None else split_checkpoints(checkpoints, B, walks, D, N)
    state = initial_state
    for i, walk in enumerate(walks):
        start = initial_state
        if _reflected(termination, walk):
            assert state is not None
            start = state if termination == "open" else -state
        wanted = i == len(walks) - 1 or termination in ("open", "short")
        state = call.empty(B * walk.line_count, D, N) if wanted else None
        call.set(
            initial_state=start,
            state=state,
            checkpoints=None if parts is None else parts[i],
            d=None if i else d,
        )
        call.run("forward", walk, termination == "ring", i > 0)
    assert state is not None
    return y, state


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
    walks: tuple[Walk, ...],
    termination: str,
    checkpoints: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Gradients of u, delta, decay, b, c, d and initial_state (None where the input is)."""
    dtype = checkpoints.dtype
    call = _Call(u, decay, dtype, walks)
    (B, P, D), N = u.shape, decay.shape[1]
    grad_u, grad_delta = call.empty(B, P, D), call.empty(B, P, D)
    grad_b, grad_c = (call.empty(call.groups, B, P, N) for _ in range(2))
    # A thread's sums, block by block.
    grad_decay = torch.zeros(call.threads, call.blocks, N, call.lanes, dtype=dtype)
    grad_d = torch.zeros(call.threads, call.blocks, call.lanes, dtype=dtype)
    call.stream(u=u, delta=delta, b=b, c=_mean_readout(c, walks, dtype), grad_y=grad_y)
    call.stream(grad_u=grad_u, grad_delta=grad_delta, grad_b=grad_b, grad_c=grad_c)
    call.set(grad_decay=grad_decay, grad_d=grad_d)
    parts = split_checkpoints(checkpoints, B, walks, D, N)
    carried = grad_state
    # Reflected lines are walked back in the order of their echo: the second way first.
    for i, walk in enumerate(reversed(walks)):
        arriving = grad_state
        if termination in ("open", "short"):
            arriving = None if walk.reverse else carried
            if termination == "short" and arriving is not None:
                arriving = -arriving
        wanted = initial_state is not None or _reflected(termination, walk)
        carried = call.empty(B * walk.line_count, D, N) if wanted else None
        call.set(
            grad_state=arriving,
            grad_initial_state=carried,
            checkpoints=parts[len(walks) - 1 - i],
            d=None if i else d,
        )
        call.run("backward", walk, termination == "ring", i > 0)
    grad_b, grad_c = (
        partial[0] if call.groups == 1 else partial.sum(0) for partial in (grad_b, grad_c)
    )
    if len(walks) > 1:
        grad_c /= len(walks)
    return (
        *(grad_u, grad_delta),
        grad_decay.sum(0).mT.reshape(-1, N)[:D].contiguous(),
        *(grad_b, grad_c),
        None if d is None else grad_d.sum(0).flatten()[:D],
        carried if initial_state is not None else None,
    )
