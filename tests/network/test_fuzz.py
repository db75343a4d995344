"""Random networks against elimination with 120 digits, entry by entry: potentials, gradients,
forward mode and Hessian-vector products, where sources, leaks and conductances spread over twenty
decades, where small leaks lift potentials, where these decay, and where clusters are behind weak
edges.

Each entry has its own scale, and its error is counted in roundings of that. A network of matrix A
has the potentials A^-1 s of sources s, and drops of these along edges:

- a potential has the scale S = A^-1 |s| of its node;
- a drop has the smaller one of two: S at both of its ends, added; and the largest drop in its
  connected part that currents make which enter at the sources, leave through the leaks with the
  part's mean potential, and may pass one node between, whichever makes the largest. So neither
  decay nor small leaks, which lift all potentials of a part alike, cost a digit; but a drop that is
  small in its part and between large potentials is right to the largest drop only;
- currents of edges, which derivatives put into networks, add to S the smaller one of what both ends
  of the edge make alone, and of the largest potential that the currents make in the part; their
  drops likewise;
- a product of factors a and b with scales S_a and S_b, as gradients are, has |a| S_b + |b| S_a, and
  `MOST` roundings of S_a S_b, as both factors may be off.

``python tests/network/test_fuzz.py 0 500`` takes 2,000 networks and prints the worst of each kind.
"""

import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch
from network_cases import Door, factorize, solve_network
from torch import Tensor
from torch.autograd import forward_ad

from chonn_ops import Graph
from chonn_ops.network import available_backends

mpmath = pytest.importorskip("mpmath")

SEED = 20290417
DIGITS = 120
MOST = 32  # roundings by which an entry may be off
KINDS = ("spread", "screened", "lifted", "clusters")
BATCH, CHANNELS = 2, 2
Array = np.ndarray[Any, Any]


@dataclass
class Network:
    """Flat fields in float64 that the dtype of the case holds exactly."""

    kind: str
    source: Array
    leak: Array
    g: list[Array]
    weight: Array
    tangents: list[Array]  # of source, leak and conductances


@dataclass
class Case:
    """Networks on one grid."""

    grid: tuple[int, ...]
    periodic: tuple[bool, ...]
    dtype: torch.dtype
    networks: list[Network]

    @property
    def edges(self) -> list[tuple[int, int, int]]:
        """(axis, node, next node), edges of conductance 0 counted."""
        nodes = np.arange(math.prod(self.grid)).reshape(self.grid)
        found = []
        for axis, (n, closed) in enumerate(zip(self.grid, self.periodic, strict=True)):
            after = np.roll(nodes, -1, axis)
            used = np.ones(self.grid, bool)
            if not closed or n == 1:
                np.moveaxis(used, axis, 0)[-1] = False
            pairs = zip(nodes[used], after[used], strict=True)
            found += [(axis, int(p), int(q)) for p, q in pairs]
        return found

    def parts(self, g: Sequence[Array]) -> Array:
        """(nodes,): a number for each connected part."""
        part = np.arange(math.prod(self.grid))
        edges = [(p, q) for axis, p, q in self.edges if g[axis][p] > 0]
        changed = True
        while changed:
            changed = False
            for p, q in edges:
                low = min(part[p], part[q])
                changed |= part[p] != part[q]
                part[p] = part[q] = low
        return part


def _random_case(rng: np.random.Generator) -> Case:
    axes = int(rng.integers(1, 4))
    most = (40, 6, 3)[axes - 1]
    grid = tuple(int(n) for n in rng.integers(1, most + 1, axes))
    if axes == 2 and rng.random() < 0.3:
        grid = (int(rng.integers(10, 17)), int(rng.integers(1, 4)))
    periodic = tuple(bool(x) for x in rng.random(axes) < 0.4)
    dtype = torch.float32 if rng.random() < 0.6 else torch.float64
    case = Case(grid, periodic, dtype, [])
    # One of each kind, or all of one: those of several parts have company of their own in vectors.
    kinds = KINDS if rng.random() < 0.5 else [str(rng.choice(KINDS))] * len(KINDS)
    case.networks = [_random_network(rng, case, kind) for kind in kinds]
    return case


def _random_network(rng: np.random.Generator, case: Case, kind: str) -> Network:
    nodes = math.prod(case.grid)

    def decades() -> float:
        return float(rng.choice([0, 1, 3, 6, 10, 20]))

    def spread(most: float) -> Array:
        return 10.0 ** (most * (rng.random(nodes) - 0.5))

    def some(share: float) -> Array:
        return rng.random(nodes) < share

    def given() -> Array:
        """Sources, or weights: of all signs or of one; everywhere, at few nodes, or at one."""
        values = spread(decades() if kind == "spread" else 1) * rng.choice([-1, 1], nodes)
        if rng.random() < 0.5:
            values = np.abs(values)
        if (draw := rng.random()) < 0.3:
            values = values * some(0.2)
        elif draw < 0.6:
            values = values * (np.arange(nodes) == rng.integers(nodes))
        return values

    if kind == "spread":
        g = [spread(decades()) for _ in case.grid]
        leak = spread(decades()) * 10.0 ** -float(rng.choice([0, 0, 3, 6, 9, 12]))
        if rng.random() < 0.3:  # few grounds
            leak *= some(0.2)
        if rng.random() < 0.5:
            share = rng.choice([0.05, 0.3, 0.6])
            g = [x * ~some(share) for x in g]
    elif kind == "screened":
        g = [spread(float(rng.choice([0, 1, 3]))) for _ in case.grid]
        leak = spread(1) * 10.0 ** float(rng.choice([-2, -1, 0, 1, 2]))
    else:
        g = [spread(1) for _ in case.grid]
        leak = spread(1) * 10.0 ** -float(rng.choice([6, 9, 12, 16]))
        if rng.random() < 0.5:
            leak = leak * some(0.2)
    source, weight = given(), given()
    if kind == "clusters":  # behind weak edges or none, with leaks and sources of their own size
        which = rng.integers(0, 2, nodes)
        weak = 10.0 ** -float(rng.choice([3, 6, 9, 12, 19])) * (rng.random() < 0.7)
        g = [spread(1) for _ in case.grid]
        for axis, p, q in case.edges:
            g[axis][p] *= weak if which[p] != which[q] else 1
        leak, source, weight = (
            x * 10.0 ** -rng.choice([0, 3, 6, 9, 12], 2).astype(float)[which]
            for x in (spread(1), source, weight)
        )
    tangents = [rng.integers(-8, 9, nodes) / 8 * x for x in (source, leak, *g)]
    # Edges of 0 have derivatives, too.
    tangents[2:] = [np.where(x > 0, t, 0.25) for t, x in zip(tangents[2:], g, strict=True)]
    for i in range(2, len(tangents)):
        tangents[i] *= rng.random() < 0.8

    def exact(values: Array) -> Array:
        single = case.dtype == torch.float32
        return values.astype(np.float32).astype(np.float64) if single else values

    source, leak, weight = exact(source), exact(leak), exact(weight)
    g, tangents = [exact(x) for x in g], [exact(x) for x in tangents]
    part = case.parts(g)
    for label in np.unique(part):  # every part has ground
        where = part == label
        if not leak[where].any():
            leak[np.flatnonzero(where)[rng.integers(where.sum())]] = 2.0**-7
    return Network(kind, source, leak, g, weight, tangents)


def _apart(values: Array) -> tuple[Array, Array]:
    """Numbers of many digits as sums of two in float64, so that differences have digits, too."""
    large = values.astype(float)
    return large, (values - large).astype(float)


class Truth:
    """Values and scales of one network by star-mesh elimination with `DIGITS` digits."""

    def __init__(self, case: Case, network: Network) -> None:
        mpmath.mp.dps = DIGITS
        mp = np.vectorize(mpmath.mpf, otypes=[object])
        info = torch.finfo(case.dtype)
        self.part = case.parts(network.g)
        inverse = self._inverse(case, network, mp)
        nodes, ends = len(inverse), np.array([(p, q) for _, p, q in case.edges], int).reshape(-1, 2)
        self.p, self.q = p, q = ends.T
        across = inverse[:, p] - inverse[:, q] if len(p) else np.zeros((nodes, 0), object)
        # For scales, in float64: potentials of unit sources, and of unit currents of edges.
        of_sources, of_currents = inverse.astype(float), np.abs(across.astype(float))
        of_ends = of_sources[:, p] + of_sources[:, q]
        between = np.abs((across[p] - across[q]).astype(float))  # drops of unit currents
        # Drops where a unit current enters at one node and leaves at another.
        both = (self.part[:, None] == self.part).astype(float)
        pairs = np.abs(sum(x.T[:, :, None] - x.T[:, None, :] for x in _apart(across))) * both
        # What underflows has no digits: potentials, and conductances beside the largest one.
        largest = max(float(np.max(x)) for x in (network.leak, *network.g))
        least = info.tiny / info.eps
        through = least * largest * of_sources.diagonal()

        def solved(sources: Array, currents: Array, more: Array, flows: Array) -> tuple:
            """Potentials and drops, and their scales; `more` and `flows` are those of what is
            given."""
            x = inverse @ mp(sources) + across @ mp(currents)
            level = (both @ more) / (both @ network.leak)
            size = of_sources @ more
            drop = self._least(
                size[p] + size[q], (pairs @ (more + network.leak * level)).max(1, initial=0)
            )
            current = self._least(of_ends @ flows, of_currents @ flows, self.part)
            drop += self._least(current[p] + current[q], between @ flows)
            size = size + current
            floor = least * max(1, 1 / largest) + through * np.max(size)
            floor = floor + 10.0 ** (30 - DIGITS) * np.max(size)  # where the truth is its rounding
            return x, x[p] - x[q], size + floor, drop + floor[p] + floor[q]

        s, weight, (ds, dl, *_) = network.source, network.weight, network.tangents
        change = np.array([network.tangents[2 + axis][p] for axis, p, _ in case.edges])
        none = np.zeros(len(p))
        v, dv, size_v, drops_v = solved(s, none, np.abs(s), none)
        w, dw, size_w, drops_w = solved(weight, none, np.abs(weight), none)
        given = np.abs(ds) + np.abs(dl) * size_v, np.abs(change) * drops_v
        tv, dtv, size_tv, drops_tv = solved(mp(ds) - mp(dl) * v, -mp(change) * dv, *given)
        given = np.abs(dl) * size_w, np.abs(change) * drops_w
        tw, dtw, size_tw, drops_tw = solved(-mp(dl) * w, -mp(change) * dw, *given)

        def product(*pairs: tuple[Array, Array, Array, Array]) -> tuple[Array, Array]:
            """Minus the sum of products of values with scales."""
            value, size = mp(np.zeros(len(pairs[0][0]))), np.zeros(len(pairs[0][0]))
            for x, of_x, y, of_y in pairs:
                value = value - x * y
                terms = np.abs(x.astype(float)) * of_y + np.abs(y.astype(float)) * of_x
                size = size + terms + MOST * info.eps * of_x * of_y
            return value, size

        values = {
            "v": (v, size_v),
            "grad source": (w, size_w),
            "grad leak": product((w, size_w, v, size_v)),
            "grad g": product((dw, drops_w, dv, drops_v)),
            "forward": (tv, size_tv),
            "hessian source": (tw, size_tw),
            "hessian leak": product((tw, size_tw, v, size_v), (w, size_w, tv, size_tv)),
            "hessian g": product((dtw, drops_tw, dv, drops_v), (dw, drops_w, dtv, drops_tv)),
        }
        self.values = {name: (*_apart(x), size) for name, (x, size) in values.items()}

    def _inverse(self, case: Case, network: Network, mp: Callable[[Array], Array]) -> Array:
        n = network.source.size
        g = mp(np.zeros((n, n)))
        for axis, p, q in case.edges:
            if p != q:
                g[p, q] += mpmath.mpf(network.g[axis][p])
                g[q, p] = g[p, q]
        leak, x, total, shares = mp(network.leak), mp(np.eye(n)), [], []
        for k in range(n):
            edges = g[k, k + 1 :].copy()
            t = leak[k] + edges.sum() if k + 1 < n else leak[k]
            h = edges / t if t else edges
            g[k + 1 :, k + 1 :] += np.outer(h, edges)
            leak[k + 1 :] += h * leak[k]
            x[k + 1 :] += np.outer(h, x[k])
            total.append(t)
            shares.append(h)
        for k in reversed(range(n)):
            x[k] = x[k] / total[k] if total[k] else x[k] * 0
            if k + 1 < n:
                x[k] = x[k] + shares[k] @ x[k + 1 :]
        return x

    def _least(self, own: Array, of_part: Array, part: Array | None = None) -> Array:
        """The smaller one of each entry's own scale and the largest one of its part. Entries are
        edges, those between two parts with their own alone, or nodes with their `part`."""
        at = np.where(self.part[self.p] == self.part[self.q], self.part[self.p], -1)
        at = at if part is None else part
        least = own.copy()
        for label in np.unique(at[at >= 0]):
            inside = at == label
            least[inside] = np.minimum(own[inside], of_part[inside].max())
        return least


def _found(case: Case, solve: Callable[..., Tensor], *, transforms: bool) -> list[dict[str, Array]]:
    """The same by the library, network by network, and all other ways to a gradient."""

    def field(each: Sequence[Array]) -> Tensor:
        rows = torch.from_numpy(np.stack(list(each))).to(case.dtype)
        return rows.reshape(BATCH, CHANNELS, *case.grid).movedim(1, -1)

    networks = case.networks
    fields = [(x.source, x.leak, *x.g) for x in networks]
    leaves = [field(x).requires_grad_() for x in zip(*fields, strict=True)]
    tangents = [field(x) for x in zip(*(x.tangents for x in networks), strict=True)]
    weight = field([x.weight for x in networks])
    v = solve(*leaves)
    grads = torch.autograd.grad(v, leaves, weight, retain_graph=True, allow_unused=True)
    twice = torch.autograd.grad(v, leaves, weight, create_graph=True, allow_unused=True)
    kinds = {"grad": grads, "again": twice}
    if transforms:
        rows = torch.stack([weight, -weight])
        options = {"is_grads_batched": True, "allow_unused": True}
        batched = torch.autograd.grad(solve(*leaves), leaves, rows, **options)
        kinds["batched"] = [None if x is None else x[0] for x in batched]
        loss = lambda *x: (solve(*x) * weight).sum()  # noqa: E731
        kinds["func"] = torch.func.grad(loss, tuple(range(len(leaves))))(*leaves)
    pairs = zip(twice, tangents, strict=True)
    power = torch.stack([(a * b).sum(dtype=torch.float64) for a, b in pairs if a is not None]).sum()
    hessian = torch.autograd.grad(power, leaves, allow_unused=True)
    with forward_ad.dual_level():
        pairs = zip(leaves, tangents, strict=True)
        duals = [forward_ad.make_dual(x.detach(), t) for x, t in pairs]
        forward = forward_ad.unpack_dual(solve(*duals)).tangent

    def flat(x: Tensor | None) -> Array:
        if x is None:
            return np.zeros((len(networks), math.prod(case.grid)))
        return x.detach().double().movedim(-1, 1).reshape(len(networks), -1).numpy()

    def edges(fields: Any) -> Array:
        arrays = [flat(x) for x in fields]
        columns = [arrays[axis][:, p] for axis, p, _ in case.edges]
        return np.stack(columns, 1) if columns else np.zeros((len(networks), 0))

    every, kinds["hessian"] = {"v": flat(v), "forward": flat(forward)}, hessian
    for kind, (of_source, of_leak, *of_g) in kinds.items():
        every[f"{kind} source"], every[f"{kind} leak"] = flat(of_source), flat(of_leak)
        every[f"{kind} g"] = edges(of_g)
    return [{name: x[i] for name, x in every.items()} for i in range(len(networks))]


def _by_graph(case: Case) -> Callable[..., Tensor]:
    """The same networks as a graph, without edges between a node and itself."""
    edges = [(axis, p, q) for axis, p, q in case.edges if p != q]
    joined = sorted({(min(p, q), max(p, q)) for _, p, q in edges})
    graph, number = Graph(joined, math.prod(case.grid)), {x: i for i, x in enumerate(joined)}
    to = torch.tensor([number[min(p, q), max(p, q)] for _, p, q in edges])

    def solve(s: Tensor, leak: Tensor, *g: Tensor) -> Tensor:
        flat = [x.flatten(1, -2) for x in g]
        each = torch.stack([flat[axis][:, p] for axis, p, _ in edges], 1)
        # Two edges between one pair of nodes, on rings of two nodes, conduct together.
        summed = each.new_zeros(BATCH, len(joined), CHANNELS).index_add(1, to, each)
        nodes = [x.flatten(1, -2) for x in (s, leak)]
        return solve_network(nodes[0], summed, nodes[1], graph=graph).reshape(s.shape)

    return solve


def solvers(case: Case) -> Iterator[tuple[str, Callable[..., Tensor]]]:
    """Name, and what solves (source, leak, g0, ...): Triton's kernels alone where it interprets."""
    periodic = [bool(x) for x in case.periodic]

    def by(door: Door) -> Callable[..., Tensor]:
        def solve(s: Tensor, leak: Tensor, *g: Tensor) -> Tensor:
            with door:
                return door(s, g, leak, periodic)

        return solve

    if "TRITON_INTERPRET" in os.environ:
        yield "triton", by(Door("triton", "direct", "networks"))
        return
    if "cpu" in available_backends():
        yield "cpu networks", by(Door("cpu", "direct", "networks"))
        yield "cpu nodes", by(Door("cpu", "direct", "nodes"))
    yield "torch", by(Door("torch", "direct", "networks"))
    yield "factorize", lambda s, leak, *g: factorize(g, leak, periodic=periodic).solve(s)
    if any(p != q for _, p, q in case.edges):
        yield "graph", _by_graph(case)


def roundings(number: int) -> Iterator[tuple[str, str, str, float]]:
    """Solver, kind of network, quantity, and its largest error in roundings."""
    case = _random_case(np.random.default_rng([SEED, number]))
    info = torch.finfo(case.dtype)
    truths = [Truth(case, network).values for network in case.networks]
    for solver, solve in solvers(case):
        # Factors are made outside of transforms; Triton's interpreter is slow.
        results = _found(case, solve, transforms=solver not in ("factorize", "triton"))
        for network, values, found in zip(case.networks, truths, results, strict=True):
            for name, actual in found.items():
                exact, rest, size = values[re.sub("again|batched|func", "grad", name)]
                errors = np.abs(actual - exact - rest) / (size + info.tiny)
                errors[np.abs(exact) > info.max / 1e6] = 0  # may overflow
                if len(exact):
                    yield solver, network.kind, name, float(errors.max()) / info.eps


def check(numbers: Iterable[int]) -> None:
    """Nothing is off by more than `MOST` roundings."""
    found = [(number, *x) for number in numbers for x in roundings(number) if not x[-1] <= MOST]
    assert not found, found[:20]


@pytest.mark.parametrize(
    "numbers",
    [
        range(3),
        pytest.param(range(3, 13), marks=pytest.mark.thorough),
        *(pytest.param(range(x, 500, 20), marks=pytest.mark.slow) for x in range(4)),
    ],
    ids=str,
)
def test_networks(numbers):
    """Four for each number; `report` takes 2,000."""
    check(numbers)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_triton(interpreted):
    interpreted(check, range(13, 15))


def report(first: int, last: int) -> None:
    """Print the worst of each solver, kind of network, precision and quantity."""
    worst: dict[tuple[str, ...], tuple[float, int]] = {}
    for number in range(first, last):
        dtype = str(_random_case(np.random.default_rng([SEED, number])).dtype)[6:]
        for solver, kind, name, error in roundings(number):
            key = (name, kind, dtype, solver)
            worst[key] = max(worst.get(key, (0.0, 0)), (error, number))
            if not error <= MOST:
                print("ABOVE", number, *key, f"{error:.3g}", flush=True)
        if number % 25 == 24:
            print(number, flush=True)
    for key, (error, number) in sorted(worst.items()):
        print(*key, f"{error:.3g} in case {number}")


if __name__ == "__main__":
    report(*map(int, sys.argv[1:]))
