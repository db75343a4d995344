"""`Circuit`: nodes, edges, leaks, and what the equation behind them says about sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, overload

import torch
from torch import Tensor

from chonn_ops._dtypes import potential_dtype
from chonn_ops.network.api import Method, NetworkInfo, kirchhoff_network
from chonn_ops.network.checks import (
    NETWORK_DTYPES,
    Periodic,
    check_like,
    check_sources,
    on_graph,
    per_axis_periodic,
)
from chonn_ops.network.edges import backward_error, drops_along, pad, used_edges
from chonn_ops.network.factorization import Factorization, currents_of, uncompiled
from chonn_ops.network.graph import Graph


class Currents(NamedTuple):
    """Where the current of a circuit flows.

    Attributes
    ----------
    edges : tuple of Tensor, shape (B, \\*grid, C), one an axis
        Entry p is the current from node p to the next one along that axis; 0 where no edge is. Of a
        graph one, (B, E, C): the current from each edge's first node to its second.
    walls : Tensor, shape (B, \\*grid, C)
        Current from each node out of the domain, through all of its walls; negative where it comes
        in. Summed over the nodes of a face it is the flow through that face.
    """

    edges: tuple[Tensor, ...]
    walls: Tensor


class Circuit:
    r"""Resistor networks on a grid or a graph, one a batch entry and channel.

    .. math::

        \sum_q g_{pq} (v_p - v_q) + l_p v_p = V f_p + i_p

    `diffusion` makes circuits from an equation. A bare one, ``Circuit(conductance, leak)``, has
    V = 1 and no current i: its sources are the currents into its nodes.

    Parameters
    ----------
    conductance : sequence of Tensor, shape (B, \*grid, C); or Tensor, shape (B, E, C)
        :math:`g_{pq} \ge 0`, one tensor an axis: entry p joins node p and the next one along that
        axis. The last entry along an axis counts where it is periodic only. With a graph one tensor
        with an entry an edge.
    leak : Tensor, shape (B, \*grid, C)
        Conductance :math:`l_p \ge 0` from each node to ground, walls included.
    graph : Graph, optional
        The nodes and edges, instead of a grid. Where this page says (B, \*grid, C), fields of nodes
        are (B, N, C) then.
    periodic : bool or sequence of bool
        Whether an edge joins the last node of an axis and the first: one for all axes, or one each.
    volume : float or Tensor that expands to (\*grid, C)
        V of the cell around each node, which turns a source per unit volume into a current.
    wall : Tensor, shape (B, \*grid, C), optional
        What part of the leak leads through the boundary.
    current : Tensor, shape (B, \*grid, C), optional
        i, what comes in through the boundary: from potentials other than 0 and given fluxes.

    Attributes
    ----------
    conductance : tuple of Tensor
        One an axis; of a graph one.
    periodic : tuple of bool
        One an axis; of a graph the graph alone. The other parameters are attributes as they were
        given.

    Examples
    --------
    Two nodes, 1 ohm between them, 1 ohm from the second to ground, 1 A into the first:

    >>> import torch
    >>> from chonn_ops import Circuit
    >>> field = lambda *values: torch.tensor(values).reshape(1, 2, 1)
    >>> circuit = Circuit((field(1.0, 0.0),), field(0.0, 1.0))
    >>> v = circuit.solve(field(1.0, 0.0))
    >>> v.flatten().tolist()
    [2.0, 1.0]
    >>> circuit.currents(v).edges[0].flatten().tolist()
    [1.0, 0.0]
    """

    def __init__(
        self,
        conductance: Sequence[Tensor] | Tensor,
        leak: Tensor,
        graph: Graph | None = None,
        *,
        periodic: Periodic = False,
        volume: float | Tensor = 1.0,
        wall: Tensor | None = None,
        current: Tensor | None = None,
    ) -> None:
        conductance, periodic = on_graph(conductance, periodic, graph)
        self.conductance, self.leak, self.graph = tuple(conductance), leak, graph
        self.periodic = per_axis_periodic(periodic, len(self.conductance))
        self.volume, self.wall, self.current = volume, wall, current

    def source(self, density: Tensor) -> Tensor:
        """Current into each node for a source f per unit volume: V f + i.

        `density` and the result have the shape (B, \\*grid, C) or (B, S, \\*grid, C). In the
        circuit's precision or wider.
        """
        check_sources("source", density, self.leak, NETWORK_DTYPES)
        return currents_of(density, self.volume, self.current)

    @overload
    def solve(
        self,
        source: Tensor,
        *,
        info: Literal[False] = False,
        tol: float = 1e-5,
        max_iterations: int = 100,
        method: Method = "auto",
        backend: str | None = None,
    ) -> Tensor: ...

    @overload
    def solve(
        self,
        source: Tensor,
        *,
        info: Literal[True],
        tol: float = 1e-5,
        max_iterations: int = 100,
        method: Method = "auto",
        backend: str | None = None,
    ) -> tuple[Tensor, NetworkInfo]: ...

    def solve(
        self,
        source: Tensor,
        *,
        info: bool = False,
        tol: float = 1e-5,
        max_iterations: int = 100,
        method: Method = "auto",
        backend: str | None = None,
    ) -> Tensor | tuple[Tensor, NetworkInfo]:
        """Potentials of all nodes, differentiable: one call of `kirchhoff_network`.

        Parameters
        ----------
        source : Tensor, shape (B, \\*grid, C) or (B, S, \\*grid, C)
            f per unit volume; S sources share one elimination.
        info : bool
            Also return a `NetworkInfo`.
        tol, max_iterations, method, backend
            As in `kirchhoff_network`, as are the errors.

        Returns
        -------
        v : Tensor, shape and dtype of `source`
        info : NetworkInfo
            Only with `info`.
        """
        network = (self.source(source), self.conductance, self.leak)
        options: Any = {"tol": tol, "max_iterations": max_iterations, "method": method}
        options.update(backend=backend)
        if self.graph is None:
            options.update(periodic=self.periodic)
        else:
            network = (network[0], self.conductance[0], self.leak)
            options.update(graph=self.graph)
        if not info:
            v = kirchhoff_network(*network, **options)
            return v.to(potential_dtype(source, v.dtype))
        v, found = kirchhoff_network(*network, return_info=True, **options)
        rounded = v.to(potential_dtype(source, v.dtype))
        if rounded.dtype != v.dtype:
            fields = network[0], self.conductance, self.leak, self.periodic
            error = backward_error(rounded, *fields)
            found = found._replace(backward_error=error)
        return rounded, found

    @uncompiled
    def factorize(self, *, backend: str | None = None) -> Factorization:
        """The circuit, eliminated once, for many sources and more: see `factorize`.

        Its `solve` takes sources as that of the circuit does.
        """
        network = (self.conductance, self.leak, self.periodic)
        return Factorization(*network, backend, self.volume, self.current)

    def currents(self, v: Tensor) -> Currents:
        """Compute where the current flows at the potentials v, (B, \\*grid, C)."""
        check_like("v", v, self.leak, "the circuit", NETWORK_DTYPES)
        flows = []
        for axis, (g, closed) in enumerate(zip(self.conductance, self.periodic, strict=True)):
            closed = closed if self.graph else closed and v.shape[axis + 1] > 1
            flow = used_edges(g, axis, closed) * drops_along(v, axis, closed)
            flows.append(flow if closed else pad(flow, axis, 0, 1))
        out = torch.zeros_like(v) if self.wall is None else self.wall * v
        return Currents(tuple(flows), out if self.current is None else out - self.current)
