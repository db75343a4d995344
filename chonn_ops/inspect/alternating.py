"""Networks of coils, capacitors and resistors on any graph, at any frequency."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from chonn_ops.inspect._checks import Array, check_positive
from chonn_ops.inspect._optional import import_optional
from chonn_ops.inspect.spice import at_frequency, deck, edge_names, node_names, number

# The most that rounding of the elements may change, relative to the sources: near a resonance
# potentials have this relative error.
_DETERMINED = 1e-3


@dataclass(frozen=True, eq=False)
class RLCNetwork:
    r"""Nodes, edges of a resistor, a coil and a capacitor in series, and leaks to ground.

    A leak is a conductance, a capacitor and a coil in parallel. At the angular frequency omega,
    with potentials :math:`\mathrm{Re}(v\,e^{-i \omega t})`, Kirchhoff's current law at node p is
    :math:`\sum_q y_{pq} (v_p - v_q) + l_p v_p = s_p`, with

    .. math::

        y = \frac{1}{R - i \omega L + i / (\omega C)}, \qquad
        l = G - i \omega C_{leak} + \frac{i}{\omega L_{leak}}

    An electrical engineer, who writes :math:`e^{+j \omega t}`, has the complex conjugates.

    Parameters
    ----------
    edges : array_like of int, shape (E, 2)
        The two nodes of each edge.
    resistance, inductance : float or array_like, shape (E,)
        >= 0, ohm and henry.
    capacitance : float or array_like, shape (E,)
        > 0, farad; infinite for none.
    leak, leak_capacitance : array_like, shape (n,), or float
        Conductance and capacitance of each node to ground, >= 0; one of the three an array.
    leak_inductance : float or array_like, shape (n,)
        > 0; infinite for none.
    shape : sequence of int, optional
        Grid whose nodes, in C order, these are; netlists name the nodes by it. Default: (n,).

    Raises
    ------
    ValueError
        For shapes that do not match, numbers outside these ranges, edges from a node to itself or
        to a node that does not exist, and edges without any impedance.

    References
    ----------
    C. Desoer, E. Kuh, "Basic Circuit Theory" (1969), chapters 7 and 9.

    Examples
    --------
    A coil into a capacitor and a resistor: a low-pass filter.

    >>> low_pass = RLCNetwork([(0, 1)], inductance=1.0, leak=[0, 1.0], leak_capacitance=[0, 1.0])
    >>> abs(low_pass.transfer([1e-6], 0, 1)).round(3).tolist()
    [1.0]
    """

    edges: Array
    resistance: Array
    inductance: Array
    capacitance: Array
    leak: Array
    leak_capacitance: Array
    leak_inductance: Array
    shape: tuple[int, ...] = ()

    def __init__(
        self,
        edges: Any,
        resistance: Any = 0.0,
        inductance: Any = 0.0,
        capacitance: Any = math.inf,
        *,
        leak: Any = 0.0,
        leak_capacitance: Any = 0.0,
        leak_inductance: Any = math.inf,
        shape: Sequence[int] | None = None,
    ) -> None:
        given = np.asarray(edges if np.size(edges) else np.empty((0, 2), dtype=np.int64))
        if given.ndim != 2 or given.shape[1] != 2 or given.dtype.kind not in "iu":
            raise ValueError(
                f"edges: expected integers of shape (E, 2), got {given.dtype}, {given.shape}"
            )
        pairs = np.array(given, dtype=np.int64)
        leaks = [leak, leak_capacitance, leak_inductance]
        n = math.prod(shape) if shape is not None else max(np.size(values) for values in leaks)
        object.__setattr__(self, "shape", (n,) if shape is None else tuple(shape))
        if len(pairs) and not (pairs.min() >= 0 and pairs.max() < n):
            raise ValueError(
                f"edges: expected nodes 0 to {n - 1}, got {pairs.min()}, {pairs.max()}"
            )
        if (pairs[:, 0] == pairs[:, 1]).any():
            raise ValueError("edges: expected two different nodes per edge, got a loop")
        object.__setattr__(self, "edges", pairs)
        for name, values, size, positive in (
            ("resistance", resistance, len(pairs), False),
            ("inductance", inductance, len(pairs), False),
            ("capacitance", capacitance, len(pairs), True),
            ("leak", leak, n, False),
            ("leak_capacitance", leak_capacitance, n, False),
            ("leak_inductance", leak_inductance, n, True),
        ):
            object.__setattr__(self, name, _values(name, values, size, positive))
        bare = (self.resistance == 0) & (self.inductance == 0) & np.isinf(self.capacitance)
        if bare.any():
            first = tuple(int(node) for node in pairs[bare.argmax()])
            raise ValueError(f"edges: expected an impedance on each, got none on {first}")

    @property
    def nodes(self) -> int:
        """Number of nodes n."""
        return len(self.leak)

    def admittances(self, omega: float) -> tuple[Array, Array]:
        """Admittances of the edges (E,) and the leaks (n,) at a frequency, complex, siemens.

        Raises
        ------
        ValueError
            For a frequency not above 0, or an edge in resonance, which has no impedance.
        """
        check_positive(omega=omega)
        reactance = -omega * self.inductance + 1 / (omega * self.capacitance)
        impedance = self.resistance + 1j * reactance
        if (impedance == 0).any():
            where = tuple(int(node) for node in self.edges[(impedance == 0).argmax()])
            raise ValueError(f"omega: expected no resonance of an edge, got one of {where}")
        susceptance = 1 / (omega * self.leak_inductance) - omega * self.leak_capacitance
        return 1 / impedance, self.leak + 1j * susceptance

    def matrix(self, omega: float) -> Any:
        """The nodal matrix at a frequency, sparse (n, n), complex and symmetric."""
        from scipy.sparse import coo_array, diags_array

        y, leak = self.admittances(omega)
        p, q = self.edges.T
        places = (np.concatenate((p, q)), np.concatenate((q, p)))
        joined = coo_array((np.concatenate((y, y)), places), shape=(self.nodes,) * 2).tocsc()
        return (diags_array(leak + joined.sum(1)) - joined).tocsc()

    def potentials(self, source: Any, omega: float) -> Array:
        """Potentials for currents into the nodes, complex.

        Parameters
        ----------
        source : array_like, shape (n,) or (n, k)
            Complex amplitudes, ampere.
        omega : float
            > 0, 1 / s.

        Raises
        ------
        ValueError
            For another shape, or a network in resonance or with a part without a leak, whose
            potentials are not determined: rounding changes them by more than a thousandth.
        """
        from scipy.sparse.linalg import splu

        s = _source(source, self.nodes, (1, 2))
        try:
            v = splu(self.matrix(omega)).solve(s)
        except RuntimeError:  # SuperLU's for a singular matrix
            v = np.full_like(s, np.nan)
        # Rounding of the elements moves currents by this much.
        y, _ = self.admittances(omega)
        leak = self.leak + omega * self.leak_capacitance + 1 / (omega * self.leak_inductance)
        p, q = self.edges.T
        size = abs(v.T)
        through = abs(y) * (size[..., p] + size[..., q])
        moved = leak * size
        for ends in (p, q):
            np.add.at(moved.T, ends, through.T)
        moved = np.finfo(float).eps * np.linalg.norm(moved, axis=-1)
        if not (moved <= _DETERMINED * np.linalg.norm(s.T, axis=-1)).all():
            raise ValueError(
                "omega: expected a frequency at which the potentials are determined, got "
                f"{omega}, where the network is in resonance or has a part without leak"
            )
        return v

    def power(self, v: Any, omega: float) -> Array:
        """Mean power that each edge (E,) and each leak (n,) dissipates, one array, watt; its sum is
        that of the sources, half the real part of conj(v) s. No entry is negative."""
        v = np.asarray(v, dtype=np.complex128)
        if v.shape != (self.nodes,):
            raise ValueError(f"v: expected shape ({self.nodes},), got {v.shape}")
        y, leak = self.admittances(omega)
        drop = v[self.edges[:, 0]] - v[self.edges[:, 1]]
        return np.concatenate((y.real * abs(drop) ** 2, leak.real * abs(v) ** 2)) / 2

    def transfer(self, omega: Any, p: int, q: int) -> Array:
        """Transfer impedance at frequencies (k,): potential at node q for 1 A into node p, complex,
        ohm. The same with p and q exchanged: the network is reciprocal. ``transfer(omega, p, p)``
        is the impedance from p to ground. Errors are those of `potentials`."""
        self._check_nodes(p=p, q=q)
        pulse = np.zeros(self.nodes)
        pulse[p] = 1
        return np.array([self.potentials(pulse, w)[q] for w in _frequencies(omega)])

    def impedance(self, omega: Any, p: int, q: int) -> Array:
        """Impedance between two nodes at frequencies (k,), complex, ohm. Errors are those of
        `potentials`."""
        self._check_nodes(p=p, q=q)
        pulse = np.zeros(self.nodes)
        pulse[p] += 1
        pulse[q] -= 1
        found = [self.potentials(pulse, w) for w in _frequencies(omega)]
        return np.array([v[p] - v[q] for v in found])

    def _check_nodes(self, **nodes: Any) -> None:
        for name, node in nodes.items():
            if not isinstance(node, (int, np.integer)) or not 0 <= node < self.nodes:
                raise ValueError(f"{name}: expected a node, 0 to {self.nodes - 1}, got {node!r}")

    def to_netlist(self, source: Any, omega: float, title: str = "RLC network") -> str:
        """SPICE text of the network and its sources, for the analysis ``.ac`` at one frequency.

        Node p is ``n<p>``, or ``n<i>_<j>`` on a grid; nodes without an element are left out. SPICE
        writes :math:`e^{+j \\omega t}`, so its potentials are the complex conjugates of
        `potentials`.

        Parameters
        ----------
        source : array_like, shape (n,)
            Complex amplitudes, ampere.
        omega : float
            > 0, 1 / s.
        title : str
        """
        check_positive(omega=omega)
        lines = rlc_lines(self, _source(source, self.nodes, (1,)))
        return deck(title, at_frequency(omega, lines))


def _source(source: Any, nodes: int, axes: tuple[int, ...]) -> Array:
    """Finite currents into the nodes, one column or several."""
    s = np.asarray(source, dtype=np.complex128)
    if s.ndim not in axes or len(s) != nodes or not np.isfinite(s).all():
        expected = " or ".join(("", f"({nodes},)", f"({nodes}, k)")[n] for n in axes)
        raise ValueError(f"source: expected finite numbers of shape {expected}, got {s.shape}")
    return s


def _frequencies(omega: Any) -> Array:
    """Angular frequencies (k,); each one is checked where it is used."""
    found = np.atleast_1d(omega)
    if found.ndim != 1 or found.dtype.kind not in "iuf":
        raise ValueError(f"omega: expected numbers > 0 of shape (k,), got {omega!r}")
    return found


def _values(name: str, values: Any, size: int, positive: bool) -> Array:
    array = np.array(np.broadcast_to(np.asarray(values, dtype=np.float64), (size,))
                     if np.ndim(values) == 0 else values, dtype=np.float64)  # fmt: skip
    if array.shape != (size,):
        raise ValueError(f"{name}: expected shape ({size},), got {array.shape}")
    most = array <= math.inf if positive else array < math.inf
    if not ((array > 0 if positive else array >= 0) & most).all():
        expected = "numbers > 0" if positive else "finite numbers >= 0"
        raise ValueError(f"{name}: expected {expected}, got {array.min()} to {array.max()}")
    array.flags.writeable = False
    return array


def draw_bode(omega: Any, response: Any) -> Any:
    """Bode plot: modulus in decibel and phase of a complex response over the frequency.

    Parameters
    ----------
    omega : array_like, shape (k,)
        Angular frequencies > 0.
    response : array_like, shape (k,)
        Complex, of `RLCNetwork.transfer` or `RLCNetwork.impedance`. The phase is an electrical
        engineer's: that of the complex conjugate.

    Returns
    -------
    matplotlib.figure.Figure
        ``figure.savefig("bode.svg")`` writes it.

    Raises
    ------
    ValueError
        For shapes that do not match, frequencies not above 0, or responses that are not finite.
    ImportError
        Without Matplotlib (``pip install '.[circuit]'`` in a clone).
    """
    omega, response = np.asarray(omega, dtype=np.float64), np.asarray(response, dtype=complex)
    if omega.ndim != 1 or omega.shape != response.shape or not omega.size:
        raise ValueError(
            f"omega, response: expected two equal shapes (k,), got {omega.shape}, {response.shape}"
        )
    check_positive(omega=float(omega.min()))
    check_positive(omega=float(omega.max()))
    if not np.isfinite(response).all():
        raise ValueError("response: expected finite numbers, got NaN or infinity")
    figure = import_optional("matplotlib.figure", "circuit").Figure(
        figsize=(6, 4), layout="constrained"
    )
    modulus, phase = figure.subplots(2, sharex=True)
    tiny = np.finfo(float).tiny
    modulus.semilogx(omega, 20 * np.log10(np.maximum(abs(response), tiny)))
    modulus.set_ylabel("modulus, dB")
    phase.semilogx(omega, np.degrees(np.unwrap(np.angle(response.conj()))))
    phase.set(xlabel="angular frequency, 1 / s", ylabel="phase, degrees")
    for panel in (modulus, phase):
        panel.grid(True, which="both", alpha=0.3)
    return figure


def rlc_lines(network: RLCNetwork, source: Array, prefix: str = "n") -> list[str]:
    """Elements of a network of coils, capacitors and resistors, and the sources of its analysis
    ``.ac``. Nodes without an element are left out."""
    names = node_names(network.shape, prefix)
    if source.shape != network.leak.shape:
        raise ValueError(f"source: expected shape {network.leak.shape}, got {source.shape}")
    lines: list[str] = []
    joined = np.zeros(network.nodes, dtype=bool)
    joined[network.edges] = True
    values = (network.resistance, network.inductance, network.capacitance)
    named = edge_names(network.edges, names)
    for name, (p, q), *edge in zip(named, network.edges, *values, strict=True):
        parts = [
            (letter, value) for letter, value in zip("RLC", edge, strict=True) if 0 < value < np.inf
        ]
        between = [f"{name}_{letter}" for letter, _ in parts[:-1]]
        for (letter, value), a, b in zip(
            parts, [names[p], *between], [*between, names[q]], strict=True
        ):
            lines.append(f"{letter}{name} {a} {b} {number(value)}")
    for p, name in enumerate(names):
        leaks = (
            ("R", 1 / network.leak[p] if network.leak[p] else np.inf),
            ("C", network.leak_capacitance[p]),
            ("L", network.leak_inductance[p]),
        )
        found = [f"{letter}{name} {name} 0 {number(value)}"
                 for letter, value in leaks if 0 < value < np.inf]  # fmt: skip
        lines += found
        if found or joined[p]:
            amplitude = source[p].conjugate()
            degrees = np.degrees(np.angle(amplitude))
            lines.append(f"I{name} 0 {name} AC {number(abs(amplitude))} {number(degrees)}")
    return lines
