"""Networks of resistors by nodal analysis: potentials, Green's function, spectrum, lumping."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from chonn_ops.circuit._checks import Array, check_positive, finite_array
from chonn_ops.circuit._lumping import kron_reduction
from chonn_ops.circuit._spice import network_netlist


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
        Of the edges, >= 0, siemens.
    leak : array_like, shape (n,)
        Conductance of each node to ground, >= 0.
    shape : sequence of int, optional
        Of the grid whose nodes these are in C order; names them in netlists. Default: (n,).

    Raises
    ------
    ValueError
        For shapes that do not fit, conductances below 0 or not finite, edges from a node to itself
        or to one that does not exist.

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
            raise ValueError("edges: expected two different nodes each, got a loop")
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
        """A, sparse (n, n): symmetric; off its diagonal <= 0, its rows sum to the leaks."""
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
        """Which connected part each node is in, (n,); edges of conductance 0 connect nothing."""
        from scipy.sparse.csgraph import connected_components

        adjacency = self._adjacency()
        adjacency.eliminate_zeros()
        return connected_components(adjacency, directed=False)[1]

    def _floating(self) -> Array:
        """Whether each node is in a part without a leak, (n,)."""
        part = self.parts()
        return np.bincount(part, self.leak)[part] == 0

    def potentials(self, source: Any) -> Array:
        """Potentials for currents fed into the nodes.

        Parameters
        ----------
        source : array_like, shape (n,) or (n, k)
            Ampere; several at once in columns.

        Returns
        -------
        ndarray, shape of `source`

        Raises
        ------
        ValueError
            For another shape, or a connected part without a leak: its potentials are open.
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
                "leak: expected one above 0 in every connected part, got a part with none that has "
                f"node {int(np.argmax(floating))}"
            )
        return splu(self.matrix()).solve(s)

    def currents(self, v: Any) -> Array:
        """Ohm's law: current of each edge from its first node to its second, (E,)."""
        return self.conductance * self._drops(finite_array("v", v, 1))

    def _drops(self, v: Array) -> Array:
        """Potential of each edge's first node less that of its second, (E,)."""
        return v[self.edges[:, 0]] - v[self.edges[:, 1]]

    def excess(self, v: Any, source: Any) -> Array:
        """What Kirchhoff's current law leaves at each node, (n,): 0 where it is obeyed."""
        v, flow = finite_array("v", v, 1), self.currents(v)
        left = finite_array("source", source, 1) - self.leak * v
        np.subtract.at(left, self.edges[:, 0], flow)
        np.add.at(left, self.edges[:, 1], flow)
        return left

    def dissipated_power(self, v: Any) -> float:
        """Power that all conductances turn into heat, watt: what the sources put in."""
        v = finite_array("v", v, 1)
        return float(self.conductance @ self._drops(v) ** 2 + self.leak @ v**2)

    def green(self, nodes: Sequence[int] | None = None) -> Array:
        """Green's function, columns of the inverse of A: potentials for 1 A into each of some
        nodes, all by default, (n, k). Symmetric, and >= 0."""
        columns = np.arange(self.nodes) if nodes is None else np.asarray(nodes)
        return self.potentials(np.eye(self.nodes)[:, columns])

    def effective_resistance(self, p: int, q: int | None = None) -> float:
        """Between two nodes, or a node and ground, ohm; infinite where no current can flow."""
        if q is None:
            return math.inf if self._floating()[p] else float(self.green([p])[p, 0])
        if p == q:
            return 0.0
        floating, part = self._floating(), self.parts()
        if part[p] != part[q] and (floating[p] or floating[q]):
            return math.inf
        # As much comes out as goes in, so that ground at one node of a floating part takes none.
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
        1 / s: one over the time constants of the RC network. A dense matrix: a few thousand nodes.

        Parameters
        ----------
        capacitance : float or array_like, shape (n,)
            > 0, farad.
        """
        return self._modes(capacitance)[0]

    def relax(self, source: Any, t: Any, capacitance: Any = 1.0, initial: Any = 0.0) -> Array:
        """Potentials at times t with a capacitor at every node: C dv/dt = s - A v. They end at
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
        """Rates, orthonormal modes of root(C) v, and root(C)."""
        C = np.broadcast_to(finite_array("capacitance", capacitance), self.leak.shape)
        check_positive(capacitance=float(C.min()))
        root = np.sqrt(C)
        rates, modes = np.linalg.eigh(self.matrix().toarray() / np.outer(root, root))
        return np.maximum(rates, 0), modes, root

    def lump(self, keep: Sequence[int]) -> tuple[ResistorNetwork, Array]:
        """Kron reduction: the network that the kept nodes see, exactly.

        Returns
        -------
        network : ResistorNetwork
            Of the kept nodes, in their order; again conductances and leaks >= 0.
        gather : ndarray, shape (k, n)
            What the sources become: ``network.potentials(gather @ source)`` are the potentials of
            the kept nodes.

        Raises
        ------
        ValueError
            For no nodes, nodes that do not exist or twice the same one.
        """
        kept = np.asarray(keep, dtype=np.int64).ravel()
        if (
            not kept.size
            or len(np.unique(kept)) != len(kept)
            or not (kept.min() >= 0 and kept.max() < self.nodes)
        ):
            raise ValueError(f"keep: expected different nodes of 0 to {self.nodes - 1}, got {keep}")
        edges, conductance, gather = kron_reduction(self.matrix(), kept)
        # Leaks by the gathering, all of whose terms are >= 0; the sums of the rows would cancel.
        return ResistorNetwork(edges, conductance, gather @ self.leak), gather

    def merge(self, groups: Any) -> ResistorNetwork:
        """The network after shorting the nodes of each group: crossing edges and leaks add. The
        coarse levels of multigrid are such networks (piecewise-constant Galerkin).

        Parameters
        ----------
        groups : array_like of int, shape (n,)
            The group of each node, 0 to m - 1.
        """
        group = np.asarray(groups, dtype=np.int64)
        if group.shape != self.leak.shape or group.min() < 0:
            raise ValueError(f"groups: expected {self.nodes} numbers >= 0, got {groups!r}")
        ends = np.sort(group[self.edges], axis=1)
        crossing = ends[:, 0] != ends[:, 1]
        pairs, which = np.unique(ends[crossing], axis=0, return_inverse=True)
        conductance = np.bincount(which.ravel(), self.conductance[crossing], len(pairs))
        return ResistorNetwork(pairs, conductance, np.bincount(group, self.leak))

    def to_netlist(self, source: Any, title: str = "resistor network") -> str:
        """SPICE text of the network and its sources, for the operating point.

        Node p is ``n<p>``, or ``n<i>_<j>`` on a grid; nodes without any resistor are left out. All
        leaks return through the probe ``Vnground``.

        Parameters
        ----------
        source : array_like, shape (n,)
            Ampere.
        title : str
        """
        return network_netlist(self, finite_array("source", source, 1), title)
