# type: ignore  (device code: Triton compiles it, and its types are not Python's)
"""Triton: the kernels of the scan.

A program holds the states of a block of channels in one tile [J, N, W]. W channels and up to four
states are distributed over the 32 threads of a warp; J channels and the other states are within a
thread. A sum over states (an output) and a sum over channels (a gradient of b or c) then both cost
few exchanges between threads. Thread w of W has channels ``w * J .. w * J + J - 1`` of the block.

A row of a field has all channels of one position. Rows are `row` elements apart. The sizes and
strides of `walks.Walk` give the position of a step from the line's origin and the step's index.
Inside a kernel ``path`` is the tuple ``(origin, length, inner, inner_stride, outer_stride)`` of one
line, and the bits of ``KIND`` say whether steps are in reverse (1), nested in two loops (2), and
wide (4): at offsets that may exceed 2**31.

Where lines and channels are too few to fill the GPU, lines are divided into segments that run in
parallel. `walk_forward` without `y` computes the state that each segment ends with from rest.
`join_segments` computes from these the state that each segment starts with. `walk_forward` with `y`
walks again from there. A periodic line takes the same three passes, whatever its size. The adjoint
does the same with `sweep_adjoint`, `join_segments` and `walk_backward`.

The kernels' signatures are flat because Triton 3.9 specialises every integer inside a tuple
argument, which `do_not_specialize` does not reach: grouped strides and sizes would compile anew for
each grid.
"""

from __future__ import annotations

import triton
import triton.language as tl

# Compiled once, not anew for each grid whose sizes happen to be 1 or multiples of 16.
_GEOMETRY = (
    *("lines", "line_inner", "line_inner_stride", "line_outer_stride"),
    *("length", "step_inner", "step_inner_stride", "step_outer_stride"),
    *("positions", "segments", "segment_steps", "every", "blocks"),
)
_LOG2_E = tl.constexpr(1.4426950408889634)
_LN2 = tl.constexpr(0.6931471805599453)


# The zero-order-hold coefficients. With ``z = delta * decay`` a step maps ``v`` to
# ``v + loss * (equilibrium - v)``, ``loss = 1 - exp(-z)`` and ``equilibrium = b * u / decay``.
# ``1 - exp(-z)`` cancels at small z, so there it is a polynomial. float32 works in halvings
# ``h = z / ln(2)``, because the hardware has 2^x:
#
#     (1 - 2^-h) / h = phi(h)          loss = h phi(h)
#     (ln(2) - phi(h)) / h = Q(h)      loss - z exp(-z) = h^2 (ln(2) phi(h) - Q(h))
#
# The polynomials are Chebyshev fits, of `phi` on |h| <= 1/2 (relative error 2e-8), of `Q` on
# |h| <= 1 (2e-7). Outside, 2^-h is at most 2 units in the last place off, which leaves `loss` right
# to 4e-7. float64 takes Taylor series in z; it is there for checks, not for speed.
@triton.jit
def _tail(z):
    """(z - 1 + exp(-z)) / z**2 = 1/2 - z/6 + z**2/24 - ..., for |z| < 1/2, in float64."""
    series = z * 0.0 + 1.0
    for k in tl.static_range(15, 2, -1):
        series = 1.0 - series * z / k
    return series / 2


@triton.jit
def loss_of(delta, decay):
    """``1 - exp(-delta * decay)`` for the forward."""
    if decay.dtype == tl.float64:
        z = delta * decay
        loss = tl.where(tl.abs(z) < 0.5, z - z * z * _tail(z), 1.0 - tl.exp(-z))
    else:
        h = delta * (decay * _LOG2_E)
        phi = h * -0.00015453163359779865 + 0.0013390863314270973
        phi = phi * h - 0.009618083015084267
        phi = phi * h + 0.055503569543361664
        phi = phi * h - 0.24022650718688965
        phi = phi * h + 0.6931471824645996
        loss = tl.where(tl.abs(h) < 0.5, h * phi, 1.0 - tl.exp2(-h))
    return loss


@triton.jit
def loss_keep_slope(delta, decay):
    """``1 - exp(-z)``, ``exp(-z)`` and ``1 - (1 + z) exp(-z)`` for the backward.

    The last one is -decay**2 times the derivative of the weight ``loss / decay`` by the decay.
    """
    if decay.dtype == tl.float64:
        z = delta * decay
        small = tl.abs(z) < 0.5
        keep = tl.exp(-z)
        tail = _tail(z)
        loss = tl.where(small, z - z * z * tail, 1.0 - keep)
        weight_slope = tl.where(small, z * z * (1.0 - tail - z * tail), loss - z * keep)
    else:
        h = delta * (decay * _LOG2_E)
        slope = h * -1.5406158127007075e-05 + 0.00015602957864757627
        slope = slope * h - 0.0013332981616258621
        slope = slope * h + 0.009617379866540432
        slope = slope * h - 0.05550411343574524
        slope = slope * h + 0.24022655189037323
        phi = _LN2 - h * slope
        small = tl.abs(h) < 1.0
        keep = tl.exp2(-h)
        loss = tl.where(small, h * phi, 1.0 - keep)
        weight_slope = tl.where(small, h * h * (_LN2 * phi - slope), loss - h * _LN2 * keep)
    return loss, keep, weight_slope


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
def position(step, path, KIND: tl.constexpr):
    """Position of a step in scan order; int64 if wide."""
    index = path[1] - 1 - step if KIND & 1 else step
    if KIND & 2:
        at = path[0] + (index // path[2]) * path[4] + (index % path[2]) * path[3]
    else:
        at = path[0] + index * path[3]
    return at.to(tl.int64) if KIND & 4 else at


@triton.jit
def alive_count(step, end, count):
    """`count`, or 0 from `end` on. (A scalar mask ``&`` a vector fails under the interpreter.)"""
    return tl.where(step < end, count, 0)


@triton.jit
def load_rows(base, row, offset, count, first, end, path, KIND: tl.constexpr, GROUP: tl.constexpr):
    """The rows of steps first .. first + GROUP - 1 as a tuple, with zeros from `end` on.

    A step of zeros changes nothing: its delta, and so its loss, is 0.
    """
    rows = ()
    for j in tl.static_range(GROUP):
        at = base + (position(first + j, path, KIND) * row + offset)
        inside = offset < alive_count(first + j, end, count)
        rows = rows + (tl.load(at, mask=inside, other=0.0),)  # noqa: RUF005
    return rows


# fmt: off
@triton.jit(do_not_specialize=_GEOMETRY)
def walk_forward(
    u, delta, decay, b, c, d, carry_in, prior, y, ends, sums, checkpoints,
    u_batch, u_row, delta_batch, delta_row, b_batch, b_row, c_batch, c_row, D, n_states,
    lines, line_inner, line_inner_stride, line_outer_stride,
    length, step_inner, step_inner_stride, step_outer_stride,
    positions, segments, segment_steps, every, blocks,
    SHARE: tl.constexpr, KIND: tl.constexpr, J: tl.constexpr, N: tl.constexpr, W: tl.constexpr,
    GROUP: tl.constexpr, REAL: tl.constexpr,
):
# fmt: on
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
    us = load_rows(u, u_row, channel, D, first, end, path, KIND, GROUP)
    ds = load_rows(delta, delta_row, channel, D, first, end, path, KIND, GROUP)
    for chunk in range(first, end, every):
        if checkpoints is not None:
            kept = checkpoints + (line * tl.cdiv(length, every) + chunk // every) * D * n_states
            store_tile(kept, v, channel, state, D, n_states)
        for t in range(chunk, tl.minimum(chunk + every, end), GROUP):
            u_now, d_now, n = us, ds, t + GROUP
            bs = load_rows(b, b_row, state, n_states, t, end, path, KIND, GROUP)
            if y is not None:
                cs = load_rows(c, c_row, state, n_states, t, end, path, KIND, GROUP)
            us = load_rows(u, u_row, channel, D, n, end, path, KIND, GROUP)
            ds = load_rows(delta, delta_row, channel, D, n, end, path, KIND, GROUP)
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
                    at = position(t + j, path, KIND) * D + channel
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


# fmt: off
@triton.jit(do_not_specialize=("segments", "D", "n_states"))
def join_segments(
    ends, sums, decay, start, carry_in, segments, D, n_states,
    PERIODIC: tl.constexpr, BACKWARD: tl.constexpr,
    K: tl.constexpr, N: tl.constexpr, REAL: tl.constexpr,
):
# fmt: on
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


# fmt: off
@triton.jit(do_not_specialize=_GEOMETRY)
def sweep_adjoint(
    grad_y, delta, decay, c, ends, sums,
    grad_y_batch, grad_y_row, delta_batch, delta_row, c_batch, c_row, D, n_states,
    lines, line_inner, line_inner_stride, line_outer_stride,
    length, step_inner, step_inner_stride, step_outer_stride,
    segments, segment_steps, blocks,
    SHARE: tl.constexpr, KIND: tl.constexpr, J: tl.constexpr, N: tl.constexpr, W: tl.constexpr,
    GROUP: tl.constexpr, REAL: tl.constexpr,
):
# fmt: on
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
    gs = load_rows(grad_y, grad_y_row, channel, D, last, end, path, KIND, GROUP)
    ds = load_rows(delta, delta_row, channel, D, last, end, path, KIND, GROUP)
    cs = load_rows(c, c_row, state, n_states, last, end, path, KIND, GROUP)
    for back in range(first, end, GROUP):
        g_now, d_now, c_now = gs, ds, cs
        # Load the previous group; the first group loads itself again, without use.
        n = tl.maximum(last - (back - first) - GROUP, first)
        gs = load_rows(grad_y, grad_y_row, channel, D, n, end, path, KIND, GROUP)
        ds = load_rows(delta, delta_row, channel, D, n, end, path, KIND, GROUP)
        cs = load_rows(c, c_row, state, n_states, n, end, path, KIND, GROUP)
        for j in tl.static_range(GROUP - 1, -1, -1):
            g_j, d_j = g_now[j].to(REAL) / SHARE, d_now[j].to(REAL)
            g = carried + c_now[j].to(REAL)[None, :, None] * g_j[:, None, :]
            carried = g - g * loss_of(d_j[:, None, :], rate)
            total += d_j
    run_at = line * segments + segment
    store_tile(ends + run_at * D * n_states, carried, channel, state, D, n_states)
    tl.store(sums + run_at * D + channel, total, mask=is_channel)


@triton.jit
def _pass_back(g, loss, keep):
    """``exp(-z) g``, computed from the loss where it is small, so that rounding does not drift."""
    return tl.where(keep > 0.5, g - g * loss, keep * g)


# fmt: off
@triton.jit(do_not_specialize=(*_GEOMETRY, "groups", "lines_each"))
def walk_backward(
    grad_y, u, delta, decay, b, c, d, carry_in, checkpoints, scratch, prior_u, prior_delta,
    grad_u, grad_delta, grad_decay, grad_b, grad_c, grad_d, grad_start,
    grad_y_batch, grad_y_row, u_batch, u_row, delta_batch, delta_row,
    b_batch, b_row, c_batch, c_row, D, n_states,
    lines, line_inner, line_inner_stride, line_outer_stride,
    length, step_inner, step_inner_stride, step_outer_stride,
    positions, segments, segment_steps, every, blocks, all_lines, lines_each,
    SHARE: tl.constexpr, KIND: tl.constexpr, J: tl.constexpr, N: tl.constexpr, W: tl.constexpr,
    GROUP: tl.constexpr, REAL: tl.constexpr,
):
# fmt: on
    """The adjoint of one walk. A program has a block of channels, one segment of some lines.

    The program processes a line's checkpoints from the last to the first. From each checkpoint it
    walks the chunk forward once and stores the state of every `GROUP` steps in a scratch of a few
    kilobytes. It then processes the groups from the last to the first: forward again with states,
    losses and slopes in registers, then back with the adjoint ``g``,

        g         = carried + c grad_y          carried'   = exp(-z) g
        grad_c    = sum_d grad_y v              grad_b     = sum_d g loss / decay u
        grad_u    = sum_n g loss / decay b      grad_delta = sum_n exp(-z) g (b u - decay v_before)
        grad_decay = -sum exp(-z) g delta v_before - sum g b u slope / decay**2

    This costs two evaluations of the coefficients a step and no memory of size (B, L, D, N). Each
    block of channels stores its own sums over channels, (blocks, B, P, N), without atomics, so that
    results repeat to the bit.

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
                us = load_rows(u_line, u_row, channel, D, t, end, path, KIND, GROUP)
                ds = load_rows(delta_line, delta_row, channel, D, t, end, path, KIND, GROUP)
                bs = load_rows(b_line, b_row, state, n_states, t, end, path, KIND, GROUP)
                for j in tl.static_range(GROUP):
                    inflow = us[j].to(REAL)[:, None, :] * per_rate * bs[j].to(REAL)[None, :, None]
                    v += loss_of(ds[j].to(REAL)[:, None, :], rate) * (inflow - v)
            store_tile(notes + (groups - 1) * note_size, v, noted, state, J * W, n_states)
            tl.debug_barrier()  # another thread may read the note than wrote it
            for k in range(groups):
                t = chunk + (groups - 1 - k) * GROUP
                us = load_rows(u_line, u_row, channel, D, t, end, path, KIND, GROUP)
                ds = load_rows(delta_line, delta_row, channel, D, t, end, path, KIND, GROUP)
                bs = load_rows(b_line, b_row, state, n_states, t, end, path, KIND, GROUP)
                cs = load_rows(c_line, c_row, state, n_states, t, end, path, KIND, GROUP)
                gs = load_rows(grad_y_line, grad_y_row, channel, D, t, end, path, KIND, GROUP)
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
                    at = position(t + j, path, KIND)
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
                        before_delta = prior_delta + batch_at * D + field_at
                        to_delta += tl.load(before_delta, mask=inside, other=0.0)
                    tl.store(grad_u_line + field_at, to_u, mask=inside)
                    tl.store(grad_delta_line + field_at, to_delta, mask=inside)
                    share_row = at * n_states + state
                    tl.store(grad_b_line + share_row, b_share, mask=alive)
                    tl.store(grad_c_line + share_row, c_share, mask=alive)
            tl.debug_barrier()  # the next chunk overwrites the notes
        if grad_start is not None and segment == 0:
            store_tile(grad_start + line * D * n_states, carried, channel, state, D, n_states)
    of_decay = -decay_sum - slope_sum * per_rate * per_rate
    store_tile(grad_decay + run.to(tl.int64) * D * n_states, of_decay, channel, state, D, n_states)
    if d is not None:
        tl.store(grad_d + run.to(tl.int64) * D + channel, d_sum, mask=is_channel)
