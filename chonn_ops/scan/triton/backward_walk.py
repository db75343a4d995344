# type: ignore  (device code: Triton compiles it, and its types are not Python's)
"""Triton: the adjoint of one walk.

`walk_backward` processes a line's checkpoints from the last to the first. From each checkpoint it
walks the chunk forward once and stores the state of every `GROUP` steps in a scratch of a few
kilobytes. It then processes the groups from the last to the first: forward again with states,
losses and slopes in registers, then back with the adjoint ``g``,

    g         = carried + c grad_y          carried'   = exp(-z) g
    grad_c    = sum_d grad_y v              grad_b     = sum_d g loss / decay u
    grad_u    = sum_n g loss / decay b      grad_delta = sum_n exp(-z) g (b u - decay v_before)
    grad_decay = -sum exp(-z) g delta v_before - sum g b u slope / decay**2

This costs two evaluations of the coefficients a step and no memory of size (B, L, D, N). Each block
of channels stores its own sums over channels, (blocks, B, P, N), without atomics, so that results
repeat to the bit. Segments are joined as in the forward, from the results of `sweep`. The signature
is flat for the reason that `forward_walk` gives.
"""

from __future__ import annotations

import triton
import triton.language as tl

from chonn_ops.scan.triton.forward_walk import GEOMETRY
from chonn_ops.scan.triton.tiles import (
    alive_count,
    block_channels,
    line_origin,
    load_rows,
    load_tile,
    position,
    store_tile,
)
from chonn_ops.scan.triton.zoh import loss_keep_slope, loss_of


@triton.jit
def _pass_back(g, loss, keep):
    """``exp(-z) g``, computed from the loss where it is small, so that rounding does not drift."""
    return tl.where(keep > 0.5, g - g * loss, keep * g)


@triton.jit(do_not_specialize=(*GEOMETRY, "groups", "lines_each"))
def walk_backward(
    grad_y,
    u,
    delta,
    decay,
    b,
    c,
    d,
    carry_in,
    checkpoints,
    scratch,
    prior_u,
    prior_delta,
    grad_u,
    grad_delta,
    grad_decay,
    grad_b,
    grad_c,
    grad_d,
    grad_start,
    grad_y_batch,
    grad_y_row,
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
    all_lines,
    lines_each,
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
    """One program: one block of channels, one segment of `lines_each` lines, one after another.

    `carry_in` (lines, segments, D, N): the adjoint that each segment starts from, or None. `grad_u`
    and `grad_delta` are stored on top of `prior_u` and `prior_delta` where those are given;
    `grad_b` and `grad_c` (blocks, B, P, N), `grad_decay` (programs / blocks, D, N) and `grad_d`
    (programs / blocks, D) are this program's share; `grad_start` (lines, D, N) is the adjoint
    before the first segment. `scratch` has (programs, every / GROUP, J W, N).
    """
    program = tl.program_id(0)
    block, run = program % blocks, program // blocks
    segment = run % segments
    channel, state = block_channels(block, J, W), tl.arange(0, N)
    is_channel = channel < D
    rate = load_tile(decay, channel, state, D, n_states, 1.0).to(REAL)
    per_rate = 1.0 / rate
    decay_sum, slope_sum = tl.zeros((J, N, W), REAL), tl.zeros((J, N, W), REAL)
    d_sum = tl.zeros((J, W), REAL)
    if d is not None:
        skip = tl.load(d + channel, mask=is_channel, other=0.0).to(REAL)
    notes = scratch + program.to(tl.int64) * (every // GROUP) * (J * W) * n_states
    note_size = J * W * n_states
    noted = block_channels(0, J, W)
    first = segment * segment_steps
    end = tl.minimum(first + segment_steps, length)

    first_line = (run // segments) * lines_each
    for line_at in range(first_line, tl.minimum(first_line + lines_each, all_lines)):
        line = line_at + tl.zeros((), tl.int64)
        batch, within = line // lines, (line % lines).to(tl.int32)
        origin = line_origin(within, line_inner, line_inner_stride, line_outer_stride)
        path = (origin, length, step_inner, step_inner_stride, step_outer_stride)
        u_line, delta_line = u + batch * u_batch, delta + batch * delta_batch
        b_line, c_line = b + batch * b_batch, c + batch * c_batch
        grad_y_line = grad_y + batch * grad_y_batch
        batch_at = batch * positions
        grad_u_line, grad_delta_line = grad_u + batch_at * D, grad_delta + batch_at * D
        # This block's share of grad_b and grad_c; one share is as large as the whole.
        share_at = (block.to(tl.int64) * (all_lines // lines) * positions + batch_at) * n_states
        grad_b_line, grad_c_line = grad_b + share_at, grad_c + share_at
        carried = tl.zeros((J, N, W), REAL)
        if carry_in is not None:
            carry_at = carry_in + (line * segments + segment) * D * n_states
            carried = load_tile(carry_at, channel, state, D, n_states, 0.0).to(REAL)
        chunks = tl.cdiv(end - first, every)
        for back in range(chunks):
            chunk = first + (chunks - 1 - back) * every
            chunk_end = tl.minimum(chunk + every, end)
            kept = checkpoints + (line * tl.cdiv(length, every) + chunk // every) * D * n_states
            v = load_tile(kept, channel, state, D, n_states, 0.0)
            groups = tl.cdiv(chunk_end - chunk, GROUP)
            for k in range(groups - 1):
                store_tile(notes + k * note_size, v, noted, state, J * W, n_states)
                t = chunk + k * GROUP
                us = load_rows(
                    u_line, u_row, channel, D, t, end, path, REVERSE, NESTED, WIDE, GROUP
                )
                ds = load_rows(
                    delta_line, delta_row, channel, D, t, end, path, REVERSE, NESTED, WIDE, GROUP
                )
                bs = load_rows(
                    b_line, b_row, state, n_states, t, end, path, REVERSE, NESTED, WIDE, GROUP
                )
                for j in tl.static_range(GROUP):
                    inflow = us[j].to(REAL)[:, None, :] * per_rate * bs[j].to(REAL)[None, :, None]
                    v += loss_of(ds[j].to(REAL)[:, None, :], rate) * (inflow - v)
            store_tile(notes + (groups - 1) * note_size, v, noted, state, J * W, n_states)
            tl.debug_barrier()  # another thread may read the note than wrote it
            for k in range(groups):
                t = chunk + (groups - 1 - k) * GROUP
                us = load_rows(
                    u_line, u_row, channel, D, t, end, path, REVERSE, NESTED, WIDE, GROUP
                )
                ds = load_rows(
                    delta_line, delta_row, channel, D, t, end, path, REVERSE, NESTED, WIDE, GROUP
                )
                bs = load_rows(
                    b_line, b_row, state, n_states, t, end, path, REVERSE, NESTED, WIDE, GROUP
                )
                cs = load_rows(
                    c_line, c_row, state, n_states, t, end, path, REVERSE, NESTED, WIDE, GROUP
                )
                gs = load_rows(
                    grad_y_line,
                    grad_y_row,
                    channel,
                    D,
                    t,
                    end,
                    path,
                    REVERSE,
                    NESTED,
                    WIDE,
                    GROUP,
                )
                note = notes + (groups - 1 - k) * note_size
                v = load_tile(note, noted, state, J * W, n_states, 0.0)
                states, losses, keeps, slopes = (v,), (), (), ()
                for j in tl.static_range(GROUP):
                    inflow = us[j].to(REAL)[:, None, :] * per_rate * bs[j].to(REAL)[None, :, None]
                    loss, keep, slope = loss_keep_slope(ds[j].to(REAL)[:, None, :], rate)
                    v += loss * (inflow - v)
                    states, losses = states + (v,), losses + (loss,)  # noqa: RUF005
                    keeps, slopes = keeps + (keep,), slopes + (slope,)  # noqa: RUF005
                for j in tl.static_range(GROUP - 1, -1, -1):
                    u_j, d_j, g_y = us[j].to(REAL), ds[j].to(REAL), gs[j].to(REAL)
                    b_j, c_j = bs[j].to(REAL)[None, :, None], cs[j].to(REAL)[None, :, None]
                    g_j = (g_y / SHARE)[:, None, :]
                    at = position(t + j, path, REVERSE, NESTED, WIDE)
                    inside = channel < alive_count(t + j, end, D)
                    alive = state < alive_count(t + j, end, n_states)

                    c_share = tl.sum(tl.sum(g_j * states[j + 1], axis=0), axis=1)
                    g = carried + c_j * g_j
                    weighed = g * losses[j] * per_rate
                    b_share = tl.sum(tl.sum(weighed * u_j[:, None, :], axis=0), axis=1)
                    carried = _pass_back(g, losses[j], keeps[j])
                    bu = b_j * u_j[:, None, :]
                    before = carried * states[j]
                    to_u = tl.sum(weighed * b_j, axis=1)
                    to_delta = tl.sum(carried * bu - rate * before, axis=1)
                    decay_sum += d_j[:, None, :] * before
                    slope_sum += g * bu * slopes[j]
                    if d is not None:
                        to_u += skip * g_y
                        d_sum += g_y * u_j
                    field_at = at * D + channel
                    if prior_u is not None:
                        to_u += tl.load(prior_u + batch_at * D + field_at, mask=inside, other=0.0)
                        to_delta += tl.load(
                            prior_delta + batch_at * D + field_at, mask=inside, other=0.0
                        )
                    tl.store(grad_u_line + field_at, to_u, mask=inside)
                    tl.store(grad_delta_line + field_at, to_delta, mask=inside)
                    share_row = at * n_states + state
                    tl.store(grad_b_line + share_row, b_share, mask=alive)
                    tl.store(grad_c_line + share_row, c_share, mask=alive)
            tl.debug_barrier()  # the next chunk overwrites the notes
        if grad_start is not None and segment == 0:
            store_tile(grad_start + line * D * n_states, carried, channel, state, D, n_states)
    store_tile(
        grad_decay + run.to(tl.int64) * D * n_states,
        -decay_sum - slope_sum * per_rate * per_rate,
        channel,
        state,
        D,
        n_states,
    )
    if d is not None:
        tl.store(grad_d + run.to(tl.int64) * D + channel, d_sum, mask=is_channel)
