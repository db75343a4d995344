"""What the cells of a model hold at one sample: fields of networks, rates and poles of lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from chonn_ops.circuit import TransferFunction
from chonn_ops.nn import KirchhoffCell, NetworkCell
from chonn_ops.reading._inspect import read_circuits
from chonn_ops.reading._record import SolvedNetworks

Array = np.ndarray[Any, Any]
# A pole does not count where a zero is that close, relative to the larger modulus.
_CANCELLED = 1e-2
_MOST_CHANNELS = 128


@dataclass(frozen=True)
class NetworkMaps:
    """One call of a network cell at one sample; arrays are (\\*grid, m).

    Parameters
    ----------
    name : str
    conductivity, leak, source, potential : ndarray
        See `chonn_ops.NetworkCell`.
    length_scale : ndarray
        sqrt(k / l), the domain's unit being 1.
    currents : tuple of ndarray
        Current density along each axis at the nodes.
    power : ndarray
        What a node's leak and half of its edges turn into heat.
    """

    name: str
    conductivity: Array
    leak: Array
    source: Array
    potential: Array
    length_scale: Array
    currents: tuple[Array, ...]
    power: Array


@dataclass(frozen=True)
class LineNumbers:
    """One call of a scan cell at one sample, coefficients frozen at the middle position.

    Parameters
    ----------
    name : str
    time_constants : ndarray, shape (P, D, N)
        Of positions spread over the field, in positions.
    poles, zeros : ndarray, shape (C, N)
        Of each of the channels, at the middle position.
    orders : ndarray, shape (C,)
        Poles of a channel without a zero within 1 %.
    """

    name: str
    time_constants: Array
    poles: Array
    zeros: Array
    orders: Array


@dataclass
class Maps:
    """All cells of a model, in the order of their calls."""

    networks: list[NetworkMaps] = field(default_factory=list)
    lines: list[LineNumbers] = field(default_factory=list)


def maps_at(model: nn.Module, call: Callable[[], Any]) -> Maps:
    """Fields of the first sample of a model's call."""
    found = Maps()

    def network(name: str, cell: NetworkCell, inputs: Any, solved: SolvedNetworks) -> None:
        found.networks.append(_network(name, cell, inputs, solved))

    def line(name: str, cell: KirchhoffCell, u: Tensor) -> None:
        found.lines.append(_line(name, cell, u))

    read_circuits(model, call, network, line)
    return found


def _network(name: str, cell: NetworkCell, inputs: Any, solved: SolvedNetworks) -> NetworkMaps:
    k, leak, source = (c[:1].double() for c in cell.coefficients(inputs[0]))
    v, to_ground = solved.potentials[:1].double(), solved.leak[:1].double()
    grid = v.shape[1:-1]
    given = inputs[1] if len(inputs) > 1 else None
    steps = [1 / n for n in grid] if given is None else [float(step) for step in given]
    power, currents = to_ground * v.square(), []
    for axis, (g, ring) in enumerate(zip(solved.conductance, solved.ring, strict=True)):
        g = g[:1].double().clone()
        if not ring:  # the entry of the last node leads nowhere
            g.narrow(axis + 1, grid[axis] - 1, 1).zero_()
        drop = v - v.roll(-1, axis + 1)
        flow, heat = g * drop, g * drop.square()
        edges = ((g > 0).double() + (g.roll(1, axis + 1) > 0).double()).clamp(min=1)
        # Times the step along the current: a density, up to the volume that all axes share.
        currents.append((flow + flow.roll(1, axis + 1)) / edges * steps[axis])
        power = power + (heat + heat.roll(1, axis + 1)) / 2
    length = torch.sqrt(k / leak) / cell._unit

    def array(value: Tensor) -> Array:
        return value[0].cpu().numpy()

    return NetworkMaps(
        name,
        *map(array, (k, leak, source, v, length)),
        currents=tuple(map(array, currents)),
        power=array(power),
    )


def _line(name: str, cell: KirchhoffCell, u: Tensor) -> LineNumbers:
    delta, b, c = (f[:1].flatten(0, -2).double().cpu() for f in cell.coefficients(u))
    decay, skip = cell.decay.double().cpu(), cell.skip.double().cpu()
    spread = torch.linspace(0, len(delta) - 1, min(32, len(delta))).long()
    rates = delta[spread, :, None] * decay
    constants = torch.where(rates > 0, 1 / rates, torch.inf)
    middle = len(delta) // 2
    z = (delta[middle, :, None] * decay)[:_MOST_CHANNELS]
    poles = torch.exp(-z)
    injection = -torch.expm1(-z) / decay[:_MOST_CHANNELS] * b[middle]
    through = (injection * c[middle]).sum(-1) + skip[:_MOST_CHANNELS]
    zeros = _zeros(poles, injection, c[middle], through)
    orders = [_order(*pair) for pair in zip(poles.numpy(), zeros, strict=True)]
    return LineNumbers(name, constants.numpy(), poles.numpy(), zeros, np.array(orders, float))


def _zeros(poles: Tensor, injection: Tensor, readout: Tensor, through: Tensor) -> Array:
    """Zeros of y_k = c (a x_k + b u_k) + d u_k, whose direct path is `through`: the poles of the
    inverse system; NaN where that does not exist."""
    direct = torch.where(through.abs() > 1e-12, through, torch.nan)
    loop = injection[:, :, None] * (readout * poles)[:, None, :] / direct[:, None, None]
    system = torch.diag_embed(poles) - loop
    finite = system.isfinite().all(-1).all(-1)
    zeros = torch.full(poles.shape, torch.nan, dtype=torch.complex128)
    zeros[finite] = torch.linalg.eigvals(system[finite])
    return zeros.numpy()


def _order(poles: Array, zeros: Array) -> float:
    if not np.isfinite(zeros).all():
        return float("nan")
    return TransferFunction(tuple(zeros), tuple(poles), 1.0, 1.0).effective_order(_CANCELLED)
