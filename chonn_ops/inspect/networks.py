"""Networks of resistors by nodal analysis, on any graph and on lines, planes and volumes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from chonn_ops.inspect._checks import Array, check_positive, finite_array
from chonn_ops.inspect.cells import DiscreteCell
from chonn_ops.inspect.spice import deck, edge_names, node_names, number, resistor


@dataclass(frozen=True, eq=False)
class ResistorNetwork:
    r"""Nodes, edges between them, and leaks to ground (potential 0).

    Kirchhoff's current law at every node p: :math:`\sum_q g_{pq} (v_p - v_q) + l_p v_p = s_p`, in
    matrix form A v = s. The law of `chonn_ops.kirchhoff_network`, on any graph.

    Parameters
    ----------
    edges : array_like of int, shape (E, 2)
        The two nodes of each edge; edges between the same nodes add.
    conductance : array_like, shape (E,)
        Conductances of the edges, >= 0, siemens.
    leak : array_like, shape (n,)
        Conductance of each node to ground, >= 0.
    shape : sequence of int, optional
        Grid whose nodes, in C order, these are; netlists name the nodes by it. Default: (n,).

    Raises
    ------
    ValueError
        For shapes that do not match, conductances that are negative or not finite, edges from a
        node to itself or to a node that does not exist.

    References
    ----------
    C.-W. Ho, A. Ruehli, P. Brennan, "The modified nodal approach to network analysis", IEEE Trans.
    Circuits and Systems 22 (1975); F. Dorfler, F. Bullo, "Kron reduction of graphs with
    applications to electrical networks", IEEE Trans. Circuits and Systems I 60 (2013).

    Examples
    --------
    >>> divider = ResistorNetwork([(0, 1)], [1.0], [0.0, 1.0])
    >>> divider.potentials([1.0, 0.0]).tolist()
    [2.0, 1.0]
    """

    edges: Array
    conductance: Array
    leak: Array
    shape: tuple[int, ...] = ()

    def __init__(
        self, edges: Any, conductance: Any, leak: Any, shape: Sequence[int] | None = None
    ) -> None:
        leak = finite_array("leak", leak, 1)
        conductance = finite_array("conductance", conductance, 1)
        pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
        n = len(leak)
        shape = (n,) if shape is None else tuple(shape)
        if math.prod(shape) != n or not n:
            raise ValueError(f"shape: expected {n} >= 1 nodes, got {shape}")
        if len(pairs) != len(conductance):
            raise ValueError(f"conductance: expected {len(pairs)}, got {len(conductance)}")
        for name, values in (("conductance", conductance), ("leak", leak)):
            if (values < 0).any():
                raise ValueError(f"{name}: expected numbers >= 0, got {values.min()}")
        if len(pairs) and not (pairs.min() >= 0 and pairs.max() < n):
            raise ValueError(
                f"edges: expected nodes 0 to {n - 1}, got {pairs.min()}, {pairs.max()}"
            )
        if (pairs[:, 0] == pairs[:, 1]).any():
            raise ValueError("edges: expected two different nodes per edge, got a loop")
        for name, value in (("edges", pairs), ("conductance", conductance), ("leak", leak)):
            value = value.copy()
            value.flags.writeable = False
            object.__setattr__(self, name, value)
        object.__setattr__(self, "shape", shape)

    @property
    def nodes(self) -> int:
        """Number of nodes n."""
        return len(self.leak)

    def matrix(self) -> Any:
        """A, sparse (n, n): symmetric, off-diagonal entries <= 0, row sums equal to the leaks."""
        from scipy.sparse import diags_array

        adjacency = self._adjacency()
        return (diags_array(self.leak + adjacency.sum(1)) - adjacency).tocsc()

    def _adjacency(self) -> Any:
        from scipy.sparse import coo_array

        p, q = self.edges.T
        entries = np.concatenate((self.conductance, self.conductance))
        places = (np.concatenate((p, q)), np.concatenate((q, p)))
        return coo_array((entries, places), shape=(self.nodes, self.nodes)).tocsc()

    def parts(self) -> Array:
        """Index of the connected part of each node, (n,); edges of conductance 0 do not count."""
        from scipy.sparse.csgraph import connected_components

        adjacency = self._adjacency()
        adjacency.eliminate_zeros()
        return connected_components(adjacency, directed=False)[1]

    def _floating(self) -> Array:
        """Whether each node is in a connected part without a leak, (n,)."""
        part = self.parts()
        return np.bincount(part, self.leak)[part] == 0

    def potentials(self, source: Any) -> Array:
        """Potentials for currents into the nodes.

        Parameters
        ----------
        source : array_like, shape (n,) or (n, k)
            Ampere; k columns are k right-hand sides.

        Returns
        -------
        ndarray, shape of `source`

        Raises
        ------
        ValueError
            For another shape, or a connected part without a leak: its potentials are not
            determined.
        """
        from scipy.sparse.linalg import splu

        s = finite_array("source", source)
        if s.ndim not in (1, 2) or len(s) != self.nodes:
            raise ValueError(
                f"source: expected shape ({self.nodes},) or ({self.nodes}, k), got {s.shape}"
            )
        floating = self._floating()
        if floating.any():
            raise ValueError(
                "leak: expected a leak > 0 in every connected part, got a part without one that "
                f"contains node {int(np.argmax(floating))}"
            )
        return splu(self.matrix()).solve(s)

    def currents(self, v: Any) -> Array:
        """Current of each edge from its first node to its second (Ohm's law), (E,)."""
        return self.conductance * self._drops(finite_array("v", v, 1))

    def _drops(self, v: Array) -> Array:
        """Potential of each edge's first node minus that of its second, (E,)."""
        return v[self.edges[:, 0]] - v[self.edges[:, 1]]

    def excess(self, v: Any, source: Any) -> Array:
        """Residual of Kirchhoff's current law at each node, (n,)."""
        v, flow = finite_array("v", v, 1), self.currents(v)
        left = finite_array("source", source, 1) - self.leak * v
        np.subtract.at(left, self.edges[:, 0], flow)
        np.add.at(left, self.edges[:, 1], flow)
        return left

    def dissipated_power(self, v: Any) -> float:
        """Power dissipated by all conductances, watt; equal to the power of the sources."""
        v = finite_array("v", v, 1)
        return float(self.conductance @ self._drops(v) ** 2 + self.leak @ v**2)

    def green(self, nodes: Sequence[int] | None = None) -> Array:
        """Green's function, (n, k): potentials for 1 A into each of k nodes, by default all.
        These are columns of the inverse of A, which is symmetric and >= 0."""
        columns = np.arange(self.nodes) if nodes is None else np.asarray(nodes)
        return self.potentials(np.eye(self.nodes)[:, columns])

    def effective_resistance(self, p: int, q: int | None = None) -> float:
        """Resistance between two nodes, or a node and ground, ohm; infinite where no current can
        flow."""
        if q is None:
            return math.inf if self._floating()[p] else float(self.green([p])[p, 0])
        if p == q:
            return 0.0
        floating, part = self._floating(), self.parts()
        if part[p] != part[q] and (floating[p] or floating[q]):
            return math.inf
        # The currents in and out are equal, so ground at one node of a floating part draws none.
        _, first = np.unique(part, return_index=True)
        extra = np.zeros(self.nodes)
        extra[first[floating[first]]] = 1
        grounded = ResistorNetwork(self.edges, self.conductance, self.leak + extra)
        pulse = np.zeros(self.nodes)
        pulse[[p, q]] = 1, -1
        v = grounded.potentials(pulse)
        return float(v[p] - v[q])

    def spectrum(self, capacitance: Any = 1.0) -> Array:
        """Decay rates of the potentials with a capacitor from every node to ground, ascending,
        1 / s: the inverses of the time constants of the RC network. The eigensolver is dense, for
        up to a few thousand nodes.

        Parameters
        ----------
        capacitance : float or array_like, shape (n,)
            > 0, farad.
        """
        return self._modes(capacitance)[0]

    def relax(self, source: Any, t: Any, capacitance: Any = 1.0, initial: Any = 0.0) -> Array:
        """Potentials at times t with a capacitor at every node: C dv/dt = s - A v. They relax to
        `potentials` (eq. 54).

        Parameters
        ----------
        source : array_like, shape (n,)
            Constant in time.
        t : array_like, shape (T,)
            >= 0, s.
        capacitance, initial : float or array_like, shape (n,)

        Returns
        -------
        ndarray, shape (T, n)
        """
        rates, modes, root = self._modes(capacitance)
        t, s = finite_array("t", t, 1), finite_array("source", source, 1)
        if (t < 0).any():
            raise ValueError(f"t: expected times >= 0, got {t.min()}")
        start = modes.T @ (root * np.broadcast_to(finite_array("initial", initial), s.shape))
        drive = modes.T @ (s / root)
        z = np.multiply.outer(t, rates)
        small = np.abs(z) < 1e-12
        grown = t[:, None] * np.where(small, 1, -np.expm1(-z) / np.where(small, 1, z))
        return (np.exp(-z) * start + grown * drive) @ modes.T / root

    def _modes(self, capacitance: Any) -> tuple[Array, Array, Array]:
        """Rates, orthonormal modes of sqrt(C) v, and sqrt(C)."""
        C = np.broadcast_to(finite_array("capacitance", capacitance), self.leak.shape)
        check_positive(capacitance=float(C.min()))
        root = np.sqrt(C)
        rates, modes = np.linalg.eigh(self.matrix().toarray() / np.outer(root, root))
        return np.maximum(rates, 0), modes, root

    def lump(self, keep: Sequence[int]) -> tuple[ResistorNetwork, Array]:
        """Kron reduction: the network of the kept nodes with the same potentials there.

        Returns
        -------
        network : ResistorNetwork
            The kept nodes, in their order; its conductances and leaks are again >= 0.
        gather : ndarray, shape (k, n)
            Maps the sources: ``network.potentials(gather @ source)`` are the potentials of the
            kept nodes.

        Raises
        ------
        ValueError
            For no nodes, nodes that do not exist, or the same node twice.
        """
        kept = np.asarray(keep, dtype=np.int64).ravel()
        if (
            not kept.size
            or len(np.unique(kept)) != len(kept)
            or not (kept.min() >= 0 and kept.max() < self.nodes)
        ):
            raise ValueError(f"keep: expected different nodes of 0 to {self.nodes - 1}, got {keep}")
        edges, conductance, gather = _kron_reduction(self.matrix(), kept)
        # All terms of this product are >= 0. Row sums of the reduced matrix would cancel.
        return ResistorNetwork(edges, conductance, gather @ self.leak), gather

    def to_netlist(self, source: Any, title: str = "resistor network") -> str:
        """SPICE text of the network and its sources, for the operating point.

        Node p is ``n<p>``, or ``n<i>_<j>`` on a grid; nodes without a resistor are left out. The
        probe ``Vnground`` carries the sum of all leak currents.

        Parameters
        ----------
        source : array_like, shape (n,)
            Ampere.
        title : str
        """
        lines = network_lines(self, finite_array("source", source, 1))
        return deck(title, [*lines, ".op"])


def grid(
    conductance: Sequence[Any], leak: Any, *, periodic: bool | Sequence[bool] = False
) -> ResistorNetwork:
    """The network of a grid, in the layout of `chonn_ops.kirchhoff_network`.

    Parameters
    ----------
    conductance : sequence of array_like, shape (\\*grid)
        One per axis; entry p joins node p and the next one along that axis. The last entry is used
        for a periodic axis only.
    leak : array_like, shape (\\*grid)
    periodic : bool or sequence of bool, one per axis
        Whether the axis is periodic: its last node is a neighbour of the first.

    Raises
    ------
    ValueError
        For shapes that do not match, and for values that `ResistorNetwork` refuses.
    """
    leak = finite_array("leak", leak)
    closed = [periodic] * leak.ndim if isinstance(periodic, bool) else list(periodic)
    if not len(conductance) == len(closed) == leak.ndim:
        raise ValueError(
            f"conductance, periodic: expected one per axis ({leak.ndim}), got {len(conductance)} "
            f"and {len(closed)}"
        )
    fields = [finite_array(f"conductance[{axis}]", g) for axis, g in enumerate(conductance)]
    for axis, g in enumerate(fields):
        if g.shape != leak.shape:
            raise ValueError(f"conductance[{axis}]: expected shape {leak.shape}, got {g.shape}")
    edges, values = edges_of_grid(fields, closed)
    return ResistorNetwork(edges, values, leak.ravel(), leak.shape)


def edges_of_grid(fields: Sequence[Array], closed: Sequence[bool]) -> tuple[Array, Array]:
    """Pairs of nodes (E, 2) and values (E,) of the edges of a grid, from fields (\\*grid), one an
    axis, in the layout of `grid`."""
    shape = fields[0].shape
    nodes = np.arange(fields[0].size).reshape(shape)
    edges, values = [], []
    for axis, field in enumerate(fields):
        pairs = np.stack((nodes, np.roll(nodes, -1, axis)), -1)
        count = shape[axis] if closed[axis] and shape[axis] > 1 else shape[axis] - 1
        edges.append(np.take(pairs, range(count), axis).reshape(-1, 2))
        values.append(np.take(field, range(count), axis).ravel())
    return np.concatenate(edges), np.concatenate(values)


def ladder(
    conductance: float, leak: float, nodes: int, *, periodic: bool = False
) -> ResistorNetwork:
    """A line of equal nodes: `grid` with one axis.

    A periodic ladder of 1 / h nodes with conductance tau^2 / h^2 and leak 1 is the paper's
    (I - tau^2 d_ss) y = x (eq. 40), discretised by second differences.
    """
    return grid([np.full(nodes, conductance)], np.full(nodes, leak), periodic=periodic)


def length_scale(conductivity: float, leak: float) -> float:
    """sqrt(k / l): the distance over which a potential falls to 1 / e in a medium of conductivity k
    and leak density l. Infinite without leak."""
    check_positive(conductivity=conductivity)
    if leak == 0:
        return math.inf
    check_positive(leak=leak)
    return math.sqrt(conductivity / leak)


def endless_conductance(conductance: float, leak: float) -> float:
    """Conductance to ground of an endless ladder behind its first edge, siemens: the positive root
    of G = g (l + G) / (g + l + G)."""
    check_positive(conductance=conductance)
    if leak == 0:
        return 0.0
    check_positive(leak=leak)
    return 2 * conductance * leak / (leak + math.sqrt(leak) * math.sqrt(leak + 4 * conductance))


def attenuation(conductance: float, leak: float) -> float:
    """Ratio of the potentials of neighbouring nodes of an endless ladder, away from its source:
    below 1 where there is a leak."""
    return conductance / (conductance + leak + endless_conductance(conductance, leak))


def ladder_cell(conductance: float, leak: float) -> DiscreteCell:
    """The cell whose scans in both directions give the potentials of an endless ladder.

    Its output for an input s is the sum over q <= p of G_pq s_q, with the Green's function of the
    ladder, G_pq = attenuation^|p - q| / (leak + 2 endless_conductance). So the potentials are
    v = forward + backward - G_pp s: two first-order recursions are one operator of second order.
    """
    check_positive(conductance=conductance, leak=leak)
    own = 1 / (leak + 2 * endless_conductance(conductance, leak))
    return DiscreteCell(attenuation(conductance, leak), own)


def _kron_reduction(matrix: Any, kept: Array) -> tuple[Array, Array, Array]:
    """Kron reduction of a nodal matrix to some nodes.

    Parameters
    ----------
    matrix : sparse array, shape (n, n)
        Nodal matrix.
    kept : ndarray of int, shape (k,)

    Returns
    -------
    edges : ndarray of int, shape (E, 2)
        Pairs of kept nodes with a conductance > 0 between them.
    conductance : ndarray, shape (E,)
    gather : ndarray, shape (k, n)
        Share of a current into each node that arrives at each kept node.

    Raises
    ------
    ValueError
        For a connected part with neither a leak nor a kept node.
    """
    dropped = np.setdiff1d(np.arange(matrix.shape[0]), kept)
    gather = np.zeros((len(kept), matrix.shape[0]))
    gather[np.arange(len(kept)), kept] = 1
    reduced = matrix[kept][:, kept].toarray()
    if dropped.size:
        between = matrix[kept][:, dropped]
        gather[:, dropped] = _shares(matrix[dropped][:, dropped], between)
        reduced = reduced + between @ gather[:, dropped].T
    p, q = np.triu_indices(len(kept), 1)
    conductance = np.maximum(-reduced[p, q], 0)
    some = conductance > 0
    return np.stack((p[some], q[some]), 1), conductance[some], gather


def _shares(inside: Any, between: Any) -> Array:
    """Share of a current into each dropped node that arrives at each kept node, (k, d).

    `inside` is the nodal matrix of the dropped nodes, `between` its rows of the kept nodes."""
    from scipy.sparse.linalg import splu

    try:
        shares = splu(inside).solve(-between.T.toarray()).T
    except RuntimeError:  # SuperLU's error for a singular matrix
        raise ValueError(
            "keep: expected a leak or a kept node in every connected part, got a part with neither"
        ) from None
    return np.maximum(shares, 0)


def network_lines(network: ResistorNetwork, source: Array, prefix: str = "n") -> list[str]:
    """Elements of a network: resistors for edges and leaks, current sources, and a probe (a voltage
    source of 0 V) between the leaks and ground. Nodes without a resistor are left out."""
    names = node_names(network.shape, prefix)
    if source.shape != network.leak.shape:
        raise ValueError(f"source: expected shape {network.leak.shape}, got {source.shape}")
    ground = f"{prefix}ground"
    lines: list[str] = []
    joined = network.leak > 0
    named = edge_names(network.edges, names)
    for name, (p, q), g in zip(named, network.edges, network.conductance, strict=True):
        lines += resistor(name, names[p], names[q], float(g))
        joined[[p, q]] |= g > 0
    for p in np.flatnonzero(joined):
        lines += resistor(names[p], names[p], ground, float(network.leak[p]))
        lines.append(f"I{names[p]} 0 {names[p]} {number(source[p])}")
    return [*lines, f"V{ground} {ground} 0 0"]
