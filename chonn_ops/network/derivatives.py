r"""Derivatives of any order: differentiable potentials whose differences have digits.

The map from sources s and currents c of edges to potentials v and their differences d along edges
(`chonn_ops.network.levels`) is symmetric up to a sign, and so its derivatives are the same map: for
the gradients of v and d, with w and e what the map makes of them and of minus them, w for s, -e for
c, -w v for the leak and -e d for conductances.

`network` is what the operator takes behind the source: g0, g1 and g2, None where there is no such
axis, the leak, and its options from `periodic` to `method`. Sources may be (B, \\*grid, C) or, of
networks (B, \\*grid, C), (B, S, \\*grid, C): S sources share one elimination.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from chonn_ops import _in_graph
from chonn_ops._dtypes import to_dtype_of
from chonn_ops._forward_mode import at_lower_levels

NAME = "chonn_ops::network_potentials"


def fold(operator: Callable[..., Any], info: Any, in_dims: Sequence[Any], *args: Any) -> Any:
    """A vmap rule: networks are independent, so the mapped axis joins the batch of all tensors."""
    count = info.batch_size

    def folded(x: Any, dim: int | None) -> Any:
        if not isinstance(x, Tensor):
            return x
        return (x.expand(count, *x.shape) if dim is None else x.movedim(dim, 0)).flatten(0, 1)

    outputs = operator(*map(folded, args, in_dims))
    unfolded = tuple(x.unflatten(0, (count, -1)) for x in outputs)
    return unfolded, (0,) * len(unfolded)


class _Potentials(torch.autograd.Function):
    @staticmethod
    def forward(*args: Any) -> tuple[Tensor, Tensor]:
        return torch.ops.chonn_ops.network_potentials(*args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*inputs[:6], *output)
        ctx.save_for_forward(*inputs[:6], *output)
        ctx.options = inputs[6:]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        *inputs, v, over_v = ctx.saved_tensors
        several, network = v.dim() > inputs[5].dim(), (*inputs[2:], *ctx.options)
        w, over_w = potentials(grads[0].conj(), -grads[1].conj(), network)

        def of_networks(product: Tensor) -> Tensor:
            product = product.conj().neg()
            return product.sum(1) if several else product

        out: list[Any] = [w.conj(), -over_w.conj(), None, None, None, of_networks(w * v)]
        for axis in range(len(ctx.options[0])):
            out[2 + axis] = of_networks(over_w[..., axis] * over_v[..., axis])
        pairs = zip(out, inputs, strict=True)
        gradients = [None if a is None or x is None else to_dtype_of(a, x) for a, x in pairs]
        return *gradients, *[None] * len(ctx.options)

    @staticmethod
    def jvp(ctx: Any, *changes: Any) -> Any:
        with at_lower_levels(*ctx.saved_tensors) as (*inputs, v, over_v):
            return tangents(v, over_v, changes[:6], (*inputs[2:], *ctx.options))

    @staticmethod
    def vmap(info: Any, in_dims: Sequence[Any], *args: Any) -> Any:
        return fold(apply_potentials, info, in_dims, *args)


def apply_potentials(*args: Any) -> tuple[Tensor, Tensor]:
    """What `_Potentials` returns."""
    found: Any = _Potentials.apply(*args)
    return found


def potentials(
    source: Tensor, currents: Tensor | None, network: tuple[Any, ...]
) -> tuple[Tensor, Tensor]:
    """Potentials, and behind a last dimension for the axes each node's potential less the next
    one's, 0 where no edge is; in float64 or complex128. `currents`, of the shape of the latter, run
    from each node to the next."""
    compiling = torch.compiler.is_compiling()
    apply = _in_graph.apply_potentials if compiling else apply_potentials
    return apply(source, currents, *network)


def edge_gradients(
    source: Tensor, grad: Tensor, network: tuple[Any, ...]
) -> tuple[Tensor, Tensor, Sequence[Tensor]]:
    """v, conj(w) and, one an axis, the gradients of conductances for that of v."""
    v, over_v = potentials(source, None, network)
    w, over_w = potentials(grad.conj(), None, network)
    return v, w, (over_w * over_v).neg().conj().unbind(-1)


def tangents(
    v: Tensor, drops: Tensor, changes: Sequence[Tensor | None], network: tuple[Any, ...]
) -> tuple[Tensor, Tensor]:
    """The tangents of `potentials`, of which `v` and `drops` are results, for those of source,
    currents, g0, g1, g2 and leak."""
    source, currents, *g, leak = changes
    several = v.dim() > network[3].dim()
    if source is None:
        source = torch.zeros_like(v)
    if leak is not None:
        source = source - (leak[:, None] if several else leak) * v
    for axis, change in enumerate(g):
        if change is not None:
            if currents is None:
                currents = torch.zeros_like(drops)
            flow = (change[:, None] if several else change) * drops[..., axis]
            rest = drops.shape[-1] - axis - 1
            currents = currents + torch.nn.functional.pad(flow[..., None], (axis, rest))
    return potentials(source, currents, network)
