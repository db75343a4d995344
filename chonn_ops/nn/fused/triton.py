# type: ignore  (device code: Triton compiles it, and its types are not Python's)
"""The functions of `chonn_ops.nn.fused.torch` as kernels, one launch each way. What a gradient sums
over nodes, each program sums for its own ones, and PyTorch adds these sums.

Fields (B, \\*grid, C) are rows of C channels, of which a program takes `_ENTRIES` entries. It reads
neighbours where it needs them. Everything is computed in float32.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from chonn_ops.network.grids import face_area

_ENTRIES = 1024
# A kernel for all sizes is enough.
_jit = triton.jit(do_not_specialize=("size", "rows", "channels", "stride", "n0", "n1", "n2"))


def _launch(kernel, grid, *args, warps=4, **constants):
    kernel[grid](*args, **constants, num_warps=warps)


def _blocks(field):
    """Programs of a field (..., C), and the rows and channels of each."""
    channels = field.shape[-1]
    across = triton.next_power_of_2(channels)
    rows = max(1, _ENTRIES // across)
    return -(-(field.numel() // channels) // rows), {"R": rows, "C": across}


@triton.jit
def _own(rows, channels, R: tl.constexpr, C: tl.constexpr):
    """Rows (R, 1) and channels (1, C) of this program, and which of them there are."""
    row = (tl.program_id(0) * R + tl.arange(0, R))[:, None]
    channel = tl.arange(0, C)[None, :]
    return row, channel, (row < rows) & (channel < channels)


@triton.jit
def _hand_on(PARTS, value, part, parts, channel, channels):
    """Store the sum over a program's rows as one of its `parts` sums."""
    to = PARTS + (tl.program_id(0).to(tl.int64) * parts + part) * channels + channel
    tl.store(to, tl.sum(value, 0)[None, :], mask=channel < channels)


# Linear maps --------------------------------------------------------------------------------------

# Three products by tensor cores. In an emulation, sums of 24 and of 48 products had errors of at
# most 7e-7 of the sum of their magnitudes, and those of float32 3e-7.
_PRECISION = "tf32x3"


@triton.jit
def _sigmoid(x):
    return 1 / (1 + tl.exp(-x))


@_jit
def _linear(
    B, W, X, Y, rows, gain, WIDTH: tl.constexpr, OUTPUTS: tl.constexpr, STRIDE: tl.constexpr,
    SILU: tl.constexpr, BIAS: tl.constexpr, R: tl.constexpr, D: tl.constexpr, H: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0).to(tl.int64) * R + tl.arange(0, R))[:, None]
    d, h = tl.arange(0, D), tl.arange(0, H)
    x = tl.load(X + row * STRIDE + d[None, :], mask=(row < rows) & (d[None, :] < WIDTH), other=0.0)
    some = (d[:, None] < WIDTH) & (h[None, :] < OUTPUTS)
    w = tl.load(W + h[None, :] * WIDTH + d[:, None], mask=some, other=0.0)
    if SILU:
        x *= _sigmoid(x)
    y = tl.dot(x, w, input_precision=PRECISION)
    if BIAS:
        y += tl.load(B + h, mask=h < OUTPUTS, other=0.0)[None, :]
    to = Y + row * OUTPUTS + h[None, :]
    tl.store(to, gain * y, mask=(row < rows) & (h[None, :] < OUTPUTS))


@_jit
def _linear_backward(
    W, X, G, MORE, GX, PARTS, rows, gain, WIDTH: tl.constexpr, OUTPUTS: tl.constexpr,
    STRIDE: tl.constexpr, SILU: tl.constexpr, BIAS: tl.constexpr, R: tl.constexpr,
    D: tl.constexpr, H: tl.constexpr, PRECISION: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    """Gradients of x, with `ADD` those in MORE added, and of a program's rows those of the weight
    and, behind them, the bias."""
    row = (tl.program_id(0).to(tl.int64) * R + tl.arange(0, R))[:, None]
    d, h = tl.arange(0, D)[None, :], tl.arange(0, H)[:, None]
    there, some = (row < rows) & (d < WIDTH), (d < WIDTH) & (h < OUTPUTS)
    x = tl.load(X + row * STRIDE + d, mask=there, other=0.0)
    w = tl.load(W + h * WIDTH + d, mask=some, other=0.0)
    output = tl.arange(0, H)[None, :]
    of_output = (row < rows) & (output < OUTPUTS)
    g = gain * tl.load(G + row * OUTPUTS + output, mask=of_output, other=0.0)
    found = tl.dot(g, w, input_precision=PRECISION)
    if SILU:
        s = _sigmoid(x)
        found *= s * (1 + x * (1 - s))
        x *= s
    if ADD:
        found += tl.load(MORE + row * WIDTH + d, mask=there, other=0.0)
    tl.store(GX + row * WIDTH + d, found, mask=there)
    to = PARTS + tl.program_id(0).to(tl.int64) * ((WIDTH + BIAS) * OUTPUTS)
    if D < H:  # the other way spills registers
        of_weight = tl.trans(tl.dot(tl.trans(x), g, input_precision=PRECISION))
    else:
        of_weight = tl.dot(tl.trans(g), x, input_precision=PRECISION)
    tl.store(to + h * WIDTH + d, of_weight, mask=some)
    if BIAS:
        to += WIDTH * OUTPUTS + output
        tl.store(to, tl.sum(g, 0)[None, :], mask=output < OUTPUTS)


def _products(bias, weight, x, silu, rows=64):
    """Programs of a linear map, with so many rows each, and its constants."""
    (outputs, width), (stride, _) = weight.shape, x.stride()
    across = [max(16, triton.next_power_of_2(n)) for n in (width, outputs)]
    constants = {"WIDTH": width, "OUTPUTS": outputs, "STRIDE": stride, "SILU": silu}
    constants |= {"BIAS": bias is not None, "PRECISION": _PRECISION}
    return -(-len(x) // rows), constants | dict(zip("RDH", (rows, *across), strict=True))


def linear(bias, weight, x, gain, silu):
    """As that of `torch`, as all below, of rows x without a stride of their channels."""
    weight, (programs, constants) = weight.contiguous(), _products(bias, weight, x, silu)
    y = x.new_empty(len(x), len(weight))
    given = weight if bias is None else bias.contiguous()
    _launch(_linear, (programs,), given, weight, x, y, len(x), gain, **constants)
    return y, x


def linear_backward(grads, bias, weight, x, gain, silu):
    """Gradients of the inputs from those of the outputs, as all below."""
    weight, (outputs, width) = weight.contiguous(), weight.shape
    rows = 32 if max(width, outputs) > 32 else 64  # with more, the wide ones spilled registers
    programs, constants = _products(bias, weight, x, silu, rows)
    grad, more = grads
    grad = x.new_zeros(len(x), outputs) if grad is None else grad.contiguous()
    given = weight if more is None else more.contiguous()
    found = x.new_empty(len(x), width)
    parts = x.new_empty(programs, (width + constants["BIAS"]) * outputs)
    args = (weight, x, grad, given, found, parts, len(x), gain)
    _launch(_linear_backward, (programs,), *args, **constants, ADD=more is not None)
    of_weight, of_bias = parts.sum(0).tensor_split((weight.numel(),))
    return None if bias is None else of_bias, of_weight.view(outputs, width), found


# Gates --------------------------------------------------------------------------------------------


@_jit
def _gated(
    X, GATE, Y, G, GX, rows, channels, stride, BACKWARD: tl.constexpr, R: tl.constexpr,
    C: tl.constexpr,
):  # fmt: skip
    """x SiLU(gate) in Y, or with `BACKWARD` the gradients of both in GX and Y."""
    row, channel, there = _own(rows, channels, R, C)
    at = row * channels + channel
    x = tl.load(X + at, mask=there, other=0.0).to(tl.float32)
    gate = tl.load(GATE + row.to(tl.int64) * stride + channel, mask=there, other=0.0)
    gate = gate.to(tl.float32)
    s = _sigmoid(gate)
    if BACKWARD:
        g = tl.load(G + at, mask=there, other=0.0).to(tl.float32)
        tl.store(GX + at, g * gate * s, mask=there)
        tl.store(Y + at, g * x * (s * (1 + gate * (1 - s))), mask=there)
    else:
        tl.store(Y + at, x * gate * s, mask=there)


def gated(x, gate):
    """See `linear`; the gates are rows without a stride of their channels."""
    x, (programs, block) = x.contiguous(), _blocks(x)
    y = x.new_empty(x.shape, dtype=gate.dtype)
    args = (x, gate, y, y, y, *gate.shape, gate.stride(0))
    _launch(_gated, (programs,), *args, BACKWARD=False, **block)
    return (y,)


def gated_backward(grads, x, gate):
    """See `linear_backward`."""
    x, (programs, block) = x.contiguous(), _blocks(x)
    of_gate, found = x.new_empty(gate.shape, dtype=gate.dtype), torch.empty_like(x)
    args = (x, gate, of_gate, grads[0].contiguous(), found, *gate.shape, gate.stride(0))
    _launch(_gated, (programs,), *args, BACKWARD=True, **block)
    return found, of_gate


# Bounded sums -------------------------------------------------------------------------------------


@triton.jit
def _factor(x, most):
    z = x / most
    z = tl.where(tl.abs(z) > 1e5, 1e5, z)
    return tl.rsqrt(tl.sqrt(1 + z * z * z * z))


@_jit
def _bounded(H, X, Y, size, most, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + at, mask=at < size, other=0.0).to(tl.float32)
    y = x * _factor(x, most)
    y = tl.where(y > most, most, tl.where(y < -most, -most, y))  # a NaN stays
    y += tl.load(H + at, mask=at < size, other=0.0).to(tl.float32)
    tl.store(Y + at, y, mask=at < size)


@_jit
def _bounded_backward(G, X, GX, size, most, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + at, mask=at < size, other=0.0).to(tl.float32)
    f = _factor(x, most)
    g = tl.load(G + at, mask=at < size, other=0.0).to(tl.float32)
    tl.store(GX + at, g * (f * f * f * f * f), mask=at < size)


def bounded_sum(h, x, most):
    """See `linear`."""
    h, x = h.contiguous(), x.contiguous()
    y = torch.empty_like(x, dtype=torch.promote_types(h.dtype, x.dtype))
    grid = (-(-x.numel() // _ENTRIES),)
    _launch(_bounded, grid, h, x, y, x.numel(), most, BLOCK=_ENTRIES)
    return (y,)


def bounded_sum_backward(grads, h, x, most):
    """See `linear_backward`."""
    (grad,), x = grads, x.contiguous()
    found = torch.empty_like(x)
    grid = (-(-x.numel() // _ENTRIES),)
    _launch(_bounded_backward, grid, grad.contiguous(), x, found, x.numel(), most, BLOCK=_ENTRIES)
    return grad.to(h.dtype), found


# Conductivities -----------------------------------------------------------------------------------


@triton.jit
def _tanh(x, small):
    """From small = exp(-2 |x|); near 0, where that loses digits, by its series."""
    s = x * x
    series = -17.0 / 315 + s * (62.0 / 2835 - s * (1382.0 / 155925))
    series = x * (1 + s * (-1.0 / 3 + s * (2.0 / 15 + s * series)))
    far = (1 - small) / (1 + small)
    return tl.where(tl.abs(x) < 0.3, series, tl.where(x < 0, -far, far))


@_jit
def _conductivity(
    RAW, BIAS, K, GRAD, PARTS, rows, channels, largest,
    BACKWARD: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """The conductivities in K, or with `BACKWARD` the gradients of `RAW`."""
    row, channel, there = _own(rows, channels, R, C)
    at = row * channels + channel
    raw = tl.load(RAW + at, mask=there, other=0.0).to(tl.float32)
    raw += tl.load(BIAS + channel, mask=channel < channels, other=0.0).to(tl.float32)
    x = raw / largest
    small = tl.exp(-2 * tl.abs(x))
    k = tl.exp(largest * _tanh(x, small))
    if BACKWARD:
        slope = 4 * small / ((1 + small) * (1 + small))
        grad = tl.load(GRAD + at, mask=there, other=0.0) * k * slope
        tl.store(K + at, grad, mask=there)
        _hand_on(PARTS, grad, 0, 1, channel, channels)
    else:
        tl.store(K + at, k, mask=there)


def conductivity(raw, bias, largest):
    """See `linear`."""
    raw, bias, channels = raw.contiguous(), bias.contiguous(), raw.shape[-1]
    k = torch.empty_like(raw, dtype=torch.float32)
    programs, block = _blocks(raw)
    sizes = (raw.numel() // channels, channels, largest)
    _launch(_conductivity, (programs,), raw, bias, k, k, k, *sizes, BACKWARD=False, **block)
    return (k,)


def conductivity_backward(grads, raw, bias, largest):
    """See `linear_backward`."""
    raw, bias, channels = raw.contiguous(), bias.contiguous(), raw.shape[-1]
    grad, found = grads[0].contiguous(), torch.empty_like(raw)
    programs, block = _blocks(raw)
    parts = grad.new_empty(programs, channels)
    args = (raw, bias, found, grad, parts, raw.numel() // channels, channels, largest)
    _launch(_conductivity, (programs,), *args, BACKWARD=True, **block)
    return found, parts.sum(0).to(bias.dtype)


# Circuits of grids --------------------------------------------------------------------------------

# What an axis has at both of its faces, as bits.
_WALL, _LEARNED = 1, 2
_FACES = ("F0", "F1", "F2")


@triton.jit
def _read(K, A, D, LEAK, there, of_channel, of_mean, of_wall, of_leak):
    """Conductivities, weights of the arithmetic mean, distances of walls and leaks; outside of the
    field what may be divided by is 1."""
    k = tl.load(K, mask=there, other=1.0)
    a = _sigmoid(of_mean * tl.load(A, mask=of_channel, other=0.0))
    d = tl.exp(of_wall * tl.load(D, mask=of_channel, other=0.0))
    return k, a, d, tl.exp(of_leak * tl.load(LEAK, mask=of_channel, other=0.0))


@triton.jit
def _along(row, stride, n):
    """Where rows lie along an axis, and the rows of the next and the previous node around it."""
    at = row // stride % n
    after = tl.where(at == n - 1, row - (n - 1) * stride, row + stride)
    before = tl.where(at == 0, row + (n - 1) * stride, row - stride)
    return at, after, before


@triton.jit
def _wall(at, n, distance, area, low, high, FACES: tl.constexpr):
    """Conductance to the walls of an axis over the conductivity, and its derivative by the learned
    distance."""
    beyond = distance if FACES & 2 else tl.zeros_like(distance)
    to_low, to_high = low + beyond, high + beyond
    is_low, is_high = tl.where(at == 0, area, 0.0), tl.where(at == n - 1, area, 0.0)
    share = is_low / to_low + is_high / to_high
    slope = -is_low / (to_low * to_low) - is_high / (to_high * to_high)
    return share, slope if FACES & 2 else tl.zeros_like(slope)


@triton.jit
def _axis(
    K, E, k, arithmetic, distance, row, channel, there, stride, n, channels,
    scale, area, low, high, FACES: tl.constexpr,
):  # fmt: skip
    """Store the edges of an axis; the share of its walls."""
    at, after, _ = _along(row, stride, n)
    other = tl.load(K + after * channels + channel, mask=there, other=1.0)
    both = k + other
    edge = 0.5 * arithmetic * both + (2 - 2 * arithmetic) * (k * (other / both))
    tl.store(E + row * channels + channel, scale * edge, mask=there)
    share = tl.zeros_like(k)
    if FACES:
        more, _ = _wall(at, n, distance, area, low, high, FACES)
        share += more
    return share


@_jit
def _circuit(
    K, A, D, LEAK, E0, E1, E2, TOTAL, WALL, rows, channels, n0, n1, n2, of_mean, of_wall, of_leak,
    volume,
    scale0, scale1, scale2, area0, area1, area2, low0, low1, low2, high0, high1, high2,
    AXES: tl.constexpr, F0: tl.constexpr, F1: tl.constexpr, F2: tl.constexpr,
    R: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    row, channel, there = _own(rows, channels, R, C)
    at = row * channels + channel
    k, a, d, leak = _read(
        K + at, A + channel, D + channel, LEAK + channel, there, channel < channels, of_mean,
        of_wall, of_leak,
    )  # fmt: skip
    share = _axis(
        K, E0, k, a, d, row, channel, there, n1 * n2, n0, channels, scale0, area0, low0, high0, F0
    )  # fmt: skip
    if AXES > 1:
        share += _axis(
            K, E1, k, a, d, row, channel, there, n2, n1, channels, scale1, area1, low1, high1, F1
        )  # fmt: skip
    if AXES > 2:
        share += _axis(
            K, E2, k, a, d, row, channel, there, 1, n2, channels, scale2, area2, low2, high2, F2
        )  # fmt: skip
    total = tl.zeros_like(k) + leak * volume
    if F0 + F1 + F2 > 0:
        tl.store(WALL + at, k * share, mask=there)
        total += k * share
    tl.store(TOTAL + at, total, mask=there)


@triton.jit
def _axis_backward(
    K, G, k, arithmetic, distance, row, channel, there, stride, n, channels,
    scale, area, low, high, FACES: tl.constexpr,
):  # fmt: skip
    """Gradients of conductivities and of the weight of the arithmetic mean by the edges of an axis,
    and of its walls the share and the derivative."""
    at, after, before = _along(row, stride, n)
    harmonic = 2 - 2 * arithmetic
    other = tl.load(K + after * channels + channel, mask=there, other=1.0)
    g = scale * tl.load(G + row * channels + channel, mask=there, other=0.0)
    both, less = k + other, k - other
    r = other / both
    of_k = g * (0.5 * arithmetic + harmonic * r * r)
    of_mean = g * (0.5 * less * (less / both))
    other = tl.load(K + before * channels + channel, mask=there, other=1.0)
    g = scale * tl.load(G + before * channels + channel, mask=there, other=0.0)
    r = other / (k + other)
    of_k += g * (0.5 * arithmetic + harmonic * r * r)
    share, slope = tl.zeros_like(k), tl.zeros_like(k)
    if FACES:
        share, slope = _wall(at, n, distance, area, low, high, FACES)
    return of_k, of_mean, share, slope


@_jit
def _circuit_backward(
    K, A, D, LEAK, G0, G1, G2, GTOTAL, GWALL, GK, PARTS, rows, channels, n0, n1, n2, of_mean,
    of_wall, of_leak, volume,
    scale0, scale1, scale2, area0, area1, area2, low0, low1, low2, high0, high1, high2,
    AXES: tl.constexpr, F0: tl.constexpr, F1: tl.constexpr, F2: tl.constexpr,
    OF_WALL: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    row, channel, there = _own(rows, channels, R, C)
    at = row * channels + channel
    k, a, d, leak = _read(
        K + at, A + channel, D + channel, LEAK + channel, there, channel < channels, of_mean,
        of_wall, of_leak,
    )  # fmt: skip
    of_k, mean, share, slope = _axis_backward(
        K, G0, k, a, d, row, channel, there, n1 * n2, n0, channels, scale0, area0, low0, high0, F0
    )  # fmt: skip
    if AXES > 1:
        k_too, mean_too, share_too, slope_too = _axis_backward(
            K, G1, k, a, d, row, channel, there, n2, n1, channels, scale1, area1, low1, high1, F1
        )  # fmt: skip
        of_k, mean = of_k + k_too, mean + mean_too
        share, slope = share + share_too, slope + slope_too
    if AXES > 2:
        k_too, mean_too, share_too, slope_too = _axis_backward(
            K, G2, k, a, d, row, channel, there, 1, n2, channels, scale2, area2, low2, high2, F2
        )  # fmt: skip
        of_k, mean = of_k + k_too, mean + mean_too
        share, slope = share + share_too, slope + slope_too
    total = tl.load(GTOTAL + at, mask=there, other=0.0)
    wall = total
    if OF_WALL:
        wall += tl.load(GWALL + at, mask=there, other=0.0)
    tl.store(GK + at, of_k + wall * share, mask=there)
    _hand_on(PARTS, mean * (of_mean * a * (1 - a)), 0, 3, channel, channels)
    of_distance = tl.where(there, wall * k * slope, 0.0)
    _hand_on(PARTS, of_distance * (of_wall * d), 1, 3, channel, channels)
    _hand_on(PARTS, total * (volume * of_leak * leak), 2, 3, channel, channels)


def _geometry(k, steps, words, distances, gains):
    """Sizes and numbers of the axes, three of each, and constants."""
    axes = len(steps)
    more = [0.0] * (3 - axes)
    areas = [face_area(steps, axis) for axis in range(axes)]
    pairs = zip(steps, distances, strict=True)
    ends = [*zip(*([step * x for x in pair] for step, pair in pairs), strict=True)]
    faces = [{"robin": _WALL | _LEARNED, "dirichlet": _WALL}.get(word, 0) for word in words]
    scales = [area / step for area, step in zip(areas, steps, strict=True)]
    channels, grid = k.shape[-1], [*k.shape[1:-1], 1, 1][:3]
    programs, block = _blocks(k)
    args = (k.numel() // channels, channels, *grid, *gains, math.prod(steps))
    args += (*scales, *more, *areas, *more)
    flags = dict(zip(_FACES, [*faces, 0, 0], strict=False))
    return programs, (*args, *ends[0], *more, *ends[1], *more), {"AXES": axes, **flags, **block}


def _numbers(mean, wall, leak):
    """Of the channels: without a stride, which vectors cut from larger parameters have."""
    return [x.contiguous() for x in (mean, mean if wall is None else wall, leak)]


def _three(fields):
    return [*fields, *fields[-1:] * 2][:3]


def grid_circuit(k, mean, wall, leak, *geometry):
    """See `linear`."""
    k, (programs, args, constants) = k.contiguous(), _geometry(k, *geometry)
    axes, has_walls = constants["AXES"], any(constants[name] for name in _FACES)
    made = [torch.empty_like(k) for _ in range(axes + 1 + has_walls)]
    fields = (k, *_numbers(mean, wall, leak), *_three(made[:axes]), made[axes], made[-1])
    _launch(_circuit, (programs,), *fields, *args, **constants)
    return tuple(made)


def grid_circuit_backward(grads, k, mean, wall, leak, *geometry):
    """See `linear_backward`."""
    k, (programs, args, constants) = k.contiguous(), _geometry(k, *geometry)
    axes = constants["AXES"]
    of_wall = len(grads) > axes + 1 and grads[-1] is not None
    *edges, total = (torch.zeros_like(k) if x is None else x for x in grads[: axes + 1])
    given = [x.contiguous() for x in (*_three(edges), total, grads[-1] if of_wall else total)]
    found, parts = torch.empty_like(k), k.new_empty(programs, 3, k.shape[-1])
    fields = (k, *_numbers(mean, wall, leak), *given, found, parts)
    _launch(_circuit_backward, (programs,), *fields, *args, OF_WALL=of_wall, **constants)
    of_mean, of_distance, of_leak = parts.sum(0)
    return found, of_mean, None if wall is None else of_distance, of_leak
