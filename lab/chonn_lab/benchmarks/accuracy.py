"""Errors of `kirchhoff_network` and of SciPy's `spsolve` on hard media, in one run.

The truth is star-mesh elimination in extended precision, slab after slab of the grid: an order and
a program of its own, which takes no difference. Grids too large for it are those of "sizes": there
float32 is compared with the elimination in float64.

Sections: media (five kinds of conductances at contrasts up to 1e12, with leaks of 1e-2 to 1e-12 of
the smallest conductance, every boundary, a mask, grids of one to three axes, batches of 1, 3 and
17), sizes (to 512 x 512 and 32 x 32 x 32), complex (waves and admittances).

Contenders
    float32, float64        `kirchhoff_network` with method="direct"
    auto                    float32 with the automatic rule at its default tolerance
    complex64, complex128   `kirchhoff_network` of complex numbers
    spsolve                 SciPy's sparse LU in float64 or complex128; a gradient is one more
                            solution and products

Columns, the worst of a medium and contrast
    potential   largest error of a potential. Sources are positive: of "float32", "float64" and
                "spsolve" relative to that potential itself, of others to the largest one
    gradient    largest error of a gradient by source, leak or one axis's conductances, relative to
                the largest number of that gradient
    unsolved    calls, forward or backward, that raised or left a number that is not finite
    calls       all of them
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chonn_lab.benchmarks.harness import arguments, environment, show, start, write_result
from chonn_ops import kirchhoff_network
from chonn_ops.boundary import CONDITIONS, Faces, Robin
from chonn_ops.network.grids import walls_of

MEDIA = ("smooth", "channels", "stripes", "binary noise", "log-uniform noise")
CONTRASTS = (1e2, 1e4, 1e8, 1e12)
LEAKS = (1e-2, 1e-12)
BOUNDARIES: tuple[Any, ...] = (
    *("neumann", "dirichlet", "periodic", "matched", "robin"),
    (("matched", "neumann"), "periodic", ("robin", "dirichlet")),
)
# Networks of a batch; the first of them are batches of their own.
BATCHES = (1, 3, 17)
GRIDS = ((40,), (1, 9), (24, 20), (5, 1, 6), (6, 5, 7))
# Of one network, with the smallest leak.
LARGER = (40, 40)
BOUNDS = {
    "float32": 2e-5,
    "auto": 2e-5,
    "float64": 1e-11,
    "complex64": 1e-5,
    "complex128": 1e-9,
}

_Array = np.ndarray[Any, Any]


def conductivity(kind: str, contrast: float, count: int, grid: Sequence[int]) -> _Array:
    """(count, *grid), from 1 to `contrast`."""
    rng = np.random.default_rng(0)
    x = np.meshgrid(*[(np.arange(n) + 0.5) / n for n in grid], indexing="ij")
    shape, each = (count, *grid), (count, *[1] * len(grid))
    turn = rng.uniform(0, 6, (len(grid), *each))
    waves = [np.sin(7 * axis + shift) for axis, shift in zip(x, turn, strict=True)]
    if kind == "smooth":
        return contrast ** (0.5 + 0.5 * np.prod(waves, axis=0))
    if kind == "channels":
        path = x[0] - 0.5 - 0.3 * (waves[-1] if len(grid) > 1 else 0 * turn[0])
        return np.where(np.abs(path) < 1.5 / grid[0], contrast, 1.0) * np.ones(shape)
    if kind == "stripes":
        odd = (np.arange(grid[-1]) + np.arange(count)[:, None]) % 2
        return np.where(odd, contrast, 1.0).reshape(*each[:-1], grid[-1]) * np.ones(shape)
    if kind == "binary noise":
        return np.where(rng.random(shape) < 0.5, contrast, 1.0)
    return contrast ** rng.random(shape)


def disc(grid: Sequence[int]) -> _Array:
    """1 in a disc with a slit, which is one part, and 0 outside."""
    x = np.meshgrid(*[(np.arange(n) + 0.5) / n - 0.5 for n in grid], indexing="ij")
    inside = sum(axis**2 for axis in x) < 0.24
    if len(grid) > 1 and min(grid) > 3:
        inside &= ~((np.abs(x[0]) < 0.6 / grid[0]) & (x[1] > 0))
    return inside.astype(float)


class Case:
    """Networks of one call: numbers that the narrow dtype holds, in the wide one.

    `fields` are source, leak without walls and conductances, (count, *grid, 1); `k` is the
    conductivity of the cells beside walls.
    """

    def __init__(
        self,
        fields: Sequence[_Array],
        k: _Array,
        boundary: Any,
        narrow: torch.dtype,
        weight: _Array,
    ) -> None:
        wide = torch.complex128 if narrow.is_complex else torch.float64
        source, leak, *g = (torch.from_numpy(x).to(narrow).to(wide)[..., None] for x in fields)
        self.wide, self.weight = wide, torch.from_numpy(weight).to(narrow).to(wide)[..., None]
        faces = faces_of(boundary, len(g))
        medium = torch.from_numpy(k).to(wide)[..., None]
        wall = walls_of(medium, [1.0] * len(g), faces, leak).conductance
        self.source, self.g = source, g
        # Rounded once more: what the narrow dtype holds.
        self.leak = leak if wall is None else (leak + wall).to(narrow).to(wide)
        self.periodic = tuple(low.periodic for low, _ in faces)

    def first(self, count: int) -> Case:
        """The first networks."""
        part = object.__new__(Case)
        part.__dict__.update(self.__dict__)
        for name in ("source", "leak", "weight"):
            setattr(part, name, getattr(self, name)[:count])
        part.g = [x[:count] for x in self.g]
        return part


def faces_of(boundary: Any, axes: int) -> Faces:
    """A word for all faces, or one or two an axis; "robin" with a film of 0.5."""
    known = {**CONDITIONS, "robin": Robin(0.5)}
    entries = (boundary,) * axes if isinstance(boundary, str) else boundary[:axes]
    pairs = ((entry, entry) if isinstance(entry, str) else entry for entry in entries)
    return tuple((known[low], known[high]) for low, high in pairs)


def edges_of(
    grid: Sequence[int], g: Sequence[_Array], periodic: Sequence[bool]
) -> Iterator[tuple[_Array, _Array, _Array]]:
    """For each axis the nodes that its edges join, and their conductances (count, edges)."""
    nodes = np.arange(math.prod(grid)).reshape(grid)
    for axis, (x, closed) in enumerate(zip(g, periodic, strict=True)):
        n = grid[axis] - (not (closed and grid[axis] > 1))
        p, q = (y.take(range(n), axis).ravel() for y in (nodes, np.roll(nodes, -1, axis)))
        yield p, q, x.take(range(n), axis + 1).reshape(len(x), -1)


def matrices(g: Sequence[_Array], leak: _Array, periodic: Sequence[bool]) -> Iterator[Any]:
    """The matrix of each network in SciPy's CSC; conductances and leak are (count, *grid)."""
    from scipy.sparse import coo_array

    count, *grid = leak.shape
    every = np.arange(math.prod(grid))
    for i in range(count):
        diagonal = leak[i].ravel().copy()
        rows, columns, values = [every], [every], [diagonal]
        for p, q, y in edges_of(grid, g, periodic):
            np.add.at(diagonal, p, y[i])
            np.add.at(diagonal, q, y[i])
            rows += [p, q]
            columns += [q, p]
            values += [-y[i], -y[i]]
        diagonal[diagonal == 0] = 1  # a node that a mask removed
        joined = [np.concatenate(x) for x in (values, rows, columns)]
        yield coo_array((joined[0], (joined[1], joined[2]))).tocsc()


def eliminate(
    sources: _Array, g: Sequence[_Array], leak: _Array, periodic: Sequence[bool]
) -> _Array:
    """Potentials (count, S, *grid) in extended precision, by star-mesh elimination of one node
    after another in row-major order, from a front of all nodes that it has edges to."""
    count, S, *grid = sources.shape
    wide: Any = np.clongdouble if np.iscomplexobj(leak) else np.longdouble
    nodes, width = math.prod(grid), math.prod(grid[1:])
    x = sources.reshape(count, S, nodes).astype(wide)
    ground = leak.reshape(count, nodes).astype(wide)
    joined = [(p, q, y.astype(wide)) for p, q, y in edges_of(grid, g, periodic)]
    held, front = np.arange(0), np.zeros((count, 0, 0), wide)
    shares = []
    for first in range(0, nodes, width):
        # The edges of a slab's nodes to one another and to later ones.
        here = [np.minimum(p, q) // width == first // width for p, q, _ in joined]
        pairs = [(p[h], q[h], y[:, h]) for (p, q, y), h in zip(joined, here, strict=True)]
        slab = np.arange(first, first + width)
        ahead = np.unique(np.concatenate([held, slab, *(e for p, q, _ in pairs for e in (p, q))]))
        place = np.full(nodes, -1)
        place[ahead] = np.arange(len(ahead))
        whole = np.zeros((count, len(ahead), len(ahead)), wide)
        old = place[held]
        whole[:, old[:, None], old] = front
        for p, q, y in pairs:
            for a, b in ((place[p], place[q]), (place[q], place[p])):
                index: Any = (slice(None), a, b)
                np.add.at(whole, index, y)
        for i in range(width):
            later, to = whole[:, i, i + 1 :], ahead[i + 1 :]
            total = ground[:, first + i] + later.sum(1)
            part = np.where(total != 0, 1 / np.where(total != 0, total, 1), 0)
            share = later * part[:, None]
            whole[:, i + 1 :, i + 1 :] += share[:, :, None] * later[:, None, :]
            ground[:, to] += share * ground[:, first + i, None]
            x[:, :, to] += share[:, None] * x[:, :, first + i, None]
            x[:, :, first + i] *= part[:, None]
            shares.append((first + i, to, share))
        held, front = ahead[width:], whole[:, width:, width:]
    for node, to, share in reversed(shares):
        x[:, :, node] += (x[:, :, to] * share[:, None]).sum(2)
    return x.reshape(sources.shape)


def gradients(case: Case, v: Tensor, w: Tensor, products: Sequence[Tensor]) -> list[Tensor]:
    """Of source, leak and conductances: `v` and the solution `w` for the conjugate of the weights
    conjugated, and the products of both's differences along each axis."""
    found = [w, -w * v.conj(), *(-product for product in products)]
    return without_mask(case, found)


def without_mask(case: Case, grads: Sequence[Tensor]) -> list[Tensor]:
    """The same with 0 for conductances that a mask multiplies with 0."""
    rows = torch.arange(len(grads[0])) % len(case.source)
    edges = zip(grads[2:], case.g, strict=True)
    return [*grads[:2], *(torch.where(g[rows] != 0, x, 0) for x, g in edges)]


def products_of(case: Case, v: _Array, w: _Array) -> list[Tensor]:
    """(w_p - w_q) (v_p - v_q)* of fields (count, *grid), 0 where no edge is."""
    found = []
    for axis, closed in enumerate(case.periodic):
        product = (w - np.roll(w, -1, axis + 1)) * (v - np.roll(v, -1, axis + 1)).conj()
        if not closed:
            product[(slice(None),) * (axis + 1) + (-1,)] = 0
        found.append(torch.from_numpy(product.astype(wide_of(product)))[..., None])
    return found


def wide_of(x: _Array) -> Any:
    return np.complex128 if np.iscomplexobj(x) else np.float64


def truth(case: Case) -> list[Tensor]:
    """Potentials and gradients by `eliminate`.

    Real potentials are those for currents s - l V, and V, the sum of s over that of l. A constant
    that lifts all of them costs their differences no digits then.
    """
    leak, *g = (x[..., 0].numpy() for x in (case.leak, *case.g))
    both = torch.stack([case.source, case.weight.conj()], 1)[..., 0].resolve_conj().numpy()
    each = (slice(None), slice(None), *[None] * len(g))
    nodes = tuple(range(-len(g), 0))
    level: Any = np.zeros(both.shape[:2])
    wide = both.astype(np.longdouble) if not np.iscomplexobj(both) else both
    if not np.iscomplexobj(both):
        level = wide.sum(nodes) / leak[:, None].astype(np.longdouble).sum(nodes)
        wide = wide - leak[:, None].astype(np.longdouble) * level[each]
    u = eliminate(wide, g, leak, case.periodic)
    # A node that a mask removed has no leak, and the potential 0.
    lifted = (u + level[each] * (leak != 0)[:, None]).astype(wide_of(u))
    v, w = (torch.from_numpy(lifted[:, i])[..., None] for i in range(2))
    products = products_of(case, u[:, 0], u[:, 1].conj())
    return [v, *gradients(case, v, w.conj().resolve_conj(), products)]


def ours(case: Case, dtype: torch.dtype, method: Any, batch: int = 0) -> list[Tensor]:
    """Potentials and gradients of the case's networks, repeated to a `batch`."""
    count = len(case.source)
    fields = [case.source, case.leak, *case.g, case.weight]
    rows = torch.arange(batch or count) % count
    source, leak, *g, weight = (x[rows].to(dtype) for x in fields)
    leaves = [x.requires_grad_() for x in (source, leak, *g)]
    v = kirchhoff_network(source, g, leak, periodic=case.periodic, method=method, backend="cpu")
    return [v.detach(), *without_mask(case, torch.autograd.grad(v, leaves, weight))]


def theirs(case: Case) -> list[Tensor]:
    """The same by `spsolve`."""
    from scipy.sparse.linalg import spsolve

    leak, *g = (x[..., 0].numpy() for x in (case.leak, *case.g))
    both = torch.stack([case.source, case.weight.conj()], -1)[..., 0, :].resolve_conj().numpy()
    found = np.empty_like(both)
    for i, a in enumerate(matrices(g, leak, case.periodic)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of matrices that are singular to rounding
            solved = spsolve(a, both[i].reshape(-1, 2), permc_spec="MMD_AT_PLUS_A")
        found[i] = solved.reshape(found[i].shape)
    v, w = (found[..., i] for i in range(2))
    w = w.conj()
    a, b = (torch.from_numpy(np.ascontiguousarray(x))[..., None] for x in (v, w))
    return [a, *gradients(case, a, b, products_of(case, v, w))]


class Row:
    """The worst of a contender's calls."""

    def __init__(self, name: str, *, componentwise: bool = False) -> None:
        self.name, self.componentwise = name, componentwise
        self.potential = self.gradient = 0.0
        self.unsolved = self.calls = 0

    def take(self, expected: Sequence[Tensor], call: Any) -> None:
        """Judge what `call` returns: potentials and gradients."""
        self.calls += 1
        try:
            actual = call()
        except (RuntimeError, ValueError) as failure:
            print(f"{self.name}: {failure}")
            self.unsolved += 1
            return
        if not all(bool(x.isfinite().all()) for x in actual):
            self.unsolved += 1
            return
        errors = []
        for i, (x, y) in enumerate(zip(actual, expected, strict=True)):
            rows = y[torch.arange(len(x)) % len(y)]
            each = rows.abs()
            if i or not self.componentwise:
                each = each.flatten(1).amax(1).reshape(-1, *[1] * (x.dim() - 1))
            error = (x.to(rows.dtype) - rows).abs()
            errors.append(float(torch.where(error > 0, error / each, 0).amax()))
        self.potential = max(self.potential, errors[0])
        self.gradient = max(self.gradient, *errors[1:])

    def result(self) -> dict[str, Any]:
        names = ("name", "potential", "gradient", "unsolved", "calls")
        return {name: getattr(self, name) for name in names}


def report(found: dict[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    """The entry of a result file, printed."""
    print(", ".join(f"{name} {value}" for name, value in found.items()))
    results = [row.result() for row in rows if row.calls]
    show(results, "name", "potential", "gradient", "unsolved", "calls")
    return found | {"rows": results}


def resistors(
    kind: str,
    contrast: float,
    grid: Sequence[int],
    leak: float,
    boundary: Any,
    *,
    count: int = 3,
    masked: bool = False,
) -> Case:
    """Networks of one medium with positive sources and leaks of `leak` at every node."""
    k = conductivity(kind, contrast, count, grid)
    inside = disc(grid) if masked else np.ones(grid)
    g = [
        2 / (1 / k + 1 / np.roll(k, -1, axis + 1)) * inside * np.roll(inside, -1, axis)
        for axis in range(len(grid))
    ]
    rng = np.random.default_rng(1)
    source, weight = (rng.random(k.shape) * inside for _ in range(2))
    fields = (source, leak * np.ones(k.shape) * inside, *g)
    return Case(fields, k * inside, boundary, torch.float32, weight)


def contenders() -> list[Row]:
    names = ("float32", "float64", "spsolve")
    return [*(Row(name, componentwise=True) for name in names), Row("auto")]


def judge(rows: Sequence[Row], case: Case, expected: Sequence[Tensor], batches: Any) -> None:
    """All contenders on the networks of a case."""
    narrow, wide, peer, auto = rows
    for batch in batches:
        some = [x[:batch] for x in expected]
        part = case.first(min(batch, len(case.source)))
        narrow.take(some, lambda p=part, b=batch: ours(p, torch.float32, "direct", b))
        wide.take(some, lambda p=part, b=batch: ours(p, torch.float64, "direct", b))
        auto.take(some, lambda p=part, b=batch: ours(p, torch.float32, "auto", b))
    peer.take(expected, lambda: theirs(case))


def media(small: bool) -> list[dict[str, Any]]:
    found = []
    for kind in MEDIA[3:] if small else MEDIA:
        for contrast in CONTRASTS[1::2] if small else CONTRASTS:
            rows = contenders()
            for leak in LEAKS[1:] if small else LEAKS:
                for boundary in BOUNDARIES:
                    for grid in GRIDS[3:] if small else GRIDS:
                        for masked in (False, True)[: 1 + (min(grid) > 4 and len(grid) > 1)]:
                            case = resistors(kind, contrast, grid, leak, boundary, masked=masked)
                            judge(rows, case, truth(case), BATCHES)
            for boundary in () if small else ("neumann", "dirichlet", "periodic"):
                case = resistors(kind, contrast, LARGER, LEAKS[-1], boundary, count=1)
                judge(rows, case, truth(case), (1,))
            found.append(report({"medium": kind, "contrast": contrast}, rows))
    return found


# Grids; whether extended precision is the truth, else float64; medium and contrast; boundary.
SIZES = [
    ((96, 96), True, "binary noise", 1e4, "neumann"),
    ((96, 96), True, "log-uniform noise", 1e12, "periodic"),
    ((20, 20, 20), False, "binary noise", 1e4, "dirichlet"),
    *(
        (grid, False, *setting)
        for grid in ((512, 512), (32, 32, 32))
        for setting in (
            ("channels", 1e12, "neumann"),
            ("binary noise", 1e4, "neumann"),
            ("log-uniform noise", 1e12, "periodic"),
        )
    ),
]


def sizes(small: bool) -> list[dict[str, Any]]:
    found = []
    for grid, extended, kind, contrast, boundary in SIZES:
        rows = contenders()
        shape = tuple(min(n, 20 // len(grid)) for n in grid) if small else grid
        case = resistors(kind, contrast, shape, 1e-12, boundary, count=1)
        expected = truth(case) if extended else ours(case, torch.float64, "direct")
        judge(rows, case, expected, (1,))
        if not extended:
            del rows[1]
        entry = {"grid": list(shape), "medium": kind, "contrast": contrast, "boundary": boundary}
        found.append(report(entry, rows))
    return found


def alternating(
    kind: str, loss: float, grid: Sequence[int], boundary: Any, *, masked: bool
) -> Case:
    """Waves in a random medium or coils, resistors and capacitors; a relative `loss`."""
    count = 3
    rng = np.random.default_rng(0)
    k = conductivity("log-uniform noise", 4.0, count, grid)
    inside = disc(grid) if masked else np.ones(grid)
    if kind == "waves":  # -laplace u - (omega / c)^2 (1 + i loss) u, 8 to 16 nodes a wave
        g: list[_Array] = [np.ones(k.shape) + 0j for _ in grid]
        leak = -((2 * np.pi / 16) ** 2) * k * (1 + 1j * loss)
        medium = g[0]
    else:  # g = 1 / (R + i omega L), l = G + i omega C
        g = [1 / (k * (loss + 1j) * (1 + rng.random(k.shape))) for _ in grid]
        medium = 1 / (k * (loss + 1j))
        leak = 0.3 * (loss + 1j) * (1 + rng.random(k.shape))
    g = [x * inside * np.roll(inside, -1, axis) for axis, x in enumerate(g)]
    source, weight = (
        (rng.standard_normal(k.shape) + 1j * rng.standard_normal(k.shape)) * inside
        for _ in range(2)
    )
    return Case((source, leak * inside, *g), medium * inside, boundary, torch.complex64, weight)


def condition(case: Case) -> float:
    """The largest condition number of the networks, nodes outside a mask left out."""
    leak, *g = (x[..., 0].numpy() for x in (case.leak, *case.g))
    count, *grid = leak.shape
    a = np.zeros((count, leak[0].size, leak[0].size), leak.dtype)
    i = np.arange(leak[0].size)
    a[:, i, i] = leak.reshape(count, -1)
    for p, q, y in edges_of(grid, g, case.periodic):
        for rows, columns, sign in ((p, p, 1), (q, q, 1), (p, q, -1), (q, p, -1)):
            index: Any = (slice(None), rows, columns)
            np.add.at(a, index, sign * y)
    used = np.abs(a).sum(2).any(0)
    return float(np.linalg.cond(a[:, used][:, :, used]).max())


def complex_networks(small: bool) -> list[dict[str, Any]]:
    found = []
    for kind in ("waves", "admittances"):
        for loss in (0.02, 0.0):
            rows = [Row("complex64"), Row("complex128"), Row("spsolve")]
            worst = 0.0
            for boundary in BOUNDARIES:
                for grid in GRIDS[3:] if small else GRIDS:
                    for masked in (False, True)[: 1 + (min(grid) > 4 and len(grid) > 1)]:
                        case = alternating(kind, loss, grid, boundary, masked=masked)
                        expected = truth(case)
                        worst = max(worst, condition(case))
                        for batch in BATCHES:
                            some = [x[:batch] for x in expected]
                            part = case.first(min(batch, 3))
                            for row in rows[:2]:
                                dtype = getattr(torch, row.name)
                                row.take(
                                    some, lambda p=part, d=dtype, b=batch: ours(p, d, "auto", b)
                                )
                        rows[2].take(expected, lambda c=case: theirs(c))
            found.append(report({"medium": kind, "loss": loss, "condition": worst}, rows))
    return found


SECTIONS = {"media": media, "sizes": sizes, "complex": complex_networks}


def main(given: list[str] | None = None) -> None:
    options = start(arguments(__doc__, "accuracy", tuple(SECTIONS)), given)
    if np.finfo(np.longdouble).eps > 1e-18:
        raise SystemExit("accuracy: expected a long double of more than 64 bits, for the truth")
    result: dict[str, Any] = {"environment": environment(options, ("scipy",)), "bounds": BOUNDS}
    for section in options.only or SECTIONS:
        result[section] = SECTIONS[section](options.smoke)
    write_result(options.output, result)


if __name__ == "__main__":
    main()
