# type: ignore  (device code: Triton compiles it, and its types are not Python's)
"""Triton: the tile of a program, and the rows of a field that it loads.

A program holds the states of a block of channels in one tile [J, N, W]. W channels and up to four
states are distributed over the 32 threads of a warp; J channels and the other states are within a
thread. A sum over states (an output) and a sum over channels (a gradient of b or c) then both cost
few exchanges between threads. Thread w of W has channels ``w * J .. w * J + J - 1`` of the block.

A row of a field has all channels of one position. Rows are `row` elements apart. The sizes and
strides of `walks.Walk` give the position of a step from the line's origin and the step's index.
Inside a kernel ``path`` is the tuple ``(origin, length, inner, inner_stride, outer_stride)`` of one
line.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def block_channels(block, J: tl.constexpr, W: tl.constexpr):
    """The channels [J, W] of a block."""
    return block * (J * W) + tl.arange(0, W)[None, :] * J + tl.arange(0, J)[:, None]


@triton.jit
def load_tile(base, channel, state, D, n_states, other: tl.constexpr):
    """Load a contiguous (D, N) tensor as a tile, with `other` outside of the tensor."""
    inside = (channel < D)[:, None, :] & (state < n_states)[None, :, None]
    at = channel[:, None, :] * n_states + state[None, :, None]
    return tl.load(base + at, mask=inside, other=other)


@triton.jit
def store_tile(base, tile, channel, state, D, n_states):
    """Write a tile (rows, channels, states) to (D, N) tensors, without its padding."""
    inside = (channel < D)[:, None, :] & (state < n_states)[None, :, None]
    tl.store(base + channel[:, None, :] * n_states + state[None, :, None], tile, mask=inside)


@triton.jit
def line_origin(line, inner, inner_stride, outer_stride):
    """Position of the first grid point of a line; `line` counts within one batch element."""
    return (line // inner) * outer_stride + (line % inner) * inner_stride


@triton.jit
def position(step, path, REVERSE: tl.constexpr, NESTED: tl.constexpr, WIDE: tl.constexpr):
    """Position of a step in scan order; int64 if WIDE, as its offset may exceed 2**31."""
    index = path[1] - 1 - step if REVERSE else step
    if NESTED:
        at = path[0] + (index // path[2]) * path[4] + (index % path[2]) * path[3]
    else:
        at = path[0] + index * path[3]
    return at.to(tl.int64) if WIDE else at


@triton.jit
def alive_count(step, end, count):
    """`count`, or 0 from `end` on. (A scalar mask ``&`` a vector fails under the interpreter.)"""
    return tl.where(step < end, count, 0)


@triton.jit
def load_rows(
    base,
    row,
    offset,
    count,
    first,
    end,
    path,
    REVERSE: tl.constexpr,
    NESTED: tl.constexpr,
    WIDE: tl.constexpr,
    GROUP: tl.constexpr,
):
    """The rows of steps first .. first + GROUP - 1 as a tuple, with zeros from `end` on.

    A step of zeros changes nothing: its delta, and so its loss, is 0.
    """
    rows = ()
    for j in tl.static_range(GROUP):
        at = base + (position(first + j, path, REVERSE, NESTED, WIDE) * row + offset)
        inside = offset < alive_count(first + j, end, count)
        rows = rows + (tl.load(at, mask=inside, other=0.0),)  # noqa: RUF005
    return rows
