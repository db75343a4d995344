"""The backend "cpu" of the direct method: the compiled kernel through ctypes, which releases the
GIL.

Many networks fill the lanes of the vectors, and groups of them are shared out to threads; complex
ones always do, and their solves are refined. Few real networks are eliminated one by one: tiles of
the grid fill the lanes, then pieces of fronts' rows fill vectors, and where there are fewer
networks than threads, threads share tiles, subtrees and the rows of large fronts.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from chonn_ops import _library
from chonn_ops._dtypes import real_dtype
from chonn_ops.network.direct.plan import Array, Plan, make_plan
from chonn_ops.network.direct.solution import Solution
from chonn_ops.network.direct.tiles import TiledPlan, in_lanes, make_tiled_plan
from chonn_ops.network.layout import Layout, kept

_HEADER = "network/direct/cpu/direct.h"
_CODES = {
    name.removeprefix("DIRECT_"): code
    for enum in ("direct_call", "direct_status")
    for name, code in _library.enumerators(_HEADER, enum).items()
}
_PAD = _library.CONSTANTS["DIRECT_PAD"]
_KINDS = _library.enumerators(_HEADER, "direct_kind")
# The kernel's code of the numbers of a call.
KIND_OF = {
    torch.float32: _KINDS["DIRECT_FLOAT"],
    torch.float64: _KINDS["DIRECT_DOUBLE"],
    torch.complex64: _KINDS["DIRECT_COMPLEX_FLOAT"],
    torch.complex128: _KINDS["DIRECT_COMPLEX_DOUBLE"],
}
# `LEAF` where the rows of fronts fill the vectors: those of small fronts leave them half empty.
# With 8, volumes of 8 x 8 x 8 and 12 x 12 x 12 took 6 % longer.
_LEAF_OF_ROWS = 16

_ALIGNMENT = 64
_WORTH = 500_000  # multiply-adds for which a thread is woken


class Arguments(_library.structure(_HEADER, "direct_args")):
    """The arguments of the kernel, and what its addresses belong to."""

    kept: list[Any]
    nbytes: int  # of arrays that no plan has


def kernel() -> _library.Operator | None:
    """The compiled elimination, None where there is none."""
    return _library.operator("direct", Arguments, ("run",))


def _parts(plan: Plan, threads: int) -> tuple[Any, Any, Any, int]:
    """Subtrees for threads to share, where their updates wait, and how many entries wait.

    One a thread: the larger the subtrees, the less is left for later, one front at a time. Four a
    thread took 7 to 13 % longer with two threads (64 x 64 to 512 x 512, 24 x 24 x 24).
    """
    first, last = np.array(plan.subtrees(threads), np.int64).T.copy()
    parts = list(zip(first, last, strict=True))
    at = np.zeros(len(parts) + 1, np.int64)
    # The kernel moves whole vectors, which reach beyond the last update of a subtree.
    np.cumsum([plan.stack_of(*part) + _PAD for part in parts], out=at[1:])
    updates = plan.update.copy()
    for part in parts:
        updates[slice(*part)] = 0
    return first, last, at, max(plan.stack, int(at[-1] + updates.sum()))


def _arguments(plan: Plan, axes: int, entries: int, batches: int, channels: int) -> Arguments:
    """Collect what the kernel reads of a plan with `axes` fields of `entries` conductances."""
    arguments = Arguments(batches, channels, 1, plan.nodes, plan.regions, plan.largest_front)
    arguments.axes, arguments.entries = axes, entries
    arguments.num_shares, arguments.item_shares = plan.num_shares, plan.num_shares + _PAD
    arguments.stack, arguments.waiting = plan.stack, plan.waiting
    for name, address in plan.addresses.items():
        setattr(arguments, name, address)
    arguments.kept, arguments.nbytes = [plan], 0  # the addresses stay good as long as the arguments
    return arguments


def _set_tiles(arguments: Arguments, plan: TiledPlan, parts: Array, lanes: int) -> None:
    """Groups of tiles: as many as a vector has lanes, all of one part (first region, one after the
    last)."""
    tiles = plan.tiles
    first, part_group = [0], []
    for end in np.searchsorted(tiles.region, parts[:, 1]):
        part_group.append(len(first) - 1)
        first += [*range(first[-1] + lanes, int(end), lanes), int(end)]
    arrays = {
        "part_group": np.array(part_group, np.int64),
        "group_first": np.array(first, np.int64),
        "tile_region": tiles.region.astype(np.int64),
        "tile_position": in_lanes(tiles.position, first, lanes),
        "tile_edge": in_lanes(tiles.edge, first, lanes),
        "rim": tiles.rim.astype(np.int32),
    }
    for name, array in arrays.items():
        setattr(arguments, name, array.ctypes.data)
    tile = _arguments(tiles.plan, 1, len(tiles.plan.edge), 1, 1)
    arguments.tile = ctypes.addressof(tile)
    arguments.kept += [*arrays.values(), tile]
    arguments.nbytes = sum(array.nbytes for array in arrays.values())
    arguments.groups = len(first) - 1
    arguments.largest_front = max(plan.largest_front, tiles.plan.largest_front)
    # Vectors of shares, and of each node: inverse pivot, share of ground, two for `over_sum`.
    arguments.group_size = tile.item_shares + 4 * tile.nodes
    arguments.group_at = -(-arguments.item_shares // lanes) * lanes
    arguments.item_shares = arguments.group_at + arguments.groups * arguments.group_size * lanes


def arguments_of(
    plan: Plan, batches: int, channels: int, rows: bool, threads: int, lanes: int
) -> Arguments:
    """Make what all calls for networks of one plan share; callers change copies. `lanes`: of
    a vector."""
    arguments = _arguments(
        plan, len(plan.layout.shape), math.prod(plan.layout.edge_shape), batches, channels
    )
    arguments.runs, arguments.num_runs = plan.runs.ctypes.data, len(plan.runs)
    arguments.rows, arguments.threads = rows, threads
    parts = np.array([[0, plan.regions]])
    if rows and threads > batches * channels:
        first, last, at, arguments.stack = _parts(plan, threads)
        arguments.kept += [first, last, at]
        arguments.parts = len(first)
        arguments.part_first, arguments.part_last = first.ctypes.data, last.ctypes.data
        arguments.part_stack = at.ctypes.data
        parts = np.stack([first, last], 1)
    if isinstance(plan, TiledPlan):
        _set_tiles(arguments, plan, parts, lanes)
    return arguments


def _worth_lanes(grid: Sequence[int]) -> float:
    """Return the share of all threads' lanes that networks must fill for lanes to pay; above 1 they
    never do.

    The factors of as many networks as lanes leave the cache soon. On two cores with 16 lanes each,
    rows took as long as lanes for 2 - 3 networks of 16 x 16, 9 of 32 x 32, 14 of 64 x 64 and 32 of
    128 x 128, half as long for any number of 256 x 256; for 7 of 8 x 8 x 8, 13 of 12 x 12 x 12, and
    two thirds of it for any number of 16 x 16 x 16.
    """
    nodes = math.prod(grid)
    return nodes / 4000 if sum(n > 1 for n in grid) > 2 else math.sqrt(nodes) / 128


class Filling(NamedTuple):
    """How networks fill the vectors of the kernel: the instruction set, the numbers of one of its
    vectors, whether tiles and fronts' rows of single networks fill them, and threads.
    """

    isa: int
    lanes: int
    rows: bool
    threads: int


def _filling(grid: Sequence[int], networks: int, dtype: torch.dtype) -> Filling:
    """How so many networks fill vectors: the widest that leave every thread a group of networks."""
    threads, direct = max(1, torch.get_num_threads()), kernel()
    if direct is None:
        return Filling(0, 1, not dtype.is_complex, threads)
    kind = KIND_OF[dtype]
    isa, worth = direct.isa("CHONN_NETWORK_ISA"), 0 if dtype.is_complex else _worth_lanes(grid)
    lanes = direct.lanes(isa, kind)
    rows = worth > 1 or networks < worth * lanes * threads
    if not rows:
        isa = direct.isa_for("CHONN_NETWORK_ISA", -(-networks // threads), kind)
        lanes = direct.lanes(isa, kind)
    return Filling(isa, lanes, rows, threads)


def plan_of(layout: Layout, networks: int, dtype: torch.dtype) -> Plan:
    """The plan for so many networks."""
    return _plan_for(layout, networks, _filling(layout.shape, networks, dtype))


def _plan_for(layout: Any, networks: int, filling: Filling) -> Plan:
    if not (filling.rows and layout.regular):
        return make_plan(layout)
    plan = make_tiled_plan(layout, _LEAF_OF_ROWS, filling.lanes)
    # Each thread that shares a network has tiles for all lanes.
    sharing = _threads_for(plan, 1, filling.threads) if networks < filling.threads else 1
    if sharing == 1:
        return plan
    return make_tiled_plan(layout, _LEAF_OF_ROWS, filling.lanes * sharing)


def _filling_of(plan: Plan, networks: int, dtype: torch.dtype) -> Filling:
    """How networks fill vectors once their plan is made; tiles are there for rows only."""
    filling = _filling(plan.layout.shape, networks, dtype)
    return filling._replace(rows=True) if isinstance(plan, TiledPlan) else filling


def _threads_for(plan: Plan, networks: int, most: int) -> int:
    """Threads: not more than there is work for."""
    return max(1, min(most, int(plan.total_work * networks / _WORTH)))


@kept
def _arguments_for(
    plan: Plan, batches: int, channels: int, filling: Filling, work: int
) -> Arguments:
    """Make what all calls for networks of a plan share; callers change copies. `work`: real
    products of a product."""
    networks = batches * channels
    most = filling.threads if filling.rows else -(-networks // filling.lanes)
    threads = _threads_for(plan, networks * work, min(most, filling.threads))
    return arguments_of(plan, batches, channels, filling.rows, threads, filling.lanes)


def _fields(dtype: torch.dtype) -> int:
    """Numbers a node that factors hold behind the shares: inverse pivot and own leak; for real
    networks ground's share, too; and in single precision a double, `over_sum`."""
    return 2 if dtype.is_complex else 5 if dtype == torch.float32 else 3


class Factors:
    """Networks eliminated by the kernel, of one floating or complex dtype and on the CPU like all
    tensors here. Conductances and leak are as in `Elimination`.

    A source (B, S, \\*grid, C) is solved for while the factors are in the cache, for `solution`,
    which has drops where they are wanted. It is of the networks' dtype; of complex networks of
    either complex dtype, which is that of the solution. Complex solutions have a relative residual
    of at most `tol`, or as small a one as refinement makes it. With ``keep=False`` the factors of
    one group of networks stay in the cache until the next group's take their place, and `solution`
    is all that there is.
    """

    solution: Solution | None = None

    def __init__(
        self,
        plan: Plan,
        conductance: Sequence[Tensor],
        leak: Tensor,
        source: Tensor | None = None,
        *,
        drops: bool = False,
        tol: float = 0,
        keep: bool = True,
    ) -> None:
        arguments = self._prepare(plan, leak, tol)
        # Threads that share a network have no factors of their own.
        once = not (keep or arguments.parts)
        self._measure(arguments.threads if once else -(-len(self._scale) // self._lanes))
        self._factors = leak.new_empty(self._num_shares + _fields(leak.dtype) * self._num_nodes + 1)
        call = "ONCE" if once else "FACTORIZE"
        self.solution = self._call(call, source, drops, (leak, *conductance))

    def _measure(self, items: int) -> None:
        """Numbers of the factors of so many items."""
        self._num_shares = items * self._arguments.item_shares * self._lanes
        self._num_nodes = items * self._plan.nodes * self._lanes

    def state(self) -> list[Tensor]:
        """The elimination as tensors; the first says how it fills the kernel's vectors."""
        filling = torch.tensor([int(x) for x in self._filling])
        return [filling, self._factors, self._scale, torch.from_numpy(self._status)]

    @classmethod
    def restored(
        cls, plan: Plan, state: Sequence[Tensor], leak: Tensor, *, tol: float = 0
    ) -> Factors:
        """The factors with this `state`. Its own plan takes the place of `plan`, because tiles
        depend on the number of threads there were."""
        isa, lanes, rows, threads = state[0].tolist()
        filling = Filling(isa, lanes, bool(rows), threads)
        self = cls.__new__(cls)
        own_plan = _plan_for(plan.layout, leak.shape[0] * leak.shape[-1], filling)
        self._prepare(own_plan, leak, tol, filling)
        self._measure(-(-len(self._scale) // self._lanes))
        self._factors, self._scale, status = state[1:]
        self._status = status.numpy()
        return self

    def _prepare(
        self, plan: Plan, leak: Tensor, tol: float, filling: Filling | None = None
    ) -> Arguments:
        direct = kernel()
        assert direct is not None
        self._plan, self._kernel, self._shape = plan, direct, leak.shape
        B, C = leak.shape[0], leak.shape[-1]
        networks, is_complex = B * C, leak.dtype.is_complex
        self._kind, self._tol = KIND_OF[leak.dtype], tol
        self._filling = filling = filling or _filling_of(plan, networks, leak.dtype)
        self._isa, self._lanes = filling.isa, 1 if filling.rows else filling.lanes
        self._arguments = _arguments_for(plan, B, C, filling, 4 if is_complex else 1)
        self._scale = leak.new_ones(networks, dtype=real_dtype(leak.dtype))
        # NumPy looks through a few numbers faster than PyTorch.
        self._status = np.full(networks, _CODES["DETERMINED"], np.int64)
        return self._arguments

    def _run(self, arguments: Arguments, call: str) -> None:
        if not self._shape.numel():
            return
        at, size = self._factors.data_ptr(), self._factors.element_size()
        arguments.shares = at
        arguments.inverse = at = at + self._num_shares * size
        arguments.own_leak = at = at + self._num_nodes * size
        arguments.grounded = at = at + self._num_nodes * size
        arguments.over_sum = -(-(at + self._num_nodes * size) // 8) * 8
        arguments.scale, arguments.status = self._scale.data_ptr(), self._status.ctypes.data
        arguments.call = _CODES[call]
        size = self._kernel.workspace(self._isa, self._kind, arguments)
        workspace = torch.empty(size + _ALIGNMENT, dtype=torch.uint8)
        arguments.workspace = -(-workspace.data_ptr() // _ALIGNMENT) * _ALIGNMENT
        self._kernel.call["run"](self._isa, self._kind, arguments)

    def _call(
        self,
        call: str,
        source: Tensor | None,
        drops: bool,
        network: Sequence[Tensor] = (),
        inverse: Sequence[Tensor] = (),
    ) -> Solution | None:
        """Run `call`; the solution for `source`, if any. Residuals are found of sources with their
        network, leak and conductances, which complex ones always need; `inverse` takes the diagonal
        and entries of the inverse."""
        # Threads share the factors, but no arguments.
        arguments = Arguments.from_buffer_copy(self._arguments)
        network = [field.contiguous() for field in network]
        if network:
            arguments.leak = network[0].data_ptr()
            for axis, field in enumerate(network[1:]):
                arguments.conductance[axis] = field.data_ptr()
        drop_fields: list[Tensor] = []
        solution = None
        if source is not None:
            source = source.contiguous()
            potential, residual = torch.empty_like(source), None
            if drops:
                shape = (*source.shape[:2], *self._plan.layout.edge_shape, source.shape[-1])
                drop_fields = [source.new_empty(shape) for _ in self._plan.layout.shape]
            if network:
                of = (*source.shape[:2], source.shape[-1])
                residual = torch.zeros(of, dtype=torch.float64)
                arguments.residual = residual.data_ptr()
            arguments.sources, arguments.tol = source.shape[1], self._tol
            arguments.single = source.dtype == torch.complex64
            arguments.source, arguments.potential = source.data_ptr(), potential.data_ptr()
            solution = Solution(potential, drop_fields, residual)
        for axis, field in enumerate(drop_fields):
            arguments.drop[axis] = field.data_ptr()
        if inverse:
            arguments.diagonal = inverse[0].data_ptr()
            for axis, field in enumerate(inverse[1:]):
                arguments.entry[axis] = field.data_ptr()
        self._run(arguments, call)
        return solution

    def solve(
        self, source: Tensor, *, drops: bool = False, network: Sequence[Tensor] = ()
    ) -> Solution:
        """The solution for sources (B, S, \\*grid, C); with the residual where leak and
        conductances are given once more, which complex networks need to be refined."""
        solution = self._call("SOLVE", source, drops, network)
        assert solution is not None
        return solution

    def sample(self, noise: Tensor) -> Tensor:
        """Fields for white noise (B, S, \\*grid, C)."""
        solution = self._call("SAMPLE", noise, False)
        assert solution is not None
        return solution.potential

    def resistances(self, pairs: Tensor) -> Tensor:
        """Effective resistances between pairs of nodes (P, 2): (B, P, C)."""
        at = torch.from_numpy(self._plan.position)[pairs]
        # Pairs that go together share what they read of the factors where they are near each other.
        order = at.amin(1).argsort()
        at = at[order].contiguous()
        resistance = self._factors.new_empty(self._shape[0], len(at), self._shape[-1])
        arguments = Arguments.from_buffer_copy(self._arguments)
        arguments.sources = len(at)
        arguments.source, arguments.potential = at.data_ptr(), resistance.data_ptr()
        self._run(arguments, "PAIRS")
        return torch.empty_like(resistance).index_copy_(1, order, resistance)

    def logdet(self) -> Tensor:
        """(B, C), float64; nodes that are not part of a network left out."""
        pivots = self._factors[self._num_shares :][: self._num_nodes]
        lanes = pivots.view(-1, self._plan.nodes, self._lanes).movedim(-1, 1)
        inverse = lanes.flatten(0, 1)[: len(self._scale)].double()
        some = inverse > 0
        logs = torch.where(some, inverse, 1).log().sum(1).neg()
        value = logs - some.sum(1) * self._scale.double().log()
        status = torch.from_numpy(self._status)
        value[status >= 0] = -math.inf
        value[status == _CODES["NOT_FINITE"]] = math.nan
        return value.reshape(self._shape[0], self._shape[-1])

    def inverse_entries(self) -> tuple[Tensor, list[Tensor]]:
        """Entries of the inverse, (B, \\*grid, C): its diagonal, and for each axis those of the
        nodes that an edge joins, 0 where there is no edge."""
        diagonal = self._factors.new_empty(self._shape)
        shape = (self._shape[0], *self._plan.layout.edge_shape, self._shape[-1])
        entries = [self._factors.new_zeros(shape) for _ in self._plan.layout.shape]
        self._call("INVERT", None, False, inverse=(diagonal, *entries))
        return diagonal, entries

    @property
    def nbytes(self) -> int:
        """Bytes that the factors hold."""
        return self._factors.nbytes


def bytes_of(plan: Plan, networks: int, dtype: torch.dtype) -> int:
    """Bytes of factors and of what elimination and substitution take beside them."""
    size, direct = dtype.itemsize, kernel()
    if direct is None:
        front = plan.largest_front
        return (networks * (plan.num_shares + 3 * plan.nodes) + front**2 + plan.stack) * size
    filling, is_complex = _filling_of(plan, networks, dtype), dtype.is_complex
    common = _arguments_for(plan, networks, 1, filling, 4 if is_complex else 1)
    arguments = Arguments.from_buffer_copy(common)
    # The kernel would also write the drops of a source, so the prediction includes both.
    arguments.source = arguments.drop[0] = 1
    per = 1 if filling.rows else filling.lanes
    each = (arguments.item_shares + _fields(dtype) * plan.nodes) * per * size
    return -(-networks // per) * each + direct.workspace(filling.isa, KIND_OF[dtype], arguments)
