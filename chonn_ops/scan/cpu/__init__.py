"""The backend "cpu": the compiled kernel, with one call for each walk, which adds to the outputs.

One call scans short lines in both directions. The kernel, whose C sources are beside this file,
widens bfloat16 and float16 streams as it reads them, and writes float32 or float64.
"""

from __future__ import annotations

from ctypes import Structure

import torch
from torch import Tensor

from chonn_ops._dtypes import CODES, compute_dtype
from chonn_ops._library import Operator, operator, structure
from chonn_ops.scan.arguments import Inputs, within_range
from chonn_ops.scan.walks import LINE, MIRROR, Loops, Walk, run_walks, split_checkpoints

_NARROW = (torch.bfloat16, torch.float16)  # the dtypes that the kernel widens
# Fewest steps of a segment: for shorter ones the second walk costs more than it saves.
_SEGMENT = 4096
_HEADER = "scan/cpu/scan.h"
_Arguments, _Stream = structure(_HEADER, "scan_args"), structure(_HEADER, "scan_stream")


def kernel() -> Operator | None:
    """The compiled scan, None where there is none."""
    return operator("scan", _Arguments)


def _loops(loops: Loops) -> Structure:
    (outer, outer_stride), (inner, inner_stride) = ((1, 0), *loops)[-2:]
    return structure(_HEADER, "scan_loops")((outer, inner), (outer_stride, inner_stride))


class Call:
    """The kernel's arguments for all walks of one operator call, and the tensors they point to. It
    computes and writes `dtype`, float32 or float64. The first walk that runs adds ``d * u``."""

    def __init__(self, inputs: Inputs, dtype: torch.dtype, walks: tuple[Walk, ...]) -> None:
        u, delta, decay, b, c, self.d, _ = inputs
        compiled = kernel()
        assert compiled is not None
        self.kernel, self.isa = compiled, compiled.isa("CHONN_SCAN_ISA")
        self.double = dtype == torch.float64
        self.dtype = dtype
        (B, P, D), N = u.shape, decay.shape[1]
        lanes = compiled.lanes(self.isa, self.double)
        self.blocks, self.lanes = -(-D // lanes), lanes
        # At most the threads that PyTorch uses, and one per 32768 states: waking one costs as much.
        self.threads = min(torch.get_num_threads(), 1 + B * P * D * N // 32768)
        self.groups = max(self._groups(B * walk.line_count) for walk in walks)
        self.arguments = _Arguments(B, D, N, groups=self.groups)
        self.arguments.threads = self.threads
        self.kept: dict[str, Tensor] = {}
        decay = within_range(decay, dtype)
        self.set(decay=decay.t(), table=self.empty(self.blocks, N, 3, lanes))
        # The sum of the walks' readouts is their mean.
        c = c if len(walks) == 1 else c.to(dtype) / len(walks)
        self.stream(u=u, delta=delta, b=b, c=c)

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
            stream = _Stream(tensor.data_ptr(), batch, position, CODES[tensor.dtype])
            setattr(self.arguments, name, stream)

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


def _pairs(walks: tuple[Walk, ...]) -> bool:
    """Whether the kernel scans each line in both directions at once: short lines only."""
    return len(walks) > 1 and max(walk.length for walk in walks) <= LINE


def forward(
    inputs: Inputs, walks: tuple[Walk, ...], boundary: str, checkpoints: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Output (B, P, D) and, for one-walk plans, the final states (B, D, N)."""
    call = Call(inputs, compute_dtype(*inputs), walks)
    (B, P, D), N = inputs.u.shape, inputs.decay.shape[1]
    y = call.empty(B, P, D)
    call.stream(y=y)
    if _pairs(walks):
        call.run_pairs("forward", walks, boundary)
        return y, call.empty(0)
    parts = split_checkpoints(checkpoints, B, walks, D, N)

    def run(index: int, walk: Walk, start: Tensor | None) -> Tensor | None:
        """Add one walk's readout; return its final states where they are needed."""
        wanted = index == len(walks) - 1 or boundary in MIRROR
        state = call.empty(B * walk.line_count, D, N) if wanted else None
        call.set(initial_state=start, state=state, checkpoints=parts[index])
        call.run("forward", walk, boundary, index > 0)
        return state

    return y, run_walks(walks, boundary, inputs.initial_state, run)


def backward(
    grad_y: Tensor,
    grad_state: Tensor | None,
    inputs: Inputs,
    walks: tuple[Walk, ...],
    boundary: str,
    checkpoints: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Gradients of the inputs (None where the input is)."""
    dtype = checkpoints.dtype
    call = Call(inputs, dtype, walks)
    (B, P, D), N = inputs.u.shape, inputs.decay.shape[1]
    grad_u, grad_delta = call.empty(B, P, D), call.empty(B, P, D)
    # PyTorch refuses tangents of outputs that are parts of other tensors.
    groups = () if call.groups == 1 else (call.groups,)
    grad_b, grad_c = (call.empty(*groups, B, P, N) for _ in range(2))
    # Each thread has sums of its own, for each block of channels.
    grad_decay = torch.zeros(call.threads, call.blocks, N, call.lanes, dtype=dtype)
    grad_d = torch.zeros(call.threads, call.blocks, call.lanes, dtype=dtype)
    call.stream(grad_y=grad_y, grad_u=grad_u, grad_delta=grad_delta, grad_b=grad_b, grad_c=grad_c)
    call.set(grad_decay=grad_decay, grad_d=grad_d)
    grad_start = None
    if _pairs(walks):
        call.run_pairs("backward", walks, boundary)
    else:
        parts = split_checkpoints(checkpoints, B, walks, D, N)

        def run(index: int, walk: Walk, grad_end: Tensor | None) -> Tensor:
            """Add one walk's gradients; return those of its initial states."""
            grad_start = call.empty(B * walk.line_count, D, N)
            call.set(grad_state=grad_end, grad_initial_state=grad_start, checkpoints=parts[index])
            call.run("backward", walk, boundary, index < len(walks) - 1)
            return grad_start

        grad_start = run_walks(walks, boundary, grad_state, run, adjoint=True)
    if groups:
        grad_b, grad_c = grad_b.sum(0), grad_c.sum(0)
    if len(walks) > 1:
        grad_c /= len(walks)
    return (
        *(grad_u, grad_delta),
        grad_decay.sum(0).mT.reshape(-1, N)[:D].clone(memory_format=torch.contiguous_format),
        *(grad_b, grad_c),
        None if inputs.d is None else grad_d.sum(0).flatten()[:D].clone(),
        None if inputs.initial_state is None else grad_start,
    )
