"""Trained cells as SPICE text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from chonn_ops.checks import check_integer, check_tensor
from chonn_ops.inspect._checks import check_positive
from chonn_ops.inspect.alternating import rlc_lines
from chonn_ops.inspect.networks import network_lines
from chonn_ops.inspect.reading import SolvedNetworks, record_networks
from chonn_ops.inspect.spice import (
    SHORTEST,
    at_frequency,
    deck,
    held,
    number,
    resistor,
    transient,
)
from chonn_ops.nn import KirchhoffCell, NetworkCell
from chonn_ops.scan import kirchhoff_scan


def to_netlist(
    cell: KirchhoffCell | NetworkCell,
    u: Tensor,
    *,
    channel: int | None = None,
    reverse: bool = False,
    spacing: Sequence[float] | None = None,
    mask: Tensor | None = None,
    omega: float | None = None,
) -> str:
    """SPICE text of a cell at an input, where it is a linear circuit.

    One channel of a scan cell is N parallel RC stages of capacitance 1 and conductance `decay`.
    Position k takes the time Delta_k. The input u and the coefficients b and c computed from it are
    sources, held during each position; controlled sources inject b u and read out c v + d u. The
    transient starts from the initial state that the boundary condition gives. It measures the
    potential of node ``y`` at the end of position k = 1..L as ``y_k``: the cell's output there.

    A network cell is written with all its networks: a resistor for each edge, leak and wall, and a
    current source for each node. Node (i, j) of network c is ``n<c>_<i>_<j>``, and the probe
    ``Vn<c>_ground`` carries the sum of the leak currents. The potentials of the operating point are
    the output of the cell, to the tolerance `Network.tol`. Nodes outside the mask are left out.

    A network cell at a frequency (``Network(ac=True)``) is written as a circuit of coils,
    capacitors and resistors that has its potentials at `omega`: conductivities are coils, leaks are
    coils or capacitors, and losses resistors. The analysis is ``.ac``. SPICE counts phases the
    other way round: its potentials are the complex conjugates of the cell's.

    Parameters
    ----------
    cell : KirchhoffCell or NetworkCell
    u : Tensor, shape (1, L, D) or (1, \\*grid, D)
        One line of the field for a scan cell, the field for a network cell.
    channel : int, optional
        Channel of a scan cell; 0 by default.
    reverse : bool
        Scan cells only: scan from the last position to the first. The output of a cell that scans
        in both directions is the mean of the two, with the second in reverse order.
    spacing, mask : optional
        Network cells only, see `NetworkCell`.
    omega : float, optional
        Network cells at a frequency only: angular frequency > 0, by default 1 / s.

    Returns
    -------
    str

    Raises
    ------
    TypeError
        For any other module.
    ValueError
        For a wrong shape, a channel that does not exist, or options of the other kind of cell.

    Examples
    --------
    >>> text = to_netlist(NetworkCell(4, 2, Network(num_networks=1)), torch.randn(1, 8, 8, 4))
    >>> text.splitlines()[0]
    'NetworkCell: 1 network of 8 x 8 nodes'
    """
    if isinstance(cell, NetworkCell):
        if channel is not None or reverse:
            raise ValueError("channel, reverse: expected None and False for a NetworkCell")
        if cell.options.ac:
            check_positive(omega=1.0 if omega is None else omega)
        elif omega is not None:
            raise ValueError(f"omega: expected None without Network(ac=True), got {omega}")
        return _networks(cell, u, spacing, mask, 1.0 if omega is None else omega)
    if not isinstance(cell, KirchhoffCell):
        raise TypeError(f"cell: expected a KirchhoffCell or NetworkCell, got {type(cell).__name__}")
    if spacing is not None or mask is not None or omega is not None:
        raise ValueError("spacing, mask, omega: expected None for a KirchhoffCell")
    return _line(cell, u, 0 if channel is None else channel, reverse)


def _networks(
    cell: NetworkCell,
    u: Tensor,
    spacing: Sequence[float] | None,
    mask: Tensor | None,
    omega: float,
) -> str:
    _check_one_sample(u, cell.spatial_dims, cell.dim)
    found: list[SolvedNetworks] = []
    record_networks(lambda: cell(u, None if spacing is None else list(spacing), mask), found.append)
    solved = found[0]
    lines: list[str] = []
    for c in range(cell.options.num_networks):
        lines.append(f"* network {c}")
        if cell.options.ac:
            lines += rlc_lines(*solved.rlc_network(0, c, omega), f"n{c}_")
        else:
            lines += network_lines(*solved.network(0, c), f"n{c}_")
    nodes = " x ".join(str(n) for n in u.shape[1:-1])
    count = cell.options.num_networks
    plural = "" if count == 1 else "s"
    title = f"{type(cell).__name__}: {count} network{plural} of {nodes} nodes"
    return deck(title, at_frequency(omega, lines) if cell.options.ac else [*lines, ".op"])


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
    drive, steps, *coefficients = (_array(field) for field in fields)
    longer = np.maximum(steps, SHORTEST * steps.mean())
    times = np.concatenate(([0.0], np.cumsum(longer)))
    lines = [f"Vu u 0 {held(times, drive)}"]
    read = []
    for n in range(cell.options.d_state):
        injection = coefficients[n] * steps / longer
        readout = coefficients[cell.options.d_state + n]
        lines += [
            f"* state {n}",
            f"Vb{n} b{n} 0 {held(times, injection)}",
            f"Vc{n} c{n} 0 {held(times, readout)}",
            f"C{n} v{n} 0 1 IC={number(float(start[n]))}",
            *resistor(str(n), f"v{n}", "0", float(decay[channel, n])),
            f"B{n} 0 v{n} I=V(b{n})*V(u)",
        ]
        read.append(f"V(c{n})*V(v{n})")
    lines += ["* output", f"By y 0 V={'+'.join(read)}+({number(float(skip[channel]))})*V(u)"]
    direction = ", reversed" if reverse else ""
    size = f"{cell.options.d_state} states, {len(drive)} positions"
    title = f"KirchhoffCell: channel {channel}, {size}{direction}"
    return deck(title, [*lines, *transient(times, ["y"])])


def _start(
    cell: KirchhoffCell, u: Tensor, delta: Tensor, decay: Tensor, b: Tensor, reverse: bool
) -> Tensor:
    """State before the first position of a line in one direction, (1, D, N)."""

    def final(backward: bool, boundary: str) -> Tensor:
        return kirchhoff_scan(
            u,
            delta,
            decay,
            b,
            b,
            reverse=backward,
            return_state=True,
            boundary=boundary,
            passive=cell.options.constrained,
        )[1]

    if cell.boundary == "periodic":
        return final(reverse, "periodic")
    if cell.boundary in ("neumann", "dirichlet") and reverse:
        forward = final(False, "matched")
        return forward if cell.boundary == "neumann" else -forward
    return torch.zeros(1, *decay.shape)


def _check_one_sample(u: Tensor, axes: int, dim: int) -> None:
    check_tensor("u", u)
    if u.dim() != axes + 2 or u.shape[0] != 1 or u.shape[-1] != dim or not u.numel():
        grid = "L" if axes == 1 else ", ".join(("H", "W", "T")[:axes])
        raise ValueError(f"u: expected shape (1, {grid}, {dim}), got {tuple(u.shape)}")


def _array(values: Tensor) -> np.ndarray:
    return values.detach().cpu().double().numpy()
