"""Derivatives made of potentials whose differences have digits, see `chonn_ops.network.levels`.

`network` is what the operator takes behind the source: g0, g1 and g2, None where there is no such
axis, the leak, and its options from `periodic` to `method`. Sources may be (B, \\*grid, C) or, of
networks (B, \\*grid, C), (B, S, \\*grid, C): S sources share one elimination.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

NAME = "chonn_ops::network_potentials"


def potentials(
    source: Tensor, currents: Tensor | None, network: tuple[Any, ...]
) -> tuple[Tensor, Tensor]:
    """Potentials, and behind a last dimension for the axes each node's potential less the next
    one's, 0 where no edge is; in float64 or complex128. `currents`, of the shape of the latter, run
    from each node to the next."""
    return torch.ops.chonn_ops.network_potentials(source, currents, *network)


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
