"""Who solves the networks: ours on every backend, and the solvers a user could call instead.

A contender is built for some networks; what it builds (matrices, hierarchies) is not timed, but
for "pyamg", which sets its hierarchies up in the timed call. Where a peer has no gradients, its
backward is one more solve with the same matrix (SciPy reuses its factors, pyamg its hierarchy)
and the products that give the gradients.
"""

from __future__ import annotations

import ctypes
import dataclasses
import importlib.util
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from _floors import compiled
from _harness import Call
from _networks import (
    TOLERANCE,
    Networks,
    channels_last,
    diagonal,
    entries,
    gradients,
    networks_first,
    pattern,
)
from torch import Tensor

JACOBI = "Jacobi-CG"
PEER_ITERATIONS = 20_000
DENSE_NODES = 256  # of a matrix for `torch.linalg.solve`

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
    from scipy import sparse

    rows, columns = pattern(networks.grid)
    size = math.prod(networks.grid)
    order = sparse.coo_matrix((np.arange(1, len(rows) + 1), (rows, columns)), (size, size))
    layout: Any = order.asformat(kind)
    values = entries(networks).numpy().take(layout.data - 1, axis=1)
    form = type(layout)
    return [form((v, layout.indices, layout.indptr), shape=(size, size)) for v in values]


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


def pyamg_cached(networks: Networks) -> Solver:
    return _pyamg(networks, cached=True)


def pyamg_anew(networks: Networks) -> Solver:
    return _pyamg(networks, cached=False)


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


def torch_dense(networks: Networks) -> Solver:
    """One matrix after another: a batch of them fails in oneMKL on several threads (torch 2.15)."""
    rows, columns = (torch.from_numpy(index) for index in pattern(networks.grid))
    size = math.prod(networks.grid)
    if size > DENSE_NODES:
        raise NotFitting
    matrices = torch.zeros(len(networks), size, size)
    matrices[:, rows, columns] = entries(networks).float()
    source = networks.source.flatten(1).clone().requires_grad_()
    matrices.requires_grad_()
    grad = torch.randn_like(source)

    def solve() -> Tensor:
        pairs = zip(matrices, source, strict=True)
        return torch.stack([torch.linalg.solve(a, b) for a, b in pairs])

    def forward() -> Tensor:
        with torch.no_grad():
            return solve().view(-1, *networks.grid)

    return Solver(forward, lambda: torch.autograd.grad(solve(), [matrices, source], grad))


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
    "pyamg, cached": ("pyamg", pyamg_cached),
    "pyamg": ("pyamg", pyamg_anew),
    "spsolve": ("scipy", scipy_spsolve),
    "solve_banded": ("scipy", scipy_banded),
    "linalg.solve": (None, torch_dense),
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
