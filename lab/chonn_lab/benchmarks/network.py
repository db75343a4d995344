"""Time of the network operator on the CPU, beside its peers, in one run.

Sections: peers (all networks of a case), methods (one network). The networks are random, the same
for all.

A solver is built for some networks; what it builds (matrices, hierarchies) is not timed, but for
"pyamg", which sets its hierarchies up in the timed call. Where a peer has no gradients, its
backward is one more solve with the same matrix (SciPy reuses its factors, pyamg its hierarchy) and
the products that give the gradients.

Contenders
    chonn-ops      `Circuit.solve`, backend "cpu", as a user calls it
    torch          `Circuit.solve`, backend "torch" (the fallback without a compiler)
    direct         `Circuit.solve` with this solver
    Jacobi-CG      ``jacobi_cg.c``: conjugate gradients with Jacobi's preconditioner in C
    torch-sla      its conjugate gradients for a batch of matrices
    pyamg          Ruge-Stueben multigrid with conjugate gradients, one network after another; its
                   hierarchies set up in the call, or "cached": set up before it
    spsolve        SciPy's sparse LU in float64, one network after another
    solve_banded   the same for lines

Columns
    timed_networks  how many the times were taken of and scaled from
    forward, both   _ms: without autograd; of forward and backward for all inputs
    _ratio          that time over the time of the first row
    error           of potentials, over the largest one of the elimination in float64
    held_bytes      of the factors
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import itertools
import math
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from chonn_lab.benchmarks.harness import Call, Row, Run, gradients, inference, main_of, milliseconds
from chonn_ops import Auto, Circuit, Direct, Graph, Grid, diffusion
from chonn_ops.network.direct.elimination import Elimination

TOLERANCE = 1e-5
INCLUSION = 8  # points a side
CHANNELS = 16  # networks side by side in the last axis of our tensors, as a layer has them
PEER_ITERATIONS = 20_000
ORDERINGS = ("amd", "metis", "nesdis")  # of CHOLMOD

Array = np.ndarray[Any, Any]
Solve = Callable[[Tensor], Tensor]  # sources (networks, *grid) to potentials


class Solver(NamedTuple):
    """Potentials (networks, \\*grid), both passes, and what else a row says of the solver."""

    forward: Callable[[], Tensor]
    both: Call
    about: dict[str, Any] = {}  # noqa: RUF012


@dataclasses.dataclass(frozen=True)
class Case:
    """Networks of one kind: how many, on what grid, of what medium."""

    grid: tuple[int, ...]
    networks: int
    contrast: float = 100.0
    medium: str = "inclusions"

    def label(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "grid": list(self.grid)}


@dataclasses.dataclass(frozen=True)
class Networks:
    """Fields (networks, \\*grid); conductances, one an axis, are 0 behind its last node. On a graph
    fields are (networks, nodes), and conductances one (networks, edges)."""

    source: Tensor
    conductance: tuple[Tensor, ...]
    leak: Tensor
    graph: Graph | None = None

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(self.source.shape[1:])

    def __len__(self) -> int:
        return len(self.source)

    def map(self, change: Callable[[Tensor], Tensor]) -> Networks:
        """The same with every field changed."""
        g = tuple(map(change, self.conductance))
        changed = {"source": change(self.source), "conductance": g, "leak": change(self.leak)}
        return dataclasses.replace(self, **changed)

    def edges(self) -> Iterator[tuple[Array, Array, Array]]:
        """For each axis the nodes that its edges join, and their conductances (networks, E)."""
        if self.graph is not None:
            yield *self.graph.ends.numpy(), self.conductance[0].numpy()
            return
        nodes = np.arange(math.prod(self.grid)).reshape(self.grid)
        for axis, g in enumerate(self.conductance):
            last = self.grid[axis] - 1
            p, q = (nodes.take(range(i, last + i), axis).ravel() for i in (0, 1))
            yield p, q, g.cpu().numpy().take(range(last), axis + 1).reshape(len(g), -1)

    def matrices(self) -> list[Any]:
        """The matrix of each network in SciPy's CSC, in float64."""
        p, q, g = (np.concatenate(x, -1) for x in zip(*self.edges(), strict=True))
        fields = g, self.leak.cpu().flatten(1).numpy()
        return [sparse(p, q, *(x[i].astype(float) for x in fields)) for i in range(len(self))]

    def products(self, v: Array, w: Array) -> list[Array]:
        """(w_p - w_q) (v_p - v_q) of each edge for fields v and w, 0 where no edge is."""
        if self.graph is not None:
            p, q = self.graph.ends.numpy()
            return [(w[:, p] - w[:, q]) * (v[:, p] - v[:, q])]
        cases = []
        for axis in range(v.ndim - 1):
            product = (w - np.roll(w, -1, axis + 1)) * (v - np.roll(v, -1, axis + 1))
            product[(slice(None),) * (axis + 1) + (-1,)] = 0
            cases.append(product)
        return cases


def sparse(p: Array, q: Array, g: Array, leak: Array) -> Any:
    """The matrix of conductances `g` between the nodes `p` and `q`, with a leak at each node."""
    from scipy.sparse import coo_array

    diagonal, nodes = leak.copy(), np.arange(len(leak))
    np.add.at(diagonal, p, g)
    np.add.at(diagonal, q, g)
    diagonal[diagonal == 0] = 1  # a node that a mask removed
    places = np.concatenate([nodes, p, q]), np.concatenate([nodes, q, p])
    return coo_array((np.concatenate([diagonal, -g, -g]), places)).tocsc()


def conductivity(medium: str, contrast: float, count: int, grid: Sequence[int]) -> Array:
    """(count, *grid), from 1 to `contrast`; "inclusions" are cubes of `INCLUSION` points a side."""
    rng = np.random.default_rng(0)
    x = np.meshgrid(*[(np.arange(n) + 0.5) / n for n in grid], indexing="ij")
    if medium == "inclusions":
        cubes = rng.random((count, *(-(-n // INCLUSION) for n in grid))) < 0.5
        for axis, n in enumerate(grid, 1):
            cubes = cubes.repeat(INCLUSION, axis).take(range(n), axis)
        return np.where(cubes, contrast, 1.0)
    if medium == "binary noise":
        return np.where(rng.random((count, *grid)) < 0.5, contrast, 1.0)
    turn = rng.uniform(0, 6, (len(grid), count, *[1] * len(grid)))
    waves = [np.sin(7 * axis + shift) for axis, shift in zip(x, turn, strict=True)]
    return contrast ** (0.5 + 0.5 * np.prod(waves, axis=0))  # smooth


def make(case: Case, device: str = "cpu") -> Networks:
    """Random networks in float32, the same at every call.

    Edges are harmonic means; the leak is 0.05 * 256 / H^2 (0.05 on lines, where float32 could not
    hold the potentials of so small a leak); half an edge leads to ground at the first wall of the
    first axis; sources are white noise.
    """
    k = conductivity(case.medium, case.contrast, case.networks, case.grid)
    leak = 0.05 if len(case.grid) == 1 else 0.05 * 256 / case.grid[0] ** 2
    walls = [("dirichlet", "neumann"), *["neumann"] * (len(case.grid) - 1)]
    circuit = diffusion(torch.from_numpy(k)[..., None], boundary=walls, absorption=leak)
    leaks, *g = (x[..., 0].float().to(device) for x in (circuit.leak, *circuit.conductance))
    source = torch.from_numpy(np.random.default_rng(1).standard_normal(k.shape))
    return Networks(source.float().to(device), tuple(g), leaks)


def channels_last(networks: Networks) -> list[Tensor]:
    """source, leak, conductances as our operator takes them: (B, \\*grid, C)."""
    channels = 1 if networks.graph else math.gcd(len(networks), CHANNELS)
    return [
        t.unflatten(0, (-1, channels)).movedim(1, -1).contiguous()
        for t in (networks.source, networks.leak, *networks.conductance)
    ]


def ours(networks: Networks, backend: str = "", solver: Any = Auto()) -> Solver:
    def solve(source: Tensor, leak: Tensor, *conductance: Tensor) -> Tensor:
        edges = conductance if networks.graph is None else conductance[0]
        circuit = Circuit(edges, leak, networks.graph)
        if not backend:
            return circuit.solve(source, solver)
        with mock.patch.dict(os.environ, CHONN_NETWORK_BACKEND=backend):
            return circuit.solve(source, solver)

    inputs = channels_last(networks)
    forward = inference(solve, inputs)
    return Solver(lambda: forward().movedim(-1, 1).flatten(0, 1), gradients(solve, inputs))


def without_gradients(networks: Networks, begin: Callable[[], Solve], **about: Any) -> Solver:
    """The calls of a peer that has no gradients; ``begin()`` is part of them."""
    weight = torch.ones_like(networks.source)

    def both() -> list[Array]:
        solve = begin()
        v = solve(networks.source).numpy()
        w = solve(weight).numpy()
        return [w, -w * v, *(-product for product in networks.products(v, w))]

    return Solver(lambda: begin()(networks.source), both, about)


def one_by_one(networks: Networks, solvers: Sequence[Callable[[Array], Any]]) -> Solve:
    """A loop over the networks in NumPy, as a solve of tensors."""

    def solve(sources: Tensor) -> Tensor:
        rows = sources.flatten(1).double().numpy()
        solutions = [solver(row) for solver, row in zip(solvers, rows, strict=True)]
        return torch.from_numpy(np.stack(solutions)).view(-1, *networks.grid)

    return solve


def spsolve(networks: Networks) -> Solver:
    """SciPy's sparse LU, at its best for symmetric matrices."""
    from scipy.sparse.linalg import splu

    systems = networks.matrices()
    options: Any = {"permc_spec": "MMD_AT_PLUS_A", "options": {"SymmetricMode": True}}

    def begin() -> Solve:
        return one_by_one(networks, [splu(a, **options).solve for a in systems])

    return without_gradients(networks, begin)


def load_blas() -> None:
    """The BLAS that CHOLMOD shall use: SuiteSparse's may be the slow reference."""
    torchs = str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")
    try:
        library = ctypes.CDLL("libopenblas.so.0", mode=ctypes.RTLD_GLOBAL)
        library.openblas_set_num_threads(torch.get_num_threads())
    except OSError:
        with contextlib.suppress(OSError):
            ctypes.CDLL(torchs, mode=ctypes.RTLD_GLOBAL)


def fastest_cholmod(system: Any, source: Array) -> tuple[Any, dict[str, Any]]:
    """The fastest of CHOLMOD's settings, for one elimination and a solve: an analysis, its name
    and its milliseconds."""
    from sksparse.cholmod import analyze

    load_blas()
    tried = []
    for ordering, mode in itertools.product(ORDERINGS, ("simplicial", "supernodal")):
        begin = functools.partial(analyze, system, mode=mode, ordering_method=ordering)
        factor = begin()

        def solve(factor: Any = factor) -> None:
            factor.cholesky_inplace(system)
            factor(source)

        solve()
        about = {"setting": f"{ordering}, {mode}", "plan_ms": milliseconds(begin)}
        tried.append((milliseconds(solve, 3), factor, about))
    _, factor, about = min(tried, key=lambda x: x[0])
    return factor, about


def cholmod(networks: Networks) -> Solver:
    """CHOLMOD, with the analysis of the pattern made beforehand."""
    systems = networks.matrices()
    factor, about = fastest_cholmod(systems[0], networks.source[0].flatten().double().numpy())
    begin = lambda: one_by_one(networks, [factor.cholesky(a) for a in systems])  # noqa: E731
    return without_gradients(networks, begin, **about)


def banded(networks: Networks) -> Solver:
    """SciPy's solver for lines."""
    from scipy.linalg import solve_banded

    wide = networks.map(Tensor.double)
    off = -wide.conductance[0].numpy()
    bands = np.stack([np.roll(off, 1, 1), diagonal(wide).numpy(), off], axis=1)
    solvers = [lambda b, a=a: solve_banded((1, 1), a, b) for a in bands]
    return without_gradients(networks, lambda: one_by_one(networks, solvers))


def pyamg(networks: Networks, cached: bool = False) -> Solver:
    """Ruge-Stueben multigrid with conjugate gradients in float64."""
    from pyamg import ruge_stuben_solver  # pyright: ignore[reportMissingImports]

    systems = [a.tocsr() for a in networks.matrices()]
    options = {"tol": TOLERANCE, "accel": "cg"}

    def begin() -> Solve:
        solvers = [ruge_stuben_solver(a) for a in systems]
        return one_by_one(networks, [lambda b, m=m: m.solve(b, **options) for m in solvers])

    if cached:
        solve = begin()
        return without_gradients(networks, lambda: solve)
    return without_gradients(networks, begin)


def entries(networks: Networks) -> tuple[Tensor, Tensor, Tensor]:
    """Rows and columns (entries,) of the entries that all matrices have, row by row, and their
    values (networks, entries)."""
    systems = [a.tocsr().tocoo() for a in networks.matrices()]
    values = torch.from_numpy(np.stack([a.data for a in systems])).to(networks.source)
    row, column = (torch.from_numpy(x).to(values.device) for x in (systems[0].row, systems[0].col))
    return row.long(), column.long(), values


def torch_sla(networks: Networks) -> Solver:
    """Its one solver for a batch of matrices of one pattern: CG with Jacobi's preconditioner.

    Its relative tolerance cannot be set; the absolute one does what ours does, for the network
    with the smallest source.
    """
    from torch_sla import spsolve_batch_same_layout

    row, column, values = entries(networks)
    source = networks.source.flatten(1)
    shape = (source.shape[1],) * 2
    atol = TOLERANCE * float(source.norm(dim=1).min())
    options = {"method": "cg", "atol": atol, "maxiter": PEER_ITERATIONS}

    def solve(values: Tensor, source: Tensor) -> Tensor:
        return spsolve_batch_same_layout(values, row, column, shape, source, **options)

    forward = inference(solve, (values, source))
    both = gradients(solve, (values, source))
    return Solver(lambda: forward().view(-1, *networks.grid), both)


def diagonal(networks: Networks) -> Tensor:
    """Leak and all conductances of each node."""
    around = (g + g.roll(1, axis) for axis, g in enumerate(networks.conductance, 1))
    return networks.leak + sum(around)


@functools.cache
def _jacobi_cg() -> Any:
    """The function of ``jacobi_cg.c``; a `FileNotFoundError` without a C compiler."""
    source = Path(__file__).with_name("jacobi_cg.c")
    # With -ffast-math, loading the library would make the process flush its denormal numbers.
    flags = ("-O3", "-march=native", "-fassociative-math", "-fno-signed-zeros", "-fno-math-errno")
    flags += ("-fno-trapping-math", "-fopenmp", "-shared", "-fPIC")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "jacobi_cg.so"
        subprocess.run(["cc", *flags, source, "-o", library, "-lm"], check=True)
        function = ctypes.CDLL(str(library)).jacobi_cg
    pointers = [ctypes.c_void_p] * 7
    function.argtypes = [*[ctypes.c_int] * 4, *pointers, ctypes.c_int, ctypes.c_float, ctypes.c_int]
    return function


def jacobi_cg(networks: Networks) -> Solver:
    """Conjugate gradients with Jacobi's preconditioner in C on all threads, a network a thread."""
    function = _jacobi_cg()
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

    return without_gradients(networks, lambda: solve)


# Solvers of the benchmark of peers; our first.
CONTENDERS: dict[str, Callable[[Networks], Solver]] = {
    "chonn-ops": ours,
    "torch": functools.partial(ours, backend="torch"),
    "Jacobi-CG": jacobi_cg,
    "torch-sla": torch_sla,
    "pyamg, cached": functools.partial(pyamg, cached=True),
    "spsolve": spsolve,
}


# A contender is timed on as many networks as take so long in one call.
CALL_MS = 300.0
# A contender that takes longer for one network is left out.
TOO_LONG_MS = 10_000.0
CHECKED = 4  # networks whose potentials are compared
PEERS = (
    Case((16, 16), 400),
    Case((64, 64), 400),
    Case((256, 256), 32),
    Case((32, 32, 32), 32),
    Case((1_000,), 400),
    Case((100_000,), 16),
)
SMOKE_PEERS = (Case((8, 8), 4), Case((4, 5, 3), 2), Case((20,), 2))
METHODS: dict[str, Callable[[Networks], Solver]] = {
    "direct": functools.partial(ours, solver=Direct()),
    "spsolve": spsolve,
    "pyamg": pyamg,
}
MEDIA = {1e2: "smooth", 1e4: "binary noise"}  # by contrast

Builds = Mapping[str, Callable[[Networks], Solver]]


def fitting(build: Callable[[Networks], Solver], networks: Networks) -> tuple[int, Solver]:
    """As many of the networks as a contender solves in `CALL_MS`, and its solver for them; a
    TimeoutError if one network takes longer than `TOO_LONG_MS`."""

    def first(count: int) -> Solver:
        return build(networks.map(lambda field: field[:count]))

    count = min(CHANNELS, len(networks))
    each = milliseconds(first(1).forward)
    if each > TOO_LONG_MS:
        raise TimeoutError(f"{each / 1e3:.0f} s for one network")
    if each * count < CALL_MS:  # many at once take less each
        each = milliseconds(first(count).forward) / count
    count = max(1, min(len(networks), int(CALL_MS / each)))
    count -= count % CHANNELS if count > CHANNELS else 0
    return count, first(count)


def measure(
    run: Run, networks: Networks, builds: Builds, label: dict[str, Any], per: int
) -> dict[str, Any]:
    """Rows of contenders for `per` of the networks."""
    checked = networks.map(lambda field: field[:CHECKED].double())
    truth = ours(checked, solver=Direct()).forward()

    def contender(build: Callable[[Networks], Solver]) -> Row:
        count, solver = fitting(build, networks)
        solver.both()
        potentials = solver.forward()[:CHECKED].reshape(-1, *networks.grid)
        error = (potentials.double() - truth[: len(potentials)]).abs().amax() / truth.abs().amax()
        calls = {"forward": solver.forward, "both": solver.both}
        about = {"timed_networks": count, "error": float(error), **solver.about}
        return {**about, "calls": calls, "scale": per / count}

    makes = {name: functools.partial(contender, build) for name, build in builds.items()}
    return run.section(makes, **label)


def peers(run: Run) -> list[dict[str, Any]]:
    sections = []
    for case in SMOKE_PEERS if run.smoke else PEERS:
        builds = CONTENDERS | ({"solve_banded": banded} if len(case.grid) == 1 else {})
        sections.append(measure(run, make(case), builds, case.label(), case.networks))
    return sections


def methods(run: Run) -> list[dict[str, Any]]:
    sizes = [(1, 64), (1, 256), (1, 512), (400, 64), (8, 256)] if not run.smoke else [(1, 16)]
    sections = []
    for count, n in sizes:
        for contrast, medium in MEDIA.items():
            networks = make(case := Case((n, n), count, contrast, medium))
            section = measure(run, networks, METHODS, case.label(), 1)
            g = [x[..., None] for x in networks.conductance]
            elimination = Elimination(g, networks.leak[..., None], Grid(case.grid))
            section["held_bytes"] = elimination.factors.nbytes
            sections.append(section)
    return sections


main = main_of(
    __doc__, "network", {"peers": peers, "methods": methods}, ["scipy", "pyamg", "torch-sla"]
)

if __name__ == "__main__":
    main()
