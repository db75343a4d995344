"""Circuits and trained cells as SPICE text, in lines that ngspice, LTspice and Xyce all read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chonn_ops.checks import (
    GRID_AXES,
    any_complex,
    check_above,
    check_integer,
    check_shape,
    check_tensor,
    error,
)
from chonn_ops.inspect.reading import SolvedNetworks
from chonn_ops.network.circuit import Circuit
from chonn_ops.network.discretise.grids import Spacing
from chonn_ops.network.discretise.volumes import FiniteVolumes
from chonn_ops.nn import CircuitHead, KirchhoffCell, NetworkCell
from chonn_ops.scan import kirchhoff_scan

# Rise time of a jump and longest step of a simulation, relative to the mean interval. A jump takes
# a tenth of an interval that is shorter than ten rise times.
_RISE, _LONGEST_STEP = 1e-5, 0.02
# Shortest interval relative to the mean one: the simulator's clock resolves no shorter ones.
_SHORTEST = 1e-7


def to_netlist(
    cell: KirchhoffCell | NetworkCell | CircuitHead | Circuit,
    u: Tensor,
    *,
    channel: int | None = None,
    reverse: bool = False,
    spacing: Spacing | None = None,
    mask: Tensor | None = None,
    volumes: FiniteVolumes | None = None,
    omega: float | None = None,
) -> str:
    """SPICE text of a circuit with its source, or of a cell at an input, where it is one.

    One channel of a scan cell is N parallel RC stages of capacitance 1 and conductance `decay`.
    Position k takes the time Delta_k. The input u and the coefficients b and c computed from it are
    sources, held during each position; controlled sources inject b u and read out c v + d u. The
    transient starts from the initial state that the boundary condition gives. It measures the
    potential of node ``y`` at the end of position k = 1..L as ``y_k``: the cell's output there.

    A circuit, a network cell and a circuit head are written with all their networks: a resistor for
    each edge, leak and wall, and a current source for each node. A node that `Circuit.hold` holds
    has a voltage source instead, with the current into what holds it. Node (i, j) of network c is
    ``n<c>_<i>_<j>``, node i of a graph ``n<c>_<i>``, and the probe ``Vn<c>_ground``, a voltage
    source of 0 V, carries the sum of the leak currents. The potentials of the operating point are
    those of the circuit, and the output of the cell, to the tolerance `Network.tol`. Those of a
    head are in the unit of its output, and differ from the output by its term z h^2 f / k, see
    `CircuitHead`. Nodes without edges and leaks, as those outside the mask, are left out.

    Complex admittances y of a circuit are resistors 1 / Re y beside coils or capacitors, which have
    Im y at `omega`. The analysis is ``.ac`` then, as with complex sources.

    A circuit head at a frequency (``ac=True``) is written as a circuit of coils, capacitors and
    resistors that has its potentials at `omega`: conductivities are coils, leaks are coils or
    capacitors, and losses resistors. The analysis is ``.ac``.

    SPICE counts phases the other way round: its complex potentials are the conjugates of ours.

    Parameters
    ----------
    cell : KirchhoffCell, NetworkCell, CircuitHead or Circuit
    u : Tensor, shape (1, L, D) or (1, \\*grid, D)
        One line of the field for a scan cell, the field for a network cell or head; \\*grid is N
        with `volumes`. The source of a circuit, as its `solve` takes it.
    channel : int, optional
        Channel of a scan cell; 0 by default.
    reverse : bool
        Scan cells only: scan from the last position to the first. The output of a cell that scans
        in both directions is the mean of the two, with the second in reverse order.
    spacing, mask, volumes : optional
        Network cells and heads only, see `NetworkCell`.
    omega : float, optional
        Complex circuits and heads at a frequency only: angular frequency > 0, by default 1 / s.

    Returns
    -------
    str

    Raises
    ------
    TypeError
        For any other module.
    ValueError
        For a wrong shape, a channel that does not exist, or options of another kind of cell.

    Examples
    --------
    >>> import torch
    >>> from chonn_ops.inspect import to_netlist
    >>> from chonn_ops.nn import Network, NetworkCell
    >>> text = to_netlist(NetworkCell(4, 2, Network(num_networks=1)), torch.randn(1, 8, 8, 4))
    >>> text.splitlines()[0]
    'NetworkCell: 1 network of 8 x 8 nodes'
    """
    if isinstance(cell, Circuit):
        if channel is not None or reverse or not (spacing is mask is volumes is None):
            raise ValueError(
                "channel, reverse, spacing, mask, volumes: expected None and False for a Circuit"
            )
        return _circuit(cell, u, omega)
    if isinstance(cell, (NetworkCell, CircuitHead)):
        if channel is not None or reverse:
            kind = type(cell).__name__
            raise ValueError(f"channel, reverse: expected None and False for a {kind}")
        return _networks(cell, u, {"spacing": spacing, "mask": mask, "volumes": volumes}, omega)
    if not isinstance(cell, KirchhoffCell):
        kinds = "KirchhoffCell, NetworkCell, CircuitHead or Circuit"
        raise TypeError(f"cell: expected a {kinds}, got {type(cell).__name__}")
    if any(option is not None for option in (spacing, mask, volumes, omega)):
        raise ValueError("spacing, mask, volumes, omega: expected None for a KirchhoffCell")
    return _line(cell, u, 0 if channel is None else channel, reverse)


def _networks(
    cell: NetworkCell | CircuitHead, u: Tensor, geometry: dict[str, Any], omega: float | None
) -> str:
    ac = getattr(cell, "ac", False)
    frequency = _frequency(omega, ac, "None without ac=True")
    _check_one_sample(u, cell.spatial_dims if geometry["volumes"] is None else 1, cell.dim)
    with torch.no_grad():
        solved = SolvedNetworks.of_call(cell, cell(u, **geometry), u, **geometry)
        # -div(k grad v) - omega^2 c v - i omega d v = f, times i / omega, is a law of currents.
        return _analysis(type(cell).__name__, solved.circuit, solved.density, frequency, ac)


def _circuit(circuit: Circuit, source: Tensor, omega: float | None) -> str:
    shape = (1, *circuit.leak.shape[1:])
    for name, field in (("circuit", circuit.leak), ("u", source), ("circuit", circuit.current)):
        if field is not None and field.shape != shape:
            raise error(name, f"one network a channel, and one source, {shape}", tuple(field.shape))
    ac = any_complex(source, circuit.leak, circuit.current, *circuit.conductance)
    frequency = _frequency(omega, ac, "None without complex numbers")
    with torch.no_grad():
        return _analysis("Circuit", circuit, source, frequency)


def _frequency(omega: float | None, ac: bool, otherwise: str) -> float | None:
    """The angular frequency of an analysis, None at direct current."""
    if not ac and omega is not None:
        raise error("omega", otherwise, omega)
    omega = 1.0 if omega is None else omega
    check_above(0, omega=omega)
    return omega if ac else None


def _analysis(
    name: str, circuit: Circuit, density: Tensor, omega: float | None, waves: bool = False
) -> str:
    """A netlist of all networks of the first sample, at a frequency where there is an `omega`."""
    lines: list[str] = []
    count = circuit.leak.shape[-1]
    for c in range(count):
        lines += [f"* network {c}", *_elements(circuit, density, c, omega, waves)]
    if omega is None:
        lines.append(".op")
    else:
        # The search for an operating point would fail: at frequency 0 any current may circulate in
        # a ring of coils.
        frequency = _number(omega / (2 * np.pi))
        driven = [line.split()[0][1:] for line in lines if line[0] in "IV"]
        lines += [".options noopac", f".ac lin 1 {frequency} {frequency}"]
        lines += [f".print ac vr({node}) vi({node})" for node in driven]
    nodes = " x ".join(str(n) for n in circuit.leak.shape[1:-1])
    plural = "" if count == 1 else "s"
    return _deck(f"{name}: {count} network{plural} of {nodes} nodes", lines)


def _elements(
    circuit: Circuit, density: Tensor, network: int, omega: float | None, waves: bool
) -> list[str]:
    """The elements of one network of the first sample. Nodes without an element are left out.
    Numbers are admittances and currents; of `waves` those times i / omega are."""
    whole = circuit.before or circuit
    factor = 1j / omega if waves and omega else 1.0

    def numbers(field: Tensor) -> np.ndarray:
        array = field[0, ..., network].detach().cpu().to(torch.complex128).numpy()
        return (factor * array).conj().ravel()

    leak, source = numbers(whole.leak), numbers(whole.source(density))
    held: dict[int, complex] = {}
    if circuit.held is not None and circuit.current is not None:
        value = circuit.current[0, ..., network].cpu().to(torch.complex128).flatten()
        places = circuit.held[0, ..., network].cpu().flatten().nonzero()[:, 0].tolist()
        held = {place: complex(value[place].conj()) for place in places}
    places = ["_".join(map(str, place)) for place in np.ndindex(*whole.layout.shape)]
    names = [f"n{network}_{place}" for place in places]
    ground = f"n{network}_ground" if omega is None else "0"
    lines: list[str] = []
    joined = set(held)
    edge, ends = whole.layout.edge_ends()
    conductance = np.concatenate([numbers(g) for g in whole.conductance])[edge]
    for p, q, y in zip(*ends.tolist(), conductance, strict=True):
        for part, value in _parts(y, omega):
            element = f"{part}{names[p]}_to_{places[q]}"
            lines.append(f"{element} {names[p]} {names[q]} {_number(value)}")
            joined |= {p, q}
    for p, name in enumerate(names):
        parts = _parts(leak[p], omega)
        lines += [f"{part}{name} {name} {ground} {_number(value)}" for part, value in parts]
        if p in held:
            lines.append(f"V{name} {name} 0 {_amplitude(held[p], omega)}")
        elif parts or p in joined:
            lines.append(f"I{name} 0 {name} {_amplitude(source[p], omega)}")
    return lines if omega else [*lines, f"V{ground} {ground} 0 0"]


def _amplitude(value: complex, omega: float | None) -> str:
    if omega is None:
        return _number(value.real)
    return f"AC {_number(abs(value))} {_number(np.degrees(np.angle(value)))}"


def _parts(y: complex, omega: float | None) -> list[tuple[str, float]]:
    """Kinds and values of the elements side by side that have an admittance."""
    parts = [("R", 1 / y.real)] if y.real else []
    if omega is not None and y.imag:
        parts.append(("L", -1 / (omega * y.imag)) if y.imag < 0 else ("C", y.imag / omega))
    return parts


def _line(cell: KirchhoffCell, u: Tensor, channel: int, reverse: bool) -> str:
    _check_one_sample(u, 1, cell.dim)
    check_integer(0, channel=channel)
    if channel >= cell.dim:
        raise ValueError(f"channel: expected 0 to {cell.dim - 1}, got {channel}")
    if reverse and cell.options.directions == "raster":
        raise ValueError("reverse: expected False, as directions='raster' scans forward only")
    with torch.no_grad():
        delta, b, c = cell.coefficients(u)
        decay, skip = cell.decay, cell.skip.detach()
        start = _start(cell, u.to(delta.dtype), delta, decay, b, reverse)[0, channel]
    fields = [u[0, :, channel], delta[0, :, channel], *b[0].T, *c[0].T]
    if reverse:
        fields = [field.flip(0) for field in fields]
    drive, steps, *coefficients = (f.detach().cpu().double().numpy() for f in fields)
    longer = np.maximum(steps, _SHORTEST * steps.mean())
    times = np.concatenate(([0.0], np.cumsum(longer)))
    lines = [f"Vu u 0 {_held(times, drive)}"]
    read = []
    for n in range(cell.options.d_state):
        injection = coefficients[n] * steps / longer
        readout = coefficients[cell.options.d_state + n]
        lines += [
            f"* state {n}",
            f"Vb{n} b{n} 0 {_held(times, injection)}",
            f"Vc{n} c{n} 0 {_held(times, readout)}",
            f"C{n} v{n} 0 1 IC={_number(start[n])}",
        ]
        if decay[channel, n]:
            lines.append(f"R{n} v{n} 0 {_number(1 / float(decay[channel, n]))}")
        lines.append(f"B{n} 0 v{n} I=V(b{n})*V(u)")
        read.append(f"V(c{n})*V(v{n})")
    lines += ["* output", f"By y 0 V={'+'.join(read)}+({_number(skip[channel])})*V(u)"]
    mean = float(times[-1]) / (len(times) - 1)
    step = _number(_LONGEST_STEP * mean)
    lines += [
        f".options reltol=1e-6 vntol=1e-9 abstol=1e-12 minbreak={_number(0.01 * _SHORTEST * mean)}",
        ".save v(y)",
        f".tran {step} {_number(times[-1])} 0 {step} uic",
    ]
    lines += [
        f".meas tran y_{k} FIND v(y) AT={_number(moment)}" for k, moment in enumerate(times[1:], 1)
    ]
    direction = ", reversed" if reverse else ""
    size = f"{cell.options.d_state} states, {len(drive)} positions"
    return _deck(f"KirchhoffCell: channel {channel}, {size}{direction}", lines)


def _start(
    cell: KirchhoffCell, u: Tensor, delta: Tensor, decay: Tensor, b: Tensor, reverse: bool
) -> Tensor:
    """State before the first position of a line in one direction, (1, D, N)."""

    def final(backward: bool, boundary: str) -> Tensor:
        modes: Any = {"reverse": backward, "boundary": boundary, "return_state": True}
        return kirchhoff_scan(u, delta, decay, b, b, passive=cell.options.constrained, **modes)[1]

    if cell.boundary == "periodic":
        return final(reverse, "periodic")
    if cell.boundary in ("neumann", "dirichlet") and reverse:
        forward = final(False, "matched")
        return forward if cell.boundary == "neumann" else -forward
    return torch.zeros(1, *decay.shape)


def _check_one_sample(u: Tensor, axes: int, dim: int) -> None:
    check_tensor("u", u)
    check_shape("u", u, 1, *(("L",) if axes == 1 else GRID_AXES[:axes]), dim)


def _number(value: Any) -> str:
    """The number with all digits of a double."""
    return repr(float(value))


def _held(times: np.ndarray, values: np.ndarray) -> str:
    """The value of a source that is values[k] between times[k] and times[k + 1]."""
    steps = np.diff(times)
    rise = np.minimum(_RISE * steps.mean(), 0.1 * steps)
    points = [f"0 {_number(values[0])}"]
    for k, moment in enumerate(times[1:-1]):
        points.append(f"{_number(moment)} {_number(values[k])}")
        points.append(f"{_number(moment + rise[k + 1])} {_number(values[k + 1])}")
    points.append(f"{_number(times[-1])} {_number(values[-1])}")
    rows = [" ".join(points[i : i + 4]) for i in range(0, len(points), 4)]
    return "PWL(" + "\n+ ".join(rows) + ")"


def _deck(title: str, lines: Iterable[str]) -> str:
    """A netlist: the title, the lines and the end."""
    return "\n".join([title, *lines, ".end", ""])
