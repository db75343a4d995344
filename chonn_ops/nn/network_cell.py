"""The network cell: Kirchhoff's current law at every node of the grid."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops import _ends
from chonn_ops.network._conductance import blended_edges, end_walls, wall_leak
from chonn_ops.network.api import solve_checked
from chonn_ops.nn._checks import GRID, check_choice, check_least, check_shape
from chonn_ops.nn._geometry import (
    CELL_ENDS,
    NODES,
    between_existing,
    check_geometry,
    existing,
    steps_between_walls,
)
from chonn_ops.nn._linear import PositionLinear
from chonn_ops.nn._recompute import recomputed

# Arguments of softplus: conductivities of 0.3 to 3, leaks of 0.05.
_CONDUCTIVITY_SPAN = (-1.0, 3.0)
_LEAK = -3.0
_COEFFICIENT_SCALE = 0.3
# log of a length: 0.3 % of the unit box.
_WALL = -3.0


class NetworkCell(nn.Module):
    r"""Resistor networks on the grid, one a channel, made of the features and solved exactly.

    At every node p with neighbours q::

        k, l = softplus(W_k SiLU(u) + b_k), softplus(W_l SiLU(u) + b_l);  s = W_s u + b_s
        sum_q g_pq (v_p - v_q) + l_p V v_p = s_p V / 10

    where g is a mean of both nodes' conductivities k times face area over distance, and V the
    volume of a node's cell: the finite volumes of :math:`-\nabla\cdot(k\nabla v) + l v = s` (see
    `chonn_ops.edge_conductance`). Each network learns its mean, between the harmonic (k jumps at
    the face) and the arithmetic one (k of many finite-difference codes, whose data are learned).
    So the cell belongs to a domain and not to a grid: on a finer one its output converges with the
    second order of the spacing. The matrix is an M-matrix whatever u is:
    :math:`|v| \le \max|s| / \min l`.

    A cell is solved to `tol`, with one more solve for the gradient. What it starts as:
    conductivities spread over a decade from network to network, leaks that screen potentials over
    a fifth to a half of the domain, walls about as good as a short.

    Parameters
    ----------
    dim : int
        Channels D of the features.
    networks : int
        Networks m.
    spatial_dims : {1, 2, 3}
        Axes of the grid.
    ends : {"wall", "open", "short", "ring", "matched"} or a sequence of them, one an axis
        What the ends of an axis are: a wall, ground at a learned distance behind the end (near:
        Dirichlet, far: Neumann; in between the domain is that much larger), or see
        `chonn_ops.kirchhoff_network`. With a mask the faces towards missing nodes are what the
        ends of their axis are, but never "ring" or "matched": "open" then.
    nodes : {"centres", "left", "corners"}
        Where n nodes of an axis lie in its unit, i = 0..n-1: at (i + 1/2) / n, i / n or
        i / (n - 1). Tells default spacings, and walls their distance.
    selective : bool
        Whether conductivity and leak depend on the features; else each network has one of each.
    tol : float
        Relative residual at which the solve stops.

    Raises
    ------
    ValueError
        For sizes below 1, unknown ends or a `tol` not between 0 and 1.

    References
    ----------
    C.-W. Ho, A. Ruehli, P. Brennan, "The modified nodal approach to network analysis", IEEE Trans.
    Circuits and Systems 22 (1975). The cell is this package's own; it takes the scan's place in
    the CHONN paper's block.

    Examples
    --------
    >>> cell = NetworkCell(24, networks=8)
    >>> cell(torch.randn(4, 32, 32, 24)).shape
    torch.Size([4, 32, 32, 8])
    """

    def __init__(
        self,
        dim: int,
        networks: int = 8,
        spatial_dims: int = 2,
        *,
        ends: str | tuple[str, ...] = "wall",
        nodes: str = "centres",
        selective: bool = True,
        tol: float = 1e-3,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_least(1, dim=dim, networks=networks)
        if spatial_dims not in (1, 2, 3):
            raise ValueError(f"spatial_dims: expected 1, 2 or 3, got {spatial_dims!r}")
        if not 0 < tol < 1:
            raise ValueError(f"tol: expected above 0 and below 1, got {tol}")
        self.dim, self.networks, self.spatial_dims = dim, networks, spatial_dims
        self.ends = list(_ends.of_axes(ends, spatial_dims, CELL_ENDS))
        self.place(nodes)
        self.selective, self.tol = selective, tol
        # Attributes, since TorchScript knows no globals. Conductivities and leaks below the floor
        # would only make the solve harder. The unit box is 16 units of length of the networks, in
        # which the initial numbers start well, but for sources, which would make potentials of
        # order 10: with the gain they start at order 1, which halved the error on Poisson.
        self._floor, self._unit, self._gain, self._max_iterations = 1e-3, 16.0, 0.1, 100
        self._mean_gain = 8.0
        factory = {"device": device, "dtype": dtype}
        self.source_proj = PositionLinear(dim, networks, **factory)
        # Conductivities, then leaks; the bias alone where they are the same everywhere.
        self.coefficient_proj = (
            PositionLinear(dim, 2 * networks, bias=False, **factory) if selective else None
        )
        self.coefficient_bias = nn.Parameter(torch.empty(2 * networks, **factory))
        # logit of the arithmetic mean's part in the conductivity of a face, over the gain: one
        # number that the whole field wants elsewhere must travel further than a weight. Where the
        # conductivity is the same everywhere, so are all its means.
        self.mean_param = nn.Parameter(torch.empty(networks, **factory)) if selective else None
        # log of the walls' distance behind the ends, the same for all of them.
        self.wall_param = (
            nn.Parameter(torch.empty(networks, **factory)) if "wall" in self.ends else None
        )
        self.reset_parameters()

    def place(self, nodes: str) -> None:
        """Say where the nodes lie, as the constructor's `nodes`; ValueError for another word."""
        check_choice("nodes", nodes, NODES)
        self.nodes, self._distances = nodes, NODES[nodes]

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw fresh initial parameters."""
        m = self.networks
        nn.init.normal_(self.source_proj.weight, std=self.dim**-0.5)
        nn.init.zeros_(self.source_proj.bias)
        if self.coefficient_proj is not None:
            nn.init.normal_(self.coefficient_proj.weight, std=_COEFFICIENT_SCALE * self.dim**-0.5)
        self.coefficient_bias[:m] = torch.linspace(*_CONDUCTIVITY_SPAN, m)
        self.coefficient_bias[m:] = _LEAK
        if self.mean_param is not None:
            nn.init.zeros_(self.mean_param)
        if self.wall_param is not None:
            nn.init.constant_(self.wall_param, _WALL)

    def coefficients(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What the features make of the networks, in float32 at least.

        Parameters
        ----------
        u : Tensor, shape (B, \\*grid, D)

        Returns
        -------
        conductivity : Tensor, shape (B, \\*grid, m)
            > 0, a length being a sixteenth of the domain's unit.
        leak, source : Tensor, shape (B, \\*grid, m)
            Densities: of a cell of unit volume; the leak > 0.
        """
        source = self.source_proj(u)
        wide = torch.promote_types(source.dtype, torch.float32)
        raw = self.coefficient_bias.to(wide)
        if self.coefficient_proj is not None:
            raw = raw + self.coefficient_proj(F.silu(u))
        rates = F.softplus(raw) + self._floor
        conductivity, leak = rates.expand(u.shape[:-1] + raw.shape[-1:]).chunk(2, dim=-1)
        return conductivity, leak, source.to(wide)

    def forward(
        self, u: Tensor, spacing: list[float] | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Solve the networks of a channels-last field.

        Parameters
        ----------
        u : Tensor, shape (B, \\*grid, D)
        spacing : sequence of float, one an axis, optional
            Distance of the nodes. Default: that of the unit box.
        mask : Tensor of bool, shape (\\*grid) or (B, \\*grid), optional
            Which nodes exist; the others have potential 0, and nothing flows to them.

        Returns
        -------
        Tensor, shape (B, \\*grid, m)
            Potentials, in float32 at least.

        Raises
        ------
        ValueError
            If shape, spacing or mask do not fit.
        """
        if not torch.jit.is_scripting():
            self._check(u, spacing, mask)
        source, edges, leak = self._network(u, self._steps(u, spacing), mask)
        return solve_checked(
            source, edges, leak, self._operator_ends(), None, self.tol, self._max_iterations, None
        )[0]

    def _steps(self, u: Tensor, spacing: list[float] | None) -> list[float]:
        """Distance of the nodes in the unit of the networks."""
        if spacing is None:
            spacing = [1.0 / steps_between_walls(n, self._distances) for n in u.shape[1:-1]]
        return [self._unit * step for step in spacing]

    def _network(
        self, u: Tensor, steps: list[float], mask: Tensor | None
    ) -> tuple[Tensor, list[Tensor], Tensor]:
        """Source, edges and leak of the networks, walls included."""
        conductivity, leak, source = self.coefficients(u)
        volume = 1.0
        for step in steps:
            volume *= step
        leak, source = leak * volume, source * (self._gain * volume)
        edges = self.edges(conductivity, steps)
        closed = [end in ("wall", "short") for end in self.ends]
        if any(closed):
            margins = self._margins(conductivity)
            leak = leak + end_walls(conductivity, steps, closed, margins, self._distances)
        if mask is not None:
            if torch.jit.is_scripting():
                raise ValueError("mask: expected None in TorchScript")
            else:
                exists = existing(mask, conductivity)
                source, leak = torch.where(exists, source, 0), torch.where(exists, leak, 0)
                edges = between_existing(edges, exists)
                if any(closed):  # the faces towards missing nodes are half a step away
                    words = ["ring" if end == "ring" else "open" for end in self.ends]
                    margin = self._margins(conductivity)
                    walls = wall_leak(conductivity, steps, mask=exists, ends=words, margin=margin)
                    leak = leak + walls
        return source, edges, leak

    def edges(self, conductivity: Tensor, spacing: list[float]) -> list[Tensor]:
        """What the edges between the nodes conduct, one tensor an axis, as `edge_conductance`.

        Parameters
        ----------
        conductivity : Tensor, shape (B, \\*grid, m)
            Above 0.
        spacing : list of float, one an axis
            Distance of the nodes, the domain's unit being 16.

        Returns
        -------
        list of Tensor, shape (B, \\*grid, m)
        """
        ring = [end == "ring" for end in self.ends]
        arithmetic = torch.zeros(
            self.networks, dtype=conductivity.dtype, device=conductivity.device
        )
        if self.mean_param is not None:
            arithmetic = torch.sigmoid(self._mean_gain * self.mean_param.to(conductivity.dtype))
        if torch.jit.is_scripting():
            return blended_edges(conductivity, spacing, ring, arithmetic)
        else:
            return recomputed(blended_edges, conductivity, spacing, ring, arithmetic)

    def _operator_ends(self) -> list[str]:
        """The ends that are left to the operator. Its own "short" takes the edge next to an end for
        the conductivity there; finite volumes take the node's, and a mask may have cut the edge."""
        return ["open" if end in ("wall", "short") else end for end in self.ends]

    def _margins(self, like: Tensor) -> Tensor:
        """How far behind the ends of each axis ground is, (axes, m): 0 for shorts, infinite where
        there is no wall."""
        short = torch.zeros(self.networks, dtype=like.dtype, device=like.device)
        margins = {"short": short}
        if self.wall_param is not None:
            margins["wall"] = torch.exp(self.wall_param.to(like.dtype))
        none = torch.full_like(short, float("inf"))
        return torch.stack([margins.get(end, none) for end in self.ends])

    def _check(self, u: Tensor, spacing: list[float] | None, mask: Tensor | None) -> None:
        check_shape("u", u, "B", *GRID[: self.spatial_dims], self.dim)
        check_geometry(u.shape[:-1], spacing, mask)

    def extra_repr(self) -> str:
        return (
            f"dim={self.dim}, networks={self.networks}, spatial_dims={self.spatial_dims}, "
            f"ends={tuple(self.ends)}, nodes={self.nodes!r}, selective={self.selective}, "
            f"tol={self.tol:g}"
        )


def place_nodes(module: nn.Module, nodes: str) -> None:
    """`NetworkCell.place` of every network cell in a module."""
    for cell in module.modules():
        if isinstance(cell, NetworkCell):
            cell.place(nodes)
