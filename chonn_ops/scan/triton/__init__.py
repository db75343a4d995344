"""The scan on CUDA by Triton: programs, segments, and the order of the walks.

A program walks through its steps sequentially, with the states of a block of channels in registers.
A step costs one multiply-add for each state; an associative scan over a tile of steps would combine
each pair in every one of its rounds. Batches, lines and blocks of channels run in parallel. Where
these are fewer than `programs_wanted`, lines are divided into segments, which takes a second
walk (see `kernels`). Kernels are compiled on first use for each N, each combination of dtypes,
and for nested and simple walks.

The issue of instructions, one for each clock and scheduler, limits the speed. The table is for
(8, 4096, 1536, 16) in bfloat16 on an H200 (4.8 TB/s, 528 schedulers at 1.98 GHz); its numbers are
counted in the compiled code, not measured:

=====================  ==========  =====================  =============================
pass                   bytes       exponentials           instructions a step and state
=====================  ==========  =====================  =============================
forward                63 us       193 us                 30: 710 us
backward, `walk`       105 us      386 us (193 us once)   82: 1980 us
backward, `sweep`      42 us       193 us                 18: 440 us
=====================  ==========  =====================  =============================

Under ``TRITON_INTERPRET=1`` the backend also takes CPU tensors; it is slow, and serves the tests.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from chonn_ops._dtypes import compute_dtype
from chonn_ops.scan.arguments import Inputs
from chonn_ops.scan.triton import kernels
from chonn_ops.scan.walks import CHUNK, Loops, Walk, run_walks, spacing, split_checkpoints

_kernels: Any = kernels  # Triton's kernels have no Python types

_WARPS_A_PROCESSOR = 8  # two for each scheduler, each thread with four or eight independent states
# Lines that are divided make so many times the programs that fill the GPU: the last round of
# programs then leaves less of it idle.
_EVEN = 3
_CHANNELS = 2  # most channels of a thread; a sum over them is the backward's cheapest sum
_GROUP = 4  # steps whose rows are loaded together
_ROUNDS = 8  # the backward runs at most so many rounds of programs: each program has a scratch


def programs_wanted(device: torch.device) -> int:
    """The number of programs that fills the GPU."""
    if device.type != "cuda":
        return 1
    return _WARPS_A_PROCESSOR * torch.cuda.get_device_properties(device).multi_processor_count


def _streamable(tensor: Tensor) -> Tensor:
    """The tensor with its last axis contiguous."""
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()


def _nest(loops: Loops) -> tuple[int, int, int]:
    """Inner size, inner stride and outer stride of at most two loops."""
    assert len(loops) <= 2, "walks of up to three axes merge into two loops at most"
    nest = list(loops)
    return (*nest[-1], nest[0][1] if len(nest) == 2 else 0)


@dataclass(frozen=True)
class _Tile:
    """The tiling of a walk: programs are blocks of channels times segments of lines."""

    per_thread: int
    states: int
    width: int
    blocks: int
    segments: int
    segment_steps: int


def _row_strides(*tensors: Tensor) -> list[int]:
    """Strides of batch and position of each tensor."""
    return [stride for tensor in tensors for stride in tensor.stride()[:2]]


def _path(walk: Walk) -> tuple[int, ...]:
    """A walk as numbers: count and strides of its lines, count and strides of its steps."""
    return (walk.line_count, *_nest(walk.lines), walk.length, *_nest(walk.steps))


@dataclass
class _Scan:
    """Inputs in the layout of the kernels, and their tiling."""

    u: Tensor
    delta: Tensor
    decay: Tensor
    b: Tensor
    c: Tensor
    d: Tensor | None
    share: int  # walks that a position's output is the mean of
    real: torch.dtype = field(init=False)
    every: int = field(init=False)  # steps between checkpoints
    wide: bool = field(init=False)  # one batch element's rows pass 2**31 elements

    def __post_init__(self) -> None:
        self.real = compute_dtype(self.u, self.delta, self.decay, self.b, self.c, self.d)
        self.u, self.delta, self.b, self.c = map(_streamable, (self.u, self.delta, self.b, self.c))
        self.decay = self.decay.contiguous()
        self.d = None if self.d is None else self.d.contiguous()
        self.every = CHUNK * spacing(self.decay.shape[1])
        rows = (self.u, self.delta, self.b, self.c)
        longest = max(tensor.stride(1) for tensor in rows)
        self.wide = self.u.shape[1] * max(longest, self.u.shape[2]) >= 2**31

    def empty(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=self.real, device=self.u.device)

    def tile(self, walk: Walk, narrow: bool) -> _Tile:
        """The tiling of a walk; `narrow` prefers fewer channels a thread to more segments."""
        B, _, D = self.u.shape
        states = triton.next_power_of_2(self.decay.shape[1])
        across = min(states, 4)
        width = 32 // across
        lines = max(1, B * walk.line_count)
        wanted = programs_wanted(self.u.device)
        per_thread = max(1, min(_CHANNELS, 8 * across // states))
        while per_thread > 1 and (
            width * per_thread // 2 >= D
            or (narrow and lines * -(-D // (width * per_thread)) < wanted)
        ):
            per_thread //= 2
        blocks = -(-D // (width * per_thread))
        segments = 1
        if lines * blocks < wanted:  # enough for an even load, each of at least two chunks
            segments = -(-_EVEN * wanted // (lines * blocks))
        chunks = max(2, -(-walk.length // (segments * self.every)))
        segments = -(-walk.length // (chunks * self.every))
        return _Tile(per_thread, states, width, blocks, segments, chunks * self.every)

    def constants(self, walk: Walk, tile: _Tile) -> dict[str, Any]:
        return {
            "SHARE": self.share,
            "KIND": walk.reverse + 2 * (len(walk.steps) == 2) + 4 * self.wide,
            "J": tile.per_thread,
            "N": tile.states,
            "W": tile.width,
            "GROUP": _GROUP,
            "REAL": tl.float64 if self.real == torch.float64 else tl.float32,
            "num_warps": max(1, tile.states // 32),
            "enable_fp_fusion": True,
        }


def _join(
    scan: _Scan, tile: _Tile, ends: Tensor, sums: Tensor, start: Tensor | None, **modes: bool
) -> Tensor:
    """The state, or with BACKWARD the adjoint, that each segment of each line starts from."""
    carry_in = torch.empty_like(ends)
    lines, segments, D, N = ends.shape
    _kernels.join_segments[(lines * D,)](
        *(ends, sums, scan.decay, start, carry_in, segments, D, N),
        **modes,
        K=16 if segments <= 16 else 128,
        N=tile.states,
        REAL=tl.float64 if scan.real == torch.float64 else tl.float32,
        num_warps=4,
        enable_fp_fusion=True,
    )
    return carry_in


def _contiguous(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


def forward(
    inputs: Inputs,
    walks: tuple[Walk, ...],
    boundary: str,
    checkpoints: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Output (B, P, D) in ``u.dtype``, and the last walk's final states (B * lines, D, N)."""
    scan = _Scan(*inputs[:6], len(walks))
    (B, P, D), N = scan.u.shape, scan.decay.shape[1]
    y = torch.empty_like(inputs.u, memory_format=torch.contiguous_format)
    if y.numel() == 0:
        return y, scan.empty(B * walks[-1].line_count, D, N)
    kept, periodic = split_checkpoints(checkpoints, B, walks, D, N), boundary == "periodic"
    total = y if len(walks) == 1 or y.dtype == scan.real else scan.empty(B, P, D)
    tensors = (scan.u, scan.delta, scan.decay, scan.b, scan.c)

    def run(index: int, walk: Walk, start: Tensor | None) -> Tensor:
        """Add one walk's readout; return its final states (B * lines, D, N)."""
        lines = B * walk.line_count
        tile = scan.tile(walk, narrow=True)
        grid = (lines * tile.segments * tile.blocks,)
        places = (P, tile.segments, tile.segment_steps, scan.every, tile.blocks)
        sizes = (*_row_strides(scan.u, scan.delta, scan.b, scan.c), D, N, *_path(walk), *places)
        constants = scan.constants(walk, tile)
        if periodic or tile.segments > 1:
            ends, sums = scan.empty(lines, tile.segments, D, N), scan.empty(lines, tile.segments, D)
            nothing = (None, None, None, None, ends, sums, None)
            _kernels.walk_forward[grid](*tensors, *nothing, *sizes, **constants)
            start = _join(scan, tile, ends, sums, start, PERIODIC=periodic, BACKWARD=False)
        state = scan.empty(lines, D, N)
        skip, prior = (None, total) if index else (scan.d, None)
        out = y if index == len(walks) - 1 else total
        results = (skip, start, prior, out, state, None, kept[index])
        _kernels.walk_forward[grid](*tensors, *results, *sizes, **constants)
        return state

    with torch.cuda.device_of(y):
        return y, run_walks(walks, boundary, _contiguous(inputs.initial_state), run)


def backward(
    grad_y: Tensor,
    grad_state: Tensor | None,
    inputs: Inputs,
    walks: tuple[Walk, ...],
    boundary: str,
    checkpoints: Tensor,
) -> tuple[Tensor | None, ...]:
    """Gradients of the seven inputs, those of u and delta in their dtypes, the others in the
    dtype of the states."""
    scan = _Scan(*inputs[:6], len(walks))
    (B, P, D), N = scan.u.shape, scan.decay.shape[1]
    final = [x.new_empty(B, P, D) for x in (scan.u, scan.delta)]
    if grad_y.numel() == 0:
        zeros = [None if x is None else torch.zeros_like(x) for x in inputs[2:6]]
        return (*final, *zeros, inputs.initial_state)
    grad_y, periodic = _streamable(grad_y), boundary == "periodic"
    kept = split_checkpoints(checkpoints, B, walks, D, N)
    # Gradients accumulate over walks in the dtype of the states.
    sums = [x if len(walks) == 1 or x.dtype == scan.real else scan.empty(B, P, D) for x in final]
    totals: list[Any] = [0.0, 0.0, 0.0, None]  # of decay, b, c and d

    def run(index: int, walk: Walk, grad_end: Tensor | None) -> Tensor:
        """Add one walk's gradients; return those of its initial states (B * lines, D, N)."""
        lines = B * walk.line_count
        # Wide blocks: each block stores its own grad_b and grad_c, whatever its number of channels.
        tile = scan.tile(walk, narrow=False)
        constants = scan.constants(walk, tile)
        places = (tile.segments, tile.segment_steps)
        if periodic or tile.segments > 1:
            ends = scan.empty(lines, tile.segments, D, N)
            times = scan.empty(lines, tile.segments, D)
            _kernels.sweep_adjoint[(lines * tile.segments * tile.blocks,)](
                *(grad_y, scan.delta, scan.decay, scan.c, ends, times),
                *(*_row_strides(grad_y, scan.delta, scan.c), D, N, *_path(walk)),
                *(*places, tile.blocks),
                **constants,
            )
            grad_end = _join(scan, tile, ends, times, grad_end, PERIODIC=periodic, BACKWARD=True)
        places_wanted = _ROUNDS * programs_wanted(scan.u.device)
        lines_each = max(1, lines * tile.segments * tile.blocks // places_wanted)
        runs = -(-lines // lines_each) * tile.segments
        notes = (scan.every // _GROUP, tile.per_thread * tile.width, N)
        scratch = scan.empty(runs * tile.blocks, *notes)
        is_first = index == len(walks) - 1
        skip, prior = (scan.d, (None, None)) if is_first else (None, sums)
        grads = (
            *(scan.empty(runs, D, N), scan.empty(tile.blocks, B, P, N)),
            *(scan.empty(tile.blocks, B, P, N), None if skip is None else scan.empty(runs, D)),
        )
        grad_start = scan.empty(lines, D, N)
        _kernels.walk_backward[(runs * tile.blocks,)](
            *(grad_y, scan.u, scan.delta, scan.decay, scan.b, scan.c, skip),
            *(grad_end, kept[index], scratch, *prior, *(sums if index else final)),
            *(*grads, grad_start),
            *(*_row_strides(grad_y, scan.u, scan.delta, scan.b, scan.c), D, N, *_path(walk)),
            *(P, *places, scan.every, tile.blocks, lines, lines_each),
            **constants,
        )
        for i, grad in enumerate(grads):
            if grad is not None:
                totals[i] = grad.sum(0) if is_first else totals[i] + grad.sum(0)
        return grad_start

    with torch.cuda.device_of(grad_y):
        grad_start = run_walks(walks, boundary, _contiguous(grad_state), run, adjoint=True)
    return (*final, *totals, None if inputs.initial_state is None else grad_start)
