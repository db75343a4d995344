"""`Circuit`: nodes, edges, leaks, and what the equation behind them says about sources."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, overload

import torch
from torch import Tensor

from chonn_ops._dtypes import compute_dtype, potential_dtype, real_dtype, widened
from chonn_ops.checks import (
    check_above,
    check_tensor,
    error,
    expanded,
    is_integer,
    numbers_of,
    refuse_transforms,
)
from chonn_ops.network.api import Method, NetworkInfo, solve_given
from chonn_ops.network.checks import (
    NETWORK_DTYPES,
    Periodic,
    any_complex,
    check_like,
    check_not_negative,
    check_sources,
    on_graph,
    per_axis_periodic,
)
from chonn_ops.network.direct.plan import edges_of
from chonn_ops.network.edges import (
    at_both_ends,
    backward_error,
    beside,
    connected_parts,
    differences_by_axis,
    drops_along,
    outflow,
    pad,
    sum_of_ends,
    used_edges,
)
from chonn_ops.network.factorization import (
    Factorization,
    current_beside,
    currents_of,
    uncompiled,
)
from chonn_ops.network.graph import Graph, merged_ends, packed_of
from chonn_ops.network.ground import Ungrounded, at_limits, labels_of, without

# Potentials of so many nodes are solved for at a time by `Circuit.resistance`.
_SOLVED = 2**21
# The kernel has at least so many resistances in the time of one solve: 3.4 on a Delaunay graph of
# 100,000 nodes, 6.3 on a raster of 64 x 64.
_PAIRS = 4
_RESISTANCES = (
    "One circuit with a batch (B, *grid, C) has the resistances of all networks, and pairs (P, 2) "
    "all pairs; torch.autograd differentiates them, also in forward mode"
)
# Below this part of the numbers it is the difference of, a resistance is solved for itself.
_CANCELLED = 1e-6


class Currents(NamedTuple):
    """Where the current of a circuit flows.

    Attributes
    ----------
    edges : tuple of Tensor, shape (B, \\*grid, C), one an axis
        Entry p is the current from node p to the next one along that axis; 0 where no edge is. Of a
        graph one, (B, E, C): the current from each edge's first node to its second.
    walls : Tensor, shape (B, \\*grid, C)
        Current from each node out of the domain, through all of its walls and, of a node that
        `Circuit.hold` holds, into what holds it; negative where it comes in. Summed over the nodes
        of a face it is the flow through that face, and over those of an electrode the flow into it.
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
    volume : float or Tensor that expands to (B, \*grid, C)
        V of the cell around each node, which turns a source per unit volume into a current: a
        number > 0, or numbers >= 0.
    wall : Tensor, shape (B, \*grid, C), optional
        What part of the leak leads through the boundary.
    current : Tensor, shape (B, \*grid, C) or (B, S, \*grid, C), optional
        i, what comes in through the boundary: from potentials other than 0 and given fluxes. With
        one for each of S sources, sources are (B, S, \*grid, C), too.

    Attributes
    ----------
    conductance : tuple of Tensor
        One an axis; of a graph one.
    periodic : tuple of bool
        One an axis; of a graph the graph alone. The other parameters are attributes as they were
        given.
    held : Tensor of bool, shape (B, \*grid, C), or None
        The nodes that `hold` holds.
    before : Circuit or None
        The circuit before `hold`.

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
        check_tensor("leak", leak)
        if wall is not None:
            check_like("wall", wall, leak, "the leak", NETWORK_DTYPES)
        if current is not None:
            check_sources("current", current, leak, NETWORK_DTYPES)
        if isinstance(volume, Tensor):
            volume = expanded("volume", volume, leak, "the leak")
            if volume.is_complex():
                raise error("volume", "real numbers", volume.dtype)
            check_not_negative("volume", volume)
        else:
            check_above(0, volume=volume)
        self.volume, self.wall, self.current = volume, wall, current
        self.held: Tensor | None = None
        self.before: Circuit | None = None
        # Makes the circuit that is added as conductances of 0 rise, see `ground`; None: 1 an edge.
        self._rising: Callable[[], Circuit] | None = None

    def source(self, density: Tensor) -> Tensor:
        """Current into each node for a source f per unit volume: V f + i.

        `density` and the result have the shape (B, \\*grid, C) or (B, S, \\*grid, C). In the
        circuit's precision or wider.
        """
        check_sources("source", density, self.leak, NETWORK_DTYPES)
        return currents_of(density, self.volume, self.current, self.leak.dtype)

    @overload
    def solve(
        self,
        source: Tensor,
        *,
        info: Literal[False] = False,
        tol: float = 1e-5,
        max_iterations: int = 300,
        method: Method = "auto",
        backend: str | None = None,
        ungrounded: Ungrounded = "error",
    ) -> Tensor: ...

    @overload
    def solve(
        self,
        source: Tensor,
        *,
        info: Literal[True],
        tol: float = 1e-5,
        max_iterations: int = 300,
        method: Method = "auto",
        backend: str | None = None,
        ungrounded: Ungrounded = "error",
    ) -> tuple[Tensor, NetworkInfo]: ...

    def solve(
        self,
        source: Tensor,
        *,
        info: bool = False,
        tol: float = 1e-5,
        max_iterations: int = 300,
        method: Method = "auto",
        backend: str | None = None,
        ungrounded: Ungrounded = "error",
    ) -> Tensor | tuple[Tensor, NetworkInfo]:
        """Potentials of all nodes, differentiable: one call of `kirchhoff_network`.

        Parameters
        ----------
        source : Tensor, shape (B, \\*grid, C) or (B, S, \\*grid, C)
            f per unit volume; S sources share one elimination.
        info : bool
            Also return a `NetworkInfo`.
        tol, max_iterations, method, backend, ungrounded
            As in `kirchhoff_network`, as are the errors.

        Returns
        -------
        v : Tensor, shape and dtype of `source`
        info : NetworkInfo
            Only with `info`.
        """
        network = (self.source(source), self.conductance, self.leak)
        options = (tol, max_iterations, method, info, backend, ungrounded, self._rates())
        solved = solve_given(*network, self.periodic, None, *options)
        v, found = solved if info else (solved, None)
        rounded = v.to(potential_dtype(source, v.dtype))
        if found is None:
            return rounded
        if rounded.dtype != v.dtype:
            error = backward_error(rounded, *network, self.periodic)
            found = found._replace(backward_error=error)
        return rounded, found

    @uncompiled
    def factorize(self, *, backend: str | None = None) -> Factorization:
        """The circuit, eliminated once, for many sources and more: see `factorize`.

        Its `solve` takes sources as that of the circuit does. Held nodes have no variance: there
        the diagonal of the inverse and samples, which are deviations from ``solve(0 * source)``,
        are 0. The determinant is that of the matrix of the other nodes.
        """
        network = (self.conductance, self.leak, self.periodic)
        options: Any = {"held": self.held, "rates": self._rates()}
        return Factorization(*network, backend, self.volume, self.current, **options)

    def _network(self) -> tuple[Any, ...]:
        """What the operator takes behind a source, without its options."""
        closed, graph = packed_of(self.periodic)
        g = (*self.conductance, None, None)[:3]
        return (*g, self.leak, closed, *[None] * 4, graph)

    def _at_limits(self, v: Tensor) -> tuple[Tensor, Sequence[Tensor] | None]:
        """Potentials v, (B, \\*grid, C) or (B, S, \\*grid, C), and their differences by axis, for
        derivatives of what flows beside parts without ground; None for differences of these v. No
        value depends on potentials at the ends of edges and walls of 0."""
        if (label := labels_of(self._network())) is None:
            return v, None
        drops = differences_by_axis(v, self.periodic)
        return at_limits(self._network(), label, self._rates(), without(v, label), drops)

    def _rates(self) -> Tensor | None:
        """The `rates` of `chonn_ops.network.ground`: conductances, walls and currents of the
        circuit that is added as those of 0 rise; None where that is 1 for each edge, or where there
        is no part without ground."""
        if self._rising is None or labels_of(self._network()) is None:
            return None
        with torch.no_grad():
            rising = self._rising()
            current = torch.zeros_like(rising.leak) if rising.current is None else rising.current
            axes = self.leak.dim() - 2
            # Leaks that are no walls, or hold nodes, are at nodes that have ground.
            fields = (*rising.conductance, rising.leak, current)
            rows = [x.flatten(-1 - axes, -2) for x in fields]
            if rows[-1].dim() > 3:  # a current for each source
                rows = [
                    x.expand(rows[-1].shape[1], *x.shape).movedim(0, 1) for x in rows[:-1]
                ] + rows[-1:]
            return torch.cat(rows, -2)

    def _axes(self) -> list[tuple[int, Tensor, Any]]:
        """Return the number of each axis, its edges and what joins its nodes."""
        found = []
        for axis, (g, closed) in enumerate(zip(self.conductance, self.periodic, strict=True)):
            closed = closed if self.graph else closed and g.shape[axis + 1] > 1
            found.append((axis, used_edges(_summed(g), axis, closed), closed))
        return found

    def _flows(
        self, v: Tensor, drops: Sequence[Tensor] | None = None
    ) -> Iterator[tuple[int, Tensor, Any]]:
        """For each axis its number, the current along its edges and what joins its nodes; those of
        held nodes included. `drops`: differences of v, where they are known."""
        several = v.dim() - self.leak.dim()
        for axis, g, closed in (self.before or self)._axes():
            if drops is None:
                drop = drops_along(v, axis + several, closed)
            else:
                drop = used_edges(drops[axis], axis + several, closed)
            yield axis + several, beside(g, v) * drop, closed

    def currents(self, v: Tensor) -> Currents:
        """Compute where the current flows at the potentials v.

        Parameters
        ----------
        v : Tensor, shape (B, \\*grid, C) or (B, S, \\*grid, C)
            Those of S sources have S currents.
        """
        check_sources("v", v, self.leak, NETWORK_DTYPES)
        circuit, (v, drops) = self.before or self, self._at_limits(v)
        flows = list(self._flows(v, drops))
        out = left = torch.zeros_like(v) if circuit.wall is None else beside(circuit.wall, v) * v
        if circuit.current is not None:
            out = out - current_beside("v", circuit.current, v)
        if self.held is not None:  # what edges bring and no leak takes flows into what holds
            left = left - beside(circuit.leak, v) * v
            for axis, flow, closed in flows:
                left = left - outflow(flow, axis, closed)
            out = torch.where(beside(self.held, v), left, out)
        edges = (flow if closed else pad(flow, axis, 0, 1) for axis, flow, closed in flows)
        return Currents(tuple(edges), out)

    def node_currents(self, v: Tensor) -> Tensor:
        """Current through each node at the potentials v: the larger one of what comes in and what
        goes out along edges and to ground, as in Circuitscape's current maps.

        `v` and the result have the shape (B, \\*grid, C) or (B, S, \\*grid, C). Complex circuits
        and potentials are a `ValueError`, because complex currents have no direction.
        """
        check_sources("v", v, self.leak, NETWORK_DTYPES)
        circuit = self.before or self
        if any_complex(v, circuit.leak, circuit.current, *circuit.conductance):
            expected = "real potentials of a real circuit (`currents` has complex currents)"
            raise error("v", expected, "complex numbers")
        net = beside(_summed(circuit.leak), v) * v
        if circuit.current is not None:
            net = net - current_beside("v", circuit.current, v)
        through = net.abs()
        for axis, flow, closed in self._flows(v):
            net = net + outflow(flow, axis, closed)
            through = through + at_both_ends(flow.abs(), axis, closed)
        return (through + net.abs()) / 2

    def hold(self, nodes: Tensor, value: Tensor | float | complex = 0.0) -> Circuit:
        """The circuit with nodes at given potentials, whatever is fed into them.

        Parameters
        ----------
        nodes : Tensor of bool that expands to (B, \\*grid, C)
        value : number or Tensor that expands to (B, \\*grid, C); or (B, S, \\*grid, C)
            Potential of those nodes; with S of them, sources are (B, S, \\*grid, C), too. Complex
            potentials make complex ones, of real circuits, too.

        Returns
        -------
        Circuit
            What is solved: nodes that are held have no edges, but 1 siemens to their potential, and
            edges to them are leaks of their neighbours. `currents` and `node_currents` are those of
            the circuit before, with what flows into each held node in its walls. Nodes that are
            held stay so if others are held after them.
        """
        check_tensor("nodes", nodes)
        if nodes.dtype != torch.bool:
            raise error("nodes", "dtype torch.bool", nodes.dtype)
        given = numbers_of("value", value, self.leak.device)
        if not isinstance(value, Tensor) and not bool(given.isfinite().all()):
            raise error("value", "finite numbers", repr(value))
        dtype = compute_dtype(self.leak, *self.conductance)
        given = given.to(
            torch.promote_types(dtype, torch.complex64) if given.is_complex() else dtype
        )
        nodes = expanded("nodes", nodes, self.leak, "the circuit", forms="a shape")
        like, several = self.leak, given.dim() > self.leak.dim()
        if several:
            like = like[:, None].expand(-1, given.shape[1], *like.shape[1:])
        given = expanded("value", given, like, "the circuit", forms="a shape")
        if self.before is not None and self.held is not None and self.current is not None:
            given, current = beside(given, self.current), beside(self.current, given)
            given = torch.where(beside(nodes, given), given, current)
            return self.before.hold(nodes | self.held, given)
        held, zero = nodes.float(), torch.zeros((), dtype=real_dtype(dtype), device=given.device)
        potential = torch.where(beside(nodes, given), given, zero)
        through, carried, kept = torch.zeros_like(self.leak), torch.zeros_like(given), []
        for axis, g, closed in self._axes():
            if not closed and self.leak.shape[axis + 1] == 1:
                kept.append(self.conductance[axis])
                continue
            both = sum_of_ends(held, axis, closed)
            through = through + at_both_ends(g * both, axis, closed)
            flow = beside(g, given) * sum_of_ends(potential, axis + several, closed)
            carried = carried + at_both_ends(flow, axis + several, closed)
            g = torch.where(both == 0, g, 0)
            kept.append(g if closed else pad(g, axis, 0, 1))
        if self.current is not None:
            carried = beside(carried, self.current) + beside(self.current, carried)
        circuit = Circuit(
            kept[0] if self.graph else kept,
            torch.where(nodes, 1, self.leak + through),
            self.graph,
            periodic=False if self.graph else [bool(closed) for closed in self.periodic],
            volume=torch.where(nodes, zero, self.volume),
            current=torch.where(beside(nodes, carried), beside(given, carried), carried),
        )
        circuit.held, circuit.before = nodes, self
        circuit._rising = partial(_risen_and_held, self, nodes, given)
        return circuit

    @uncompiled
    def resistance(self, pairs: Tensor) -> Tensor:
        """Effective resistance between pairs of nodes, from one elimination.

        With one right-hand side a pair or one a node, whichever takes less time. Where no gradient
        is needed, a pair takes the compiled kernel less than half of a solve. Computed in float64.
        Differentiable by `torch.autograd`, not by `torch.func` and `torch.vmap`; a gradient
        keeps all potentials.

        Parameters
        ----------
        pairs : Tensor of integers, shape (P, 2)
            Nodes, in row-major order on grids. Held nodes are ground and have no number here: to
            measure up to them, `merge` them in the circuit before `hold`.

        Returns
        -------
        Tensor, shape (B, P, C)
            In the dtype of the circuit. Infinite between parts that are not joined.
        """
        grid = self.leak.shape[1:-1]
        n = math.prod(grid)
        check_tensor("pairs", pairs)
        refuse_transforms("resistance", pairs, self.leak, *self.conductance, instead=_RESISTANCES)
        if pairs.dim() != 2 or pairs.shape[1] != 2 or not is_integer(pairs):
            raise error("pairs", "integers of shape (P, 2)", f"{pairs.dtype}, {tuple(pairs.shape)}")
        if any_complex(self.leak, *self.conductance):
            raise error("conductance", "real networks", "complex ones")
        pairs = pairs.to(self.leak.device).long()
        if len(pairs) and not 0 <= int(pairs.min()) <= int(pairs.max()) < n:
            raise error("pairs", f"nodes from 0 to {n - 1}", [int(pairs.min()), int(pairs.max())])
        if self.held is not None and bool((wrong := self.held.flatten(1, -2)[:, pairs]).any()):
            expected = "nodes that are not held (`merge` them in the circuit before `hold`)"
            raise error("pairs", expected, pairs[wrong.any(0).any(-1)].tolist())
        # Each part gets a ground at its first node, as large as the largest conductance: potentials
        # would grow without bounds as leaks vanish. `_without_ground` takes it away again.
        part = connected_parts(self.conductance, grid, self.periodic)
        first = part == torch.arange(n, device=part.device)[:, None]
        edges = [widened(g) for g in self.conductance]
        most = torch.stack([g.detach().flatten(1, -2).amax(1) for g in edges]).amax(0)
        most = torch.where(most > 0, most, 1)[:, None]
        leak = widened(self.leak)
        ground = leak + (first * most).reshape(leak.shape)
        factor = Factorization(edges, ground, self.periodic)
        nodes, at = torch.unique(pairs, return_inverse=True)
        r = factor._resistances(pairs) if len(pairs) <= _PAIRS * len(nodes) else None
        if r is None:
            r = self._solved_resistances(factor, pairs, nodes, at)
        sources = torch.stack([first.to(leak.dtype).reshape(leak.shape), leak], 1)
        v, w = factor.solve(sources).flatten(2, -2).unbind(1)
        r = r + _without_ground(most, part, leak.flatten(1, -2), v, w, pairs)
        return r.to(self.leak.dtype)

    def _solved_resistances(
        self, factor: Factorization, pairs: Tensor, nodes: Tensor, at: Tensor
    ) -> Tensor:
        """`resistance` from potentials; `at`: which of the `nodes` each pair's are."""
        grid, B, C = self.leak.shape[1:-1], self.leak.shape[0], self.leak.shape[-1]
        (p, q), n = pairs.T, math.prod(grid)
        by_node = len(nodes) < len(pairs)
        count, found = len(nodes) if by_node else len(pairs), []
        for few in torch.arange(count, device=pairs.device).split(max(1, _SOLVED // (n * B * C))):
            unit = torch.zeros(len(few), n, dtype=factor.dtype, device=pairs.device)
            each = torch.arange(len(few), device=pairs.device)
            unit[each, nodes[few] if by_node else p[few]] = 1
            if not by_node:
                unit[each, q[few]] -= 1
            source = unit.reshape(1, len(few), *grid, 1).expand(B, -1, *grid, C)
            v = factor.solve(source).flatten(2, -2)
            if by_node:
                found.append(v[:, :, nodes])
            else:
                found.append(v[:, each, p[few]] - v[:, each, q[few]])
        r = torch.cat(found, 1)
        if by_node:
            i, j = at.T
            scale = r[:, i, i] + r[:, j, j]
            r = scale - r[:, i, j] - r[:, j, i]
            # Differences of much larger numbers have lost digits.
            lost = (r < _CANCELLED * scale).any(0).any(-1).nonzero()[:, 0]
            if len(lost):
                again = self._solved_resistances(factor, pairs[lost], pairs[lost].flatten(), at)
                r = r.index_copy(1, lost, again)
        return r

    def merge(self, labels: Tensor) -> tuple[Circuit, Tensor]:
        """Join groups of nodes, each to one node: terminals, whose potential is unknown and the
        same everywhere, and regions that are short circuits.

        Parameters
        ----------
        labels : Tensor of integers, shape (\\*grid)
            Nodes with the same label above 0 become one; those with 0, as all held nodes, stay what
            they are.

        Returns
        -------
        circuit : Circuit
            On a graph; parallel edges add up. Its sources are currents (V = 1). Make it once: this
            orders its nodes.
        node : Tensor, shape (\\*grid)
            Which node of the new circuit each one is: ``v[:, node]`` are the potentials v on the
            grid or graph.
        """
        grid = tuple(self.leak.shape[1:-1])
        check_tensor("labels", labels)
        if labels.shape != grid or not (is_integer(labels) or labels.dtype == torch.bool):
            expected = f"integers of shape {grid}"
            raise error("labels", expected, f"{labels.dtype}, shape {tuple(labels.shape)}")
        if self.held is not None:
            wrong = (self.held.any(0).any(-1) & (labels > 0)).nonzero().tolist()
            if wrong:
                expected = "0 at held nodes (merge first, then hold the new ones)"
                raise error("labels", expected, f"others at {wrong}")
        old = self.before or self
        edge, ends = edges_of(grid, self.periodic)
        number, first, ends, which = merged_ends(ends, labels)
        if not ends.size:
            raise error("labels", "an edge between two of the new nodes at least", "none")
        if self.graph is None:
            axes = (torch.arange(n) for n in grid)
            positions = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, -2)
        else:
            positions = self.graph.positions
        graph = Graph(ends.T, len(first), None if positions is None else positions[first])
        node, to, first = (torch.from_numpy(x).to(self.leak.device) for x in (number, which, first))

        def rows(field: Tensor) -> Tensor:
            return field.flatten(field.dim() - 1 - len(grid), -2)

        def total(values: Tensor, into: Tensor, size: int) -> Tensor:
            values = _summed(values)
            sums = values.new_zeros(*values.shape[:-2], size, values.shape[-1])
            return sums.index_add(-2, into, values)

        def of_nodes(field: Tensor | None) -> Any:
            return None if field is None else total(rows(field), node, len(first))

        g = torch.cat([x.flatten(1, -2) for x in old.conductance], 1)
        g = g[:, torch.from_numpy(edge).to(g.device)]
        circuit = Circuit(
            total(g, to, len(ends.T) + 1)[:, :-1],  # the last one has the edges inside groups
            of_nodes(old.leak),
            graph,
            wall=of_nodes(old.wall),
            current=of_nodes(old.current),
        )
        if self.held is not None and self.current is not None:
            circuit = circuit.hold(
                *(rows(x).index_select(-2, first) for x in (self.held, self.current))
            )
        if self._rising is not None:
            circuit._rising = partial(_risen_and_merged, self._rising, labels)
        return circuit, node.reshape(grid)


def _risen_and_merged(rising: Callable[[], Circuit], labels: Tensor) -> Circuit:
    return rising().merge(labels)[0]


def _risen_and_held(circuit: Circuit, nodes: Tensor, value: Tensor) -> Circuit:
    """What is added to a circuit with held nodes as conductances of 0 rise."""
    if circuit._rising is not None:
        return circuit._rising().hold(nodes, value)
    ones = [torch.ones_like(g.detach()) for g in circuit.conductance]
    given = torch.zeros_like(circuit.leak.detach()), circuit.graph
    periodic: Any = False if circuit.graph else circuit.periodic
    rising = Circuit(ones[0] if circuit.graph else ones, *given, periodic=periodic)
    return rising.hold(nodes, value)


def _summed(field: Tensor) -> Tensor:
    """A field whose entries are added up, in float32 at least: 256 ones and one more are 256 in
    bfloat16."""
    return field.to(torch.promote_types(field.dtype, torch.float32))


def _without_ground(
    most: Tensor, part: Tensor, leak: Tensor, v: Tensor, w: Tensor, pairs: Tensor
) -> Tensor:
    r"""What resistances (B, P, C) grow by if the ground g of the first node of each part goes.

    By Sherman and Morrison's formula, with the potentials v of 1 A into that node and the current
    :math:`s = 1 - g v_1 = \sum_p l_p v_p` of it that goes through leaks: in one part it is
    :math:`g (v_p - v_q)^2 / s`, and between parts :math:`g v_p^2 / s_p + g v_q^2 / s_q`, infinite
    if one of them has no leak. The differences are those of :math:`g v` where both are small, and
    else of :math:`w = 1 - g v`, so that nothing cancels: w are the potentials of the sources l.
    """
    s = torch.zeros_like(v).scatter_add(1, part, leak * v).gather(1, part)
    some, (p, q) = s > 0, pairs.T
    s = torch.where(some, s, 1)
    u = most * v
    far = torch.maximum(u[:, p], u[:, q]) < torch.maximum(w[:, p], w[:, q])
    drop = torch.where(far, u[:, p] - u[:, q], w[:, q] - w[:, p])
    within = drop.square() / (most * s[:, p])
    below = torch.where(some, u * v / s, math.inf)
    return torch.where(part[:, p] == part[:, q], within, below[:, p] + below[:, q])
