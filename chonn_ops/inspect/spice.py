"""Circuits as SPICE text, in element lines that ngspice, LTspice and Xyce all read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from chonn_ops.inspect._checks import Array

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


def node_names(shape: Sequence[int], prefix: str = "n") -> list[str]:
    """Names of the nodes of a grid in C order: n0_0, n0_1, ..."""
    return [prefix + "_".join(map(str, place)) for place in np.ndindex(*shape)]


def edge_names(edges: Array, names: Sequence[str]) -> list[str]:
    """A name of its own for each edge, edges between the same nodes included."""
    count: Counter[str] = Counter()
    found = []
    for p, q in edges:
        name = f"{names[p]}_{names[q]}"
        count[name] += 1
        found.append(name if count[name] == 1 else f"{name}_{count[name]}")
    return found


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
