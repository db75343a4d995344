r"""Potentials and their differences in float64: with digits at any leak.

Small leaks lift all potentials of a part alike, so that rounding them takes the digits of their
differences, which gradients of conductances are made of. Here v = V + u, with the level
V = sum(s) / sum(l) of each connected part. u has the mean 0, weighted with the leaks, and is found
with one more conductance to ground, k at one node x of the part, which lifts nothing: with
A' = A + k e_x e_x^T,

    a = A'^-1 (s - l V),   b = A'^-1 l,   u = a + m (1 - b),   m = -sum(l a) / (k b_x).

What has sources s also has currents c of edges, which leave one node and enter the next. They add
their net inflow to s - l V and nothing to V: their sum over a part is 0, which a sum of rounded
numbers is not. From s and c follow v and its differences d along edges. This map is symmetric up to
a sign, and so its derivatives are the same map: for the gradients of v and d, with w and e what the
map makes of them and of minus them, w for s, -e for c, -w v for the leak and -e d for conductances.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

from chonn_ops._dtypes import compute_dtype, to_dtype_of
from chonn_ops.network.derivatives import NAME, tangents
from chonn_ops.network.direct import factor_of
from chonn_ops.network.edges import at_both_ends, differences, pad, used_edges
from chonn_ops.network.operator import fold

torch.library.define(
    NAME,
    "(Tensor source, Tensor? currents, Tensor g0, Tensor? g1, Tensor? g2, Tensor leak, "
    "bool[] periodic, float tol, int max_iterations, str backend, str method) "
    "-> (Tensor, Tensor)",
    tags=torch.Tag.pt2_compliant_tag,
)
_OPERATOR = torch.ops.chonn_ops.network_potentials.default
# What runs without the derivatives of this level: in the guard, of these dispatch keys.
below_autograd = torch._C._AutoDispatchBelowAutograd
BELOW = torch._C._after_autograd_keyset


def _parts(conductance: Sequence[Tensor], periodic: Sequence[bool]) -> tuple[Tensor, Tensor]:
    """(B, C, nodes): the node, in row-major order, at which each node's connected part is grounded,
    and the conductance of the edges there; of all nodes of a part it has the largest."""
    g0 = conductance[0]
    B, *grid, C = g0.shape
    nodes = torch.arange(g0[0, ..., 0].numel() if B and C else 0, device=g0.device)
    part = nodes.reshape(-1, 1).expand(B, len(nodes), C).reshape(g0.shape)
    total = torch.zeros_like(g0)
    joined: list[tuple[int, bool, Tensor]] = []
    for axis, g in enumerate(conductance):
        if grid[axis] > 1:
            edges = used_edges(g.nan_to_num(), axis, periodic[axis]).abs()
            total = total + at_both_ends(edges, axis, periodic[axis])
            joined.append((axis + 1, bool(periodic[axis]), edges != 0))

    def flat(field: Tensor) -> Tensor:
        return field.movedim(-1, 1).flatten(2)

    before = torch.empty_like(part[:0])
    while not torch.equal(part, before):  # labels grow to the largest node of each part
        before = part
        for dim, closed, edge in joined:
            n = part.shape[dim]
            low = part if closed else part.narrow(dim, 0, n - 1)
            high = part.roll(-1, dim) if closed else part.narrow(dim, 1, n - 1)
            both = torch.where(edge, torch.maximum(low, high), -1)
            part = torch.maximum(part, both if closed else pad(both, dim - 1, 0, 1))
            part = torch.maximum(part, both.roll(1, dim) if closed else pad(both, dim - 1, 1, 0))
        rows = flat(part)
        part = rows.gather(2, rows).unflatten(2, grid).movedim(1, -1)
    label, size = flat(part), flat(total)
    largest = torch.zeros_like(size).scatter_reduce(2, label, size, "amax").gather(2, label)
    here = torch.where(size == largest, nodes, len(nodes))
    first = torch.full_like(label, len(nodes)).scatter_reduce(2, label, here, "amin")
    node = first.gather(2, label)
    return node, torch.where(node == nodes, size, 0)


def _ratio(a: Tensor, b: Tensor) -> Tensor:
    """a / b, 0 where b is 0: at nodes without edges or without leaks."""
    some = b != 0
    return torch.where(some, a / torch.where(some, b, 1), 0)


def _total(field: Tensor, node: Tensor, reduce: str = "sum") -> Tensor:
    """The sum, or the largest value of magnitudes, over each node's part."""
    C, nodes = node.shape[1:]
    rows = field.movedim(-1, 1).reshape(field.shape[0], C, -1, nodes)
    node = node[:, :, None].expand(rows.shape)
    found = torch.zeros_like(rows).scatter_reduce(-1, node, rows, reduce).gather(-1, node)
    return found.reshape(field.movedim(-1, 1).shape).movedim(1, -1)


def _wide(source: Tensor, *fields: Tensor | None) -> torch.dtype:
    dtype = compute_dtype(source, *fields)
    if source.device.type == "mps":
        return dtype
    return torch.complex128 if dtype.is_complex else torch.float64


def _found(source: Tensor, currents: Tensor | None, *arguments: Any) -> tuple[Tensor, Tensor]:
    """See `potentials` of `chonn_ops.network.derivatives`."""
    periodic, tol, max_iterations, backend, method = arguments[4:]
    axes, several = len(periodic), source.dim() > arguments[3].dim()
    dtype = _wide(source, currents, *arguments[:4])
    s, *g, leak = (x.to(dtype) for x in (source, *arguments[:4]) if x is not None)

    def prepare(total: Tensor) -> Callable[[Tensor], Tensor]:
        if several:
            return factor_of(g, total, periodic, dtype=dtype, backend=backend).solve
        three, options = (*g, None, None)[:3], (periodic, tol, max_iterations, backend, method)
        operator = torch.ops.chonn_ops.kirchhoff_network
        return lambda s: operator(s, *three, total, *options, False)[0]

    def differ(v: Tensor) -> Tensor:
        pairs = enumerate(periodic, -1 - axes)
        found = [differences(v, axis, closed).contiguous() for axis, closed in pairs]
        return torch.stack(found, -1)

    node, ground = _parts([x.abs() for x in g], periodic)
    label, ground = (x.unflatten(2, leak.shape[1:-1]).movedim(1, -1) for x in (node, ground))
    within = torch.zeros_like(s)
    for axis in range(0 if currents is None else axes):
        assert currents is not None
        current, axis = currents[..., axis].to(dtype), axis - 1 - axes
        # Into another part, over an edge of conductance 0.
        across = label != label.roll(-1, axis)
        across = torch.where(across[:, None] if several else across, current, 0)
        within = within - (current - across) + (current - across).roll(1, axis)
        s = s - across + across.roll(1, axis)
    if dtype.is_complex:  # complex networks, which have no level, are solved as they are
        v = prepare(leak)(s + within)
        return v.contiguous(), differ(v)
    solve = prepare(leak + ground)
    b = solve(leak)
    leaks, held = _total(leak, node), _total(ground * b, node)
    if several:
        leak, ground, b, leaks, held = (x[:, None] for x in (leak, ground, b, leaks, held))
    level = _ratio(_total(s, node), leaks)
    # Twice: a node's own leak may take nearly all of its source, and leave rounding.
    rest = s - leak * level
    rest = rest - leak * _ratio(_total(rest, node), leaks)
    u = solve(rest + within)
    # m is a_x / b_x, too, since all currents sum to 0: the form whose rounding is less.
    lost, kept = _total(leak * u.abs(), node), _total(u.abs(), node, "amax") * _total(ground, node)
    m = torch.where(lost > kept, _total(ground * u, node), -_total(leak * u, node))
    u = u + _ratio(m, held) * (1 - b)
    # Levels of one part are equal. Forward mode wants tangents with the strides of the values.
    return (level + u).contiguous(), differ(level) + differ(u)


torch.library.impl(NAME, "default", _found)


@torch.library.register_fake(NAME)
def _(source: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    dtype, axes = _wide(source, *arguments[:5]), len(arguments[5])
    v = source.new_empty(source.shape, dtype=dtype)
    return v, source.new_empty((*source.shape, axes), dtype=dtype)


torch.library.register_vmap(NAME, partial(fold, _OPERATOR))


class _Potentials(_SingleLevelFunction):
    """As `_Network` of `chonn_ops.network.autograd`."""

    @staticmethod
    def forward(ctx: Any, keyset: Any, *args: Any) -> tuple[Tensor, Tensor]:
        with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True), below_autograd():
            v, drops = _OPERATOR.redispatch(keyset & BELOW, *args)
        saved = (*args[:6], v, drops)
        ctx.save_for_backward(*saved)
        ctx.save_for_forward(*saved)
        ctx.options = args[6:]
        return v, drops

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        *inputs, v, over_v = ctx.saved_tensors
        several, network = v.dim() > inputs[5].dim(), (*inputs[2:], *ctx.options)
        w, over_w = _OPERATOR(grads[0].conj(), -grads[1].conj(), *network)

        def of_networks(product: Tensor) -> Tensor:
            product = product.conj().neg()
            return product.sum(1) if several else product

        out: list[Any] = [w.conj(), -over_w.conj(), None, None, None, of_networks(w * v)]
        for axis in range(len(ctx.options[0])):
            out[2 + axis] = of_networks(over_w[..., axis] * over_v[..., axis])
        pairs = zip(out, inputs, strict=True)
        gradients = [None if a is None or x is None else to_dtype_of(a, x) for a, x in pairs]
        return None, *gradients, *[None] * len(ctx.options)

    @staticmethod
    def jvp(ctx: Any, *changes: Any) -> Any:
        *inputs, v, over_v = ctx.saved_tensors
        return tangents(v, over_v, changes[1:7], (*inputs[2:], *ctx.options))


def _kernel(keyset: Any, *args: Any) -> tuple[Tensor, Tensor]:
    """What the dispatch key "Autograd" runs, once for each level of differentiation."""
    tensors, options = args[:6], args[6:]
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors):
        with enable_single_level_autograd_function():
            outputs: Any = _Potentials.apply(  # pyright: ignore[reportAttributeAccessIssue]
                keyset, *args
            )
        return outputs
    duals = [(None, None) if x is None else forward_ad.unpack_dual(x, level=0) for x in tensors]
    primals, changes = zip(*duals, strict=True)
    if all(change is None for change in changes):
        with below_autograd():
            return _OPERATOR.redispatch(keyset & BELOW, *args)
    v, drops = found = _OPERATOR(*primals, *options)
    turned = tangents(v, drops, changes, (*primals[2:], *options))
    pairs = zip(found, turned, strict=True)
    v, drops = (forward_ad.make_dual(x, tangent, level=0) for x, tangent in pairs)
    return v, drops


_LIBRARY = torch.library.Library("chonn_ops", "FRAGMENT")
_LIBRARY.impl("network_potentials", torch._disable_dynamo(_kernel), "Autograd", with_keyset=True)
