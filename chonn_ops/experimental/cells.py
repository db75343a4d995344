"""Network cells with a state: RC networks for diffusion and LC networks for waves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, TypedDict, TypeVar, cast

import torch
from torch import Tensor, nn

from chonn_ops.checks import check_choice
from chonn_ops.network.conductance import Spacing
from chonn_ops.network.lc import LCState, inductance_of, lc_step, zero_current
from chonn_ops.network.rc import METHODS, rc_step
from chonn_ops.nn.geometry import Nodes, between_existing, existing, wall_distances
from chonn_ops.nn.network_cell import (
    MAX_ITERATIONS,
    SOURCE_GAIN,
    UNIT,
    Network,
    NetworkCell,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack


_State = TypeVar("_State")


class _CellKeywords(TypedDict, total=False):
    """The keywords of `NetworkCell`."""

    boundary: str | Sequence[str]
    device: torch.device | str | None
    dtype: torch.dtype | None


class _NetworkInTime(NetworkCell, Generic[_State]):
    """A network cell with a capacitor at every node; subclasses implement `_step`."""

    def __init__(
        self,
        dim: int,
        spatial_dims: int = 2,
        options: Network = Network(),  # noqa: B008 - immutable
        **keywords: Unpack[_CellKeywords],
    ) -> None:
        super().__init__(dim, spatial_dims, options, **keywords)
        # The log of the capacities. At 0 a step of 1 diffuses over sqrt(k) / 16 of the domain.
        self.capacitance_param = nn.Parameter(torch.zeros_like(self.leak_param))

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Sample new initial parameters."""
        super().reset_parameters()
        if hasattr(self, "capacitance_param"):  # not yet in the constructor of NetworkCell
            nn.init.zeros_(self.capacitance_param)

    @property
    def capacitance(self) -> Tensor:
        """Capacity per unit volume > 0, shape (m,), in float32 at least."""
        wide = torch.promote_types(self.capacitance_param.dtype, torch.float32)
        return torch.exp(self.capacitance_param.to(wide))

    def forward(
        self,
        u: Tensor,
        spacing: Spacing | None = None,
        mask: Tensor | None = None,
        nodes: Nodes | None = None,
        state: _State | None = None,
        dt: float = 1.0,
    ) -> Tensor:
        """Step through a sequence of channels-last fields.

        Parameters
        ----------
        u : Tensor, shape (B, T, \\*grid, D)
        spacing, mask, nodes
            As in `NetworkCell`.
        state : optional
            State before the first step; rest if absent.
        dt : float
            Length of each step > 0.

        Returns
        -------
        Tensor, shape (B, T, \\*grid, m)
            Potentials after each step, in float32 at least, equal to those of `step`.

        Raises
        ------
        ValueError
            If a shape, the spacing, the mask or dt does not fit.
        """
        return self.advance(u, state, dt=dt, spacing=spacing, mask=mask, nodes=nodes)[0]

    def advance(
        self,
        u: Tensor,
        state: _State | None = None,
        *,
        dt: float = 1.0,
        spacing: Spacing | None = None,
        mask: Tensor | None = None,
        nodes: Nodes | None = None,
    ) -> tuple[Tensor, _State]:
        """Step through a part of a sequence, from the state after the previous part.

        Returns
        -------
        v : Tensor, shape (B, T, \\*grid, m)
        state
            After the last step.
        """
        axes = self.spatial_dims
        if u.dim() != axes + 3 or u.shape[-1] != self.dim or not u.shape[1]:
            grid = ", ".join(("H", "W", "D")[:axes])
            raise ValueError(
                f"u: expected shape (B, T >= 1, {grid}, {self.dim}), got {tuple(u.shape)}"
            )
        found = []
        for now in u.unbind(1):
            v, state = self.step(now, state, dt=dt, spacing=spacing, mask=mask, nodes=nodes)
            found.append(v)
        return torch.stack(found, 1), cast("_State", state)

    def step(
        self,
        u: Tensor,
        state: _State | None = None,
        *,
        dt: float = 1.0,
        spacing: Spacing | None = None,
        mask: Tensor | None = None,
        nodes: Nodes | None = None,
    ) -> tuple[Tensor, _State]:
        """Advance by one step.

        Parameters
        ----------
        u : Tensor, shape (B, \\*grid, D)
        state : optional
            Before the step; rest if absent.
        dt : float
            Length of the step > 0.
        spacing, mask, nodes
            As in `NetworkCell`.

        Returns
        -------
        v : Tensor, shape (B, \\*grid, m)
            Potentials after the step, in float32 at least.
        state
            After the step.

        Raises
        ------
        ValueError
            If a shape, the spacing, the mask or dt does not fit.
        """
        spacing, nodes = self.check(u, spacing, mask, nodes)
        return self._step(u, state, dt, spacing, mask, nodes)

    def _step(
        self,
        u: Tensor,
        state: _State | None,
        dt: float,
        spacing: list[float],
        mask: Tensor | None,
        nodes: Nodes,
    ) -> tuple[Tensor, _State]:
        """Advance by one step, with checked arguments."""
        raise NotImplementedError


def _check_state(name: str, state: Tensor, like: Tensor) -> None:
    """Require a part of a cell's state to have the shape of another tensor."""
    if state.shape != like.shape:
        raise ValueError(f"{name}: expected shape {tuple(like.shape)}, got {tuple(state.shape)}")


class RCNetworkCell(_NetworkInTime[Tensor]):
    r"""`NetworkCell` with a capacitor at every node, whose potentials are a state.

    The features of each step set its conductivities, leaks and sources as in `NetworkCell`. With a
    learned capacity c > 0 for each network, a step of length dt solves::

        c V (v'_p - v_p) / dt + sum_q g_pq (v'_p - v'_q) + l_p V v'_p = s_p V / 10

    These are the finite volumes of :math:`c \dot v - \nabla\cdot(k \nabla v) + l v = s`, stable for
    any dt; see `chonn_ops.rc_step`. Conductivities and leaks cannot add energy, whatever the
    features, so that without sources every rollout decays. The state is the potentials,
    (B, \*grid, m), in float32 at least.

    Parameters
    ----------
    dim, spatial_dims, options, boundary, device, dtype
        As in `NetworkCell`.
    method : {"euler", "midpoint"}
        The rule of the step, see `chonn_ops.rc_step`.

    Raises
    ------
    ValueError
        As `NetworkCell`; also for an unknown `method`.

    Examples
    --------
    >>> cell = RCNetworkCell(24, 2, Network(num_networks=8))
    >>> cell(torch.randn(4, 10, 32, 32, 24)).shape  # a sequence of 10
    torch.Size([4, 10, 32, 32, 8])
    >>> v, state = cell.step(torch.randn(4, 32, 32, 24))  # one step
    """

    def __init__(
        self,
        dim: int,
        spatial_dims: int = 2,
        options: Network = Network(),  # noqa: B008 - immutable
        *,
        method: str = "euler",
        **keywords: Unpack[_CellKeywords],
    ) -> None:
        check_choice("method", method, METHODS)
        super().__init__(dim, spatial_dims, options, **keywords)
        self.method = method

    def _step(
        self,
        u: Tensor,
        state: Tensor | None,
        dt: float,
        spacing: list[float],
        mask: Tensor | None,
        nodes: Nodes,
    ) -> tuple[Tensor, Tensor]:
        source, edges, leak = self.assemble(u, spacing, mask, nodes)
        if state is None:
            state = torch.zeros_like(source)
        _check_state("state", state, source)
        storage = (self.capacitance * math.prod(UNIT * step for step in spacing)).expand(
            source.shape
        )
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
            boundary=self.faces(),
            tol=self.options.tol,
            max_iterations=MAX_ITERATIONS,
        )
        return v, v

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, method={self.method!r}"


class LCNetworkCell(_NetworkInTime[LCState]):
    r"""`NetworkCell` with coils as edges and a capacitor at every node: waves with a state.

    The features of each step set k, l and s as in `NetworkCell`. With a learned capacity c > 0 for
    each network, a step of length dt applies the implicit midpoint rule to::

        c V dv_p/dt + l_p V v_p = s_p V / 10 - sum_q i_pq,     di_pq/dt = g_pq (v_p - v_q)

    These are the finite volumes of :math:`c \ddot v + l \dot v = \nabla\cdot(k \nabla v) + \dot s`;
    see `chonn_ops.lc_step`. Without sources and with ``damped=False`` constant features conserve
    the energy; leaks reduce it. The state is an `LCState` of potentials (B, \*grid, m) and
    currents.

    Parameters
    ----------
    dim, spatial_dims, options, device, dtype
        As in `NetworkCell`.
    boundary : {"neumann", "dirichlet", "robin", "periodic"} or a sequence of them, one an axis
        "neumann", the default, reflects. "dirichlet" sets v = 0 at the face, "robin" at a learned
        distance behind it. With a mask the faces towards missing nodes are "neumann".
    damped : bool
        Whether the networks have leaks.

    Raises
    ------
    ValueError
        As `NetworkCell`; also for the boundary "matched".

    Examples
    --------
    >>> cell = LCNetworkCell(24, 2, Network(num_networks=8), boundary="periodic")
    >>> cell(torch.randn(4, 10, 32, 32, 24)).shape  # a sequence of 10
    torch.Size([4, 10, 32, 32, 8])
    >>> v, state = cell.step(torch.randn(4, 32, 32, 24))  # one step
    """

    def __init__(
        self,
        dim: int,
        spatial_dims: int = 2,
        options: Network = Network(),  # noqa: B008 - immutable
        *,
        damped: bool = True,
        **keywords: Unpack[_CellKeywords],
    ) -> None:
        boundary = keywords.setdefault("boundary", "neumann")
        super().__init__(dim, spatial_dims, options, **keywords)
        if "matched" in self.boundary:
            known = "'neumann', 'dirichlet', 'robin' or 'periodic'"
            raise ValueError(f"boundary: expected {known}, got {boundary!r}")
        self.damped = damped

    def _step(
        self,
        u: Tensor,
        state: LCState | None,
        dt: float,
        spacing: list[float],
        mask: Tensor | None,
        nodes: Nodes,
    ) -> tuple[Tensor, LCState]:
        conductivity, leak, source = self.coefficients(u)
        volume = math.prod(UNIT * step for step in spacing)
        leak, source = leak * volume, source * (SOURCE_GAIN * volume)
        words = ["dirichlet" if word == "robin" else word for word in self.boundary]
        if state is None:
            state = zero_current(torch.zeros_like(source), words)
        _check_state("state.voltage", state.voltage, source)
        exists = None if mask is None else existing(mask, source)
        if exists is not None:
            source = torch.where(exists, source, 0)
            state = LCState(torch.where(exists, state.voltage, 0), state.current)
        state = lc_step(
            state,
            self._inductance(conductivity, spacing, exists, nodes),
            self.capacitance * volume,
            dt,
            source,
            leak=leak if self.damped else None,
            boundary=words,
            tol=self.options.tol,
            max_iterations=MAX_ITERATIONS,
        )
        return state.voltage, state

    def _inductance(
        self, conductivity: Tensor, spacing: list[float], exists: Tensor | None, nodes: Nodes
    ) -> list[Tensor]:
        """1 / g of every edge, infinite beside missing nodes."""
        margins, found = self.margins(conductivity), []
        edges, k = self.edges(conductivity, spacing), conductivity
        steps = [UNIT * step for step in spacing]
        if exists is not None:
            edges, k = between_existing(edges, exists), torch.where(exists, k, 0)
        for axis, (g, step) in enumerate(zip(edges, steps, strict=True)):
            dim, n = axis + 1, g.shape[axis + 1]
            if self.boundary[axis] != "periodic":
                g = g.narrow(dim, 0, n - 1)
            if margins is not None and self.boundary[axis] in ("dirichlet", "robin"):
                area = math.prod(steps) / step
                low, high = (
                    k.narrow(dim, node, 1) * area / (distance * step + margins[axis])
                    for node, distance in zip((0, n - 1), wall_distances(nodes), strict=True)
                )
                g = torch.cat((low, g, high), dim)
            found.append(inductance_of(g))
        return found

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, damped={self.damped}"
