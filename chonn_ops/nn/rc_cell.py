"""The RC network cell: a network cell that remembers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from chonn_ops.network.in_time.rc import METHODS, rc_step
from chonn_ops.nn._checks import check_choice
from chonn_ops.nn._geometry import existing
from chonn_ops.nn._in_time import CellOptions, NetworkInTime, check_state

if TYPE_CHECKING:
    from typing_extensions import Unpack


class RCNetworkCell(NetworkInTime[Tensor]):
    r"""`NetworkCell` in time: its networks with a capacitor at every node, which keep a state.

    In every step of length dt, with conductivities, leaks and sources made of the features of that
    step as in `NetworkCell`, and a learned capacity c > 0 a network::

        c V (v'_p - v_p) / dt + sum_q g_pq (v'_p - v'_q) + l_p V v'_p = s_p V / 10

    The finite volumes of :math:`c \dot v - \nabla\cdot(k \nabla v) + l v = s`, stable for any dt:
    see `chonn_ops.rc_step`. Whatever the features do to conductivities and leaks adds no energy:
    without sources every rollout comes to rest. The state is the potentials, (B, \*grid, m), in
    float32 at least.

    Parameters
    ----------
    dim, networks, spatial_dims, ends, nodes, selective, tol, device, dtype
        As in `NetworkCell`.
    method : {"euler", "midpoint"}
        The rule of the step, see `chonn_ops.rc_step`.

    Raises
    ------
    ValueError
        As `NetworkCell`; also for an unknown `method`.

    Examples
    --------
    >>> cell = RCNetworkCell(24, networks=8)
    >>> cell(torch.randn(4, 10, 32, 32, 24)).shape  # a sequence of 10
    torch.Size([4, 10, 32, 32, 8])
    >>> v, state = cell.step(torch.randn(4, 32, 32, 24))  # the same, a step at a time
    """

    def __init__(
        self,
        dim: int,
        networks: int = 8,
        spatial_dims: int = 2,
        *,
        method: str = "euler",
        **options: Unpack[CellOptions],
    ) -> None:
        check_choice("method", method, METHODS)
        super().__init__(dim, networks, spatial_dims, **options)
        self.method = method

    def _step(
        self, u: Tensor, state: Tensor | None, dt: float, steps: list[float], mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        source, edges, leak = self._network(u, steps, mask)
        if state is None:
            state = torch.zeros_like(source)
        check_state("state", state, source)
        storage = (self.capacitance * math.prod(steps)).expand(source.shape)
        if mask is not None:
            exists = existing(mask, source)
            state, storage = torch.where(exists, state, 0), torch.where(exists, storage, 0)
        v = rc_step(
            state,
            edges,
            leak,
            storage,
            dt,
            source,
            method=self.method,
            ends=self._operator_ends(),
            tol=self.tol,
            max_iterations=self._max_iterations,
        )
        return v, v

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, method={self.method!r}"
