# type: ignore  (device code: Triton compiles it, and its types are not Python's)
"""Triton: the forward of one walk, and the joining of a line's segments.

Where lines and channels are too few to fill the GPU, lines are divided into segments that run in
parallel. `walk_forward` without `y` computes the state that each segment ends with from rest.
`join_segments` computes from these the state that each segment starts with. `walk_forward` with `y`
walks again from there. A periodic line takes the same three passes, whatever its size.

The signature is flat because Triton 3.9 specialises every integer inside a tuple argument, which
`do_not_specialize` does not reach: grouped strides and sizes would compile anew for each grid.
"""

from __future__ import annotations

import triton
import triton.language as tl

from chonn_ops.scan.triton.tiles import (
    alive_count,
    block_channels,
    line_origin,
    load_rows,
    load_tile,
    position,
    store_tile,
)
from chonn_ops.scan.triton.zoh import loss_of

# Compiled once, not anew for each grid whose sizes happen to be 1 or multiples of 16.
GEOMETRY = (
    *("lines", "line_inner", "line_inner_stride", "line_outer_stride"),
    *("length", "step_inner", "step_inner_stride", "step_outer_stride"),
    *("positions", "segments", "segment_steps", "every", "blocks"),
)


@triton.jit(do_not_specialize=GEOMETRY)
def walk_forward(
    u,
    delta,
    decay,
    b,
    c,
    d,
    carry_in,
    prior,
    y,
    ends,
    sums,
    checkpoints,
    u_batch,
    u_row,
    delta_batch,
    delta_row,
    b_batch,
    b_row,
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
    positions,
    segments,
    segment_steps,
    every,
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
    """One program: one block of channels, one segment of one line.

    With `y`: ``y = prior + readout / SHARE + d u``, and the line's last segment stores its state
    in `ends` (lines, D, N). Without: every segment stores its state there, (lines, segments, D, N),
    and the sum of its deltas in `sums` (lines, segments, D). `carry_in` (lines, segments, D, N);
    `checkpoints` (lines, ceil(length / every), D, N) differ from those of other backends in their
    order, so that all tiles of states have the same layout in registers. Absent tensors are None.
    """
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

    u += batch * u_batch
    delta += batch * delta_batch
    b += batch * b_batch
    rate = load_tile(decay, channel, state, D, n_states, 1.0).to(REAL)
    per_rate = 1.0 / rate
    v = tl.zeros((J, N, W), REAL)
    if carry_in is not None:
        carry_in += (line * segments + segment) * D * n_states
        v = load_tile(carry_in, channel, state, D, n_states, 0.0).to(REAL)
    total = tl.zeros((J, W), REAL)
    if y is not None:
        c += batch * c_batch
        y += batch * positions * D
        if prior is not None:
            prior += batch * positions * D
        if d is not None:
            skip = tl.load(d + channel, mask=is_channel, other=0.0).to(REAL)

    # Rows of u and delta are loaded one group of steps ahead. Rows of b and c are not: all blocks
    # of channels share them, so they are in cache, and prefetched rows would move between registers
    # through shared memory.
    us = load_rows(u, u_row, channel, D, first, end, path, REVERSE, NESTED, WIDE, GROUP)
    ds = load_rows(delta, delta_row, channel, D, first, end, path, REVERSE, NESTED, WIDE, GROUP)
    for chunk in range(first, end, every):
        if checkpoints is not None:
            kept = checkpoints + (line * tl.cdiv(length, every) + chunk // every) * D * n_states
            store_tile(kept, v, channel, state, D, n_states)
        for t in range(chunk, tl.minimum(chunk + every, end), GROUP):
            u_now, d_now, n = us, ds, t + GROUP
            bs = load_rows(b, b_row, state, n_states, t, end, path, REVERSE, NESTED, WIDE, GROUP)
            if y is not None:
                cs = load_rows(
                    c, c_row, state, n_states, t, end, path, REVERSE, NESTED, WIDE, GROUP
                )
            us = load_rows(u, u_row, channel, D, n, end, path, REVERSE, NESTED, WIDE, GROUP)
            ds = load_rows(delta, delta_row, channel, D, n, end, path, REVERSE, NESTED, WIDE, GROUP)
            for j in tl.static_range(GROUP):
                u_j, d_j = u_now[j].to(REAL), d_now[j].to(REAL)
                b_j = bs[j].to(REAL)[None, :, None]
                loss = loss_of(d_j[:, None, :], rate)
                v += loss * (b_j * (u_j[:, None, :] * per_rate) - v)
                if y is None:
                    total += d_j
                else:
                    out = tl.sum(cs[j].to(REAL)[None, :, None] * v, axis=1)
                    if SHARE > 1:
                        out = out / SHARE
                    if d is not None:
                        out += skip * u_j
                    at = position(t + j, path, REVERSE, NESTED, WIDE) * D + channel
                    inside = channel < alive_count(t + j, end, D)
                    if prior is not None:
                        out += tl.load(prior + at, mask=inside, other=0.0)
                    tl.store(y + at, out, mask=inside)
    if y is None:
        run_at = line * segments + segment
        store_tile(ends + run_at * D * n_states, v, channel, state, D, n_states)
        tl.store(sums + run_at * D + channel, total, mask=is_channel)
    elif segment == segments - 1:
        store_tile(ends + line * D * n_states, v, channel, state, D, n_states)


@triton.jit
def _join(loss_1, v_1, loss_2, v_2):
    """Compose two runs, each given by its loss 1 - exp(-z) and by its final state from rest.

    Retentions are close to 1 in float32, so losses keep more digits.
    """
    return loss_1 + loss_2 * (1.0 - loss_1), v_1 + (v_2 - loss_2 * v_1)


@triton.jit
def _joined(ends, sums, rate, line, channel, first, segments, D, n_states, BACKWARD, K, N, REAL):
    """Compose the segments first .. first + K - 1 of a line, in scan order.

    Returns losses and states [K, N] after each segment, and both [N] after the last one. Segments
    beyond the line change nothing.
    """
    order, state = first + tl.arange(0, K), tl.arange(0, N)
    index = segments - 1 - order if BACKWARD else order
    row = (line * segments + index) * D + channel
    delta = tl.load(sums + row, mask=order < segments, other=0.0)
    inside = (order < segments)[:, None] & (state < n_states)[None, :]
    end = tl.load(ends + row[:, None] * n_states + state[None, :], mask=inside, other=0.0)
    loss = loss_of(delta.to(REAL)[:, None], rate[None, :])
    losses, states = tl.associative_scan((loss, end.to(REAL)), 0, _join)
    last = (tl.arange(0, K) == K - 1)[:, None]
    last_loss = tl.sum(tl.where(last, losses, 0.0), axis=0)
    return losses, states, last_loss, tl.sum(tl.where(last, states, 0.0), axis=0)


@triton.jit(do_not_specialize=("segments", "D", "n_states"))
def join_segments(
    ends,
    sums,
    decay,
    start,
    carry_in,
    segments,
    D,
    n_states,
    PERIODIC: tl.constexpr,
    BACKWARD: tl.constexpr,
    K: tl.constexpr,
    N: tl.constexpr,
    REAL: tl.constexpr,
):
    """Store `carry_in` (lines, segments, D, N), the state before each segment.

    One program has one line and channel.

    `ends` and `sums` are what `walk_forward` stores; `start` (lines, D, N) or None is the first
    segment's carry_in, or with PERIODIC what is added each time around: s = start + around(s).
    BACKWARD: adjoints, which start from the last segment.
    """
    line, channel = (tl.program_id(0) // D).to(tl.int64), tl.program_id(0) % D
    state = tl.arange(0, N)
    is_state = state < n_states
    rate = tl.load(decay + channel * n_states + state, mask=is_state, other=1.0).to(REAL)
    v = tl.zeros((N,), REAL)
    if start is not None:
        start += (line * D + channel) * n_states
        v = tl.load(start + state, mask=is_state, other=0.0).to(REAL)
    if PERIODIC:
        lost, around = tl.zeros((N,), REAL), tl.zeros((N,), REAL)
        for k in range(0, segments, K):
            _, _, loss, end = _joined(
                ends, sums, rate, line, channel, k, segments, D, n_states, BACKWARD, K, N, REAL
            )
            lost, around = _join(lost, around, loss, end)
        v = (v + around) / lost
    first = segments - 1 if BACKWARD else 0
    front = carry_in + ((line * segments + first) * D + channel) * n_states
    tl.store(front + state, v, mask=is_state)
    for k in range(0, segments, K):
        losses, states, loss, end = _joined(
            ends, sums, rate, line, channel, k, segments, D, n_states, BACKWARD, K, N, REAL
        )
        order = k + tl.arange(0, K) + 1
        index = segments - 1 - order if BACKWARD else order
        at = ((line * segments + index) * D + channel)[:, None] * n_states + state[None, :]
        inside = (order < segments)[:, None] & is_state[None, :]
        tl.store(carry_in + at, v[None, :] + (states - losses * v[None, :]), mask=inside)
        v += end - loss * v
