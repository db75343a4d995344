"""Contenders of `heat_slab` and `laws`, each in a process and an environment of its own.

    python peers.py NAME SIZE OUTPUT

OUTPUT, an ``.npz`` file, gets a value, its gradient, the seconds of the first call with all plans
and compilation, and those of `CALLS` further ones, or of as many as begin within `SECONDS`.
"""

# pyright: reportMissingImports=false
import functools
import itertools
import os
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

CALLS, SECONDS = 5, 30.0
# Corners of a cube in the order of VTK.
CUBE = np.array([(x, y, z) for z in (0, 1) for x, y in ((0, 0), (1, 0), (1, 1), (0, 1))])
# A call gives the value, and a function that gives the gradient.
Call = Callable[[], tuple[Any, Callable[[], Any]]]


def slab(n: int) -> SimpleNamespace:
    """The conduction problem of the Mosaic benchmark of differentiable solvers.

    A slab of 2 x 1 x h, h = 2/n, is one layer of n x n/2 cubes with trilinear elements and the
    conductivity of `simp`. 1 W enters through the wall x = 2, the wall x = 0 is held at 0, the
    others are insulated. The value is the load times the temperatures; the gradient is for rho.
    """
    shape, h = (n + 1, n // 2 + 1, 2), 2 / n
    place = np.indices((n, n // 2, 1)).reshape(3, -1).T
    corners: Any = np.moveaxis(place[:, None] + CUBE, 2, 0)
    cells: Any = np.ravel_multi_index(tuple(corners), shape)
    points = h * np.indices(shape).reshape(3, -1).T
    wall = cells[place[:, 0] == n - 1][:, CUBE[:, 0] == 1]
    load = h / 4 * np.bincount(wall.ravel(), minlength=len(points))
    rho = (0.5 + 0.3 * np.random.default_rng(0).standard_normal(len(cells))).clip(0.05, 0.95)
    held = 2 * shape[1]  # the first nodes
    return SimpleNamespace(points=points, cells=cells, load=load, rho=rho, held=held, h=h)


def simp(rho: Any) -> Any:
    """Conductivity of a density."""
    return 1e-3 + (1 - 1e-3) * rho**3


def chonn_slab(n: int, dtype: str) -> Call:
    """A circuit: entries of the elements' matrix are 0 along edges and -k h / 12 on diagonals."""
    import torch

    from chonn_ops import Circuit, Graph

    s, number = slab(n), getattr(torch, dtype)
    pairs = itertools.combinations(range(8), 2)
    pairs = [[a, b] for a, b in pairs if abs(CUBE[a] - CUBE[b]).sum() > 1]
    ends = np.sort(np.concatenate([s.cells[:, pair] for pair in pairs]), 1)
    keys, edge = np.unique(ends @ [len(s.points), 1], return_inverse=True)
    p, q = np.divmod(keys, len(s.points))
    inner, wall = (torch.from_numpy(x) for x in (p >= s.held, (p < s.held) & (q >= s.held)))
    nodes, edge = len(s.points) - s.held, torch.from_numpy(edge)
    graph = Graph(np.stack([p, q], 1)[inner] - s.held, nodes, s.points[s.held :])
    grounded = torch.from_numpy(q)[wall] - s.held
    rho, load = (torch.tensor(x, dtype=number) for x in (s.rho, s.load[s.held :]))
    rho.requires_grad_()

    def call() -> tuple[Any, Callable[[], Any]]:
        k = (simp(rho) * (s.h / 12)).repeat(len(pairs))
        g = k.new_zeros(len(keys)).index_add(0, edge, k)
        leak = k.new_zeros(nodes).index_add(0, grounded, g[wall])
        circuit = Circuit(g[inner][None, :, None], leak[None, :, None], graph)
        value = load @ circuit.solve(load[None, :, None])[0, :, 0]
        return value.item(), lambda: torch.autograd.grad(value, rho)[0]

    return call


def torch_fem(n: int) -> Call:
    import torch
    from torchfem import SolidHeat
    from torchfem.materials import IsotropicConductivity3D

    torch.set_default_dtype(torch.float64)
    s = slab(n)
    rho, load = torch.tensor(s.rho, requires_grad=True), torch.tensor(s.load)
    medium = IsotropicConductivity3D(torch.ones(len(rho)))
    model = SolidHeat(torch.tensor(s.points), torch.tensor(s.cells), medium)
    model.constraints = torch.arange(len(load))[:, None] < s.held
    model.heat_flux = load[:, None]

    def call() -> tuple[Any, Callable[[], Any]]:
        model.material = IsotropicConductivity3D(simp(rho))
        value = load @ model.solve(differentiable_parameters=rho)[0][:, 0]
        return value.item(), lambda: torch.autograd.grad(value, rho)[0]

    return call


def jax_fem(n: int) -> Call:
    """With PETSc's conjugate gradients and algebraic multigrid."""
    import jax
    import jax.numpy as jnp
    from jax_fem.generate_mesh import Mesh
    from jax_fem.problem import Problem
    from jax_fem.solver import ad_wrapper
    from petsc4py import PETSc

    s = slab(n)
    PETSc.Options()["ksp_rtol"] = 1e-10

    class Slab(Problem):
        def get_tensor_map(self) -> Any:
            return lambda gradient, k: k * gradient

        def get_surface_maps(self) -> Any:
            return [lambda u, x: jnp.array([-1 / s.h])]  # noqa: ARG005

        def set_params(self, rho: Any) -> None:
            self.internal_vars = [jnp.repeat(simp(rho)[:, None], self.fes[0].num_quads, 1)]

    held: Any = [[lambda x: jnp.isclose(x[0], 0)], [0], [lambda x: 0.0]]  # noqa: ARG005
    right = lambda x: jnp.isclose(x[0], 2)  # noqa: E731
    mesh = Mesh(s.points, s.cells)
    problem = Slab(mesh, 1, 3, dirichlet_bc_info=held, location_fns=[right])
    options = {"petsc_solver": {"ksp_type": "cg", "pc_type": "gamg"}}
    solve, load, rho = ad_wrapper(problem, options, options), jnp.array(s.load), jnp.array(s.rho)

    def call() -> tuple[Any, Callable[[], Any]]:
        value, back = jax.vjp(lambda rho: load @ solve(rho)[0][:, 0], rho)
        return float(value), lambda: back(1.0)[0]

    return call


def cubic(n: int) -> Any:
    """Example 6 of torch-sla's ``nonlinear_solve.py`` on n x n nodes: A u + u^3 / 10 = f with the
    five-point Laplacian A, u = 0 around, and white noise f. The value is the sum of u; the gradient
    is for f."""
    return np.random.default_rng(0).standard_normal(n * n)


def chonn_cubic(n: int) -> Call:
    import torch

    from chonn_ops import Dirichlet, NonlinearCircuit, diffusion, laws

    f, one = torch.tensor(cubic(n), requires_grad=True), torch.ones(1, n, n, 1).double()
    grid = diffusion(one, 1.0, boundary=Dirichlet(0.0, 0.5), absorption=0.1)

    def call() -> tuple[Any, Callable[[], Any]]:
        value = NonlinearCircuit(grid, leaks=laws.Power(4)).solve(f.view(1, n, n, 1)).sum()
        return value.item(), lambda: torch.autograd.grad(value, f)[0]

    return call


def torch_sla(n: int, jacobian: str) -> Call:
    """Its Jacobian is dense in the example, applied by automatic differentiation, or given."""
    import torch
    from scipy.sparse import diags_array, kronsum
    from torch_sla import SparseTensor, nonlinear_solve

    f, line = torch.tensor(cubic(n), requires_grad=True), diags_array([2.0] * n)
    line = line - diags_array([1.0] * (n - 1), offsets=1) - diags_array([1.0] * (n - 1), offsets=-1)
    a = kronsum(line, line, "coo")
    values, row, column = (torch.from_numpy(x) for x in (a.data, a.row, a.col))
    laplace = SparseTensor(values, row, column, a.shape)

    def residual(u: Any, a: Any, f: Any) -> Any:
        return a @ u + 0.1 * u**3 - f

    def slope(u: Any, *_: Any) -> Any:
        return torch.where(row == column, 4 + 0.3 * u[row] ** 2, values), row, column, a.shape

    solve = {
        "dense": functools.partial(laplace.nonlinear_solve, residual),
        "given": functools.partial(laplace.nonlinear_solve, residual, jac_fn=slope),
        "applied": functools.partial(
            nonlinear_solve, lambda u, f: residual(u, laplace, f), tol=1e-8, atol=1e-12
        ),
    }[jacobian]

    def call() -> tuple[Any, Callable[[], Any]]:
        value = solve(torch.zeros(n * n).double(), f).sum()
        return value.item(), lambda: torch.autograd.grad(value, f)[0]

    return call


CONTENDERS: dict[str, Callable[[int], Call]] = {
    "chonn-ops": functools.partial(chonn_slab, dtype="float64"),
    "chonn-ops, float32": functools.partial(chonn_slab, dtype="float32"),
    "torch-fem": torch_fem,
    "JAX-FEM": jax_fem,
    "chonn-ops, cubic": chonn_cubic,
    **{
        f"torch-sla, {how} Jacobian": functools.partial(torch_sla, jacobian=how)
        for how in ("dense", "applied", "given")
    },
}


def measure(name: str, size: int, output: str) -> None:
    CONTENDERS[name](4)()  # imports
    begin = time.perf_counter()
    call = CONTENDERS[name](size)
    value, back = call()
    gradient = np.asarray(back())
    first, forward, both = time.perf_counter() - begin, [], []
    begin = time.perf_counter()
    while len(both) < CALLS and (not both or time.perf_counter() - begin < SECONDS):
        start = time.perf_counter()
        value, back = call()
        middle = time.perf_counter()
        gradient = np.asarray(back())
        forward.append(middle - start)
        both.append(time.perf_counter() - start)
    np.savez(output, value=value, gradient=gradient, first=first, forward=forward, both=both)


if __name__ == "__main__":
    # One core for all, whose number of threads some packages take no option for.
    os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
    measure(sys.argv[1], int(sys.argv[2]), sys.argv[3])
