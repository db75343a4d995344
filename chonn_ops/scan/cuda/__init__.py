"""The scan on CUDA: kernels in CUDA C++, which NVRTC compiles on first use.

`scan.cu` says how they work. A walk is one launch forward and one backward; one more adds up the
partial sums of all walks' gradients. Sums have a fixed order, so results repeat to the bit. A
walk's checkpoints, every 16 steps, take N / 16 times the memory of a (B, L, D) tensor of states.
The machine code is kept in the user's folder for caches, see `nvrtc.cache_folder`.

Streams of one dtype are read as they are, rows at any distance; others are converted.

These kernels have not run on a GPU in this form; tests run an emulation of them on the CPU. A warp
has 8 channels, a lane 4 of their 16 states, a block 4 warps, a processor 3 blocks, as in the form
that ran on one.

Tensor cores sum the gradients of b and c over the channels of scans of 9 to 16 states, but for
float64. They multiply what they do not want by 0. So a term that is NaN or infinite makes both
gradients of its group of four states at that step NaN.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

import torch
from torch import Tensor

from chonn_ops._dtypes import CODES, compute_dtype
from chonn_ops.scan.arguments import Inputs
from chonn_ops.scan.cuda import nvrtc
from chonn_ops.scan.cuda.driver import Card, Kernels, card
from chonn_ops.scan.walks import CUDA_CHECKPOINT, MIRROR, Loops, Walk, run_walks

MOST_STATES = 128  # states of a channel that the kernels take
SOURCE = Path(__file__).with_name("scan.cu")
NAMES = ("scan_forward", "scan_backward", "scan_finish")
_FORWARD, _BACKWARD, _FINISH = range(3)
# `Args` in scan.cu: pointers, strides, numbers.
LAYOUT = Struct("=23Q10q17i4x")
_ROWS_ALIGNED, _STATES_ALIGNED, _ADD, _UNFINISHED, _PERIODIC = 1, 2, 4, 8, 16

_WARPS = 4  # of a block; fewer where the GPU has too little shared memory


class _Setting(NamedTuple):
    """How to compile and launch: macros, and sizes of blocks."""

    macros: tuple[tuple[str, int], ...]
    channels: int  # of a warp
    shared: tuple[int, int]  # bytes that a block of the forward and of the backward has


@lru_cache(maxsize=256)
def _kernels(macros: tuple[tuple[str, int], ...], on: Card) -> Any:
    return Kernels(SOURCE.read_text(encoding="utf-8"), macros, NAMES, LAYOUT, on)


def setting_of(walks: int, N: int, code: int, nested: bool, on: Card) -> _Setting:
    """How to run scans of so many walks."""
    if N > MOST_STATES:
        raise ValueError(
            f"decay: expected at most {MOST_STATES} states a channel for backend 'cuda', got {N}; "
            "backend='torch' takes any number"
        )
    NP = 1 << (N - 1).bit_length()
    S = min(NP, 4)
    channels = 32 * S // NP
    double, narrow = code == CODES[torch.float64], code in _NARROW
    size = 8 if double else 4
    tile = 32 if narrow and NP < 64 else 16
    series = 0 if double else (3 if narrow else 4) * 32 * S

    def shared(groups: int) -> tuple[int, int]:
        """`F_SIZE` and `B_SIZE` of scan.cu for all warps, in bytes."""
        outputs = 1 if groups == 1 else 2
        backward = CUDA_CHECKPOINT * (3 * channels + 2 * NP + 32 * S + outputs * 2 * NP)
        return size * groups * tile * 2 * (channels + NP), size * groups * (backward + series)

    groups = _WARPS
    while groups > 1 and max(shared(groups)) > on.shared:
        groups //= 2
    if max(shared(groups)) > on.shared:
        raise ValueError(
            f"backend 'cuda': expected {max(shared(groups))} bytes of shared memory for {N} states "
            f"in this dtype, got {on.shared}; backend='torch' takes any number"
        )
    macros = {
        "STREAM": code,
        "NP": NP,
        "WHOLE": int(N == NP),
        "NESTED": int(nested),
        "WALKS": walks,
        "GROUPS": groups,
        "CK": CUDA_CHECKPOINT,
    }
    return _Setting(tuple(macros.items()), channels, shared(groups))


def lacks() -> str:
    """Say what the kernels lack beside a GPU; empty if they can be compiled."""
    if torch.version.cuda is None:
        return "a PyTorch for CUDA, got one without"
    return "" if nvrtc.is_installed() else "NVRTC (`pip install nvidia-cuda-nvrtc`), got none"


def _nest(loops: Loops) -> tuple[int, int, int]:
    """Inner size, inner stride and outer stride of at most two loops."""
    assert len(loops) <= 2, "walks of up to three axes merge into two loops at most"
    (_, outer_stride), (inner, inner_stride) = ((1, 0), *loops)[-2:]
    return inner, inner_stride, outer_stride


_NARROW = (CODES[torch.bfloat16], CODES[torch.float16])
_Strides = tuple[tuple[int, ...], ...]


def _are_multiples(strides: _Strides, number: int) -> bool:
    """Whether the strides of batch and rows are."""
    return all(stride % number == 0 for own in strides for stride in own[:2])


class _Plan:
    """What all calls with the same shapes, strides and walks share.

    `strides` are those of u, delta, b and c, and in a backward that of the gradient of y.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        N: int,
        dtype: torch.dtype,
        strides: _Strides,
        walks: tuple[Walk, ...],
        boundary: str,
        on: Card,
    ) -> None:
        B, P, D = shape
        code = CODES[dtype]
        self.real = torch.float64 if dtype == torch.float64 else torch.float32
        lines = tuple(B * walk.line_count for walk in walks)
        chunks = tuple(-(-walk.length // CUDA_CHECKPOINT) for walk in walks)
        # Results are looked for up to a tile of steps beyond a line.
        beyond = CUDA_CHECKPOINT * max(_nest(walk.steps)[1] for walk in walks)
        farthest = (P + beyond) * max(D, *(row for _, row, _ in strides))
        wide = max(farthest, *(count * D * N for count in chunks)) >= 2**31
        nested = wide or any(len(walk.steps) == 2 for walk in walks)
        setting = setting_of(len(walks), N, code, nested, on)
        macros = dict(setting.macros)
        NP, threads = macros["NP"], 32 * macros["GROUPS"]
        self.kernels = _kernels(setting.macros, on)
        self.blocks = -(-D // (setting.channels * macros["GROUPS"]))
        vector = 2 if dtype == torch.float64 else 4
        across, deep = min(setting.channels, vector), min(NP, vector)
        rows, states = (strides[0], strides[1], *strides[4:]), strides[2:4]
        self.flags = _PERIODIC if boundary == "periodic" else 0
        self.rows_mask = self.states_mask = -1  # bits that must be unset in addresses
        if D % across == 0 and _are_multiples(rows, across):
            self.rows_mask = across * dtype.itemsize - 1
        if N == NP and _are_multiples(states, deep):
            self.states_mask = deep * dtype.itemsize - 1

        batch, row = ([s[i] for s in strides] + [0] * (5 - len(strides)) for i in range(2))
        self.numbers = []
        for i, walk in enumerate(walks):
            inner, stride, outer = _nest(walk.lines)
            self.numbers.append(
                (
                    *(*batch, *row, inner, stride, outer, walk.line_count),
                    *(*_nest(walk.steps), walk.length, walk.reverse, B, P, D, N),
                    *(self.blocks, sum(lines[:i]), sum(lines)),
                )
            )
        self.launches = [
            (
                (_FORWARD, count * self.blocks, threads, setting.shared[0]),
                (_BACKWARD, count * self.blocks, threads, setting.shared[1]),
            )
            for count in lines
        ]
        sums = -(-2 * B * P * NP // (deep * 256)) + -(-D * NP // 8) + -(-D // 8)
        self.finish = (_FINISH, sums, 256, 256 * self.real.itemsize)
        # Elements of part_bc, part_decay and part_d, and of each walk's checkpoints.
        self.parts = (self.blocks * 2 * B * P * NP, sum(lines) * D * NP, sum(lines) * D)
        kept = [count * chunk * D * N for count, chunk in zip(lines, chunks, strict=True)]
        self.kept_at = [self.real.itemsize * sum(kept[:i]) for i in range(len(kept))]
        self.states = [(count, D, N) for count in lines]

    def flags_of(self, rows: int, states: int) -> int:
        """Flags for tensors at addresses whose bits are `rows` and `states`."""
        flags = self.flags
        if self.rows_mask >= 0 and not rows & self.rows_mask:
            flags |= _ROWS_ALIGNED
        if self.states_mask >= 0 and not states & self.states_mask:
            flags |= _STATES_ALIGNED
        return flags


plan_of = lru_cache(maxsize=1024)(_Plan)


def _card(device: torch.device) -> Card:
    return card(torch.cuda.current_device() if device.index is None else device.index)


def _stream(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """A tensor in a dtype, with its last axis contiguous."""
    tensor = tensor if tensor.dtype == dtype else tensor.to(dtype)
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()


def _whole(tensor: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """A contiguous tensor in a dtype."""
    if tensor is None or (tensor.dtype == dtype and tensor.is_contiguous()):
        return tensor
    return tensor.to(dtype).contiguous()


def _like(tensor: Tensor) -> Tensor:
    """A contiguous tensor of the same shape: PyTorch takes 1 us more to read the shape's sizes."""
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _prepare(inputs: Inputs) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """u, delta, b and c, which the kernels take in one dtype, and decay and d in that of states."""
    u, delta, decay, b, c, d, _ = inputs
    real = compute_dtype(*inputs)
    same = u.dtype == delta.dtype == b.dtype == c.dtype
    dtype = u.dtype if same and real == torch.float32 else real
    streams = (_stream(u, dtype), _stream(delta, dtype), _stream(b, dtype), _stream(c, dtype))
    contiguous = _whole(decay, real)
    assert contiguous is not None
    return *streams, contiguous, _whole(d, real)


def forward(
    inputs: Inputs, walks: tuple[Walk, ...], boundary: str, checkpoints: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Output (B, P, D), and for plans with one walk the final states (B, D, N)."""
    u, delta, b, c, decay, d = _prepare(inputs)
    y = _like(u)
    if y.numel() == 0:
        return y, decay.new_empty(u.shape[0], *decay.shape)
    strides = (u.stride(), delta.stride(), b.stride(), c.stride())
    on = _card(u.device)
    plan = plan_of(u.shape, decay.shape[1], u.dtype, strides, walks, boundary, on)
    last = len(walks) - 1
    total = None
    if last:
        total = y if y.dtype == plan.real else torch.empty_like(y, dtype=plan.real)
    at = (u.data_ptr(), delta.data_ptr(), b.data_ptr(), c.data_ptr())
    flags = plan.flags_of(at[0] | at[1], at[2] | at[3])
    common = (*at, 0, decay.data_ptr(), _address(d))
    results = (y.data_ptr(), 0, 0, 0, 0, _address(total), 0, 0)
    kept = _address(checkpoints)

    def run(index: int, walk: Walk, start: Tensor | None) -> Tensor | None:
        """Add one walk's readout; return its final states where they are needed."""
        needed = not last or (boundary in MIRROR and not walk.reverse)
        end = decay.new_empty(plan.states[index]) if needed else None
        pointers = (
            *(*common, _address(start), _address(end), *results),
            *(kept + plan.kept_at[index] if kept else 0, 0, 0, 0, 0, 0),
        )
        own = flags | (_ADD if index else 0)
        if total is not None and (total is y or index < last):
            own |= _UNFINISHED
        plan.kernels.launch(*plan.launches[index][0], (*pointers, *plan.numbers[index], own))
        return end

    with torch.cuda.device_of(y):
        state = run_walks(walks, boundary, _whole(inputs.initial_state, plan.real), run)
    return y, decay.new_empty(0) if state is None else state


def backward(
    grad_y: Tensor,
    grad_state: Tensor | None,
    inputs: Inputs,
    walks: tuple[Walk, ...],
    boundary: str,
    checkpoints: Tensor,
) -> tuple[Tensor | None, ...]:
    """Gradients of the seven inputs; None for an absent d or initial_state."""
    u, delta, b, c, decay, d = _prepare(inputs)
    fields = [_like(x) for x in (u, delta, b, c)]
    grad_u, grad_delta, grad_b, grad_c = fields
    grad_decay = torch.empty_like(decay)
    grad_d = None if d is None else torch.empty_like(d)
    if grad_u.numel() == 0:
        zeros = [None if x is None else x.zero_() for x in (grad_decay, grad_b, grad_c, grad_d)]
        start = inputs.initial_state
        return (grad_u, grad_delta, *zeros, None if start is None else _like(start))
    gy = _stream(grad_y, u.dtype)
    strides = (u.stride(), delta.stride(), b.stride(), c.stride(), gy.stride())
    on = _card(u.device)
    plan = plan_of(u.shape, decay.shape[1], u.dtype, strides, walks, boundary, on)
    first = len(walks) - 1  # the walk whose adjoint comes first
    totals: tuple[Tensor | None, Tensor | None] = (None, None)
    if first:
        totals = (grad_u, grad_delta)
        if u.dtype != plan.real:
            totals = (
                torch.empty_like(grad_u, dtype=plan.real),
                torch.empty_like(grad_u, dtype=plan.real),
            )
    size = plan.real.itemsize
    parts = decay.new_empty(sum(plan.parts))
    part_bc = parts.data_ptr()
    part_decay = part_bc + size * plan.parts[0]
    part_d = part_decay + size * plan.parts[1]
    at = (u.data_ptr(), delta.data_ptr(), b.data_ptr(), c.data_ptr(), gy.data_ptr())
    flags = plan.flags_of(at[0] | at[1] | at[4], at[2] | at[3])
    common = (*at, decay.data_ptr(), _address(d))
    results = (0, *map(_address, fields), 0, *map(_address, totals))
    sums = (grad_decay.data_ptr(), _address(grad_d), part_bc, part_decay, part_d)
    kept = checkpoints.data_ptr()

    def run(index: int, walk: Walk, grad_end: Tensor | None) -> Tensor | None:
        """Add one walk's gradients; return those of its initial states where they are needed."""
        needed = inputs.initial_state is not None or (boundary in MIRROR and walk.reverse)
        start = decay.new_empty(plan.states[index]) if needed else None
        pointers = (*common, _address(grad_end), _address(start), *results)
        pointers = (*pointers, kept + plan.kept_at[index], *sums)
        own = flags | (_ADD if index < first else 0)
        if first and (totals[0] is grad_u or index):
            own |= _UNFINISHED
        values = (*pointers, *plan.numbers[index], own)
        plan.kernels.launch(*plan.launches[index][1], values)
        if not index:
            plan.kernels.launch(*plan.finish, values)
        return start

    with torch.cuda.device_of(gy):
        grad_start = run_walks(walks, boundary, _whole(grad_state, plan.real), run, adjoint=True)
    return (
        *(grad_u, grad_delta, grad_decay, grad_b, grad_c, grad_d),
        None if inputs.initial_state is None else grad_start,
    )
