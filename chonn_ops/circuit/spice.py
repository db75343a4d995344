"""Circuits as SPICE text, in element lines that ngspice, LTspice and Xyce all read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from chonn_ops.circuit._checks import Array, check_positive, finite_array

if TYPE_CHECKING:
    from chonn_ops.circuit.alternating import RLCNetwork
    from chonn_ops.circuit.cells import Cascade
    from chonn_ops.circuit.networks import ResistorNetwork

# Rise time of a jump and longest step of a simulation, relative to the mean interval. A jump takes
# a tenth of an interval that is shorter than ten rise times.
_RISE, _LONGEST_STEP = 1e-5, 0.02
# Shortest interval relative to the mean one: the simulator's clock resolves no shorter ones.
SHORTEST = 1e-7
_TRANSIENT_OPTIONS = ".options reltol=1e-6 vntol=1e-9 abstol=1e-12"


def number(value: float) -> str:
    """The number with all digits of a double."""
    return repr(float(value))


def resistor(name: str, a: str, b: str, conductance: float) -> list[str]:
    """The line of a resistor; none for a conductance of 0."""
    return [f"R{name} {a} {b} {number(1 / conductance)}"] if conductance else []


def held(times: Array, values: Any) -> str:
    """The value of a source that is values[k] between times[k] and times[k + 1]."""
    steps = np.diff(times)
    rise = np.minimum(_RISE * steps.mean(), 0.1 * steps)
    points = [f"0 {number(values[0])}"]
    for k, moment in enumerate(times[1:-1]):
        risen = moment + rise[k + 1]
        points += [f"{number(moment)} {number(values[k])}"]
        points += [f"{number(risen)} {number(values[k + 1])}"]
    points.append(f"{number(times[-1])} {number(values[-1])}")
    return "PWL(" + wrapped(points) + ")"


def wrapped(words: Sequence[str], width: int = 4) -> str:
    """Words in continued lines, `width` in each."""
    rows = [" ".join(words[i : i + width]) for i in range(0, len(words), width)]
    return "\n+ ".join(rows)


def deck(title: str, lines: Iterable[str]) -> str:
    """A netlist: the title, the lines and the end."""
    return "\n".join([title.replace("\n", " "), *lines, ".end", ""])


def transient(times: Array, outputs: Sequence[str]) -> list[str]:
    """A transient analysis that starts at the IC= of the capacitors, and a measurement of each
    output at the end of interval k = 1 to L, named <output>_k."""
    mean = float(times[-1]) / (len(times) - 1)
    step = number(_LONGEST_STEP * mean)
    saved = " ".join(f"v({name})" for name in outputs)
    lines = [
        f"{_TRANSIENT_OPTIONS} minbreak={number(0.01 * SHORTEST * mean)}",
        f".save {saved}",
        f".tran {step} {number(times[-1])} 0 {step} uic",
    ]
    for name in outputs:
        lines += [
            f".meas tran {name}_{k} FIND v({name}) AT={number(moment)}"
            for k, moment in enumerate(times[1:], 1)
        ]
    return lines


def cascade_netlist(
    cascade: Cascade, u: Any = None, step: float | None = None, title: str = "RC cascade"
) -> str:
    """See `Cascade.to_netlist`."""
    if (u is None) != (step is None):
        raise ValueError("u, step: expected both or neither, got one of them")
    lines: list[str] = []
    count = len(cascade.cells)
    outputs = [f"y{i}" for i in range(1, count + 1)]
    if u is None or step is None:
        rates = [abs(cell.decay) for cell in cascade.cells if cell.decay] or [1.0]
        low, high = 0.01 * min(rates) / (2 * np.pi), 100 * max(rates) / (2 * np.pi)
        drive = "DC 1 AC 1"
        analysis = [
            f".ac dec 20 {number(low)} {number(high)}",
            f".print ac vm({outputs[-1]}) vp({outputs[-1]})",
        ]
    else:
        samples = finite_array("u", u, 1)
        check_positive(step=step)
        if not samples.size:
            raise ValueError("u: expected at least one sample, got none")
        times = step * np.arange(len(samples) + 1)
        drive, analysis = held(times, samples), transient(times, outputs)
    lines.append(f"Vu u 0 {drive}")
    for i, cell in enumerate(cascade.cells, 1):
        before, v, y = f"y{i - 1}" if i > 1 else "u", f"v{i}", f"y{i}"
        lines += [
            f"* stage {i}",
            f"C{i} {v} 0 {number(cell.C)} IC=0",
            *resistor(f"leak{i}", v, "0", cell.G_leak),
            *resistor(f"couple{i}", v, "0", cell.G_p),
            f"G{i} 0 {v} {before} 0 {number(cell.B_p)}",
            f"Ev{i} {y} skip{i} {v} 0 {number(cell.c_o)}",
            f"Eu{i} skip{i} 0 {before} 0 {number(cell.d_o)}",
        ]
    return deck(title, lines + analysis)


def node_names(shape: Sequence[int], prefix: str = "n") -> list[str]:
    """Names of the nodes of a grid in C order: n0_0, n0_1, ..."""
    return [prefix + "_".join(map(str, place)) for place in np.ndindex(*shape)]


def _edge_names(edges: Array, names: Sequence[str]) -> list[str]:
    """A name of its own for each edge, edges between the same nodes included."""
    count: Counter[str] = Counter()
    found = []
    for p, q in edges:
        name = f"{names[p]}_{names[q]}"
        count[name] += 1
        found.append(name if count[name] == 1 else f"{name}_{count[name]}")
    return found


def network_lines(network: ResistorNetwork, source: Array, prefix: str = "n") -> list[str]:
    """Elements of a network: resistors for edges and leaks, current sources, and a probe (a voltage
    source of 0 V) between the leaks and ground. Nodes without a resistor are left out."""
    names = node_names(network.shape, prefix)
    if source.shape != network.leak.shape:
        raise ValueError(f"source: expected shape {network.leak.shape}, got {source.shape}")
    ground = f"{prefix}ground"
    lines: list[str] = []
    joined = network.leak > 0
    edge_names = _edge_names(network.edges, names)
    for name, (p, q), g in zip(edge_names, network.edges, network.conductance, strict=True):
        lines += resistor(name, names[p], names[q], float(g))
        joined[[p, q]] |= g > 0
    for p in np.flatnonzero(joined):
        lines += resistor(names[p], names[p], ground, float(network.leak[p]))
        lines.append(f"I{names[p]} 0 {names[p]} {number(source[p])}")
    return [*lines, f"V{ground} {ground} 0 0"]


def network_netlist(network: ResistorNetwork, source: Array, title: str) -> str:
    """See `ResistorNetwork.to_netlist`."""
    return deck(title, [*network_lines(network, source), ".op"])


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
    edge_names = _edge_names(network.edges, names)
    for name, (p, q), *edge in zip(edge_names, network.edges, *values, strict=True):
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


def at_frequency(omega: float, lines: Sequence[str]) -> list[str]:
    """The lines, the analysis ``.ac`` at one angular frequency, and the output of every node that
    has a source.

    There is no operating point to look for, and with coils in a ring there is none: at frequency 0
    any current may circulate there.
    """
    frequency = number(omega / (2 * np.pi))
    driven = [line.split()[2] for line in lines if line.startswith("I")]
    printed = [f".print ac vr({name}) vi({name})" for name in driven]
    return [*lines, ".options noopac", f".ac lin 1 {frequency} {frequency}", *printed]


def rlc_netlist(network: RLCNetwork, source: Array, omega: float, title: str) -> str:
    """See `RLCNetwork.to_netlist`."""
    return deck(title, at_frequency(omega, rlc_lines(network, source)))
