r"""Potentials that feed no power, where a solve did not get where it should.

The energy of a step changes by what is dissipated and by v . r, r being what the solve leaves of
the source. Where conjugate gradients converge, r is orthogonal to v. Where they do not, for lack of
iterations or digits, the multiple of v that has an orthogonal r is taken:
:math:`v\,(s \cdot v) / (v \cdot A v)`, which is v itself for exact potentials. So its derivative
there is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from chonn_ops.network._checks import traced
from chonn_ops.network._edges import used_edges


def passive(
    v: Tensor,
    source: Tensor,
    conductance: Sequence[Tensor],
    leak: Tensor,
    ring: Sequence[bool],
    late: Tensor,
) -> Tensor:
    """Potentials (B, \\*grid, C), those of networks that are `late`, (B, C), made passive.

    The leak with what the ends add. A solve that has found no numbers has found nothing: 0.
    """
    if not traced(v) and not late.any():
        return v
    with torch.no_grad():
        dims = tuple(range(1, v.dim() - 1))
        x = torch.where(v.isfinite(), v, 0)
        largest = x.abs().amax(dims, keepdim=True)
        x = torch.where(largest > 0, x / largest, 0)  # or their squares might not be finite
        power, fed = (leak * x.square()).sum(dims, True), (source * x).sum(dims, True)
        for axis, (g, closed) in enumerate(zip(conductance, ring, strict=True)):
            drop = used_edges(x - x.roll(-1, axis + 1), axis, closed)
            power = power + (used_edges(g, axis, closed) * drop.square()).sum(dims, True)
        share = torch.where(power > 0, fed / power, 0)
        known = torch.where(v.isfinite() & (largest > 0), share / largest, 0)
        late = late.reshape(share.shape)
    return torch.where(late, torch.where(known == 0, 0, v) * known, v)
