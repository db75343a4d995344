"""The compiled kernel, whose C sources are beside this file: the arguments of a call."""

from __future__ import annotations

from ctypes import Structure

import torch
from torch import Tensor

from chonn_ops._dtypes import CODES
from chonn_ops._library import Operator, operator, structure
from chonn_ops.scan.walks import MIRROR, Loops, Walk, spacing

_NARROW = (torch.bfloat16, torch.float16)  # the dtypes that the kernel widens
# Fewest steps of a segment: for shorter ones the second walk costs more than it saves.
_SEGMENT = 4096
_HEADER = "scan/cpu/scan.h"
_Arguments, _Stream = structure(_HEADER, "scan_args"), structure(_HEADER, "scan_stream")


def _kernel() -> Operator | None:
    return operator("scan", _Arguments)


def available_isas() -> tuple[str, ...]:
    """Instruction sets that the build contains and this processor runs, slowest first."""
    scan = _kernel()
    return scan.isas if scan else ()


def _loops(loops: Loops) -> Structure:
    (outer, outer_stride), (inner, inner_stride) = ((1, 0), *loops)[-2:]
    return structure(_HEADER, "scan_loops")((outer, inner), (outer_stride, inner_stride))


class Call:
    """The kernel's arguments for all walks of one operator call, and the tensors they point to.

    Parameters
    ----------
    u : Tensor, shape (B, P, D)
    decay : Tensor, shape (D, N)
    d : Tensor, shape (D,), or None
        The first walk that runs adds it.
    dtype : torch.dtype
        float32 or float64: what the kernel computes and writes.
    walks : tuple of Walk
    """

    def __init__(
        self,
        u: Tensor,
        decay: Tensor,
        d: Tensor | None,
        dtype: torch.dtype,
        walks: tuple[Walk, ...],
    ) -> None:
        kernel = _kernel()
        assert kernel is not None
        self.kernel, self.isa = kernel, kernel.isa("CHONN_SCAN_ISA")
        self.double = dtype == torch.float64
        self.dtype, self.d = dtype, d
        (B, P, D), N = u.shape, decay.shape[1]
        lanes = kernel.lanes(self.isa, self.double)
        self.blocks, self.lanes = -(-D // lanes), lanes
        # At most the threads that PyTorch uses, and one per 32768 states: waking one costs as much.
        self.threads = min(torch.get_num_threads(), 1 + B * P * D * N // 32768)
        self.groups = max(self._groups(B * walk.line_count) for walk in walks)
        self.arguments = _Arguments(B, D, N, groups=self.groups, spacing=spacing(N))
        self.arguments.threads = self.threads
        self.kept: dict[str, Tensor] = {}
        self.set(decay=decay.t(), table=self.empty(self.blocks, N, 3, lanes))

    def _groups(self, lines: int) -> int:
        """The number of channel groups, more than one where lines are fewer than threads."""
        if lines % self.threads == 0 or lines >= 4 * self.threads:
            return 1
        return min(self.blocks, -(-2 * self.threads // max(lines, 1)))

    def empty(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=self.dtype)

    def set(self, **tensors: Tensor | None) -> None:
        """Pass tensors to the kernel, contiguous and in the call's dtype; None if absent."""
        for name, tensor in tensors.items():
            if tensor is not None:
                tensor = self.kept[name] = tensor.to(self.dtype).contiguous()
            setattr(self.arguments, name, None if tensor is None else tensor.data_ptr())

    def stream(self, **tensors: Tensor) -> None:
        """Pass (B, P, C) tensors to the kernel; it reads any strides but the last one's."""
        for name, tensor in tensors.items():
            if tensor.dtype not in _NARROW:
                tensor = tensor.to(self.dtype)
            if tensor.stride(-1) != 1 and tensor.shape[-1] != 1:
                tensor = tensor.contiguous()
            self.kept[name] = tensor
            batch, position, _ = tensor.stride()[-3:]
            setattr(
                self.arguments,
                name,
                _Stream(tensor.data_ptr(), batch, position, CODES[tensor.dtype]),
            )

    def run_pairs(self, name: str, walks: tuple[Walk, ...], boundary: str) -> None:
        """Call the kernel for each pair of walks, which are both directions of the same lines."""
        for i, walk in enumerate(walks[::2]):
            self.run(name, walk, boundary, i > 0, both=True)

    def run(
        self, name: str, walk: Walk, boundary: str, accumulate: bool, both: bool = False
    ) -> None:
        """Call the kernel for one walk, or for both directions of its lines.

        The kernel's jobs are lines, groups of channels, and segments where these are too few.
        """
        arguments = self.arguments
        self.set(d=None if accumulate else self.d)
        lines = arguments.batches * walk.line_count
        arguments.lines, arguments.steps = _loops(walk.lines), _loops(walk.steps)
        arguments.reverse, arguments.periodic = walk.reverse, boundary == "periodic"
        arguments.accumulate = accumulate
        arguments.both, arguments.mirror = both, MIRROR.get(boundary, 0)
        jobs = lines * self.groups
        arguments.segments = segments = (
            1
            if both or jobs >= self.threads
            else max(1, min(-(-2 * self.threads // max(jobs, 1)), walk.length // _SEGMENT))
        )
        if segments > 1:
            ends = (lines, segments, self.blocks, arguments.states, self.lanes)
            self.set(ends=self.empty(*ends), times=self.empty(*ends[:3], self.lanes))
        size = self.kernel.workspace(self.isa, self.double, arguments)
        self.set(workspace=self.empty(self.threads * size))
        self.kernel.call[name](self.isa, self.double, arguments)
