# type: ignore  (device code: Triton compiles it, and its types are not Python's)
"""Triton: how a program finds its rows of a field, and the tile it works on.

A program holds the states of a block of channels in one tile [J, N, W]: W channels and up to four
states lie across the 32 threads of a warp, J channels and the other states within a thread. Then
a sum over states (an output) and a sum over channels (a gradient of b or c) both cost few
exchanges between threads. Thread w of W has channels ``w * J .. w * J + J - 1`` of the block.

Rows of a field (one position, all its channels) lie `row` elements apart; positions follow from
a line's origin and a step's index by the sizes and strides of `_walks.Walk`. Inside a kernel
``path`` is the tuple ``(origin, length, inner, inner_stride, outer_stride)`` of one line.
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
    """A contiguous (D, N) tensor as a tile, `other` where it has no entry."""
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
    """Position of a step in scan order; int64 if WIDE: times a row stride it may pass 2**31."""
    index = path[1] - 1 - step if REVERSE else step
    if NESTED:
        at = path[0] + (index // path[2]) * path[4] + (index % path[2]) * path[3]
    else:
        at = path[0] + index * path[3]
    return at.to(tl.int64) if WIDE else at


@triton.jit
def alive_count(step, end, count):
    """`count`, or 0 from `end` on. (A mask of a scalar and a vector ``&`` fails interpreted.)"""
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
