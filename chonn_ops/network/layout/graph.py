"""`Graph`: nodes and edges that are no grid, and the order in which its nodes are eliminated."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from chonn_ops._in_graph import uncompiled
from chonn_ops._pytorch import without_transforms
from chonn_ops.checks import as_tensor, check_integer, check_kind, check_tensor, error
from chonn_ops.network.layout import Layout
from chonn_ops.network.layout.dissection import Array, Dissection, coordinates_of, dissect_graph

F = TypeVar("F", bound=Callable[..., Any])

# What to do about several edges between two nodes, in one line.
_ONE_WAY = (
    "To keep one of two directions of equal conductance: kept = edges[:, 0] < edges[:, 1]; edges, "
    "g = edges[kept], g[:, kept]"
)
_PARALLEL = (
    "To add parallel conductances: edges, part = edges.sort(1).values.unique(dim=0, "
    "return_inverse=True); g = g.new_zeros(B, len(edges), C).index_add(1, part, g)"
)
_HEAD = 5  # numbers before the arrays: two of the digest, nodes, edges, regions


def plain_tensors(make: F) -> F:
    """A decorator: `make` makes tensors that all later calls may use, on the CPU, whatever the
    default device is, and neither of the inference mode nor of the transform of `torch.func` that
    happens to be active. It breaks the graph of `torch.compile`, which cannot trace its NumPy."""

    @uncompiled
    @wraps(make)
    def plain(*args: Any, **kwargs: Any) -> Any:
        with torch.inference_mode(False), without_transforms(), torch.device("cpu"):
            return make(*args, **kwargs)

    return plain  # pyright: ignore[reportReturnType]


class Graph(Layout):
    """The nodes and edges of circuits that are no grid.

    It is immutable. Its nodes are ordered when it is made, by nested dissection, which takes about
    a second for 100,000 nodes: make it once for all circuits on it. Circuits on different graphs
    are one batch as circuits on the disjoint union of these graphs.

    Parameters
    ----------
    edges : Tensor or array, shape (E, 2)
        The two nodes that each edge joins. A current along an edge is positive from the first to
        the second.
    num_nodes : int
    positions : Tensor or array, shape (N, d), optional
        Where the nodes are. They are used to order nodes only. Without them nodes are ordered by
        their distances along edges, and by METIS where `pymetis` is installed.

    Attributes
    ----------
    num_nodes, num_edges : int
    ends : Tensor, shape (2, E)
        The first and the second node of each edge.
    positions : array, shape (N, d), or None

    Raises
    ------
    ValueError
        Another shape; no edge; an edge of a node that is not there, an edge from a node to itself
        and a second edge between two nodes, which are named; positions that are not finite.

    Examples
    --------
    A triangle whose node 2 is grounded, 1 A into node 0:

    >>> import torch
    >>> from chonn_ops import Circuit, Graph
    >>> triangle = Graph([(0, 1), (1, 2), (0, 2)], num_nodes=3)
    >>> leak = torch.tensor([0.0, 0.0, 1.0]).reshape(1, 3, 1)
    >>> v = Circuit(torch.ones(1, 3, 1), leak, triangle).solve(torch.eye(3)[:1, :, None])
    >>> [round(x, 4) for x in v.flatten().tolist()]
    [1.6667, 1.3333, 1.0]
    """

    ends: Tensor
    regular = False

    @plain_tensors
    def __init__(self, edges: Any, num_nodes: int | np.integer[Any], positions: Any = None) -> None:
        check_integer(1, num_nodes=num_nodes)
        num_nodes = int(num_nodes)
        ends = _checked(real_numbers("edges", edges).numpy(), num_nodes)
        self.positions: Array | None = None
        if positions is None:
            coordinates = coordinates_of(ends, num_nodes)
        else:
            where = real_numbers("positions", positions, torch.float64).double().numpy()
            if where.ndim != 2 or len(where) != num_nodes or not where.shape[1]:
                raise error("positions", f"shape (N, d) with N = {num_nodes}", where.shape)
            if not np.isfinite(where).all():
                node = int(np.flatnonzero(~np.isfinite(where).all(1))[0])
                raise error("positions", "finite numbers", f"{where[node].tolist()} of node {node}")
            self.positions, coordinates = where, list(where.T)
        dissection = dissect_graph(ends, num_nodes, coordinates)
        sizes = [num_nodes, ends.shape[1], len(dissection.pivots)]
        content = np.concatenate([sizes, *ends, *dissection]).astype(np.int64)
        digest = hashlib.blake2b(content.tobytes(), digest_size=16).digest()
        self._read(torch.from_numpy(np.concatenate([np.frombuffer(digest, np.int64), content])))

    def _read(self, packed: Tensor) -> None:
        self.packed = packed
        *self._key, self.num_nodes, self.num_edges, regions = packed[:_HEAD].tolist()
        lengths = [2 * self.num_edges, self.num_nodes, regions, regions]
        self.shape = (self.num_nodes,)
        ends, *self._dissection = packed[_HEAD:].split(lengths)
        self.edge_shape = (self.num_edges,)
        self.ends = ends.reshape(2, self.num_edges)

    @classmethod
    def unpacked(cls, packed: Tensor, positions: Array | None = None) -> Graph:
        """The graph with this attribute `packed`, one tensor of integers that says all of it but
        for positions: PyTorch's operators take tensors."""
        self = cls.__new__(cls)
        self.positions = positions
        self._read(packed)
        return self

    def dissection(self, leaf: int) -> Dissection:  # noqa: ARG002
        return Dissection(*(x.numpy() for x in self._dissection))

    def edge_ends(self) -> tuple[Array, Array]:
        return np.arange(self.num_edges), self.ends.numpy()

    def arguments(self) -> tuple[list[bool], Tensor | None]:
        return [], self.packed

    def check(self, conductance: Any, leak: Tensor, dtypes: Sequence[torch.dtype]) -> list[Tensor]:
        if not isinstance(conductance, Tensor):
            kind = type(conductance).__name__
            raise TypeError(f"conductance: expected one Tensor (B, E, C) with a graph, got {kind}")
        if leak.dim() != 3 or leak.shape[1] != self.num_nodes:
            expected = f"shape (B, N, C) with N = {self.num_nodes} nodes of the graph"
            raise error("leak", expected, tuple(leak.shape))
        check_tensor("conductance", conductance)
        shape = (leak.shape[0], self.num_edges, leak.shape[2])
        if conductance.shape != shape:
            raise error("conductance", f"shape (B, E, C) = {shape}", tuple(conductance.shape))
        check_kind("conductance", conductance, leak.device, "the leak", dtypes)
        return [conductance]

    def for_circuit(self, conductance: Sequence[Tensor]) -> Sequence[Tensor] | Tensor:
        return conductance[0]

    def entries(self, values: Sequence[Tensor]) -> list[Tensor]:
        return list(values)

    def edges(self, values: Sequence[Tensor]) -> list[Tensor]:
        return list(values)

    def at_ends(self, field: Tensor, axis: int) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        first, second = self.ends.to(field.device)
        return field.index_select(-2, first), field.index_select(-2, second)

    def from_ends(self, first: Tensor, second: Tensor, axis: int) -> Tensor:  # noqa: ARG002
        p, q = self.ends.to(first.device)
        field = first.new_zeros(*first.shape[:-2], self.num_nodes, first.shape[-1])
        return field.index_add(-2, p, first).index_add(-2, q, second)

    def _spread(self, part: Tensor, edge: Tensor, axis: int) -> Tensor:
        both = torch.where(edge, torch.maximum(*self.at_ends(part, axis)), -1)
        for end in self.ends.to(part.device):
            part = part.scatter_reduce(1, end[:, None].expand_as(both), both, "amax")
        return part

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and self._key == other._key

    def __hash__(self) -> int:
        return hash(tuple(self._key))

    def __reduce__(self) -> tuple[Any, ...]:
        return Graph.unpacked, (self.packed, self.positions)

    def __repr__(self) -> str:
        return f"Graph of {self.num_nodes} nodes and {self.num_edges} edges"


def real_numbers(name: str, values: Any, plain: torch.dtype | None = None) -> Tensor:
    """Real numbers of any array or Tensor, on the CPU; those of Python in the dtype `plain`."""
    dtype = None if hasattr(values, "dtype") else plain
    numbers = as_tensor(name, values, "cpu", dtype).detach()
    if numbers.is_complex():
        raise error(name, "real numbers", numbers.dtype)
    return numbers


def _checked(edges: Array, num_nodes: int) -> Array:
    """The ends of edges, (2, E)."""
    if edges.ndim != 2 or edges.shape[1] != 2 or not len(edges):
        turned = " (edges.T, of what has the shape (2, E))" if len(edges) == 2 else ""
        raise error("edges", f"shape (E, 2) with at least one edge{turned}", edges.shape)
    if edges.dtype.kind not in "iu":
        raise error("edges", "integers", edges.dtype)
    p, q = ends = edges.T.astype(np.int64)

    def refuse(wrong: Array, expected: str) -> None:
        if wrong.any():
            edge = int(np.flatnonzero(wrong)[0])
            raise error("edges", expected, f"({p[edge]}, {q[edge]}) as edge {edge}")

    refuse(((ends < 0) | (ends >= num_nodes)).any(0), f"nodes from 0 to {num_nodes - 1}")
    refuse(p == q, "two different nodes of each edge, as edges[edges[:, 0] != edges[:, 1]] have")
    pair = np.minimum(p, q) * num_nodes + np.maximum(p, q)
    distinct, first = np.unique(pair, return_index=True)
    again = np.ones(len(pair), bool)
    again[first] = False
    both_ways = all(np.array_equal(np.sort(pair[way]), distinct) for way in (p < q, p > q))
    refuse(again, "one edge between two nodes at most. " + (_ONE_WAY if both_ways else _PARALLEL))
    return ends


@plain_tensors
def merged_ends(ends: Array, groups: Tensor) -> tuple[Array, Array, Array, Array]:
    """Edges with these ends (2, E) between groups of nodes. Nodes of one label above 0 are a group.

    Returns the group of each node; a node of each group, in ascending order; the ends of edges
    between groups; and which of those each edge is part of, their number for an edge inside a
    group.
    """
    labels = groups.flatten().cpu().numpy()
    leader = np.arange(len(labels))
    _, first, of = np.unique(labels, return_index=True, return_inverse=True)
    leader = np.where(labels > 0, first[of], leader)
    first, group = np.unique(leader, return_inverse=True)
    p, q = np.sort(group[ends], 0)
    between = p != q
    pair, part = np.unique((p * len(first) + q)[between], return_inverse=True)
    which = np.full(len(p), len(pair))
    which[between] = part
    return group, first, np.stack(np.divmod(pair, len(first))), which
