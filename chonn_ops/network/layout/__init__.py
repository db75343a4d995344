"""`Grid`, what it has in common with `Graph`, and Kirchhoff's law on both: what potentials leave
over of their sources, and how good they are."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from chonn_ops._dtypes import real_dtype, widened
from chonn_ops._library import CONSTANTS
from chonn_ops.checks import check_like, error, smallest_of
from chonn_ops.network.layout.dissection import Array, Dissection, dissect_box


@runtime_checkable
class Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


P = ParamSpec("P")
R = TypeVar("R", bound=Sized)

# What is kept of layouts takes at most so many bytes: plans of 7 grids of 512 x 512 or of 390 of
# 64 x 64, with what the kernel reads of them. A loop over crops of many sizes makes each plan once.
KEPT_BYTES = 2**28

_kept: OrderedDict[Any, tuple[Any, int]] = OrderedDict()
_lock = threading.Lock()


def nbytes_kept() -> int:
    """The bytes of all kept results."""
    return sum(size for _, size in _kept.values())


def kept(function: Callable[P, R]) -> Callable[P, R]:
    """Keep the results of a function for later calls with equal arguments.

    All functions together keep the results used last, in at most `KEPT_BYTES`, and always the
    result of the last call with the results among its arguments. A result counts with its `nbytes`
    and those of its arguments, which it keeps alive.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        key = (function, args, *kwargs.items())
        with _lock:
            if key in _kept:
                _kept.move_to_end(key)
                return _kept[key][0]
        result = function(*args, **kwargs)
        size = result.nbytes + sum(x.nbytes for x in args if isinstance(x, Sized))
        with _lock:
            _kept[key] = result, size
            while nbytes_kept() > KEPT_BYTES:
                # A plan that what the kernel reads of it keeps alive would only be made again.
                alive = {id(x) for _, args, *_ in _kept for x in args}
                free = [k for k, (x, _) in _kept.items() if id(x) not in alive]
                if free[0] is next(reversed(_kept)):
                    break
                del _kept[free[0]]
        return result

    return call


class Layout:
    """The nodes of circuits and the edges that join them.

    Fields of nodes are (..., \\*shape, C). Numbers of edges are one tensor an axis: on a grid
    (..., \\*shape, C), whose entry p belongs to the edge between node p and the next one along that
    axis; on a graph, which has one axis, (..., E, C).
    """

    shape: tuple[int, ...]  # nodes along each axis
    edge_shape: tuple[int, ...]  # of an axis's edges, without batch and channels
    positions: Any  # (N, d), or None
    # The nodes that each edge joins, (2, E); None where they follow from the shape.
    ends: Any = None
    # Whether the nodes are a grid: connected if all edges conduct, with coarser grids for
    # iterations and boxes that look alike for elimination.
    regular = True

    def dissection(self, leaf: int) -> Dissection:
        """The order of elimination. Boxes of at most `leaf` nodes are not cut."""
        raise NotImplementedError

    def edge_ends(self) -> tuple[Array, Array]:
        """For each edge its entry in the conductances (axis * entries of an axis + entry), and the
        nodes that it joins, (2, edges)."""
        raise NotImplementedError

    def arguments(self) -> tuple[list[bool], Tensor | None]:
        """What PyTorch's operators take; `chonn_ops.network.solve.methods.Networks.of` reads it."""
        raise NotImplementedError

    def check(self, conductance: Any, leak: Tensor, dtypes: Sequence[torch.dtype]) -> list[Tensor]:
        """Check what users give as conductances and leak, without reading values. Returns one
        tensor of conductances an axis."""
        raise NotImplementedError

    def for_circuit(self, conductance: Sequence[Tensor]) -> Sequence[Tensor] | Tensor:
        """Conductances of each axis, as `Circuit` takes them."""
        return conductance

    def entries(self, values: Sequence[Tensor]) -> list[Tensor]:
        """Views of the numbers that belong to an edge."""
        raise NotImplementedError

    def edges(self, values: Sequence[Tensor]) -> list[Tensor]:
        """Numbers of edges, 0 at entries that belong to no edge."""
        raise NotImplementedError

    def at_ends(self, field: Tensor, axis: int) -> tuple[Tensor, Tensor]:
        """The values at the first and the second node of the edges of an axis. Those of entries
        that belong to no edge mean nothing."""
        raise NotImplementedError

    def from_ends(self, first: Tensor, second: Tensor, axis: int) -> Tensor:
        """Add numbers of an axis's edges at their first nodes and others at their second ones: the
        transpose of `at_ends`."""
        raise NotImplementedError

    def _spread(self, part: Tensor, edge: Tensor, axis: int) -> Tensor:
        """The largest of each node's number and of those at the other ends of its edges."""
        raise NotImplementedError

    def starts(self, field: Tensor) -> list[Tensor]:
        """For each axis the values at the first nodes of its edges."""
        return [self.at_ends(field, axis)[0] for axis in range(len(self.shape))]

    def drops(self, v: Tensor) -> list[Tensor]:
        """The potential at the first node of each edge less that at the second; 0 at entries that
        belong to no edge."""
        pairs = (self.at_ends(v, axis) for axis in range(len(self.shape)))
        return self.edges([first - second for first, second in pairs])

    def sums_at_edges(self, field: Tensor) -> list[Tensor]:
        """The sum of the values at both nodes of each edge, 0 at entries that belong to no edge."""
        pairs = (self.at_ends(field, axis) for axis in range(len(self.shape)))
        return self.edges([first + second for first, second in pairs])

    def outflow(self, currents: Sequence[Tensor]) -> Tensor:
        """The current that edges carry out of each node; transposes `drops`. Entries that belong to
        no edge have to be 0."""
        flows = [self.from_ends(i, -i, axis) for axis, i in enumerate(currents)]
        return sum(flows[1:], flows[0])

    def sums_at_nodes(self, values: Sequence[Tensor]) -> Tensor:
        """The sum over each node's edges of a number an edge: the transpose of `sums_at_edges`.
        Entries that belong to no edge have to be 0."""
        sums = [self.from_ends(x, x, axis) for axis, x in enumerate(values)]
        return sum(sums[1:], sums[0])

    def connected_parts(self, conductance: Sequence[Tensor]) -> Tensor:
        """The largest node, in row-major order, that edges other than 0 connect each node to:
        (B, \\*grid, C)."""
        B, C = conductance[0].shape[0], conductance[0].shape[-1]
        nodes = torch.arange(math.prod(self.shape), device=conductance[0].device)
        part = nodes.reshape(*self.shape, 1).expand(B, *self.shape, C)
        edges = [edge != 0 for edge in self.edges(conductance)]
        before = torch.empty_like(part[:0])
        while not torch.equal(part, before):
            before = part
            for axis, edge in enumerate(edges):
                part = self._spread(part, edge, axis)
            rows = part.flatten(1, -2)
            part = rows.gather(1, rows).reshape(part.shape)
        return part


def per_axis_periodic(periodic: Any, axes: int) -> tuple[bool, ...]:
    """One bool an axis, from one for all axes or one each."""
    closed = (periodic,) * axes if isinstance(periodic, bool) else periodic
    if (
        not isinstance(closed, (tuple, list))
        or len(closed) != axes
        or not all(isinstance(x, bool) for x in closed)
    ):
        raise error("periodic", f"a bool, or {axes} of them", repr(periodic))
    return tuple(closed)


def edges_alone(values: Tensor, axis: int, periodic: bool) -> Tensor:
    """Numbers (B, \\*grid, C) of the edges along a grid axis, 0 at the last entry unless it belongs
    to the edge of a periodic axis. An axis of one node has no edge."""
    n = values.shape[axis + 1]
    if periodic and n > 1:
        return values
    index = torch.arange(n, device=values.device)
    is_edge = index.reshape(n, *[1] * (values.dim() - axis - 2)) < n - 1
    return torch.where(is_edge, values, 0)


class Grid(Layout):
    """A grid of nodes, each joined to the next one along every axis.

    Parameters
    ----------
    shape : sequence of int
        Nodes along each of 1 to 3 axes.
    periodic : bool or sequence of bool
        Whether an edge joins the last node of an axis and the first: one for all axes, or one each.

    Examples
    --------
    A ring of three nodes, of which one is grounded, 1 A into the next one:

    >>> import torch
    >>> from chonn_ops import Circuit, Grid
    >>> field = lambda *values: torch.tensor(values).reshape(1, 3, 1)
    >>> ring = Circuit((field(1.0, 1.0, 1.0),), field(1.0, 0.0, 0.0), on=Grid((3,), periodic=True))
    >>> [round(x, 4) for x in ring.solve(field(0.0, 1.0, 0.0)).flatten().tolist()]
    [1.0, 1.6667, 1.3333]
    """

    def __init__(self, shape: Sequence[int], periodic: bool | Sequence[bool] = False) -> None:
        self.shape = self.edge_shape = tuple(shape)
        self.periodic = per_axis_periodic(periodic, len(self.shape))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Grid):
            return False
        return (self.shape, self.periodic) == (other.shape, other.periodic)

    def __hash__(self) -> int:
        return hash((self.shape, self.periodic))

    def __repr__(self) -> str:
        return f"Grid({self.shape}, periodic={self.periodic})"

    @property
    def positions(self) -> Any:
        """Where the nodes are, (N, d), in steps."""
        axes = (torch.arange(n) for n in self.shape)
        return torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, -2)

    def dissection(self, leaf: int) -> Dissection:
        """The order of elimination. Lines are cut down to single nodes."""
        leaf = 1 if sum(n > 1 for n in self.shape) < 2 else leaf
        return dissect_box(self.shape, self.periodic, leaf)[0]

    def edge_ends(self) -> tuple[Array, Array]:
        nodes = math.prod(self.shape)
        every = np.arange(nodes).reshape(self.shape)
        edges, ends = [np.zeros(0, np.int64)], [np.zeros((2, 0), np.int64)]
        for axis, n in enumerate(self.shape):
            if n == 1:
                continue
            lines = every.reshape(-1, n, math.prod(self.shape[axis + 1 :]))
            pairs = np.stack([lines[:, :-1], lines[:, 1:]]).reshape(2, -1)
            if self.periodic[axis]:
                pairs = np.append(pairs, np.stack([lines[:, -1], lines[:, 0]]).reshape(2, -1), 1)
            edges.append(axis * nodes + pairs[0])
            ends.append(pairs)
        return np.concatenate(edges), np.concatenate(ends, axis=1)

    def arguments(self) -> tuple[list[bool], Tensor | None]:
        return list(self.periodic), None

    def check(self, conductance: Any, leak: Tensor, dtypes: Sequence[torch.dtype]) -> list[Tensor]:
        if leak.shape[1:-1] != self.shape:
            raise error("leak", f"shape (B, *grid, C) with grid {self.shape}", tuple(leak.shape))
        if not isinstance(conductance, (tuple, list)):
            kind = type(conductance).__name__
            raise TypeError(f"conductance: expected a tuple of one Tensor an axis, got {kind}")
        if len(conductance) != len(self.shape):
            raise error("conductance", f"{len(self.shape)} tensors, one an axis", len(conductance))
        for axis, g in enumerate(conductance):
            check_like(f"conductance[{axis}]", g, leak, "the leak", dtypes)
        return list(conductance)

    def _last(self, axis: int) -> int:
        """How many entries of an axis belong to edges."""
        n = self.shape[axis]
        return n if self.periodic[axis] and n > 1 else n - 1

    def entries(self, values: Sequence[Tensor]) -> list[Tensor]:
        dims = enumerate(range(-1 - len(self.shape), -1))
        return [values[i].narrow(dim, 0, self._last(i)) for i, dim in dims]

    def edges(self, values: Sequence[Tensor]) -> list[Tensor]:
        axes = enumerate(zip(values, self.periodic, strict=True))
        return [edges_alone(x, i + x.dim() - len(self.shape) - 2, p) for i, (x, p) in axes]

    def at_ends(self, field: Tensor, axis: int) -> tuple[Tensor, Tensor]:
        return field, field.roll(-1, axis - 1 - len(self.shape))

    def from_ends(self, first: Tensor, second: Tensor, axis: int) -> Tensor:
        return first + second.roll(1, axis - 1 - len(self.shape))

    def _spread(self, part: Tensor, edge: Tensor, axis: int) -> Tensor:
        both = torch.where(edge, torch.maximum(*self.at_ends(part, axis)), -1)
        return part.maximum(both).maximum(both.roll(1, axis - 1 - len(self.shape)))


def pad(field: Tensor, axis: int, before: int, after: int) -> Tensor:
    """Zeros before and after the entries along a grid axis."""
    return F.pad(field, [0, 0] * (field.dim() - axis - 2) + [before, after])


def beside(field: Tensor, other: Tensor) -> Tensor:
    """A field (B, ...) of networks, in a shape that broadcasts with one of theirs that may have an
    entry for each of several sources, (B, S, ...)."""
    return field[:, None] if other.dim() > field.dim() else field


def indices(field: Tensor, axis: int) -> Tensor:
    """Indices along a grid axis, in a shape that broadcasts with the field."""
    n = field.shape[axis + 1]
    return torch.arange(n, device=field.device).reshape([n] + [1] * (field.dim() - axis - 2))


def nodes_of(field: Tensor) -> Tensor:
    """The number of each node of a field (B, \\*grid, C), in row-major order: (\\*grid, 1)."""
    grid = field.shape[1:-1]
    return torch.arange(math.prod(grid), device=field.device).reshape(*grid, 1)


def over_parts(field: Tensor, part: Tensor, *, largest: bool = False) -> Tensor:
    """The sum of a field (B, \\*grid, C), or with S sources, over the part of each node, or the
    largest of its numbers >= 0. `part` (B, \\*grid, C) names parts by one of their nodes; where it
    is -1, fields count as 0."""
    several = field.dim() - part.dim()
    to = part.flatten(1, -2).long()
    # Not flattened, for which gradients that are mapped over have no rule.
    rows = field.reshape(*field.shape[: 1 + several], to.shape[1], field.shape[-1])
    to = (to[:, None] if several else to).expand(rows.shape)
    rows, to = torch.where(to >= 0, rows, 0), to.clamp_min(0)
    none = torch.zeros_like(rows)
    # Sums of complex numbers have derivatives by `scatter_add` alone.
    reduced = (
        none.scatter_reduce(-2, to, rows, "amax") if largest else none.scatter_add(-2, to, rows)
    )
    return reduced.gather(-2, to).reshape(field.shape)


def currents_along(conductance: Sequence[Tensor], drops: Sequence[Tensor]) -> list[Tensor]:
    """The current along each edge, of networks (B, ...) and drops (B, ...) or (B, S, ...)."""
    return [beside(g, drop) * drop for g, drop in zip(conductance, drops, strict=True)]


def currents_of(
    density: Tensor, volume: float | Tensor, current: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """Currents into nodes for a source per unit volume, and `current` from elsewhere; in the
    precision of `dtype` or wider, as a volume may be beyond half precision."""
    wide = torch.promote_types(density.dtype, real_dtype(dtype))
    fed = density.to(wide if current is None else torch.promote_types(wide, current.dtype))
    if isinstance(volume, Tensor):
        fed = fed * beside(volume, density)
    elif not isinstance(volume, float) or volume != 1:
        fed = fed * volume
    return fed if current is None else fed + current_beside("source", current, density)


def current_beside(name: str, current: Tensor, field: Tensor) -> Tensor:
    """The current of a circuit in a shape that broadcasts with `field`, which messages call `name`.
    Where it has one for each of S sources, the field has to have S, too."""
    current = beside(current, field)
    if current.dim() > field.dim() or current.shape[1] not in (1, field.shape[1]):
        expected = f"shape (B, S, *grid, C) = {tuple(current.shape)}, as the circuit's currents"
        raise error(name, expected, tuple(field.shape))
    return current


def is_tied(conductance: Sequence[Tensor], leak: Tensor, layout: Layout) -> Tensor:
    """Which nodes are part of their network: those with an edge or a leak. The potential of others
    is 0, whatever their source."""
    edges = [(edge != 0).float() for edge in layout.edges(conductance)]
    return ((leak != 0).float() + layout.sums_at_nodes(edges)) != 0


def residual_of(
    v: Tensor, source: Tensor, conductance: Sequence[Tensor], leak: Tensor, layout: Layout
) -> Tensor:
    """Residuals s - A v, (B, \\*grid, C), or (B, S, \\*grid, C) of S sources."""
    flows = currents_along(layout.edges(conductance), layout.drops(v))
    return source - beside(leak, v) * v - layout.outflow(flows)


def sizes_of(size: Tensor, conductance: Sequence[Tensor], leak: Tensor, layout: Layout) -> Tensor:
    """(|A| size) of nodes: l_p size_p and g_pq (size_p + size_q) of each edge, added up."""
    edges = currents_along(layout.edges(conductance), layout.sums_at_edges(size))
    return beside(leak, size) * size + layout.sums_at_nodes(edges)


def relative_residual(
    v: Tensor, source: Tensor, conductance: Sequence[Tensor], leak: Tensor, layout: Layout
) -> Tensor:
    """Residuals |s - A v| / |s|, (B, C), and 0 where rounding v alone may leave that much.

    Eliminations are judged by it, because their rounding may leave more than any `tol`.
    """
    # Where potentials underflow, they have no digits to be right in.
    info = torch.finfo(v.dtype)
    least = info.tiny / info.eps
    sizes = sizes_of(v.abs() + least, conductance, leak, layout) + least
    # A NaN in the source of a node outside of the network still counts.
    tied = is_tied(conductance, leak, layout)
    residual = residual_of(v, source, conductance, leak, layout)
    residual, norm = (norm_of(torch.where(tied, x, 0 * x)) for x in (residual, source))
    relative = residual / torch.where(norm > 0, norm, 1)
    rounding = CONSTANTS["NETWORK_ROUNDING"] * info.eps * norm_of(sizes)
    return torch.where(residual <= rounding, 0, relative).to(v.dtype)


@torch.no_grad()
def backward_error(
    v: Tensor, source: Tensor, conductance: Sequence[Tensor], leak: Tensor, layout: Layout
) -> Tensor:
    """Backward errors as in `NetworkInfo`: (B, C), or (B, S, C) for S sources."""
    v, source, leak, *conductance = (widened(x.detach()) for x in (v, source, leak, *conductance))
    residual = residual_of(v, source, conductance, leak, layout).abs()
    sizes = sizes_of(v.abs(), [g.abs() for g in conductance], leak.abs(), layout)
    error = torch.where(residual != 0, residual / (source.abs() + sizes), 0 * residual)
    return error.flatten(1 + v.dim() - leak.dim(), -2).amax(-2)


def norm_of(field: Tensor) -> Tensor:
    """Norms of the fields of networks, (B, C), in the widest dtype."""
    return torch.linalg.vector_norm(widened(field).flatten(1, -2), dim=1)


def read_signs(
    conductance: Sequence[Tensor], leak: Tensor, layout: Layout
) -> tuple[float | None, bool]:
    """The smallest leak, and whether a conductance or a leak of real networks is negative. None and
    False where no value may be read: on a GPU, which reading would stall."""
    if leak.device.type != "cpu":
        return None, False
    least = smallest_of(leak)
    # Reading a whole tensor is faster than reading its edges only.
    if least >= 0 and all(smallest_of(g) >= 0 for g in conductance):
        return least, False
    return least, any(bool((x < 0).any()) for x in (leak, *layout.entries(conductance)))
