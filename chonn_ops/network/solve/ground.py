r"""Parts of networks without ground: which they are, the rule for them, and derivatives there.

A connected part without leak has no potentials of its own: all may be shifted by one number. A node
with neither edge nor leak is such a part, too. One rule holds for all:

- A source in it is an error that names the network and the node. Sources that sum to 0 are refused,
  too, because nothing says where the potential is 0: a leak at any one node does.
- Without sources its potentials are 0, whatever else changes.

Derivatives at conductances of 0. Let edges with the conductances x w_q join a part K to nodes q
that have ground, with a wall x w and its current x c beside them, and let x rise from 0. The sum of
Kirchhoff's law over K is

.. math::

    x \Bigl( \sum_q w_q (v_K - v_q) + w v_K - c \Bigr) = 0

with potentials inside K that become equal, because its own conductances do not vanish. x cancels:

.. math::

    v_K = \frac{\sum_q w_q v_q + c}{\sum_q w_q + w} \qquad (x \to 0)

The rest of the network obeys :math:`A v = s + x \sum_q w_q (v_K - v_q) e_q`. So the derivative for
x of a loss with :math:`A \lambda = \bar v` is, from above, the first sum of

.. math::

    \sum_q w_q \lambda_q (v_K - v_q)
    = -\sum_q w_q (\lambda_K - \lambda_q) (v_K - v_q) - w \lambda_K v_K + c \lambda_K

and the equation for :math:`v_K` says that both sides are equal for every :math:`\lambda_K`. The
right one is what `chonn_ops.network.solve.derivatives.adjoint` computes. :math:`\lambda_K` is
taken as the mean of its neighbours, like :math:`v_K`, so that no conductance has a negative
derivative of the power. An edge of conductance 0 between two parts without ground carries nothing
if it rises alone: its drop is 0.

So gradients of conductances of 0 are the derivative from above for all edges of a part that rise
together, in proportion to their w: these are `rates` of what has made the network, such as the
faces of one cell of `chonn_ops.diffusion`, and else 1 for edges. For one edge that leads to a dead
end it is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from chonn_ops._dtypes import real_dtype
from chonn_ops._pytorch import transforms_are_active
from chonn_ops.checks import error, smallest_of
from chonn_ops.network.layout import Layout, beside, currents_along, nodes_of, over_parts
from chonn_ops.network.solve import cpu
from chonn_ops.network.solve.methods import Networks

Ungrounded = Literal["error", "nan"]


def cut_off(conductance: Sequence[Tensor], leak: Tensor, layout: Layout) -> Tensor | None:
    """A number of the part (B, \\*grid, C) for nodes of parts without ground, -1 for all others;
    None where there are none. Reads values.

    A network whose leaks are all above 0, or on a grid with a leak and no edge of 0, has no such
    part; most calls check no more than that. A NaN and complex numbers count as 0 or as not 0.
    """
    if leak.is_complex() or any(g.is_complex() for g in conductance):
        leak, *conductance = ((x.detach() != 0).float() for x in (leak, *conductance))
    if smallest_of(leak) > 0:
        return None
    if leak.device.type == "cpu":
        label = cpu.cut_off(conductance, leak, layout)
        if label is None or label.numel():
            return label
    leaks = leak != 0
    edges = layout.entries(conductance)
    whole = layout.regular and all(bool((edge != 0).all()) for edge in edges)
    if whole and bool(leaks.flatten(1, -2).any(1).all()):
        return None
    part = layout.connected_parts(conductance)
    label = torch.where(over_parts(leaks.long(), part) == 0, part, -1)
    return label.int() if bool((label >= 0).any()) else None


torch.library.define(
    "chonn_ops::cut_off",
    "(Tensor g0, Tensor? g1, Tensor? g2, Tensor leak, bool[] periodic, Tensor? graph) -> Tensor",
    tags=torch.Tag.pt2_compliant_tag,
)


@torch.library.impl("chonn_ops::cut_off", "default")
def _(*arguments: Any) -> Tensor:
    *fields_and_periodic, graph = arguments
    networks = Networks.of(*fields_and_periodic, graph=graph)
    if (label := cut_off(*networks.detached)) is None:
        label = torch.full_like(networks.leak, -1, dtype=torch.int32)
    return label.contiguous()


@torch.library.register_fake("chonn_ops::cut_off")
def _(*arguments: Any) -> Tensor:
    leak = arguments[3]
    return leak.new_empty(leak.shape, dtype=torch.int32)


def refused(source: Tensor, label: Tensor) -> Tensor:
    """Which nodes have a source in a part without ground, in the shape of the source. A NaN is
    none: it makes its network NaN."""
    return beside(label >= 0, source) & (source != 0) & source.isfinite()


def lost_networks(source: Tensor, network: Networks) -> Tensor:
    """Networks with a `refused` source, in a shape that broadcasts with the source."""
    label = labels_in_graph(network)
    inner = tuple(range(source.dim() - network.leak.dim() + 1, source.dim() - 1))
    return refused(source.detach(), label).sum(inner, keepdim=True) > 0


def labels_in_graph(network: Networks) -> Tensor:
    """`cut_off` as an operator, which compilers and transforms take as it is."""
    fields = (None if x is None else x.detach() for x in network.fields)
    return torch.ops.chonn_ops.cut_off(*fields, *network.layout.arguments())


def check_sources_have_ground(source: Tensor, label: Tensor) -> None:
    """Refuse a source in a part without ground. Reads values."""
    wrong = refused(source, label)
    if bool(wrong.any()):
        where = tuple(wrong.nonzero()[0].tolist())
        several = source.dim() > label.dim()
        node, network = where[1 + several : -1], (where[0], where[-1])
        raise ungrounded_error(network, node, f"a source of {source[where].item():g}")


def ungrounded_error(network: tuple[int, ...], node: Sequence[int], what: str) -> ValueError:
    """The error of a network (batch, channel) that has, or is asked for, `what` in a part without
    ground, at a node."""
    place = ", ".join(map(str, (network[0], *node, network[1])))
    return error(
        "leak",
        "> 0 at some node of every connected part with sources (a wall adds to it, as `diffusion` "
        f"has them; where the part's sources sum to 0, ground any one node: leak[{place}] = 1)",
        f"none in the part of network {network} (batch, channel) that contains node "
        f"{tuple(node)}, and {what} there: its potentials are not determined",
    )


def grounded(
    source: Tensor, conductance: Sequence[Tensor], leak: Tensor, label: Tensor
) -> tuple[Tensor, Tensor]:
    """Sources and leaks that make the potentials of parts without ground 0, so that every method
    has a matrix that is not singular. The node that names a part gets a leak, unless it is all of
    it: more leaks would couple to what lies beside the part on coarser grids of iterations."""
    off = label >= 0
    first = (label == nodes_of(label)) & (over_parts(off.long(), label) > 1)
    most = torch.stack([g.abs().nan_to_num(0, 0, 0).amax() for g in conductance]).amax()
    leak = torch.where(first, torch.where(most > 0, most, 1).to(leak.dtype), leak)
    # A NaN stays one.
    return torch.where(beside(off, source), 0 * source, source), leak


def without(field: Tensor, label: Tensor | None) -> Tensor:
    """The field, 0 in parts without ground: what happens there changes nothing."""
    return field if label is None else torch.where(beside(label >= 0, field), 0, field)


def labels_of(network: Networks) -> Tensor | None:
    """`cut_off` where derivatives ask: None where there are no such parts, on a GPU, which reading
    would stall, and for the backend "triton"."""
    if network.leak.is_cuda or network.backend == "triton":
        return None
    if torch.compiler.is_compiling() or transforms_are_active():
        return labels_in_graph(network)
    return cut_off(*network.detached)


def _rises(
    conductance: Sequence[Tensor], leak: Tensor, rates: Tensor | None
) -> tuple[list[Tensor], Any, Any]:
    """w of edges and of leaks, and c, from `rates` (B, n, C), or (B, S, n, C) where each source has
    another c."""
    if rates is None:
        return [torch.ones_like(g.detach()) for g in conductance], 0, 0
    sizes = [*(g[0, ..., 0].numel() for g in conductance), *[leak[0, ..., 0].numel()] * 2]
    *parts, current = rates.split(sizes, -2)
    several = rates.dim() - 3
    pairs = zip((x[:, 0] if several else x for x in parts), (*conductance, leak), strict=True)
    *edges, of_leak = (x.reshape(like.shape) for x, like in pairs)
    return edges, of_leak, current.reshape(*current.shape[: 1 + several], *leak.shape[1:])


def at_limits(
    network: Networks,
    label: Tensor | None,
    rates: Tensor | None,
    v: Tensor,
    drops: Sequence[Tensor],
    *,
    walls: bool = True,
) -> tuple[Tensor, Sequence[Tensor]]:
    """Potentials v, and their differences along edges, with those of parts without ground as in
    the limit of small conductances; `walls`: whether the current c counts.

    Differentiable in v. `label` is what `labels_of` returns.
    """
    if label is None:
        return v, drops
    g, leak, layout = network.conductance, network.leak, network.layout
    off = (label >= 0).to(real_dtype(g[0].dtype))
    rates_of_edges, of_leak, current = _rises(g, leak, rates)
    ends = layout.sums_at_edges(off)
    # Edges of conductance 0 between such a part and the rest.
    rising = [(x == 0) & (end == 1) for x, end in zip(layout.edges(g), ends, strict=True)]
    w = [rate * zero for rate, zero in zip(layout.edges(rates_of_edges), rising, strict=True)]
    weight = of_leak + layout.sums_at_nodes(w)
    # Potentials of parts without ground are 0, so that the other end's are left.
    pulled = layout.sums_at_nodes(currents_along(w, layout.sums_at_edges(v)))
    if walls and isinstance(current, Tensor):
        pulled = pulled + beside(current, v)
    weight, pulled = beside(over_parts(weight, label), v), over_parts(pulled, label)
    off = beside(off > 0, v)
    some = off & (weight != 0)
    v = torch.where(some, pulled / torch.where(some, weight, 1), torch.where(off, 0, v))
    if not drops:
        return v, drops
    pairs = zip(drops, layout.drops(v), rising, strict=True)
    return v, [torch.where(beside(z, d), now.to(d.dtype), d) for d, now, z in pairs]
