"""The network cell: Kirchhoff's current law at every node of a grid or graph."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops._dtypes import at_least_float32
from chonn_ops.boundary import (
    CELL_CONDITIONS,
    Dirichlet,
    NamedWords,
    Neumann,
    named_words,
    per_axis,
)
from chonn_ops.checks import (
    GRID_AXES,
    as_field,
    check_bool,
    check_choice,
    check_integer,
    check_open_unit_interval,
    error,
)
from chonn_ops.network.circuit import Circuit
from chonn_ops.network.discretise.grids import Spacing, blended_edges, circuit_of, edges_within
from chonn_ops.network.discretise.volumes import FiniteVolumes
from chonn_ops.network.solve.methods import Auto
from chonn_ops.nn.geometry import (
    Nodes,
    check_volumes,
    checked_nodes,
    distances_of,
    existing,
    spacing_and_nodes,
    wall_distances,
)
from chonn_ops.nn.layers import Stated

# The unit of length of the networks is a sixteenth of the domain's: there the initial numbers below
# start well, except for the sources, which would make potentials of order 10. With this gain the
# potentials start at order 1, which halved the error on Poisson's equation.
UNIT = 16.0
SOURCE_GAIN = 0.1
# Initial logarithms of the conductivities, from network to network.
CONDUCTIVITY_SPAN = (-1.0, 3.0)
# Logarithms of conductivities stay between -8 and 8: a contrast of 10^7 within a network, and no
# overflow for inputs that training has not seen.
LARGEST_LOG = 8.0
# Initial leaks. A network with walls hardly leaks, so that a leak cannot stand in for a
# conductance: the potential of a conductor that touches no wall depends on the difference. Without
# walls the leak alone bounds the mean potential.
LEAK, LEAK_WITHOUT_WALLS = 1e-3, 0.05
# Initial logarithm of the distance of a "robin" wall: 0.3 % of the unit box.
WALL = -3.0
# The weight of the arithmetic mean and the distance of the walls are one number for the whole
# field, which has to move further than a weight: they are stored divided by these gains.
MEAN_GAIN, WALL_GAIN = 8.0, 4.0


@dataclasses.dataclass(frozen=True)
class Network:
    """Options of a `NetworkCell`.

    Parameters
    ----------
    num_networks : int
        Networks m.
    nodes : {"centres", "left", "corners"} or pairs of float
        Where the n nodes of an axis lie in its unit, i = 0..n-1: at (i + 1/2) / n, i / n or
        i / (n - 1). Or the steps from the low wall to the first node and from the last node to the
        high wall, which these words stand for, (0.5, 0.5), (0, 1) and (0, 0): one pair, or one an
        axis. It sets the default spacing and the distance of the walls, so it has to be that of the
        data: weights adapt to another one on the grid of their training, and are wrong on every
        other grid.
    selective : bool
        Whether conductivities depend on the features; otherwise each network has one (ablation).
    tol : float
        Where iterations stop, as in `chonn_ops.Iterative`.

    Raises
    ------
    ValueError
        For a size below 1, an unknown word, or a `tol` that is not between 0 and 1.
    """

    num_networks: int = 8
    nodes: Any = "centres"
    selective: bool = True
    tol: float = 1e-3

    name: ClassVar[str] = "network"
    # A block with these cells has these defaults.
    block_defaults: ClassVar[Mapping[str, Any]] = {"order": 1, "norm": "none", "boundary": "robin"}

    def __post_init__(self) -> None:
        check_integer(1, num_networks=self.num_networks)
        object.__setattr__(self, "nodes", checked_nodes(self.nodes))
        check_bool(selective=self.selective)
        check_open_unit_interval(tol=self.tol)

    def check_boundary(self, boundary: Any) -> str | tuple[str, ...] | NamedWords:
        """The boundary as a value that can be hashed; ValueError for an unknown one."""
        if named := named_words(boundary):
            return named
        words = per_axis(boundary, None)
        return words[0] if isinstance(boundary, str) else words

    def num_outputs(self, inputs: int) -> int:  # noqa: ARG002 - a scan's depend on them
        """Channels that a cell returns."""
        return self.num_networks

    def build(self, dim: int, axes: int, boundary: Any, order: int, factory: dict) -> NetworkCell:
        """A cell of a block of this order."""
        del order
        return NetworkCell(dim, axes, self, boundary=boundary, **factory)


class NetworkCell(Stated):
    r"""Resistor networks on a grid or graph, whose conductances the features set.

    At every node p with neighbours q::

        log k = 8 tanh((W_k SiLU(u) + b_k) / 8);  s = W_s u + b_s
        sum_q g_pq (v_p - v_q) + l V v_p = s_p V / 10

    where g is a mean of both nodes' conductivities k times face area over distance, V the volume of
    a node's cell and l the leak, one number a network: the finite volumes of
    :math:`-\nabla\cdot(k\nabla v) + l v = s` (see `chonn_ops.diffusion`; on a graph those of
    `chonn_ops.FiniteVolumes`). Features set the logarithm of k, whose contrast is up to 10^7. Each
    network learns its mean, between the harmonic mean (k jumps at the face) and the arithmetic one
    (the k of many finite-difference codes). So a trained cell belongs to a domain and not to a
    grid: on finer grids its output converges, with nodes at "centres" and "neumann", "dirichlet" or
    "periodic" faces with the second order of the spacing. Other faces take k from the node beside
    them, and other `nodes` give a node on a "neumann" wall the volume of a whole cell: both are of
    first order. The matrix is an M-matrix whatever u is: :math:`|v| \le \max |s| / l`.

    The forward pass solves to the tolerance `Network.tol`; the backward pass solves once more. At
    the start, median conductivities spread over two decades from network to network, leaks are
    small, and "robin" walls are close to "dirichlet".

    Parameters
    ----------
    dim : int
        Channels D of the features.
    spatial_dims : {1, 2, 3}
        Axes of the grid.
    options : Network
    boundary : {"robin", "neumann", "dirichlet", "periodic", "matched"}, a sequence or a mapping
        One word, or one an axis; on a graph one word, or one for each name of
        `FiniteVolumes.sets`: walls of no set are insulated. "robin" is a wall at potential 0 at a
        learned distance behind the face (near: Dirichlet, far: Neumann); the others are those of
        `chonn_ops.diffusion`.
        With a mask, faces towards missing nodes get the boundary of their axis, but "neumann" where
        that is "periodic" or "matched".

    Raises
    ------
    ValueError
        For sizes below 1 or an unknown boundary.

    References
    ----------
    C.-W. Ho, A. Ruehli, P. Brennan, "The modified nodal approach to network analysis", IEEE Trans.
    Circuits and Systems 22 (1975). The cell is this package's own; it takes the scan's place in
    the CHONN paper's block.

    Examples
    --------
    >>> import torch
    >>> from chonn_ops.nn import Network, NetworkCell
    >>> cell = NetworkCell(24, 2, Network(num_networks=8))
    >>> cell(torch.randn(4, 32, 32, 24)).shape
    torch.Size([4, 32, 32, 8])
    """

    def __init__(
        self,
        dim: int,
        spatial_dims: int = 2,
        options: Network = Network(),
        *,
        boundary: Any = Network.block_defaults["boundary"],
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_integer(1, dim=dim)
        check_choice("spatial_dims", spatial_dims, (1, 2, 3))
        if not isinstance(options, Network):
            raise error("options", "Network(...)", repr(options))
        self.dim, self.spatial_dims, self.options = dim, spatial_dims, options
        self.boundary = named_words(boundary) or per_axis(boundary, spatial_dims)
        words = self.boundary
        words = tuple(words.values()) if isinstance(words, NamedWords) else words
        factory = {"device": device, "dtype": dtype}
        m = options.num_networks
        self.source_proj = nn.Linear(dim, m, **factory)
        # The bias alone where the conductivities do not depend on the features.
        self.conductivity_proj = (
            nn.Linear(dim, m, bias=False, **factory) if options.selective else None
        )
        self.conductivity_bias = nn.Parameter(torch.empty(m, **factory))
        self.leak_param = nn.Parameter(torch.empty(m, **factory))  # logarithms
        # Logit of the weight of the arithmetic mean, over its gain. All means of a constant
        # conductivity are the same.
        self.mean_param = nn.Parameter(torch.empty(m, **factory)) if options.selective else None
        # Logarithm of the distance of the walls over its gain, the same for all faces.
        self.wall_param = nn.Parameter(torch.empty(m, **factory)) if "robin" in words else None
        self._walled = any(CELL_CONDITIONS[word].grounded for word in words)
        self.reset_parameters()

    def stated(self) -> Mapping[str, Any]:
        """See `Stated`."""
        nodes = distances_of(self.options.nodes, self.spatial_dims)
        return {"boundary": self.boundary, "nodes": nodes}

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw fresh initial parameters."""
        m = self.options.num_networks
        nn.init.normal_(self.source_proj.weight, std=self.dim**-0.5)
        nn.init.zeros_(self.source_proj.bias)
        if self.conductivity_proj is not None:
            nn.init.normal_(self.conductivity_proj.weight, std=self.dim**-0.5)
        self.conductivity_bias.copy_(torch.linspace(*CONDUCTIVITY_SPAN, m))
        leak = LEAK if self._walled else LEAK_WITHOUT_WALLS
        nn.init.constant_(self.leak_param, math.log(leak))
        if self.mean_param is not None:
            nn.init.zeros_(self.mean_param)
        if self.wall_param is not None:
            nn.init.constant_(self.wall_param, WALL / WALL_GAIN)

    def coefficients(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Coefficients that the features set, in float32 at least.

        Parameters
        ----------
        u : Tensor, shape (B, \\*grid, D)

        Returns
        -------
        conductivity : Tensor, shape (B, \\*grid, m)
            Above 0; the unit of length is a sixteenth of the domain's.
        leak, source : Tensor, shape (B, \\*grid, m)
            Per unit volume. The leak is above 0 and the same at all nodes.
        """
        source = at_least_float32(self.source_proj(u))
        wide = source.dtype
        log_k = self.conductivity_bias.to(wide)
        if self.conductivity_proj is not None:
            log_k = log_k + self.conductivity_proj(F.silu(u))
        conductivity = torch.exp(LARGEST_LOG * torch.tanh(log_k / LARGEST_LOG))
        leak = torch.exp(self.leak_param.to(wide))
        shape = (*u.shape[:-1], self.options.num_networks)
        return conductivity.expand(shape), leak.expand(shape), source

    def forward(
        self,
        u: Tensor,
        spacing: Spacing | None = None,
        mask: Tensor | None = None,
        nodes: Nodes | None = None,
        volumes: FiniteVolumes | None = None,
    ) -> Tensor:
        """Solve the networks of a field.

        Parameters
        ----------
        u : Tensor, shape (B, \\*grid, D)
        spacing : float or sequence of float, one an axis, optional
            Distance of the nodes in the unit of the domain. Default: cells are square, and the mean
            of the domain's lengths is 1.
        mask : Tensor of bool, shape (\\*grid) or (B, \\*grid), optional
            Which nodes exist; the others have potential 0, and nothing flows to them.
        nodes : {"centres", "left", "corners"} or pairs of float, optional
            Where the nodes lie, see `Network`. Default: the option.
        volumes : FiniteVolumes, optional
            A graph with the geometry of its nodes, in the unit of the domain, instead of a grid and
            all of the above; \\*grid is N then. The boundary has to be one word or a mapping.

        Returns
        -------
        Tensor, shape (B, \\*grid, m)
            Potentials, in float32 at least.

        Raises
        ------
        ValueError
            If the shape or the geometry does not fit.
        """
        circuit, source = self.assemble(u, spacing, mask, nodes, volumes)
        return circuit.solve(source, Auto(self.options.tol))

    def assemble(
        self,
        u: Tensor,
        spacing: Spacing | None = None,
        mask: Tensor | None = None,
        nodes: Nodes | None = None,
        volumes: FiniteVolumes | None = None,
    ) -> tuple[Circuit, Tensor]:
        """The circuits that `forward` solves, whose arguments these are, and their sources
        (B, \\*grid, m) per unit volume."""
        axes = self.spatial_dims
        grid: Sequence[str | int] = GRID_AXES[:axes]
        if volumes is not None:
            grid = [check_volumes(volumes, axes, spacing, mask, nodes)]
        u = as_field("u", u, self.parameters(), "B", *grid, self.dim)
        conductivity, leak, source = self.coefficients(u)
        source = SOURCE_GAIN * source
        dtype = conductivity.dtype
        steps, distances, boundary = [], (), self.boundary
        if volumes is None:
            if isinstance(boundary, NamedWords):
                raise error("boundary", "words for the axes of a grid", boundary)
            spacing, nodes = spacing_and_nodes(
                u.shape[:-1], 1.0, self.options.nodes, spacing, mask, nodes
            )
            steps, distances = [UNIT * step for step in spacing], wall_distances(nodes)
        arithmetic = conductivity.new_zeros(self.options.num_networks)
        if self.mean_param is not None:
            arithmetic = torch.sigmoid(MEAN_GAIN * self.mean_param.to(dtype))
        known = dict(CELL_CONDITIONS)
        if self.wall_param is not None:
            distance = torch.exp(WALL_GAIN * self.wall_param.to(dtype))
            known["robin"] = Dirichlet(0.0, distance)
        if volumes is not None:
            words = boundary if isinstance(boundary, NamedWords) else {"boundary": boundary[0]}
            if words is not boundary and len(set(boundary)) > 1:
                raise error("boundary", "one word on a graph, or one a set of walls", boundary)
            walls = {name: known[word] for name, word in words.items()}
            return volumes.circuit(conductivity, leak, walls, arithmetic, UNIT), source
        faces = tuple((known[word], known[word]) for word in boundary)
        leak = leak * math.prod(steps)
        edges = blended_edges(conductivity, steps, arithmetic)
        exists = inner = None
        if mask is not None:
            exists = existing(mask, axes)
            source, leak = torch.where(exists, source, 0), torch.where(exists, leak, 0)
            edges = edges_within(edges, exists)
            # A medium does not go on behind a hole, and a hole joins no faces.
            hard = (Neumann(), Neumann())
            inner = tuple(pair if pair[0].inner else hard for pair in faces)
            conductivity = torch.where(exists, conductivity, 0)
        place: Any = {"exists": exists, "inner": inner, "distances": distances}
        return circuit_of(conductivity, edges, leak, steps, faces, **place), source

    def extra_repr(self) -> str:
        return (
            f"dim={self.dim}, spatial_dims={self.spatial_dims}, {self.options}, "
            f"boundary={self.boundary}"
        )
