# type: ignore  (device code: Triton compiles it, and its types are not Python's)
"""Triton: the first of the backward's two passes, for periodic lines and lines in segments."""

from __future__ import annotations

import triton
import triton.language as tl

from chonn_ops.scan.triton.forward_walk import GEOMETRY
from chonn_ops.scan.triton.tiles import (
    block_channels,
    line_origin,
    load_rows,
    load_tile,
    store_tile,
)
from chonn_ops.scan.triton.zoh import loss_of


@triton.jit(do_not_specialize=GEOMETRY)
def sweep_adjoint(
    grad_y,
    delta,
    decay,
    c,
    ends,
    sums,
    grad_y_batch,
    grad_y_row,
    delta_batch,
    delta_row,
    c_batch,
    c_row,
    D,
    n_states,
    lines,
    line_inner,
    line_inner_stride,
    line_outer_stride,
    length,
    step_inner,
    step_inner_stride,
    step_outer_stride,
    segments,
    segment_steps,
    blocks,
    SHARE: tl.constexpr,
    REVERSE: tl.constexpr,
    NESTED: tl.constexpr,
    WIDE: tl.constexpr,
    J: tl.constexpr,
    N: tl.constexpr,
    W: tl.constexpr,
    GROUP: tl.constexpr,
    REAL: tl.constexpr,
):
    """The adjoint that each segment ends with from rest, `ends` (lines, segments, D, N), and
    the sum of the segment's deltas, `sums` (lines, segments, D)."""
    program = tl.program_id(0)
    block, run = program % blocks, program // blocks
    segment, line = run % segments, (run // segments).to(tl.int64)
    batch, within = line // lines, (line % lines).to(tl.int32)
    origin = line_origin(within, line_inner, line_inner_stride, line_outer_stride)
    path = (origin, length, step_inner, step_inner_stride, step_outer_stride)
    channel, state = block_channels(block, J, W), tl.arange(0, N)
    is_channel = channel < D
    first = segment * segment_steps
    end = tl.minimum(first + segment_steps, length)
    grad_y += batch * grad_y_batch
    delta += batch * delta_batch
    c += batch * c_batch
    rate = load_tile(decay, channel, state, D, n_states, 1.0).to(REAL)

    carried = tl.zeros((J, N, W), REAL)
    total = tl.zeros((J, W), REAL)
    last = first + (end - first - 1) // GROUP * GROUP
    gs = load_rows(grad_y, grad_y_row, channel, D, last, end, path, REVERSE, NESTED, WIDE, GROUP)
    ds = load_rows(delta, delta_row, channel, D, last, end, path, REVERSE, NESTED, WIDE, GROUP)
    cs = load_rows(c, c_row, state, n_states, last, end, path, REVERSE, NESTED, WIDE, GROUP)
    for back in range(first, end, GROUP):
        g_now, d_now, c_now = gs, ds, cs
        # Load the previous group; the first group loads itself again, without use.
        n = tl.maximum(last - (back - first) - GROUP, first)
        gs = load_rows(grad_y, grad_y_row, channel, D, n, end, path, REVERSE, NESTED, WIDE, GROUP)
        ds = load_rows(delta, delta_row, channel, D, n, end, path, REVERSE, NESTED, WIDE, GROUP)
        cs = load_rows(c, c_row, state, n_states, n, end, path, REVERSE, NESTED, WIDE, GROUP)
        for j in tl.static_range(GROUP - 1, -1, -1):
            g_j, d_j = g_now[j].to(REAL) / SHARE, d_now[j].to(REAL)
            g = carried + c_now[j].to(REAL)[None, :, None] * g_j[:, None, :]
            carried = g - g * loss_of(d_j[:, None, :], rate)
            total += d_j
    run_at = line * segments + segment
    store_tile(ends + run_at * D * n_states, carried, channel, state, D, n_states)
    tl.store(sums + run_at * D + channel, total, mask=is_channel)
