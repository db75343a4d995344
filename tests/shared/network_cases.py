"""Random networks, the float64 truth, and how far a result is from it."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
import torch
from rows import thorough
from torch import Tensor

from chonn_ops import Auto, Circuit, Direct, Graph, Grid, Iterative, diffusion, helmholtz
from chonn_ops._dtypes import compute_dtype
from chonn_ops.boundary import endless_line
from chonn_ops.network import available_backends, direct
from chonn_ops.network.layout import pad
from chonn_ops.network.solve import cpu, reference

BACKENDS = available_backends()
FASTEST = next(name for name in ("cpu", "torch", "reference") if name in BACKENDS)


# `make check` takes the one that users get.
EACH_BACKEND_THOROUGHLY = pytest.mark.parametrize(
    "backend", [x if x == FASTEST else thorough(x) for x in BACKENDS]
)


@contextmanager
def on(backend: str | None) -> Iterator[None]:
    """Solve by a backend; None is the default one."""
    given = {} if backend is None else {"CHONN_NETWORK_BACKEND": backend}
    with mock.patch.dict(os.environ, given):
        yield


def circuit_on(conductance: Any, leak: Tensor, *, periodic: Any = False, graph: Any = None) -> Any:
    """A circuit on a grid or a graph."""
    if graph is None and periodic is not False:
        graph = Grid(leak.shape[1:-1], periodic)
    return Circuit(conductance, leak, graph)


def solve_network(
    source: Tensor,
    conductance: Any,
    leak: Tensor,
    solver: Any = Auto(),
    *,
    backend: str | None = None,
    info: bool = False,
    ungrounded: Any = "error",
    **layout: Any,
) -> Any:
    """`Circuit.solve` by a backend, or with `info` `Circuit.solve_with_info`."""
    circuit = circuit_on(conductance, leak, **layout)
    solve = circuit.solve_with_info if info else circuit.solve
    if backend is None:  # so that compilers trace it
        return solve(source, solver, ungrounded=ungrounded)
    with on(backend):
        return solve(source, solver, ungrounded=ungrounded)


def factorize(conductance: Any, leak: Tensor, *, backend: str | None = None, **layout: Any) -> Any:
    """`Circuit.factorize` by a backend."""
    with on(backend):
        return circuit_on(conductance, leak, **layout).factorize()


def solver_of(method: str, tol: float = 1e-5, max_iterations: int = 300) -> Any:
    """The solver of a method's name."""
    if method == "multigrid":
        return Iterative(tol, max_iterations)
    return Direct() if method == "direct" else Auto(tol)


class Door:
    """One way to solve networks, with a tolerance that leaves rounding; a context, which sets what
    fills the vectors of the compiled kernels: networks, or the nodes of one."""

    def __init__(self, backend: str, method: str, filled: str) -> None:
        self.backend, self.method, self.filled = backend, method, filled
        self.patch, self.info = pytest.MonkeyPatch(), None

    def __enter__(self):
        worth = 0 if self.filled == "networks" else math.inf
        self.patch.setattr(direct.cpu, "_worth_lanes", lambda _: worth)
        self.patch.setattr(cpu, "_are_few", lambda *_: self.filled == "nodes")
        return self

    def __exit__(self, *_: object) -> None:
        self.patch.undo()

    def __call__(self, source: Tensor, g: Any, leak: Tensor, periodic: Any = False) -> Tensor:
        """The potentials; `info` has what is said of them, but for `factorize`."""
        if self.method == "factorize":
            return factorize(g, leak, periodic=periodic, backend=self.backend).solve(source)
        tol = 1e-12 if source.dtype == torch.float64 else 1e-6
        options: Any = {"backend": self.backend, "solver": solver_of(self.method, tol)}
        v, self.info = solve_network(source, g, leak, periodic=periodic, info=True, **options)
        return v


DOORS = [
    (backend, method, filled)
    for backend in BACKENDS
    for method in (("auto",) if backend == "reference" else ("direct", "multigrid", "factorize"))
    for filled in (("networks", "nodes") if backend == "cpu" else ("networks",))
    if (method, filled) != ("factorize", "nodes")
]
EACH_DOOR = pytest.mark.parametrize(
    "door", [pytest.param(Door(*which), id=" ".join(which)) for which in DOORS]
)
Network = tuple[Tensor, tuple[Tensor, ...], Tensor]


def walled(
    conductance: Any, leak: Tensor, boundary: Any = "neumann"
) -> tuple[Tensor, tuple[bool, ...]]:
    """Leak and periodic axes of networks with ground at their faces, for any conductances.

    These walls are made of the edges beside them, so they are no discretisation; they give the
    solvers grounds of many sizes.
    """
    dtype = compute_dtype(leak, *conductance)
    entries = (boundary,) * len(conductance) if isinstance(boundary, str) else boundary
    faces = [(entry, entry) if isinstance(entry, str) else entry for entry in entries]
    total = leak.to(dtype)
    for axis, pair in enumerate(faces):
        dim, n = axis + 1, leak.shape[axis + 1]
        for word, node, edge in zip(pair, (0, n - 1), (0, max(n - 2, 0)), strict=True):
            g = conductance[axis].narrow(dim, edge, 1).to(dtype)
            if word == "matched":
                g = endless_line(g, leak.narrow(dim, node, 1).to(dtype))
            if word in ("dirichlet", "matched"):
                total = total + pad((2 if word == "dirichlet" else 1) * g, axis, node, n - 1 - node)
    return total, tuple(low == "periodic" for low, _ in faces)


def edge_conductance(k: Tensor, spacing: Any = 1.0, *, mask: Any = None, **options: Any) -> Any:
    """The edges of `diffusion`."""
    inner = None if mask is None else "neumann"
    return diffusion(k, spacing, mask=mask, inner=inner, **options).conductance


def wall_leak(
    k: Tensor, spacing: Any = 1.0, *, mask: Any = None, boundary: Any = "dirichlet"
) -> Any:
    """The walls of `diffusion`, "dirichlet" towards missing cells."""
    inner = None if mask is None else "dirichlet"
    wall = diffusion(k, spacing, mask=mask, boundary=boundary, inner=inner).wall
    return torch.zeros_like(k) if wall is None else wall


def solve_helmholtz(source: Tensor, *medium: Any, **options: Any) -> Tensor:
    """The waves of a medium, by one solve."""
    backend, solver = options.pop("backend", None), options.pop("solver", Auto())
    with on(backend):
        return helmholtz(*medium, **options).solve(source, solver)


def network_with_walls(
    source: Tensor, conductance: Any, leak: Tensor, *, boundary: Any = "neumann", **options: Any
) -> Any:
    """`solve_network` with the ground of `walled`."""
    total, periodic = walled(conductance, leak, boundary)
    return solve_network(source, conductance, total, periodic=periodic, **options)


def uniform(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def make_network(
    layout: tuple[int, ...] | Graph,
    *,
    B: int = 2,
    C: int = 3,
    contrast: float = 100.0,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
) -> Network:
    """Source, conductances spread over `contrast` and leaks of 0.1 to 1, on a grid or a graph."""
    generator = torch.Generator().manual_seed(seed)
    graph = isinstance(layout, Graph)
    grid = layout.shape if graph else layout
    edges = [layout.edge_shape] if graph else [layout] * len(layout)

    def drawn(shape: Any = grid) -> Tensor:
        return torch.rand(B, *shape, C, dtype=torch.float64, generator=generator)

    source = torch.randn(B, *grid, C, dtype=torch.float64, generator=generator)
    conductance = tuple((contrast ** (drawn(shape) - 0.5)).to(dtype) for shape in edges)
    return source.to(dtype), conductance, (0.1 + 0.9 * drawn()).to(dtype)


# Seven nodes: a ring with a chord, and a tail.
GRAPH = Graph([(0, 1), (1, 2), (3, 2), (3, 0), (0, 2), (3, 4), (4, 5), (5, 6), (2, 6)], 7)


def edges_of(layout: Any, grid: Any) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """For each axis of a graph or of a grid, which is given by its periodic axes: both nodes of
    each edge and its entry, without the helpers of the library."""
    if isinstance(layout, Graph):
        yield *layout.ends, torch.arange(layout.num_edges)
        return
    nodes = torch.arange(math.prod(grid)).reshape(*grid)
    for axis, closed in enumerate(layout.periodic if isinstance(layout, Grid) else layout):
        count = grid[axis] if closed and grid[axis] > 1 else grid[axis] - 1
        p, q = (x.narrow(axis, 0, count).flatten() for x in (nodes, nodes.roll(-1, axis)))
        yield p, q, p


def matrix(conductance: Any, leak: Tensor, layout: Any) -> Tensor:
    """The matrices (B * C, N, N) of networks on a layout, or on a grid with these periodic axes."""
    B, *grid, C = leak.shape
    wide = torch.promote_types(torch.result_type(leak, conductance[0]), torch.float64)
    a = torch.diag_embed(leak.to(wide).movedim(-1, 1).reshape(B * C, -1))
    for g, (p, q, entry) in zip(conductance, edges_of(layout, grid), strict=True):
        value = g.to(wide).movedim(-1, 1).reshape(B * C, -1)[:, entry]
        for i, j, sign in ((p, p, 1), (q, q, 1), (p, q, -1), (q, p, -1)):
            index = (torch.arange(B * C)[:, None], i[None], j[None])
            a = a.index_put(index, sign * value, accumulate=True)
    return a


def matrix_of(circuit: Circuit) -> Any:
    """The matrix of the first network of a circuit, as an array."""
    return matrix(circuit.conductance, circuit.leak, circuit.layout)[0].detach().numpy()


def net_current(
    v: Tensor, conductance: Any, leak: Tensor, periodic: tuple[bool, ...], sign: int = -1
) -> Tensor:
    """What leaves each node through edges and leak, written as Kirchhoff and Ohm did, in float64,
    without the helpers of the library. With a sign of 1 potentials at both ends of an edge add."""
    x = v.double().flatten(1, -2)
    out = leak.double().flatten(1, -2) * x
    for g, (p, q, entry) in zip(conductance, edges_of(periodic, v.shape[1:-1]), strict=True):
        along = g.double().flatten(1, -2)[:, entry]
        for here, there in ((p, q), (q, p)):
            out = out.index_add(1, here, along * (x[:, here] + sign * x[:, there]))
    return out.reshape(v.shape)


def relative_residual(
    v: Tensor, source: Tensor, conductance: Any, leak: Tensor, periodic: tuple[bool, ...]
) -> Tensor:
    """(B, C)."""
    left = source.double() - net_current(v, conductance, leak, periodic)
    return left.flatten(1, -2).norm(dim=1) / source.double().flatten(1, -2).norm(dim=1)


def rounding_floor(
    source: Tensor, conductance: tuple[Tensor, ...], leak: Tensor, periodic: tuple[bool, ...]
) -> Tensor:
    """(B, C): the residual of the exact potentials rounded to float32."""
    exact = reference.solve(source, conductance, leak, Grid(leak.shape[1:-1], periodic))[0]
    return relative_residual(exact.float(), source, conductance, leak, periodic)


def run(source: Tensor, conductance: Any, leak: Tensor, **options: Any) -> dict[str, Tensor]:
    """Potentials and every gradient of a fixed functional of them."""
    leaves = [x.detach().requires_grad_() for x in (source, *conductance, leak)]
    v = network_with_walls(leaves[0], tuple(leaves[1:-1]), leaves[-1], **options)
    generator = torch.Generator().manual_seed(7)
    weight = torch.randint(0, 2, v.shape, generator=generator).to(v.dtype) * 2 - 1
    grads = torch.autograd.grad(v, leaves, weight)
    names = ("source", *(f"g{axis}" for axis in range(len(conductance))), "leak")
    named = {f"grad_{name}": grad for name, grad in zip(names, grads, strict=True)}
    return {"v": v.detach(), "weight": weight} | named


def truth(source: Tensor, conductance: Any, leak: Tensor, **options: Any) -> dict[str, Tensor]:
    """The same by the reference in float64."""
    wide = [x.double() for x in conductance]
    return run(source.double(), wide, leak.double(), **options, backend="reference")


def assert_near(found: Any, expected: Any, tolerance: float) -> None:
    """In the maximum norm, of a tensor or of each of several."""
    if isinstance(found, Tensor):
        found, expected = [found], [expected]
    for actual, right in zip(found, expected, strict=True):
        assert actual.shape == right.shape
        wide = torch.promote_types(right.dtype, torch.float64)
        if right.numel():
            error = (actual.detach().to(wide) - right.to(wide)).abs().amax()
            assert error <= tolerance * right.to(wide).abs().amax()


def assert_equal(actual: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> None:
    assert actual.keys() == expected.keys()
    for name, tensor in actual.items():
        error = (tensor.double() - expected[name]).norm() / expected[name].norm().clamp_min(1e-30)
        assert tensor.shape == expected[name].shape, name
        assert error <= tolerance, f"{name}: {error:.2e} above {tolerance:.0e}"
