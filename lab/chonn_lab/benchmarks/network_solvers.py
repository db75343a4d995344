"""The networks that the network benchmark solves, and how well a solution solves them.

Conductivity ``contrast ** sign`` with one random sign a region, edges by harmonic means, leak
0.05 * 256 / H^2 (0.05 on lines, where float32 could not hold the potentials of so small a leak),
half an edge to ground at the first wall of the first axis, sources of white noise. Regions:

inclusions    cubes of 8 points a side, each with a sign of its own
field         where a smooth random field is positive

Who solves the networks: ours on every backend, and the solvers a user could call instead.

A contender is built for some networks; what it builds (matrices, hierarchies) is not timed, but
for "pyamg", which sets its hierarchies up in the timed call. Where a peer has no gradients, its
backward is one more solve with the same matrix (SciPy reuses its factors, pyamg its hierarchy)
and the products that give the gradients.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import importlib.util
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chonn_lab.benchmarks.accuracy import matrices
from chonn_lab.benchmarks.floors import compiled
from chonn_lab.benchmarks.harness import Call

TOLERANCE = 1e-5
# A residual may be above the tolerance by so many times what rounding the potentials leaves.
ROUNDINGS = 4
INCLUSION = 8  # points a side
CHANNELS = 16  # networks side by side in the last axis of our tensors, as a layer has them
UNIT_ROUNDOFF = 2.0**-24  # of float32


@dataclasses.dataclass(frozen=True)
class Case:
    """Networks of one kind: how many, on what grid."""

    grid: tuple[int, ...]
    networks: int
    contrast: float = 100.0
    regions: str = "inclusions"

    def label(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "grid": list(self.grid)}

    @property
    def nodes(self) -> int:
        return math.prod(self.grid)


@dataclasses.dataclass(frozen=True)
class Networks:
    """(networks, \\*grid) tensors; the conductances, one tensor an axis, have a last entry of 0."""

    source: Tensor
    conductance: tuple[Tensor, ...]
    leak: Tensor

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(self.source.shape[1:])

    def __len__(self) -> int:
        return len(self.source)

    def first(self, count: int) -> Networks:
        conductance = tuple(g[:count] for g in self.conductance)
        return Networks(self.source[:count], conductance, self.leak[:count])


def make(case: Case, device: str = "cpu") -> Networks:
    """Random networks in float32, the same at every call."""
    generator = torch.Generator().manual_seed(0)
    count, grid = case.networks, case.grid
    make_sign = {"inclusions": _inclusions, "field": _smooth}[case.regions]
    k = case.contrast ** (make_sign(count, grid, generator) > 0).double()
    conductance = []
    for axis in range(1, k.ndim):
        after = k.roll(-1, axis)
        edges = 2 * k * after / (k + after)
        edges.select(axis, -1).zero_()
        conductance.append(edges)
    leak = torch.full_like(k, 0.05 if len(grid) == 1 else 0.05 * 256 / grid[0] ** 2)
    leak[:, 0] += 2 * k[:, 0]
    source = torch.randn(k.shape, generator=generator)
    edges32 = tuple(g.float().to(device) for g in conductance)
    return Networks(source.to(device), edges32, leak.float().to(device))


def _inclusions(count: int, grid: tuple[int, ...], generator: torch.Generator) -> Tensor:
    sign = torch.randn(count, *(-(-size // INCLUSION) for size in grid), generator=generator)
    for axis, size in enumerate(grid, 1):
        sign = sign.repeat_interleave(INCLUSION, axis).narrow(axis, 0, size)
    return sign


def _smooth(count: int, grid: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """White noise through (4 pi^2 |k|^2 + 9)^-1, k in waves a side."""
    squares = torch.zeros(grid, dtype=torch.float64)
    for axis, size in enumerate(grid):
        waves = torch.fft.fftfreq(size, 1 / size, dtype=torch.float64) ** 2
        squares += waves.view([-1 if a == axis else 1 for a in range(len(grid))])
    axes = tuple(range(1, len(grid) + 1))
    noise = torch.fft.fftn(torch.randn(count, *grid, generator=generator).double(), dim=axes)
    noise /= 4 * math.pi**2 * squares + 9
    noise.flatten(1)[:, 0] = 0
    return torch.fft.ifftn(noise, dim=axes).real


def channels_last(networks: Networks) -> list[Tensor]:
    """source, leak, conductances as our operator takes them: (B, \\*grid, C), with gradients."""
    channels = math.gcd(len(networks), CHANNELS)

    def turned(t: Tensor) -> Tensor:
        return t.unflatten(0, (-1, channels)).movedim(1, -1).contiguous().requires_grad_()

    return [turned(t) for t in (networks.source, networks.leak, *networks.conductance)]


def networks_first(v: Tensor) -> Tensor:
    """The reverse of `channels_last` for one tensor."""
    return v.detach().movedim(-1, 1).flatten(0, 1)


def drained(networks: Networks, v: Tensor) -> Tensor:
    """What Kirchhoff's current law says the sources are, in float64 from differences."""
    out = networks.leak.double() * v
    for axis, g in enumerate(networks.conductance, 1):
        current = g.double() * (v - v.roll(-1, axis))
        out += current - current.roll(1, axis)
    return out


def quality(networks: Networks, v: Tensor) -> dict[str, float]:
    """The worst network's relative residual in float64, and what rounding alone would leave.

    ``rounding`` is the residual that potentials equal to `v` have when each is off by a random
    part of half a unit in its last place of float32: nothing stored in float32 can be expected
    to be below.
    """
    v = v.detach().to("cpu", torch.float64).reshape(networks.source.shape)
    host = Networks(
        networks.source.cpu(), tuple(g.cpu() for g in networks.conductance), networks.leak.cpu()
    )
    norm = host.source.double().flatten(1).norm(dim=1)
    generator = torch.Generator().manual_seed(1)
    slips = torch.rand(v.shape, generator=generator, dtype=torch.float64) * 2 - 1
    residual = (drained(host, v) - host.source).flatten(1).norm(dim=1) / norm
    rounding = drained(host, v * slips * UNIT_ROUNDOFF).flatten(1).norm(dim=1) / norm
    return {"residual": float(residual.max()), "rounding": float(rounding.max())}


@functools.cache
def pattern(grid: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the matrix: each edge twice, then the diagonal, as `entries` has them."""
    nodes = np.arange(math.prod(grid)).reshape(grid)
    ends = [(nodes.take(range(n - 1), axis), nodes.take(range(1, n), axis))
            for axis, n in enumerate(grid)]  # fmt: skip
    p, q = (np.concatenate([end[side].ravel() for end in ends]) for side in (0, 1))
    diagonal = nodes.ravel()
    return np.concatenate([p, q, diagonal]), np.concatenate([q, p, diagonal])


def diagonal(networks: Networks) -> Tensor:
    """Leak and all conductances of each node."""
    out = networks.leak.clone()
    for axis, g in enumerate(networks.conductance, 1):
        out += g + g.roll(1, axis)
    return out


def entries(networks: Networks) -> Tensor:
    """(networks, entries) values of the matrices at `pattern`, in float64."""
    exact = Networks(
        networks.source,
        tuple(g.double() for g in networks.conductance),
        networks.leak.double(),
    )
    edges = torch.cat(
        [
            g.narrow(axis, 0, g.shape[axis] - 1).flatten(1)
            for axis, g in enumerate(exact.conductance, 1)
        ],
        dim=1,
    )
    return torch.cat([-edges, -edges, diagonal(exact).flatten(1)], dim=1)


def gradients(v: Tensor, w: Tensor) -> list[Tensor]:
    """Gradients of leak and conductances from potentials v and the adjoint's w, the source's."""
    found = [-w * v]
    for axis in range(1, v.ndim):
        after = [t.narrow(axis, 1, t.shape[axis] - 1) for t in (v, w)]
        before = [t.narrow(axis, 0, t.shape[axis] - 1) for t in (v, w)]
        found.append((before[1] - after[1]) * (after[0] - before[0]))
    return found


def unavoidable_bytes(case: Case) -> dict[str, int]:
    """Bytes of the inputs read once and the outputs written once, forward; and with backward.

    Forward: source, leak, a conductance an axis; potentials. Backward: their gradient, the
    potentials, leak, conductances; a gradient of each input.
    """
    axes = len(case.grid)
    field = 4 * case.networks * case.nodes
    forward, backward = 3 + axes, (3 + axes) + (2 + axes)
    return {"forward": forward * field, "both": (forward + backward) * field}


JACOBI = "Jacobi-CG"
PEER_ITERATIONS = 20_000

Solve = Callable[[Tensor], Tensor]  # sources (networks, *grid) to potentials


@dataclasses.dataclass(frozen=True)
class Solver:
    """``forward`` returns the potentials, (networks, \\*grid) or as ours come."""

    forward: Callable[[], Tensor]
    both: Call
    iterations: Callable[[], list[int]] | None = None  # after a forward


Build = Callable[[Networks], Solver]


def with_gradients(
    networks: Networks, make: Callable[[], Solve]
) -> tuple[Callable[[], Tensor], Call]:
    """forward, both of a peer without gradients; ``make()`` is part of the call."""
    grad = torch.randn_like(networks.source)

    def both() -> list[Tensor]:
        solve = make()
        v = solve(networks.source)
        return gradients(v, solve(grad))

    return lambda: make()(networks.source), both


def ours(backend: str) -> Build:
    from chonn_ops.network import kirchhoff_network

    def build(networks: Networks) -> Solver:
        source, leak, *conductance = inputs = channels_last(networks)
        grad = torch.randn_like(source)

        def solve(**more: Any) -> Any:
            return kirchhoff_network(
                source, tuple(conductance), leak, tol=TOLERANCE, backend=backend, **more
            )

        def forward() -> Tensor:
            with torch.no_grad():
                return solve()

        def iterations() -> list[int]:
            with torch.no_grad():
                return solve(return_info=True)[1].iterations.flatten().tolist()

        both = lambda: torch.autograd.grad(solve(), inputs, grad)  # noqa: E731
        return Solver(lambda: networks_first(forward()), both, iterations)

    return build


def scipy_matrices(networks: Networks, kind: str) -> list[Any]:
    """One matrix a network, float64, of a sparse `kind` of SciPy's."""
    g = [conductance.double().numpy() for conductance in networks.conductance]
    found = matrices(g, networks.leak.double().numpy(), (False,) * len(g))
    return [matrix.asformat(kind) for matrix in found]


def one_by_one(grid: tuple[int, ...], solvers: Sequence[Callable[..., Any]]) -> Solve:
    """A loop over the networks in NumPy, as a solve of tensors."""

    def solve(sources: Tensor) -> Tensor:
        rows = sources.flatten(1).double().numpy()
        found = [solver(row) for solver, row in zip(solvers, rows, strict=True)]
        return torch.from_numpy(np.stack(found)).view(-1, *grid)

    return solve


def scipy_spsolve(networks: Networks) -> Solver:
    from scipy.sparse.linalg import splu, spsolve

    matrices = scipy_matrices(networks, "csc")
    solvers = [lambda b, a=a: spsolve(a, b) for a in matrices]
    forward = lambda: one_by_one(networks.grid, solvers)(networks.source)  # noqa: E731
    factors = lambda: one_by_one(networks.grid, [splu(a).solve for a in matrices])  # noqa: E731
    return Solver(forward, with_gradients(networks, factors)[1])


def scipy_banded(networks: Networks) -> Solver:
    from scipy.linalg import solve_banded

    if len(networks.grid) > 1:
        raise NotFitting
    off = -networks.conductance[0].double().numpy()
    bands = np.stack([np.roll(off, 1, 1), diagonal(networks).double().numpy(), off], axis=1)
    solvers = [lambda b, a=a: solve_banded((1, 1), a, b) for a in bands]
    return Solver(*with_gradients(networks, lambda: one_by_one(networks.grid, solvers)))


def _pyamg(networks: Networks, cached: bool) -> Solver:
    import pyamg

    matrices = scipy_matrices(networks, "csr")

    def make() -> Solve:
        made = [pyamg.ruge_stuben_solver(a) for a in matrices]
        return one_by_one(
            networks.grid, [lambda b, m=m: m.solve(b, tol=TOLERANCE, accel="cg") for m in made]
        )

    def iterations() -> list[int]:
        counts = []
        for a, b in zip(matrices, networks.source.flatten(1).double().numpy(), strict=True):
            residuals: list[float] = []
            made = pyamg.ruge_stuben_solver(a)
            made.solve(b, tol=TOLERANCE, accel="cg", residuals=residuals)
            counts.append(len(residuals) - 1)
            if len(counts) == 8:  # a sample: it would set up all of them once more
                break
        return counts

    if cached:
        solve = make()
        return Solver(*with_gradients(networks, lambda: solve), iterations)
    return Solver(*with_gradients(networks, make), iterations)


def torch_sla_cg(networks: Networks) -> Solver:
    """Its one solver for a batch of matrices of one pattern: CG with Jacobi's preconditioner.

    Its relative tolerance cannot be set; the absolute one does what ours does, for the network
    with the smallest source.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its optional parts
        from torch_sla import spsolve_batch_same_layout

    device = networks.source.device
    rows, columns = (torch.from_numpy(index).to(device) for index in pattern(networks.grid))
    size = math.prod(networks.grid)
    values = entries(networks).float().requires_grad_()
    source = networks.source.flatten(1).clone().requires_grad_()
    atol = TOLERANCE * float(source.detach().norm(dim=1).min())
    grad = torch.randn_like(source)

    def solve() -> Tensor:
        shape = (size, size)
        return spsolve_batch_same_layout(
            values, rows, columns, shape, source, method="cg", atol=atol, maxiter=PEER_ITERATIONS
        )

    def forward() -> Tensor:
        with torch.no_grad():
            return solve().view(-1, *networks.grid)

    return Solver(forward, lambda: torch.autograd.grad(solve(), [values, source], grad))


def jacobi_cg(networks: Networks) -> Solver:
    """``jacobi_cg.c`` on all threads, a network a thread."""
    flags = ("-O3", "-march=native", "-ffast-math", "-fopenmp")
    function = compiled("jacobi_cg.c", flags, link=("-fopenmp",)).jacobi_cg
    pointer = ctypes.c_void_p
    function.argtypes = (*[ctypes.c_int] * 4, *[pointer] * 7, ctypes.c_int, ctypes.c_float,
                         ctypes.c_int)  # fmt: skip
    sizes = (1,) * (3 - len(networks.grid)) + networks.grid
    unused = [networks.leak] * (3 - len(networks.grid))  # an axis of one node is not read
    held = [*unused, *networks.conductance, diagonal(networks)]
    counts = np.zeros(len(networks), np.int32)

    def solve(sources: Tensor) -> Tensor:
        v = torch.empty_like(sources)
        at = [t.data_ptr() for t in (*held, sources, v)]
        last = (counts.ctypes.data, PEER_ITERATIONS, TOLERANCE, torch.get_num_threads())
        if function(len(networks), *sizes, *at, *last):
            raise MemoryError("jacobi_cg.c: expected memory for five fields a thread, got none")
        return v

    return Solver(*with_gradients(networks, lambda: solve), counts.tolist)


class NotFitting(ValueError):
    """A contender that is not meant for these networks."""


# What a contender needs beside PyTorch, and what builds it.
PEERS: dict[str, tuple[str | None, Build]] = {
    JACOBI: (None, jacobi_cg),
    "torch-sla": ("torch_sla", torch_sla_cg),
    "pyamg, cached": ("pyamg", functools.partial(_pyamg, cached=True)),
    "pyamg": ("pyamg", functools.partial(_pyamg, cached=False)),
    "spsolve": ("scipy", scipy_spsolve),
    "solve_banded": ("scipy", scipy_banded),
}
OURS = {"cpu": "chonn-ops", "torch": "torch"}


def contenders(notes: list[str]) -> dict[str, Build]:
    """All that can run here; what cannot is noted."""
    from chonn_ops.network import available_backends

    found = {}
    for backend, name in OURS.items():
        if backend in available_backends():
            found[name] = ours(backend)
        else:
            notes.append(f"{name} left out: no backend {backend!r} here")
    for name, (package, build) in PEERS.items():
        if package is None or importlib.util.find_spec(package):
            found[name] = build
        else:
            notes.append(f"{name} left out: no package {package!r}")
    return found


def prepare_both(name: str, networks: Networks) -> Call:
    """A forward and backward, to be made in another process."""
    return contenders([])[name](networks).both
