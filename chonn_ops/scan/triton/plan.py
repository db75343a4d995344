"""The tiling of a scan for Triton: channels for each program, segments for each line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from chonn_ops.scan.walks import CHUNK, Loops, Walk, spacing

_WARPS_A_PROCESSOR = 8  # two a scheduler, with four or eight independent states a thread each
_EVEN = 3  # times as many programs, once lines are cut: their last round leaves less idle
_CHANNELS = 2  # a thread, at the most: sums over them are the backward's cheapest
GROUP = 4  # steps whose rows are loaded together
ROUNDS = 8  # at most so many programs a place in the backward, each with its own scratch


def programs_wanted(device: torch.device) -> int:
    """The number of programs that fills the GPU."""
    if device.type != "cuda":
        return 1
    return _WARPS_A_PROCESSOR * torch.cuda.get_device_properties(device).multi_processor_count


def streamable(tensor: Tensor) -> Tensor:
    """The tensor with its last axis contiguous."""
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()


def _nest(loops: Loops) -> tuple[int, int, int]:
    """Inner size, inner stride and outer stride of at most two loops."""
    assert len(loops) <= 2, "walks of up to three axes merge into two loops at most"
    nest = list(loops)
    return (*nest[-1], nest[0][1] if len(nest) == 2 else 0)


@dataclass(frozen=True)
class Tile:
    per_thread: int
    states: int
    width: int
    blocks: int
    segments: int
    segment_steps: int


def _options(states: int) -> dict[str, Any]:
    return {"num_warps": max(1, states // 32), "enable_fp_fusion": True}


def row_strides(*tensors: Tensor) -> list[int]:
    """Strides of batch and position of each tensor."""
    return [stride for tensor in tensors for stride in tensor.stride()[:2]]


def path(walk: Walk) -> tuple[int, ...]:
    """A walk as numbers: count and strides of its lines, count and strides of its steps."""
    return (walk.line_count, *_nest(walk.lines), walk.length, *_nest(walk.steps))


@dataclass
class Scan:
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
        tensors = (self.u, self.delta, self.decay, self.b, self.c, self.d)
        wide = any(t is not None and t.dtype == torch.float64 for t in tensors)
        self.real = torch.float64 if wide else torch.float32
        self.u, self.delta, self.b, self.c = map(streamable, (self.u, self.delta, self.b, self.c))
        self.decay = self.decay.contiguous()
        self.d = None if self.d is None else self.d.contiguous()
        self.every = CHUNK * spacing(self.decay.shape[1])
        rows = (self.u, self.delta, self.b, self.c)
        longest = max(tensor.stride(1) for tensor in rows)
        self.wide = self.u.shape[1] * max(longest, self.u.shape[2]) >= 2**31

    def empty(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=self.real, device=self.u.device)

    def tile(self, walk: Walk, narrow: bool) -> Tile:
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
        return Tile(per_thread, states, width, blocks, segments, chunks * self.every)

    def constants(self, walk: Walk, tile: Tile) -> dict[str, Any]:
        return {
            "SHARE": self.share,
            "REVERSE": walk.reverse,
            "NESTED": len(walk.steps) == 2,
            "WIDE": self.wide,
            "J": tile.per_thread,
            "N": tile.states,
            "W": tile.width,
            "GROUP": GROUP,
            "REAL": tl.float64 if self.real == torch.float64 else tl.float32,
            **_options(tile.states),
        }
