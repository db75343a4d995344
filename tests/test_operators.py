"""What PyTorch does with every operator: derivatives of both modes, twice, mapped, compiled."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from meshes import SQUARE
from network_cases import (
    BACKENDS,
    FASTEST,
    factorize,
    make_network,
    network_with_walls,
    solve_network,
    solver_of,
)
from scan_cases import BACKENDS as SCANS
from scan_cases import DIRECTIONS, MODES, QUICK_MODES, make_case, scan
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

from chonn_ops import (
    CKB,
    Auto,
    Circuit,
    Dirichlet,
    FiniteVolumes,
    Graph,
    LCState,
    Mesh,
    Neumann,
    Robin,
    Scan,
    diffusion,
    helmholtz,
    lc_step,
    raster,
    rc_step,
)
from chonn_ops.nn import KirchhoffCell

DOUBLE = torch.float64
EXACT = Auto(1e-13)
GRAPH = Graph([(0, 1), (1, 2), (2, 0), (2, 3), (4, 5)], 6)
PAIRS = torch.tensor([(0, 8), (2, 3), (4, 5), (0, 3), (8, 4)])


@dataclass
class Case:
    """A function of tensors that are independent of each other, and what PyTorch does not do with
    it: "func" its transforms, "twice" second derivatives, "differences" those that are compared
    with differences; where "fast", the whole Jacobian would take long."""

    make: Callable[[], tuple[Callable[..., Any], list[torch.Tensor]]]
    quick: bool = True
    without: str = ""


def uniform(*shape, seed=0, dtype=DOUBLE):
    generator = torch.Generator().manual_seed(seed)
    parts = torch.rand(2, *shape, dtype=DOUBLE, generator=generator) + 0.2
    return torch.complex(*parts) if dtype.is_complex else parts[0]


def scans(grid, **options):
    case = make_case(1, grid, 2, 2, DOUBLE)
    if options["boundary"] == "periodic" and "directions" not in options:
        del case["initial_state"]

    def outputs(*tensors):
        named = dict(zip(case, tensors, strict=True))
        return tuple(scan(named, **options).values())

    return outputs, list(case.values())


def networks(grid, boundary, sources=None, method="auto", C=1):
    source, g, leak = make_network(grid, B=1, C=C)
    if sources:
        source = torch.stack([(i + 1) * source.roll(i, 1) for i in range(sources)], 1)

    def solve(source, leak, *g):
        options = {"boundary": boundary, "solver": solver_of(method, 1e-13)}
        return network_with_walls(source, g, leak, **options)

    return solve, [source, leak, *g]


def waves(boundary, source, sources=()):
    """A circuit with losses; of real numbers some have complex neighbours."""
    kinds = (source, torch.complex128, torch.complex128, DOUBLE)
    inputs = [uniform(1, *sources, 3, 2, 1, dtype=source)]
    inputs += [uniform(1, 3, 2, 1, seed=i, dtype=x) for i, x in enumerate(kinds[1:], 1)]

    def solve(s, leak, *g):
        options = {"boundary": boundary, "solver": Auto(1e-9)}
        return network_with_walls(s, g, leak - 0.5j * leak, **options)

    return solve, inputs


def graphs(sources=(), dtype=DOUBLE):
    sizes = ((1, *sources, 6, 1), (1, 6, 1), (1, 5, 1))
    inputs = [uniform(*size, seed=i, dtype=dtype) for i, size in enumerate(sizes)]
    return lambda s, leak, g: solve_network(s, g, leak, graph=GRAPH), inputs


RESULTS = {
    "solve": lambda factor, s: factor.solve(s),
    "several": lambda factor, s: factor.solve(torch.stack([s, s.square(), 1 - s], 1)),
    "logdet": lambda factor, _: factor.logdet(),
    "inverse": lambda factor, _: factor.diagonal_of_inverse(),
    "sample": lambda factor, s: factor.sample(s),
}


def factors(result):
    inputs = [uniform(1, 2, 3, 2, seed=i) for i in range(4)]

    def call(source, leak, *g):
        made = factorize(g, 0.1 * leak, periodic=(False, True))
        return RESULTS[result](made, source)

    return call, inputs


def solves_of_one_factor():
    g = [uniform(1, 2, 3, 2, seed=i) for i in range(2)]
    return factorize(g, g[0]).solve, [uniform(1, 2, 3, 2, seed=2)]


def layers(layer):
    return layer.requires_grad_(False), [uniform(1, 11, 2)]


def pivots_that_cancel():
    """Waves whose leaks cancel the conductances of their edges."""
    ones = torch.ones(1, 4, 3, 1, dtype=torch.complex128)
    leak = -4 * ones + 0.1j * torch.arange(12).reshape(ones.shape)
    leak[0, 0] = leak[0, 0].real

    def results(a, b, c):
        made = factorize((a, b), c)
        return (made.logdet().sum() + made.diagonal_of_inverse().square().sum()).real

    return results, [ones, ones.clone(), leak]


def held(dtype, fed, door):
    nodes = (torch.arange(6) % 4 == 1)[:, None]
    sizes = ((1, 5, 2), (1, 6, 2), (1, 6, 2))
    kinds = zip(sizes, (dtype, dtype, dtype), strict=True)
    inputs = [uniform(*size, seed=i, dtype=kind) for i, (size, kind) in enumerate(kinds)]

    def results(f, g, leak, value):
        circuit = Circuit(g, leak, GRAPH).hold(nodes, value)
        if door == "solve":
            return circuit.solve(f), circuit.currents(circuit.solve(f)).walls
        factor = circuit.factorize()
        others = factor.diagonal_of_inverse(), factor.logdet()
        return (factor.solve(f), *others, *(() if dtype.is_complex else (factor.sample(f.real),)))

    return results, [uniform(1, 3, 6, 2, seed=9, dtype=fed), *inputs]


def resistances():
    return lambda r: raster(r).resistance(PAIRS), [uniform(1, 3, 3, 1)]


def discretised(arithmetic):
    """With a hole and every condition."""
    mask = torch.ones(3, 4, dtype=torch.bool)
    mask[1, 2] = False
    inputs = [*(uniform(1, 3, 4, 1, seed=i) for i in range(3)), *uniform(4, 1)]

    def solve(f, k, c, value, film, flux, away):
        boundary = ((Dirichlet(value, away), Robin(film, value)), (Neumann(flux), "dirichlet"))
        circuit = diffusion(
            k, 0.5, boundary=boundary, absorption=c, mask=mask, inner=Robin(film, value),
            arithmetic=arithmetic,
        )  # fmt: skip
        return circuit.solve(f, solver=EXACT)

    return solve, inputs


def edges_and_walls(boundary):
    """Where all conductivities are equal, beside a hole."""
    mask = torch.ones(3, 4, dtype=torch.bool)
    mask[1, 1] = False

    def conduct(k):
        edges = diffusion(k, 0.5, boundary=boundary, mask=mask, inner="neumann").conductance
        return *edges, diffusion(k, 0.5, boundary="dirichlet", mask=mask, inner="dirichlet").wall

    return conduct, [torch.ones(1, 3, 4, 1, dtype=DOUBLE)]


def tensors_on_a_grid():
    parts = uniform(3, 3, 4)

    def solve(q, xx, yy, xy):
        rows = torch.stack([xx + 1, (xy - 0.7) / 2], -1), torch.stack([(xy - 0.7) / 2, yy + 1], -1)
        boundary = ((Neumann(q), Dirichlet(2 * q)), "neumann")
        circuit = diffusion(torch.stack(rows, -2)[None, :, :, None], boundary=boundary)
        return circuit.solve(torch.ones(1, 12, 1, dtype=q.dtype))

    return solve, [uniform(1, 1, 4, 1, seed=1), *parts]


def meshes():
    n = 3
    x, y = (z.ravel() for z in np.mgrid[: n + 1, : n + 1])
    number = np.arange((n + 1) ** 2).reshape(n + 1, n + 1)
    a, b, c, d = (z.ravel() for z in (number[:-1, :-1], number[1:, :-1], number[1:, 1:],
                                      number[:-1, 1:]))  # fmt: skip
    cells = np.concatenate([np.stack([a, b, c], 1), np.stack([a, c, d], 1)])
    sides = {"x0": x == 0, "x1": x == n, "y0": y == 0, "y1": y == n}
    return Mesh(np.stack([x, y], 1) / n, cells, sides), len(x), len(cells)


def on_a_mesh():
    mesh, nodes, cells = meshes()
    fields = [uniform(2, n, 1, seed=i) for i, n in enumerate((nodes, cells, nodes))]

    def solve(f, k, c, value, flux, film):
        boundary = {"x0": Dirichlet(value), "x1": Neumann(flux), "y0": Robin(film, value)}
        boundary["y1"] = Dirichlet(value, distance=film)
        return mesh.diffusion(k, boundary=boundary, absorption=c).solve(f)

    return solve, [*fields, *uniform(3, 1)]


def tensors_on_a_mesh():
    mesh, nodes, cells = meshes()

    def solve(f, xx, xy):
        rows = torch.stack([xx + xy + 1, xy], -1), torch.stack([xy, 2 * xx + xy], -1)
        return mesh.diffusion(torch.stack(rows, -2), boundary={"x0": "dirichlet"}).solve(f)

    return solve, [uniform(1, nodes, 1), *(uniform(1, cells, 1, seed=i) for i in (1, 2))]


def on_volumes():
    volumes = FiniteVolumes.from_cells(*SQUARE, sets={"left": [0, 2]})

    def solve(f, k, c, value):
        return volumes.circuit(k, c, {"left": Dirichlet(value)}).solve(f)

    return solve, [*(uniform(1, 4, 2, seed=i) for i in range(3)), uniform(1)]


def steps_of_capacitors(grid, boundary, method):
    inputs = [uniform(1, *grid, 1, seed=i) for i in range(4)]

    def roll(v, k, capacitance, source):
        circuit = diffusion(k, boundary=boundary, absorption=0.1)
        for step in range(3):
            v = rc_step(v, circuit, capacitance, 0.3, source * step, method=method, solver=EXACT)
        return v

    return roll, inputs


def steps_of_coils(grid, boundary):
    count = 6 + 2 * len(grid)
    inputs = [uniform(1, *grid, 1, seed=i) for i in range(count)]
    like = diffusion(inputs[0], boundary=boundary)

    def roll(v, ground, capacitance, damping, source, leak, *rest):
        circuit = Circuit(rest[: len(grid)], leak, like.layout)
        state = LCState(v, tuple(like.layout.edges(rest[len(grid) :])), ground)
        for _ in range(3):
            options = {"damping": damping, "solver": EXACT}
            state = lc_step(state, circuit, capacitance, 0.4, source, **options)
        return (state.voltage, *state.current, state.ground)

    return roll, inputs


def merged():
    """Two electrodes of two cells each, and what flows between."""
    labels = torch.tensor([[1, 0, 2], [1, 0, 2]])

    def solve(k, f):
        circuit, node = diffusion(k, absorption=0.1).merge(labels)
        source = circuit.leak.new_zeros(1, 4, 1).index_add(1, node.flatten(), f.flatten(1, 2))
        v = circuit.solve(source)
        return v, circuit.currents(v).edges[0]

    return solve, [uniform(1, 2, 3, 1, seed=i) for i in range(2)]


def porous():
    """Cells that conduct nothing, whose derivatives are one-sided: test_ground has their values."""
    k = torch.where(uniform(1, 6, 7, 1) > 0.6, uniform(1, 6, 7, 1, seed=1), 0)

    def flow(k):
        circuit = diffusion(k, 0.5, boundary=((Dirichlet(1.0), "dirichlet"), "neumann"))
        return circuit.currents(circuit.solve(torch.zeros_like(k))).walls

    return flow, [k]


def media_of_waves():
    inputs = [*(uniform(1, 3, 4, 1, seed=i) for i in range(3))]
    source = uniform(1, 3, 4, 1, seed=3, dtype=torch.complex128)

    def solve(f, k, c, d):
        return helmholtz(k, c, d, 2.0, 0.5, boundary="matched").solve(f)

    return solve, [source, *inputs]


COMPLEX, rc_steps = torch.complex128, partial(partial, steps_of_capacitors)
CELL = KirchhoffCell(2, Scan(2, directions="bidirectional"), dtype=DOUBLE)
BLOCK = CKB(2, cell=Scan(2), order=2, boundary="neumann", dtype=DOUBLE)
DIRECT = [x for x in BACKENDS if x != "reference"]
CASES: dict[str, Case] = {}
for backend in SCANS:
    best = backend == SCANS[-1]
    for reverse in (False, True):
        for boundary in ("matched", "periodic"):
            options = {"reverse": reverse, "boundary": boundary, "backend": backend}
            name = f"line, {boundary}{', back' * reverse}, {backend}"
            CASES[name] = Case(partial(scans, 6, **options), best and not reverse)
    for directions, boundary in MODES:
        options = {"directions": directions, "boundary": boundary, "backend": backend}
        quick = best and (directions, boundary) in QUICK_MODES
        make = partial(scans, (3, 2), **options)
        CASES[f"{directions}, {boundary}, {backend}"] = Case(make, quick)
for backend in BACKENDS:
    best = backend == FASTEST
    for grid, boundary, quick in (
        ((3,), "dirichlet", best),
        ((3, 2), ("periodic", "matched"), best),
        ((3,), "neumann", False),
        ((4,), "periodic", False),
        ((3, 2), "dirichlet", False),
    ):
        name = f"network, {grid}, {boundary}, {backend}"
        CASES[name] = Case(partial(networks, grid, boundary), quick)
for backend in DIRECT:
    best = backend == FASTEST
    for method in ("direct", "multigrid"):
        make = partial(networks, (2, 2), "neumann", method=method, C=2)
        CASES[f"network, {method}, {backend}"] = Case(make, best)
    for sources in ((), (2,)):
        make = partial(graphs, sources)
        CASES[f"graph, {sources} sources, {backend}"] = Case(make, best)
    for result in RESULTS:
        CASES[f"factor, {result}, {backend}"] = Case(partial(factors, result), without="func, fast")
    CASES[f"pivots that cancel, {backend}"] = Case(pivots_that_cancel, without="func, fast, twice")
for sources in (1, 3):
    make = partial(networks, (3, 2), "neumann", sources)
    CASES[f"network, {sources} sources"] = Case(make)
for boundary in ("neumann", "periodic", "matched"):
    for source in (DOUBLE, COMPLEX):
        make = partial(waves, boundary, source)
        CASES[f"waves, {boundary}, {source}"] = Case(make, boundary == "matched", "fast")
for dtype, fed in ((DOUBLE, DOUBLE), (DOUBLE, COMPLEX), (COMPLEX, DOUBLE), (COMPLEX, COMPLEX)):
    CASES[f"held, {dtype}, {fed}"] = Case(partial(held, dtype, fed, "solve"), without="fast")
    make = partial(held, dtype, fed, "factorize")
    CASES[f"held, {dtype}, {fed}, factor"] = Case(make, without="func, fast")
CASES |= {
    **{f"graph of waves, {x}": Case(partial(graphs, (), COMPLEX)) for x in DIRECT},
    "waves of several sources": Case(partial(waves, "matched", COMPLEX, (2,)), without="fast"),
    "solve of a factor": Case(solves_of_one_factor),
    "cell": Case(partial(layers, CELL), False),
    "block": Case(partial(layers, BLOCK), False),
    "resistances": Case(resistances, without="func"),
    "diffusion": Case(partial(discretised, 0.4), without="fast"),
    "diffusion, harmonic": Case(partial(discretised, 0.0), False, "fast"),
    "edges": Case(partial(edges_and_walls, "neumann")),
    "edges, periodic": Case(partial(edges_and_walls, "periodic")),
    "tensors": Case(tensors_on_a_grid),
    "mesh": Case(on_a_mesh, without="fast"),
    "mesh, tensors": Case(tensors_on_a_mesh),
    "volumes": Case(on_volumes),
    "merged": Case(merged),
    "porous": Case(porous, without="differences, twice"),
    "helmholtz": Case(media_of_waves),
    "rc": Case(rc_steps((3,), "periodic", "euler"), without="fast"),
    "rc, midpoint": Case(rc_steps((3,), "periodic", "midpoint"), without="fast"),
    "rc, plane": Case(rc_steps((3, 2), ("dirichlet", "neumann"), "midpoint"), False, "fast"),
    "lc": Case(partial(steps_of_coils, (2,), "dirichlet"), without="fast"),
    "lc, plane": Case(partial(steps_of_coils, (2, 3), ("periodic", "neumann")), False, "fast"),
}


def each(names, slow=()):
    thorough = pytest.mark.thorough
    rows = [
        pytest.param(x, marks=thorough if x in slow or not CASES[x].quick else ()) for x in names
    ]
    return pytest.mark.parametrize("name", rows)


@pytest.fixture(autouse=True)
def backend_of_the_name(request, monkeypatch):
    """Set outside of the functions, as compilers do not trace it."""
    backend = request.node.callspec.params["name"].rpartition(", ")[2]
    if backend in BACKENDS:
        monkeypatch.setenv("CHONN_NETWORK_BACKEND", backend)


def made(name):
    function, inputs = CASES[name].make()
    return function, [x.detach().clone().requires_grad_() for x in inputs]


MAPPED = [x for x in CASES if "func" not in CASES[x].without]
# PyTorch's Hessians and Jacobians are those of real functions.
REAL = [x for x in MAPPED if "waves" not in x and "complex" not in x]
REAL = [x for x in REAL if not any(t.is_complex() for t in CASES[x].make()[1])]


SLOW = ("tensors", "helmholtz", "waves of several sources", "rc, midpoint")


@each([x for x in CASES if "differences" not in CASES[x].without], slow=SLOW)
def test_first_derivatives(name):
    function, leaves = made(name)
    checks = {"check_forward_ad": True, "fast_mode": "fast" in CASES[name].without}
    if name in MAPPED:
        checks |= {"check_batched_grad": True, "check_batched_forward_grad": True}
    assert torch.autograd.gradcheck(function, leaves, **checks)


# `make check` takes some kinds.
SECONDS = [x for x in CASES if x.split(",")[0] not in ("line", "network", "graph", "factor")]


@each([x for x in CASES if "twice" not in CASES[x].without], slow=SECONDS)
def test_second_derivatives(name):
    function, leaves = made(name)
    options = {"check_fwd_over_rev": name in MAPPED, "fast_mode": True}
    assert torch.autograd.gradgradcheck(function, leaves, **options)


def total(function):
    """A curved loss of all outputs."""

    def loss(*args):
        out = function(*args)
        outputs = out if isinstance(out, tuple) else (out,)
        return sum((x.abs() if x.is_complex() else x).sin().sum() for x in outputs)

    return loss


def assert_same(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-8)


@each(REAL)
def test_transforms_agree_with_autograd(name):
    """Gradients, tangents by both interfaces, and the gradient of a tangent."""
    function, leaves = made(name)
    loss, args = total(function), tuple(x.detach() for x in leaves)
    every = tuple(range(len(args)))
    expected = torch.autograd.grad(loss(*leaves), leaves)
    assert_same(torch.func.grad(loss, every)(*args), expected)
    assert_same(torch.func.jacfwd(loss, every)(*args), expected)
    tangents = tuple(torch.sin(7 * x) for x in args)
    slope = torch.autograd.functional.jvp(loss, args, tangents)[1]
    assert_same(torch.func.jvp(loss, args, tangents)[1], slope)
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(x, t) for x, t in zip(leaves, tangents, strict=True)]
        dual = forward_ad.unpack_dual(loss(*duals)).tangent
    assert_same(dual, slope)
    by_func = torch.func.grad(lambda *args: torch.func.jvp(loss, args, tangents)[1], every)(*args)
    assert_same(torch.autograd.grad(dual, leaves), by_func)


@each([x for x in REAL if "twice" not in CASES[x].without], slow=REAL)
def test_hessians_by_every_mix_of_modes(name):
    function, leaves = made(name)
    loss, args = total(function), tuple(x.detach() for x in leaves)
    every = tuple(range(len(args)))
    expected = torch.autograd.functional.hessian(loss, args)
    for outer in (torch.func.jacrev, torch.func.jacfwd):
        for inner in (torch.func.jacrev, torch.func.jacfwd):
            assert_same(outer(inner(loss, every), every)(*args), expected)


@each(MAPPED)
def test_vmap_equals_a_loop(name):
    """Over all inputs but the first, of values and gradients."""
    function, leaves = made(name)
    args = [x.detach() for x in leaves]
    stacks = [torch.stack([x, 1.5 * x, x / 2]) for x in args[1:]]
    first = () if len(args) == 1 else (args[0],)
    stacks = stacks or [torch.stack([args[0], 1.5 * args[0], args[0] / 2])]

    for mapped in (function, torch.func.grad(total(function), tuple(range(len(args))))):
        found = torch.vmap(mapped, (*[None] * len(first), *[0] * len(stacks)))(*first, *stacks)
        rows = [mapped(*first, *(x[i] for x in stacks)) for i in range(3)]
        if isinstance(found, torch.Tensor):
            assert_same(found, torch.stack(rows))
        else:
            assert_same(tuple(found), tuple(torch.stack(x) for x in zip(*rows, strict=True)))


TRACED = [x for x in REAL if x.split(",")[0] in (*DIRECTIONS, "line", "network")]
TRACED += ["rc", "lc", "porous"]


@pytest.mark.filterwarnings("ignore")
@each(TRACED, slow=TRACED)
def test_programs_and_transforms_compile(name):
    """Without breaks of the graph."""
    function, leaves = made(name)
    loss, args = total(function), tuple(x.detach() for x in leaves)
    options = {"backend": "aot_eager", "fullgraph": True}
    found = torch.autograd.grad(torch.compile(loss, **options)(*leaves), leaves)
    assert_same(found, torch.autograd.grad(loss(*leaves), leaves))
    every = tuple(range(len(args)))
    tangent = lambda *args: torch.func.jvp(loss, args, args)[1]  # noqa: E731
    for transform in (tangent, torch.func.jacrev(loss, every)):
        assert_same(torch.compile(transform, **options)(*args), transform(*args))
    torch._dynamo.reset()


# PyTorch differentiates these results through its own products, which autocast rounds.
PRODUCTS = tuple(x for x in CASES if ", inverse" in x or ", sample" in x or x.endswith(", factor"))


# Layers round products with their weights; their own tests have that.
@each([x for x in CASES if x not in ("cell", "block")])
def test_autocast_changes_nothing(name):
    function, leaves = made(name)
    kinds = (torch.complex64 if x.is_complex() else torch.float32 for x in leaves)
    narrow = [x.detach().to(kind).requires_grad_() for x, kind in zip(leaves, kinds, strict=True)]

    def gradients():
        return torch.autograd.grad(total(function)(*narrow), narrow, allow_unused=True)

    values, grads = function(*narrow), gradients()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(function(*narrow), values)
        if name not in PRODUCTS:
            torch.testing.assert_close(gradients(), grads)


class Watched(TorchDispatchMode):
    """Collects what makes gradients that nothing needs, in the backward of a value.

    Operations of PyTorch are left out, and scans, whose kernel makes all gradients in one walk.
    """

    def __init__(self, value):
        super().__init__()
        self.wasteful = []
        nodes, found = [value.grad_fn], set()
        while nodes:
            node = nodes.pop()
            if node is not None and node not in found:
                found.add(node)
                nodes += [x for x, _ in node.next_functions]
        own = [x for x in found if isinstance(x, torch.autograd.function.BackwardCFunction)]
        for node in own:
            if node.name() != "_ScanBackward":
                needed = [x is not None for x, _ in node.next_functions]
                node.register_hook(partial(self.look, node.name(), needed))

    def look(self, name, needed, grads, _=None):
        made = [x is not None and x.numel() > 0 for x in grads]
        if any(x > y for x, y in zip(made, needed, strict=True)):
            self.wasteful.append(name)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func is torch.ops.chonn_ops.network_gradients.default:
            self.look(func.name(), args[-3], out)
        return out


@each(CASES)
def test_only_the_gradients_asked_for_are_made(name):
    function, leaves = made(name)
    loss = total(function)
    expected = torch.autograd.grad(loss(*leaves), leaves, allow_unused=True)
    for i, right in enumerate(expected):
        if right is None:
            continue
        one = [x if i == j else x.detach() for j, x in enumerate(leaves)]
        value = loss(*one)
        assert value.requires_grad
        with Watched(value) as watched:
            assert_same(torch.autograd.grad(value, one[i])[0], right)
        assert not watched.wasteful
