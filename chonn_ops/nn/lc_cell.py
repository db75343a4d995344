"""The LC network cell: waves made of the features."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from chonn_ops.network.in_time.coils import LCState, inductance_of, zero_current
from chonn_ops.network.in_time.lc import lc_step
from chonn_ops.nn._geometry import between_existing, existing
from chonn_ops.nn._in_time import CellOptions, NetworkInTime, check_state

if TYPE_CHECKING:
    from typing_extensions import Unpack


class LCNetworkCell(NetworkInTime[LCState]):
    r"""`NetworkCell` with coils for resistors and a capacitor at every node: waves, with a state.

    In every step of length dt, with k, l and s made of the features of that step as in
    `NetworkCell`, and a learned capacity c > 0 a network, the implicit midpoint rule for::

        c V dv_p/dt + l_p V v_p = s_p V / 10 - sum_q i_pq,     di_pq/dt = g_pq (v_p - v_q)

    The finite volumes of :math:`c \ddot v + l \dot v = \nabla\cdot(k \nabla v) + \dot s`: see
    `chonn_ops.lc_step`. Without sources and with ``damped=False`` the energy stays as long as the
    features do; the leaks take from it. The state is an `LCState`, of potentials (B, \*grid, m) and
    currents.

    Parameters
    ----------
    dim, networks, spatial_dims, nodes, selective, tol, device, dtype
        As in `NetworkCell`.
    ends : {"open", "short", "wall", "ring"} or a sequence of them, one an axis
        "open", the default: a wall that reflects; "short": v = 0 at the end, "wall": at a learned
        distance behind it; "ring": periodic. With a mask the faces towards missing nodes are open.
    damped : bool
        Whether there are leaks.

    Raises
    ------
    ValueError
        As `NetworkCell`; also for the ends "matched".

    Examples
    --------
    >>> cell = LCNetworkCell(24, networks=8, ends="ring")
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
        damped: bool = True,
        **options: Unpack[CellOptions],
    ) -> None:
        ends = options.setdefault("ends", "open")
        super().__init__(dim, networks, spatial_dims, **options)
        if "matched" in self.ends:
            raise ValueError(f"ends: expected 'open', 'short', 'wall' or 'ring', got {ends!r}")
        self.damped = damped

    def _step(
        self, u: Tensor, state: LCState | None, dt: float, steps: list[float], mask: Tensor | None
    ) -> tuple[Tensor, LCState]:
        conductivity, leak, source = self.coefficients(u)
        volume = math.prod(steps)
        leak, source = leak * volume, source * (self._gain * volume)
        ends = ["short" if end == "wall" else end for end in self.ends]
        if state is None:
            state = zero_current(torch.zeros_like(source), ends)
        check_state("state.voltage", state.voltage, source)
        exists = None if mask is None else existing(mask, source)
        if exists is not None:
            source = torch.where(exists, source, 0)
            state = LCState(torch.where(exists, state.voltage, 0), state.current)
        state = lc_step(
            state,
            self._inductance(conductivity, steps, exists),
            self.capacitance * volume,
            dt,
            source,
            leak=leak if self.damped else None,
            ends=ends,
            tol=self.tol,
            max_iterations=self._max_iterations,
        )
        return state.voltage, state

    def _inductance(
        self, conductivity: Tensor, steps: list[float], exists: Tensor | None
    ) -> list[Tensor]:
        """1 / g of every edge, infinite beside missing nodes."""
        margins, found = self._margins(conductivity), []
        edges, k = self.edges(conductivity, steps), conductivity
        if exists is not None:
            edges, k = between_existing(edges, exists), torch.where(exists, k, 0)
        for axis, (g, step) in enumerate(zip(edges, steps, strict=True)):
            dim, n = axis + 1, g.shape[axis + 1]
            if self.ends[axis] != "ring":
                g = g.narrow(dim, 0, n - 1)
            if self.ends[axis] in ("short", "wall"):
                area = math.prod(steps) / step
                low, high = (
                    k.narrow(dim, node, 1) * area / (max(distance, 1e-3) * step + margins[axis])
                    for node, distance in zip((0, n - 1), self._distances, strict=True)
                )
                g = torch.cat((low, g, high), dim)
            found.append(inductance_of(g))
        return found

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, damped={self.damped}"
