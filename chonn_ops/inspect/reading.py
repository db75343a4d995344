"""Trained cells read as circuits: which circuit each cell is at an input, in numbers and fields."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops.boundary import Condition, Neumann, Robin
from chonn_ops.checks import as_field, error
from chonn_ops.files import finite
from chonn_ops.models.network import CHONNNetwork, PointwiseTrunk
from chonn_ops.network.circuit import Circuit
from chonn_ops.network.laws import Law
from chonn_ops.nn import CKB, CircuitHead, KirchhoffCell, NetworkCell
from chonn_ops.nn.geometry import spacing_and_nodes
from chonn_ops.nn.network_cell import UNIT

CELLS = (KirchhoffCell, NetworkCell, CircuitHead)
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
    """The networks of one call of a cell, and their solution: fields (B, \\*grid, m). Those of a
    `CircuitHead` are in the unit of its output, as `read_circuits` has them."""

    circuit: Circuit  # the leaks include the walls
    density: Tensor  # source of the circuit, per unit volume
    potentials: Tensor  # complex for a cell at a frequency
    conductivity: Sequence[Tensor]  # one for all axes, or one an axis
    leak: Tensor  # per unit volume, as the cell has it
    source: Tensor  # likewise
    unit: float  # the domain's unit of length in that of conductivities and leaks
    # Distance of the nodes along each axis in the unit of the domain, None on a graph.
    spacing: Sequence[float] | None
    exists: Tensor | None  # with a mask, which nodes exist, (B, *grid)
    factor: Any = 1  # by what conductivities, leaks, sources and films are multiplied, or (m,)

    @classmethod
    def of_call(
        cls,
        cell: NetworkCell | CircuitHead,
        output: Tensor,
        u: Tensor,
        spacing: Any = None,
        mask: Tensor | None = None,
        nodes: Any = None,
        volumes: Any = None,
    ) -> SolvedNetworks:
        """The networks that the cell has solved, from its output and its arguments."""
        steps, exists = None, None if mask is None else mask.expand(u.shape[:-1])
        if volumes is None:
            known = cell.nodes if isinstance(cell, CircuitHead) else cell.options.nodes
            steps, _ = spacing_and_nodes(u.shape[:-1], 1.0, known, spacing, mask, nodes)
        circuit, density, *added = cell.assemble(u, spacing, mask, nodes, volumes)
        if isinstance(cell, NetworkCell):
            k, leak, source = cell.coefficients(u)
            return cls(circuit, density, output, [k], leak, source, UNIT, steps, exists)
        logs, c, _ = cell.coefficients(u)
        scale, offset = cell.output_unit(density.real.dtype)
        # A single output has no imaginary part, so potentials are solved for again.
        v = scale * (circuit.solve(density) + offset) if cell.ac else output - scale * added[0]
        k = torch.stack(logs).exp()
        inside = k.flatten(0, -2) if exists is None else k[:, exists].flatten(0, 1)
        factor = 1 if _unit_is_given(cell) else 1 / inside.median(0).values
        circuit = _in_unit(circuit, factor, scale, offset)
        source, leak = factor * scale * density, (factor * c).expand_as(density)
        v = v if exists is None else torch.where(exists[..., None], v, 0)
        conductivity = list(factor * k)
        return cls(circuit, source, v, conductivity, leak, source, 1.0, steps, exists, factor)

    def mean_conductivity(self) -> Tensor:
        """Geometric mean over the axes, (B, \\*grid, m)."""
        return torch.stack(list(self.conductivity)).log().mean(0).exp()

    def length_scale(self) -> Tensor:
        """sqrt(k / l) in the unit of the domain. At a frequency it is taken of the modulus of the
        leak's real part."""
        leak = self.leak.real.abs() if self.leak.is_complex() else self.leak
        return torch.sqrt(self.mean_conductivity() / leak) / self.unit

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
        layout = self.circuit.layout
        edges = layout.edges([g.real.double() for g in self.circuit.conductance])
        for g, start, drop in zip(edges, layout.starts(v), layout.drops(v), strict=True):
            if v.is_complex():
                yield g, -0.5 * g * (start.conj() * drop).imag, torch.zeros_like(g)
            else:
                yield g, g * drop, g * drop.square()


def _unit_is_given(head: CircuitHead) -> bool:
    """Whether a given current per potential, or current, sets the unit of the conductivities."""

    def sets(wall: Condition) -> bool:
        zero = isinstance(wall, Neumann) and not isinstance(wall.flux, Tensor) and wall.flux == 0
        return isinstance(wall, (Neumann, Robin)) and not zero

    return any(sets(wall) for place, wall in head.walls().items() if place not in head.learned)


def _in_unit(circuit: Circuit, factor: Any, scale: Tensor, offset: Tensor) -> Circuit:
    """The circuit whose conductances are `factor` times as large, and whose potentials v are
    scale (v + offset)."""
    current = 0 if circuit.current is None else circuit.current
    if circuit.before is not None and circuit.held is not None:
        before = _in_unit(circuit.before, factor, scale, offset)
        return before.hold(circuit.held, scale * (current + offset))
    scaled = copy.copy(circuit)
    scaled.conductance = tuple(factor * g for g in circuit.conductance)
    scaled.leak = factor * circuit.leak
    scaled.current = factor * scale * (current + offset * circuit.leak)
    scaled.wall = None if circuit.wall is None else factor * circuit.wall
    return scaled


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

        - Network cell or circuit head: name, grid (of a mesh its number of nodes); for each of the
          m networks quantiles (0, 1/4, 1/2, 3/4, 1) over the nodes that exist of the densities
          ``conductivity``, ``leak`` and ``source``, of ``potential``, and of ``length_scale``
          sqrt(k / l) in the unit of the domain; ``effective_rank`` of the m potential fields, from
          1 (all alike) to m. At a frequency (``CircuitHead(ac=True)``) ``leak`` is the real part
          and ``loss`` minus the imaginary part; ``source`` and ``potential`` are moduli;
          ``length_scale`` is a wavelength over 2 pi where the leak is negative.
        - Of a network cell also boundary; ``dissipated_power``, averaged over the batch, and
          ``leak_share``, the part of it that flows to ground through leaks and boundary.
        - Circuits of a head are in the unit of its output. The output determines conductivity, leak
          and source up to one factor, unless a given flux or film (`Robin`) sets it: they are
          divided by the median conductivity over samples, nodes and axes. ``by_axis`` has quantiles
          along each axis (``conductivity`` is the geometric mean); ``ground`` the potential at
          which the leak, an absorption, takes nothing; ``face_mean`` the mean of both nodes'
          conductivities in that of a face: 1 is arithmetic, 0 geometric, -1 harmonic; ``walls`` a
          dict a wall, with potentials as ``value``, distances behind the face in the unit of the
          domain, and the conductance of a film per unit area as ``coefficient``.
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
    >>> import torch
    >>> from chonn_ops.inspect import read_circuits
    >>> from chonn_ops.nn import Network, NetworkCell
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
    with ExitStack() as stack:
        for name, block in model.named_modules():
            if isinstance(block, CKB):
                _watch_block(stack, name, block, read["blocks"])
        for name, cell, call in _calls(model, x, *args, **kwargs):
            if isinstance(cell, KirchhoffCell):
                read["scans"].append(_scan_numbers(name, cell, call))
            else:
                read["networks"].append(_network_numbers(name, cell, call))
    return read


def _calls(model: nn.Module, *args: Any, **kwargs: Any) -> list[tuple[str, Any, Any]]:
    """Call a model, and list the calls of cells while that happens: name, cell, and the networks
    that it has solved, of a scan its input."""
    names = {module: name for name, module in model.named_modules() if isinstance(module, CELLS)}
    if not names:
        expected = "KirchhoffCells, NetworkCells or a CircuitHead in it"
        raise error("model", expected, type(model).__name__)
    calls: list[tuple[str, Any, Any]] = []

    def after(cell: Any, args: tuple[Any, ...], kwargs: dict[str, Any], y: Tensor) -> None:
        scan = isinstance(cell, KirchhoffCell)
        read: Any = args[0] if scan else SolvedNetworks.of_call(cell, y, *args, **kwargs)
        calls.append((names[cell], cell, read))

    with torch.no_grad(), ExitStack() as stack:
        for cell in names:
            stack.callback(cell.register_forward_hook(after, with_kwargs=True).remove)
        model(*args, **kwargs)
    return calls


def _watch_block(stack: ExitStack, name: str, block: CKB, blocks: list[dict[str, Any]]) -> None:
    """Append one entry to `blocks` for every call of the block, until the stack is closed."""
    projected: list[Tensor] = []
    stages: list[Tensor] = []

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

    hooks: list[tuple[nn.Module, Any]] = [
        (block.in_proj, lambda _block, _inputs, output: projected.append(output)),
        *((cell, lambda _cell, _inputs, output: stages.append(output)) for cell in block.cells),
        (block.out_proj, after_stages),
    ]
    for module, hook in hooks:
        stack.callback(module.register_forward_hook(hook).remove)


def _quantiles(values: Tensor) -> list[float | None]:
    """Minimum, quartiles and maximum."""
    ordered = values.detach().double().flatten().sort().values
    last = len(ordered) - 1
    return [finite(ordered[round(part * last / 4)].item()) for part in range(5)]


def _network_numbers(
    name: str, cell: NetworkCell | CircuitHead, solved: SolvedNetworks
) -> dict[str, Any]:
    leak, source, v = solved.leak, solved.source, solved.potentials
    fields = {
        "conductivity": solved.mean_conductivity(),
        "leak": leak.real,
        "source": source.abs() if source.is_complex() else source,
        "potential": v.abs() if v.is_complex() else v,
        "length_scale": solved.length_scale(),
    }
    if leak.is_complex():
        fields["loss"] = -leak.imag
    exists = ... if solved.exists is None else solved.exists
    each: list[dict[str, Any]] = [
        {key: _quantiles(field[..., c][exists]) for key, field in fields.items()}
        for c in range(v.shape[-1])
    ]
    if isinstance(cell, CircuitHead):
        scale, offset = cell.output_unit(v.real.dtype)
        walls = _walls(cell, solved)
        for c, entry in enumerate(each):
            entry["by_axis"] = [_quantiles(k[..., c][exists]) for k in solved.conductivity]
            entry["ground"] = finite((scale * offset)[c].item())
            entry["face_mean"] = finite(cell.face_mean(v.real.dtype)[c].item())
            entry["walls"] = [wall | {key: finite(x[c].item()) for key, x in numbers.items()}
                              for wall, numbers in walls]  # fmt: skip
    else:
        to_ground = _per_network(solved.ground_power())
        power = to_ground + sum(_per_network(heat) for _, _, heat in solved.edges())
        for c, entry in enumerate(each):
            entry["dissipated_power"] = finite(power[c].item())
            entry["leak_share"] = (to_ground[c] / power[c]).item() if power[c] > 0 else None
    # Real and imaginary parts of a complex potential are two values of one field.
    parts = torch.view_as_real(v).movedim(-1, -2) if v.is_complex() else v
    read = {
        "name": name,
        "grid": list(v.shape[1:-1]),
        "networks": each,
        "effective_rank": _effective_rank(parts.flatten(0, -2).double()),
    }
    return read if isinstance(cell, CircuitHead) else read | {"boundary": list(cell.boundary)}


def _walls(
    head: CircuitHead, solved: SolvedNetworks
) -> list[tuple[dict[str, str], dict[str, Tensor]]]:
    """Name and condition of each wall, and its numbers (m,); those that vary on it are left out."""
    walls, grid = [], solved.spacing is not None
    for place, condition in head.walls().items():
        if place == "inner":
            if solved.exists is None:
                continue
            name = "holes"
        elif isinstance(place, str):
            name = place
        elif grid:
            name = f"axis {place[0]}, {('low', 'high')[place[1]]} face"
        elif place == (0, 0):
            name = "boundary"
        else:  # all walls of a mesh are one
            continue
        size = (head.num_circuits,)
        numbers = {key: torch.as_tensor(value) for key, value, _ in condition.numbers()}
        numbers = {
            key: value.expand(size)
            for key, value in numbers.items()
            if value.dim() == 0 or value.shape in (size, (1,))
        }
        if place in head.learned:
            numbers["coefficient"] = solved.factor * numbers["coefficient"]
        walls.append(({"wall": name, "condition": type(condition).__name__}, numbers))
    return walls


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
    """One call of a network cell or circuit head at one sample; arrays are (\\*grid, m), with NaN
    where no node exists.

    `maps` has "conductivity", or "conductivity 0" and so on along each axis of a head; "source" and
    "potential", see `SolvedNetworks`; for a network cell also "leak", "length_scale" sqrt(k / l) in
    the unit of the domain, and "power", dissipated in the leak of a node and in half of each of its
    edges. Real parts at a frequency. `currents` are the current density along each axis at the
    nodes, 0 where none exists; at a frequency the mean flow of power.
    """

    name: str
    maps: dict[str, np.ndarray]
    currents: tuple[np.ndarray, ...]


def read_fields(model: nn.Module, x: Any, *args: Any, **kwargs: Any) -> list[NetworkFields]:
    """Call a model and return the fields of its networks at the first sample of the batch, in the
    order of the calls.

    It takes the arguments of `read_circuits`, but for meshes, which are a ValueError.
    """
    calls = _calls(model, x, *args, **kwargs)
    return [_network_fields(*call) for call in calls if isinstance(call[2], SolvedNetworks)]


def _network_fields(
    name: str, cell: NetworkCell | CircuitHead, solved: SolvedNetworks
) -> NetworkFields:
    if solved.spacing is None:
        raise ValueError("volumes: expected None, as fields are drawn on grids only")
    power, currents = torch.zeros_like(solved.potentials.real, dtype=torch.float64), []
    for axis, (g, flow, heat) in enumerate(solved.edges(), 1):
        count = ((g > 0).double() + (g.roll(1, axis) > 0).double()).clamp(min=1)
        # The step along the current turns a current into a density, up to the volume of a cell,
        # which all axes share.
        currents.append((flow + flow.roll(1, axis)) / count * solved.spacing[axis - 1])
        power = power + (heat + heat.roll(1, axis)) / 2

    def array(value: Tensor) -> np.ndarray:
        return value[0].real.double().cpu().numpy()

    maps = {"source": solved.source, "potential": solved.potentials}
    if isinstance(cell, CircuitHead):
        along = {f"conductivity {axis}": k for axis, k in enumerate(solved.conductivity)}
        maps = along | maps
    else:
        maps = {"conductivity": solved.mean_conductivity(), "leak": solved.leak} | maps
        maps["length_scale"] = solved.length_scale()
        maps["power"] = solved.ground_power() + power
    arrays = {key: array(value) for key, value in maps.items()}
    if solved.exists is not None:
        exists = solved.exists[0, ..., None].cpu().numpy()
        arrays = {key: np.where(exists, value, np.nan) for key, value in arrays.items()}
    return NetworkFields(name, arrays, tuple(map(array, currents)))


def conductivity_law(model: CHONNNetwork, values: Tensor) -> Tensor:
    """The conductivity that a model of one circuit has learned, as a function of its inputs.

    Plotted over the values it is the law of the medium, as long as it is homogeneous: where points
    next to one another differ, the model may know better. Data determine it up to a factor, which
    k and the sources share.

    Parameters
    ----------
    model : CHONNNetwork1d, CHONNNetwork2d or CHONNNetwork3d
        With the network of each point that it has by default.
    values : Tensor, shape (N, in_channels)
        Values of the inputs, in the unit of the data.

    Returns
    -------
    Tensor, shape (N, axes, out_channels)
        k along each axis, in the circuit of each output; divided by its median, as in
        `read_circuits`, unless a given flux or film sets its unit.

    Raises
    ------
    ValueError
        For a model with another trunk, whose k depends on neighbours; for another shape.

    Examples
    --------
    >>> import torch
    >>> from chonn_ops import CHONNNetwork2d, inspect
    >>> values = torch.linspace(0.1, 10, 50)[:, None]
    >>> inspect.conductivity_law(CHONNNetwork2d(1, 1), values).shape
    torch.Size([50, 2, 1])
    """
    if not isinstance(model, CHONNNetwork) or not isinstance(model.trunk, PointwiseTrunk):
        trunk = model.trunk if isinstance(model, CHONNNetwork) else model
        raise error("model", "a CHONNNetwork with its own pointwise trunk", type(trunk).__name__)
    values = as_field("values", values, model.parameters(), "N", model.in_channels)
    with torch.no_grad():
        logs, _, _ = model.head.coefficients(model.features(values))
        k = torch.stack(logs, 1).exp()
    return k if _unit_is_given(model.head) else k / k.flatten(0, 1).median(0).values


def law_curve(law: Law, drops: Tensor, points: int = 101) -> tuple[Tensor, Tensor]:
    """A law of elements (`chonn_ops.laws`) over the range of drops that it has seen.

    Parameters
    ----------
    law : law
        If it has `features`, all elements are taken. A law that is given by its inverse
        takes currents over conductances for drops.
    drops : Tensor, any shape
        What the elements of the data see, such as the potentials of leaks. A law does not know
        this range by itself.
    points : int

    Returns
    -------
    Tensor, shape (points,)
        Drops from the least to the largest one, equally far apart.
    Tensor, shape (points, E)
        Currents over conductances, in the unit of the drops, of the E elements of `features`, or 1.

    Examples
    --------
    >>> import torch
    >>> from chonn_ops import inspect, laws
    >>> x, y = inspect.law_curve(laws.Power(3), torch.tensor([0.0, 2.0]), 3)
    >>> x.tolist(), y[:, 0].tolist()
    ([0.0, 1.0, 2.0], [0.0, 1.0, 4.0])
    """
    low, high = drops.min().item(), drops.max().item()
    x = torch.linspace(low, high, points, dtype=drops.dtype, device=drops.device)
    with torch.no_grad():
        return x, torch.stack([law(drop, torch.ones_like(drop)).flatten() for drop in x])


def compare_conductivity(
    model: nn.Module, batches: Iterable[tuple[tuple[Any, ...], Tensor]], **kwargs: Any
) -> list[dict[str, Any]]:
    """Compare each network's conductivity with a reference over many samples: `batches` are pairs
    of positional arguments of the model, which is in evaluation mode, and reference fields
    (B, \\*grid); `kwargs` are its keywords.

    Returns one dict per network cell or head, in the order of calls, with ``name`` and, for each of
    its ``networks``: ``correlation``, Pearson's coefficient over the nodes between the logarithms
    of conductivity and reference (the reference itself where it is not positive), averaged over the
    samples, with its ``deviation`` over the samples; None where one of the two is constant, or the
    grid is not a coarsening of the reference's grid. ``variation``, the standard deviation of the
    conductivity over its mean at nodes at least an eighth of the domain from its boundary, averaged
    over the samples.
    """
    compared: dict[str, list[tuple[Tensor, Tensor]]] = {}
    for inputs, reference in batches:
        for name, _, solved in _calls(model, *inputs, **kwargs):
            if not isinstance(solved, SolvedNetworks):
                continue
            k = solved.mean_conductivity().double()
            if solved.exists is not None:
                k = torch.where(solved.exists[..., None], k, torch.nan)
            inside = _inside(k).flatten(1, -2)
            mean = inside.nanmean(1)
            variation = (inside - mean[:, None]).square().nanmean(1).sqrt() / mean
            compared.setdefault(name, []).append((_correlation(k, reference), variation))
    return [
        {"name": name, "networks": _summary(*map(torch.cat, zip(*values, strict=True)))}
        for name, values in compared.items()
    ]


def _summary(r: Tensor, variation: Tensor) -> list[dict[str, Any]]:
    each = []
    for of_samples, change in zip(r.T, variation.T, strict=True):
        known = of_samples[of_samples.isfinite()]
        mean = known.mean().item() if len(known) else None
        deviation = known.std().item() if len(known) > 1 else None
        entry = {"correlation": mean, "deviation": deviation, "samples": len(known)}
        each.append({**entry, "variation": change.mean().item()})
    return each


def _correlation(k: Tensor, reference: Tensor) -> Tensor:
    """Pearson's coefficient of each sample and network over the nodes where k is not NaN, (B, m);
    NaN where it is not defined."""
    coarse = _coarsened(reference.double(), k.shape[1:-1])
    if coarse is None or len(coarse) != len(k):
        return torch.full((k.shape[0], k.shape[-1]), torch.nan, dtype=torch.float64)
    k = k.flatten(1, -2)
    a = torch.where(k.isnan(), torch.nan, coarse.flatten(1).unsqueeze(-1))
    positive = ((a > 0) | a.isnan()).all(1, keepdim=True)
    a = torch.where(positive, torch.where(positive, a, 1).log(), a)
    pair = [x - x.nanmean(1, keepdim=True) for x in (k.log(), a)]
    sizes = [x.square().nanmean(1).sqrt() for x in pair]
    # Rounding errors of a constant field are no variation.
    constant = (sizes[0] < 1e-6) | (sizes[1] <= 1e-9 * a.abs().nan_to_num().amax(1))
    r = (pair[0] * pair[1]).nanmean(1) / (sizes[0] * sizes[1])
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
