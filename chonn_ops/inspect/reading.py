"""Trained cells read as circuits: which circuit each cell is at an input, in numbers and fields."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops.network.circuit import Circuit
from chonn_ops.network.edges import at_start, differences
from chonn_ops.nn import CKB, KirchhoffCell, NetworkCell
from chonn_ops.nn.geometry import spacing_and_nodes
from chonn_ops.nn.network_cell import UNIT

CELLS = (KirchhoffCell, NetworkCell)
# Number of positions of a scan at which its coefficients are read.
_POSITIONS = 32
# A state counts towards the order if its Hankel singular value exceeds this part of the largest.
_HANKEL = 1e-3
# A gate counts as closed where its modulus is below this part of its root mean square.
_CLOSED = 0.05
# Nodes count as inside if their distance from the boundary is at least this part of the domain.
_MARGIN = 1 / 8


@dataclass(frozen=True)
class SolvedNetworks:
    """The networks of one call of a cell, and their solution.

    Parameters
    ----------
    circuit : Circuit
        Conductances and leaks (B, \\*grid, m); the leaks include the walls.
    source : Tensor, shape (B, \\*grid, m)
        Currents into the nodes.
    potentials : Tensor, shape (B, \\*grid, m)
        Complex for a cell at a frequency.
    spacing : sequence of float, one an axis; None on a graph
        Distance of the nodes in the unit of the domain.
    """

    circuit: Circuit
    source: Tensor
    potentials: Tensor
    spacing: Sequence[float] | None

    @classmethod
    def of_call(
        cls,
        cell: NetworkCell,
        output: Tensor,
        u: Tensor,
        spacing: Any = None,
        mask: Tensor | None = None,
        nodes: Any = None,
        volumes: Any = None,
    ) -> SolvedNetworks:
        """The networks that the cell has solved, from its output and its arguments."""
        circuit, density = cell.assemble(u, spacing, mask, nodes, volumes)
        v = torch.complex(*output.chunk(2, -1)) if cell.options.ac else output
        if volumes is not None:
            return cls(circuit, circuit.source(density), v, None)
        grid = (u.shape[:-1], [1.0] * cell.spatial_dims, cell.options.nodes)
        steps, _ = spacing_and_nodes(*grid, spacing, mask, nodes)
        return cls(circuit, circuit.source(density), v, steps)

    def ground_power(self) -> Tensor:
        """Power dissipated in the leak of each node, (B, \\*grid, m)."""
        v, leak = self.potentials, self.circuit.leak
        if v.is_complex():  # Mean power; the coils and capacitors of leaks dissipate nothing.
            return -0.5 * leak.imag.double() * v.abs().double().square()
        return leak.double() * v.double().square()

    def edges(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Conductance, current and dissipated power of the edges along each axis, (B, \\*grid, m),
        or once of those of a graph, (B, E, m).

        Edges of a network at a frequency are coils, which dissipate nothing. The mean power that
        flows through them takes the place of the current: half the real part of conj(v) i g (v - w)
        between potentials v and w.
        """
        v = self.potentials.to(torch.promote_types(self.potentials.dtype, torch.float64))
        pairs = zip(self.circuit.conductance, self.circuit.periodic, strict=True)
        for axis, (g, joined) in enumerate(pairs):
            g = g.real.double().clone()
            if not joined:  # The last entry joins nothing.
                g.narrow(axis + 1, g.shape[axis + 1] - 1, 1).zero_()
            drop = differences(v, axis - v.dim() + 1, joined)
            if v.is_complex():
                before = at_start(v, axis, joined)
                yield g, -0.5 * g * (before.conj() * drop).imag, torch.zeros_like(g)
            else:
                yield g, g * drop, g * drop.square()


def read_circuits(model: nn.Module, x: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Call a model and return the numbers of all circuits in it.

    Parameters
    ----------
    model : Module
        Any model with cells of this package, including models of the hosts. Put it into evaluation
        mode first.
    x, args, kwargs
        Arguments of the call. Statistics are over the batch.

    Returns
    -------
    dict
        Numbers, strings, lists and dicts, as `json.dumps` takes them; a number that is infinite or
        NaN becomes None. ``networks`` and ``scans`` have one dict per call of a cell, in the order
        of the calls, and ``blocks`` one per call of a `CKB`:

        - Network cell: name, grid (of a mesh its number of nodes), boundary; for each of the m
          networks quantiles (0, 1/4, 1/2, 3/4, 1) of the densities ``conductivity``, ``leak`` and
          ``source``, of ``potential``, and of ``length_scale`` sqrt(k / l) in the unit of the
          domain; ``dissipated_power``, averaged over the batch, and ``leak_share``, the part of it
          that flows to ground through leaks and boundary; ``effective_rank`` of the m potential
          fields, from 1 (all alike) to m. At a frequency (``Network(ac=True)``) ``leak`` is the
          real part and ``loss`` minus the imaginary part; ``source`` and ``potential`` are moduli;
          ``length_scale`` is a wavelength over 2 pi where the leak is negative; powers are those
          at a frequency of 1.
        - Scan cell: name, positions; quantiles over channels, states and 32 positions of
          ``time_constant`` (in positions) and ``pole``, the retention exp(-Delta decay);
          ``effective_order``: quantiles over the channels of the number of states whose Hankel
          singular value, with coefficients frozen, exceeds a thousandth of the largest; None where
          a state is unstable.
        - Block: name; ``stage_share``, the share of each stage in the sum of the stages' mean
          squares; ``gate_rms``, and ``gate_closed``, the part of the gate whose modulus is below a
          twentieth of that.

    Raises
    ------
    TypeError
        For something else than a module.
    ValueError
        For a model without cells.

    References
    ----------
    O. Roy, M. Vetterli, "The effective rank: a measure of effective dimensionality", EUSIPCO,
    2007.

    Examples
    --------
    >>> cell = NetworkCell(4, 2, Network(num_networks=1))
    >>> read_circuits(cell, torch.ones(1, 8, 8, 4))["networks"][0]["grid"]
    [8, 8]
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    read: dict[str, Any] = {
        "model": type(model).__name__,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "networks": [],
        "scans": [],
        "blocks": [],
    }
    hooks = [hook for name, block in model.named_modules() if isinstance(block, CKB)
             for hook in _block_hooks(name, block, read["blocks"])]  # fmt: skip
    with _removed_after(hooks):
        _watch_cells(
            model,
            lambda: model(x, *args, **kwargs),
            lambda *found: read["networks"].append(_network_numbers(*found)),
            lambda *found: read["scans"].append(_scan_numbers(*found)),
        )
    return read


@contextmanager
def _removed_after(hooks: Iterable[Any]) -> Iterator[None]:
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _watch_cells(
    model: nn.Module,
    call: Callable[[], Any],
    on_network: Callable[[str, NetworkCell, Tensor, SolvedNetworks], None],
    on_scan: Callable[[str, KirchhoffCell, Tensor], None],
) -> None:
    """Run `call`, which calls the model, and pass on every call of a cell while it happens.

    A network cell comes with its name, its input (B, \\*grid, D) and the networks that it has
    solved; a scan cell with its name and its input.
    """
    names = {module: name for name, module in model.named_modules() if isinstance(module, CELLS)}
    if not names:
        raise ValueError(
            f"model: expected KirchhoffCells or NetworkCells in it, got {type(model).__name__}"
        )

    def after(cell: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], y: Tensor) -> None:
        if isinstance(cell, NetworkCell):
            on_network(names[cell], cell, args[0], SolvedNetworks.of_call(cell, y, *args, **kwargs))
        elif isinstance(cell, KirchhoffCell):
            on_scan(names[cell], cell, args[0])

    hooks = [cell.register_forward_hook(after, with_kwargs=True) for cell in names]
    with torch.no_grad(), _removed_after(hooks):
        call()


def _block_hooks(name: str, block: CKB, blocks: list[dict[str, Any]]) -> list[Any]:
    """Hooks that append one entry to `blocks` for every call of the block."""
    projected: list[Tensor] = []
    stages: list[Tensor] = []

    def after_projection(_module: nn.Module, _inputs: Any, output: Tensor) -> None:
        projected.append(output)

    def after_stage(_module: nn.Module, _inputs: Any, output: Tensor) -> None:
        stages.append(output)

    def after_stages(*_: Any) -> None:
        # The gate is the last part of the projection and as wide as the stages' outputs.
        gate = F.silu(projected.pop()[..., -stages[0].shape[-1] :].double())
        rms = gate.square().mean().sqrt()
        closed = (gate.abs() < _CLOSED * rms).double().mean()
        squares = [stage.double().square().mean().item() for stage in stages]
        total = sum(squares) or 1.0
        share = [square / total for square in squares]
        numbers = {"gate_rms": rms.item(), "gate_closed": closed.item()}
        blocks.append({"name": name, "stage_share": share, **numbers})
        stages.clear()

    return [
        block.in_proj.register_forward_hook(after_projection),
        *(cell.register_forward_hook(after_stage) for cell in block.cells),
        block.out_proj.register_forward_hook(after_stages),
    ]


def _quantiles(values: Tensor) -> list[float | None]:
    """Minimum, quartiles and maximum."""
    ordered = values.detach().double().flatten().sort().values
    last = len(ordered) - 1
    return [_finite(ordered[round(part * last / 4)].item()) for part in range(5)]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _length_scale(conductivity: Tensor, leak: Tensor) -> Tensor:
    """sqrt(k / l) in the unit of the domain, which is `UNIT` times the unit of the cells. At a
    frequency it is taken of the modulus of the leak's real part."""
    leak = leak.real.abs() if leak.is_complex() else leak
    return torch.sqrt(conductivity / leak) / UNIT


def _network_numbers(
    name: str, cell: NetworkCell, u: Tensor, solved: SolvedNetworks
) -> dict[str, Any]:
    conductivity, leak, source = cell.coefficients(u)
    v = solved.potentials
    to_ground = _per_network(solved.ground_power())
    power = to_ground + sum(_per_network(heat) for _, _, heat in solved.edges())
    fields = {
        "conductivity": conductivity,
        "leak": leak.real,
        "source": source.abs() if source.is_complex() else source,
        "potential": v.abs() if v.is_complex() else v,
        "length_scale": _length_scale(conductivity, leak),
    }
    if leak.is_complex():
        fields["loss"] = -leak.imag
    each = [
        {
            **{key: _quantiles(field[..., c]) for key, field in fields.items()},
            "dissipated_power": _finite(power[c].item()),
            "leak_share": (to_ground[c] / power[c]).item() if power[c] > 0 else None,
        }
        for c in range(v.shape[-1])
    ]
    # Real and imaginary parts of a complex potential are two values of one field.
    parts = torch.view_as_real(v).movedim(-1, -2) if v.is_complex() else v
    return {
        "name": name,
        "grid": list(v.shape[1:-1]),
        "boundary": list(cell.boundary),
        "networks": each,
        "effective_rank": _effective_rank(parts.flatten(0, -2).double()),
    }


def _per_network(power: Tensor) -> Tensor:
    """The sum over the nodes, averaged over the batch, (m,)."""
    return power.flatten(1, -2).sum(1).mean(0)


def _effective_rank(fields: Tensor) -> float | None:
    """exp of the entropy of the normalised singular values of fields (positions, m), each scaled to
    norm 1."""
    if not fields.isfinite().all():
        return None
    norms = fields.norm(dim=0)
    singular = torch.linalg.svdvals((fields / norms)[:, norms > 0])
    part = singular / singular.sum()
    return torch.exp(-torch.special.xlogy(part, part).sum()).item() if len(part) else 0.0


def _scan_numbers(name: str, cell: KirchhoffCell, u: Tensor) -> dict[str, Any]:
    delta, b, c = (values.flatten(0, -2).double() for values in cell.coefficients(u))
    chosen = torch.linspace(0, len(delta) - 1, min(_POSITIONS, len(delta))).round().long()
    delta, b, c = delta[chosen], b[chosen], c[chosen]
    z = delta[..., None] * cell.decay.double()
    time = torch.where(z > 0, 1 / z, torch.inf)
    entry: dict[str, Any] = {
        "name": name,
        "positions": list(u.shape[1:-1]),
        "time_constant": _quantiles(time),
        "pole": _quantiles(torch.exp(-z)),
        "effective_order": None,
    }
    if (z > 0).all():
        entry["effective_order"] = _quantiles(_hankel_orders(z, cell.decay.double(), b, c))
    return entry


def _hankel_orders(z: Tensor, decay: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Effective order of each channel, averaged over positions, (D,): z (P, D, N)."""
    injection = -torch.expm1(-z) / decay * b[:, None, :]
    readout = c[:, None, :].expand_as(z)
    # Gramians of a diagonal system in closed form; 1 - a_i a_j without cancellation.
    common = -torch.expm1(-(z[..., :, None] + z[..., None, :]))
    reach = injection[..., :, None] * injection[..., None, :] / common
    observe = readout[..., :, None] * readout[..., None, :] / common
    hankel = torch.linalg.eigvals(reach @ observe).real.clamp(min=0).sqrt()
    largest = hankel.amax(-1, keepdim=True)
    return ((hankel > _HANKEL * largest) & (largest > 0)).double().sum(-1).mean(0)


@dataclass(frozen=True)
class NetworkFields:
    """One call of a network cell at one sample; arrays are (\\*grid, m).

    Parameters
    ----------
    name : str
    conductivity, leak, source, potential : ndarray
        See `chonn_ops.NetworkCell`; real parts at a frequency.
    length_scale : ndarray
        sqrt(k / l), in the unit of the domain.
    power : ndarray
        Power dissipated in the leak of a node and in half of each of its edges.
    currents : tuple of ndarray
        Current density along each axis at the nodes; at a frequency the mean flow of power.
    """

    name: str
    conductivity: np.ndarray
    leak: np.ndarray
    source: np.ndarray
    potential: np.ndarray
    length_scale: np.ndarray
    power: np.ndarray
    currents: tuple[np.ndarray, ...]


def read_fields(model: nn.Module, x: Any, *args: Any, **kwargs: Any) -> list[NetworkFields]:
    """Call a model and return the fields of its networks at the first sample of the batch, in the
    order of the calls.

    It takes the arguments of `read_circuits`, but for meshes, which are a ValueError.
    """
    found: list[NetworkFields] = []
    _watch_cells(
        model,
        lambda: model(x, *args, **kwargs),
        lambda *call: found.append(_network_fields(*call)),
        lambda *_: None,
    )
    return found


def _network_fields(
    name: str, cell: NetworkCell, u: Tensor, solved: SolvedNetworks
) -> NetworkFields:
    if solved.spacing is None:
        raise ValueError("volumes: expected None, as fields are drawn on grids only")
    k, leak, source = cell.coefficients(u)
    power, currents = solved.ground_power(), []
    for axis, (g, flow, heat) in enumerate(solved.edges(), 1):
        count = ((g > 0).double() + (g.roll(1, axis) > 0).double()).clamp(min=1)
        # The step along the current turns a current into a density, up to the volume of a cell,
        # which all axes share.
        currents.append((flow + flow.roll(1, axis)) / count * solved.spacing[axis - 1])
        power = power + (heat + heat.roll(1, axis)) / 2

    def array(value: Tensor) -> np.ndarray:
        return value[0].real.double().cpu().numpy()

    return NetworkFields(
        name,
        conductivity=array(k),
        leak=array(leak),
        source=array(source),
        potential=array(solved.potentials),
        length_scale=array(_length_scale(k, leak)),
        power=array(power),
        currents=tuple(map(array, currents)),
    )


def compare_conductivity(
    model: nn.Module, batches: Iterable[tuple[tuple[Any, ...], Tensor]], **kwargs: Any
) -> list[dict[str, Any]]:
    """Compare each network's conductivity with a given field over many samples.

    Parameters
    ----------
    model : Module
        In evaluation mode.
    batches : iterable of (tuple, Tensor)
        Positional arguments of the model, and reference fields (B, \\*grid) of the same samples.
    kwargs
        Keyword arguments of the model.

    Returns
    -------
    list of dict
        One per network cell, in the order of calls: ``name``; ``networks``, one dict each:
        ``correlation``, Pearson's coefficient over the nodes between the logarithms of conductivity
        and reference (the reference itself where it is not positive), averaged over the samples,
        with its ``deviation`` over the samples; None where one of the two is constant, or the grid
        is not a coarsening of the reference's grid. ``variation``, the standard deviation of the
        conductivity over its mean at nodes at least an eighth of the domain from its boundary,
        averaged over the samples.
    """
    found: dict[str, list[tuple[Tensor, Tensor]]] = {}
    for inputs, reference in batches:

        def compare(
            name: str, cell: NetworkCell, u: Tensor, _: SolvedNetworks, reference=reference
        ) -> None:
            k = cell.coefficients(u)[0].double()
            inside = _inside(k).flatten(1, -2)
            variation = inside.std(1, correction=0) / inside.mean(1)
            found.setdefault(name, []).append((_correlation(k, reference), variation))

        _watch_cells(model, partial(model, *inputs, **kwargs), compare, lambda *_: None)
    return [
        {"name": name, "networks": _summary(*map(torch.cat, zip(*values, strict=True)))}
        for name, values in found.items()
    ]


def _summary(r: Tensor, variation: Tensor) -> list[dict[str, Any]]:
    each = []
    for c in range(r.shape[1]):
        known = r[:, c][r[:, c].isfinite()]
        each.append(
            {
                "correlation": known.mean().item() if len(known) else None,
                "deviation": known.std().item() if len(known) > 1 else None,
                "samples": len(known),
                "variation": variation[:, c].mean().item(),
            }
        )
    return each


def _correlation(k: Tensor, reference: Tensor) -> Tensor:
    """Pearson's coefficient of each sample and network, (B, m); NaN where it is not defined."""
    coarse = _coarsened(reference.double(), k.shape[1:-1])
    if coarse is None or len(coarse) != len(k):
        return torch.full((k.shape[0], k.shape[-1]), torch.nan, dtype=torch.float64)
    a = coarse.flatten(1).unsqueeze(-1)
    positive = (a > 0).all(1, keepdim=True)
    a = torch.where(positive, torch.where(positive, a, 1).log(), a)
    pair = [x - x.mean(1, keepdim=True) for x in (k.flatten(1, -2).log(), a)]
    sizes = [x.square().mean(1).sqrt() for x in pair]
    # Rounding errors of a constant field are no variation.
    constant = (sizes[0] < 1e-6) | (sizes[1] <= 1e-9 * a.abs().amax(1))
    r = (pair[0] * pair[1]).mean(1) / (sizes[0] * sizes[1])
    return torch.where(constant, torch.nan, r)


def _coarsened(fields: Tensor, shape: tuple[int, ...] | torch.Size) -> Tensor | None:
    """Means of the fields over the nodes that each node of the coarser grid stands for; None if the
    grids do not match."""
    if fields.dim() != len(shape) + 1 or any(
        n % m for n, m in zip(fields.shape[1:], shape, strict=True)
    ):
        return None
    for axis, n in enumerate(shape):
        fields = fields.unflatten(axis + 1, (n, -1)).mean(axis + 2)
    return fields


def _inside(k: Tensor) -> Tensor:
    for axis, n in enumerate(k.shape[1:-1]):
        cut = min(round(_MARGIN * n), (n - 1) // 2)
        k = k.narrow(axis + 1, cut, n - 2 * cut)
    return k
