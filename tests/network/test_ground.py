"""Parts of networks without ground: one rule for sources in them, and derivatives at conductances
of 0, which are one-sided ones."""

import functools
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from manufactured import plain
from meshes import SQUARE, rings
from network_cases import factorize, matrix_of, on, solve_network, solver_of
from scipy.spatial import Delaunay
from torch import Tensor

from chonn_ops import (
    Auto,
    Circuit,
    Direct,
    Dirichlet,
    FiniteVolumes,
    Graph,
    Iterative,
    Mesh,
    Neumann,
    Robin,
    decompositions,
    diffusion,
    helmholtz,
    rc_step,
)
from chonn_ops.network import available_backends
from chonn_ops.network.solve.ground import cut_off

BACKENDS = pytest.mark.parametrize("backend", [x for x in available_backends() if x != "triton"])
SEED = 60


def field(*values: float, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor(values, dtype=dtype).reshape(1, -1, 1)


def of_nodes(circuit: Circuit) -> Tensor:
    """Which nodes are in a part without ground."""
    label = cut_off(circuit.conductance, circuit.leak, circuit.layout)
    like = circuit.leak.detach()
    return torch.zeros_like(like, dtype=torch.bool) if label is None else label >= 0


# ---- sources


@BACKENDS
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@pytest.mark.parametrize("outage", [1, 2])  # cuts off two nodes, or one
def test_a_source_that_lost_its_ground_is_named(backend, outage, dtype):
    """One node was silent: v = 0, a backward error of 0, and 3 A that went nowhere."""
    graph = Graph([(0, 1), (1, 2), (2, 3)], 4)
    g, leak = torch.ones(1, 3, 1, dtype=dtype), field(1, 0, 0, 0, dtype=dtype)
    g[:, outage] = 0
    factor = None if backend == "reference" else factorize(g, leak, graph=graph, backend=backend)
    named = r"network \(0, 0\) .* node \([23],\)"
    for source in (field(0, 0, 0, 3).float(), field(1, 0, 1, -1).float()):
        source[:, 2] = source[:, 2] * (outage == 1)
        for given in (source, source[:, None]):
            with pytest.raises(ValueError, match=rf"{named}, and a source of"):
                solve_network(given, g, leak, graph=graph, backend=backend)
        if factor is not None:
            with pytest.raises(ValueError, match=named):
                factor.solve(source[:, None])
    fine = field(2, 0, 0, 0).float()
    v, info = solve_network(fine, g, leak, graph=graph, backend=backend, info=True)
    assert v.flatten().tolist() == [2.0] * (outage + 1) + [0.0] * (3 - outage)
    assert info.backward_error.item() <= (1e-6 if dtype.is_complex else 0)
    if factor is not None:
        assert torch.equal(factor.solve(fine), v)
        with pytest.raises(ValueError, match=r"and the inverse is asked for there"):
            factor.diagonal_of_inverse()


@pytest.mark.parametrize("method", ["direct", "multigrid"])
@pytest.mark.parametrize("shape", [(9, 8), (6, 5, 7)])
@BACKENDS
def test_parts_without_sources_change_nothing(backend, shape, method):
    """Potentials of 0 there, and elsewhere those of the rest alone."""
    generator = torch.Generator().manual_seed(SEED)
    leak, *g = (torch.rand(2, *shape, 3, generator=generator).double() for _ in range(4))
    g = g[: len(shape)]
    for x in g:
        x[torch.rand(x.shape, generator=generator) < (0.4 if len(shape) == 2 else 0.65)] = 0
    leak[torch.rand(leak.shape, generator=generator) < 0.9] = 0
    off = of_nodes(Circuit(g, leak))
    assert 0.05 < off.double().mean() < 0.9
    s = torch.where(off, 0, torch.randn(leak.shape, generator=generator, dtype=torch.float64))
    options = {"backend": backend, "solver": solver_of(method, 1e-9)}
    v = solve_network(s, g, leak, **options)
    assert not v[off].any()
    other = solve_network(s, g, torch.where(off, 1.0, leak), solver=Direct())
    torch.testing.assert_close(v, other, rtol=1e-6, atol=1e-8)
    complex_one = solve_network(s, [x + 0j for x in g], leak, backend=backend)
    torch.testing.assert_close(complex_one, v + 0j, rtol=1e-6, atol=1e-8)
    assert not complex_one[off].any()


def grid_of_lines() -> tuple[Graph, Tensor, Tensor]:
    """Seven nodes and lines of a power grid, one outage a network, and what goes in at each."""
    lines = [(0, 1), (1, 2), (2, 3), (3, 0), (2, 4), (4, 5), (1, 6)]
    outages = (
        torch.ones(7, 7, 1, dtype=torch.float64) - torch.eye(7, dtype=torch.float64)[..., None]
    )
    return Graph(lines, 7), outages, field(0, 1, 0, -0.5, 0, -1, -0.3).expand(7, -1, -1)


@pytest.mark.parametrize("how", ["solve", "factorize", "function", "several"])
def test_one_bad_network_does_not_stop_a_batch(how):
    """Outages that cut off one load or two are NaN, and all others are right."""
    graph, b, injected = grid_of_lines()
    slack = (torch.arange(7) == 0)[:, None]
    strength = torch.ones((), dtype=torch.float64, requires_grad=True)

    def potentials(keep: list[int]) -> Tensor:
        circuit = Circuit(strength * b[keep], torch.zeros(len(keep), 7, 1).double(), graph)
        circuit = circuit.hold(slack)
        source = injected[keep]
        if how == "factorize":
            return circuit.factorize().solve(source, ungrounded="nan")
        if how == "function":
            given = (circuit.source(source), circuit.conductance[0], circuit.leak)
            return solve_network(*given, graph=graph, ungrounded="nan")
        if how == "several":
            v = circuit.solve(torch.stack([source, 0 * source], 1), ungrounded="nan")
            assert not v[:, 1].isnan().any()  # nothing is fed in there
            return v[:, 0]
        return circuit.solve(source, ungrounded="nan")

    v = potentials(list(range(7)))
    assert v.isnan().all(1).flatten().tolist() == [False] * 4 + [True] * 3
    power = -(b[:4, [0, 3], 0] * v[:4, [1, 3], 0]).sum(1)
    torch.testing.assert_close(power, torch.full_like(power, 0.8))
    alone = potentials([0, 1, 2, 3])
    (gradient,) = torch.autograd.grad(v[:4].square().sum(), strength)
    (others,) = torch.autograd.grad(alone.square().sum(), strength)
    torch.testing.assert_close(gradient, others)
    with pytest.raises(ValueError, match=r"ungrounded: expected .*'nan'"):
        solve_network(injected, b, injected, graph=graph, ungrounded="skip")  # type: ignore[arg-type]


def test_missing_nodes_need_no_ground():
    """A mask takes nodes away: sources there count for nothing, and they have no variance."""
    mask = torch.ones(6, 5, dtype=torch.bool)
    mask[2:4, 1:3] = False
    k = torch.ones(1, 6, 5, 1, dtype=torch.float64)
    circuit = diffusion(k, 0.5, boundary="dirichlet", mask=mask)
    v = circuit.solve(k)
    torch.testing.assert_close(v, circuit.solve(k * mask[..., None]))
    factor = circuit.factorize()
    assert torch.equal(factor.diagonal_of_inverse()[0, ..., 0] > 0, mask)
    assert torch.equal(factor.sample(k)[0, ..., 0] != 0, mask)
    dense = torch.from_numpy(matrix_of(circuit))[mask.flatten()][:, mask.flatten()]
    assert abs(factor.logdet().item() - dense.logdet().item()) < 1e-10


# ---- fluxes


@pytest.mark.parametrize("k0", [1e-30, 0.0])
def test_a_flux_into_a_cell_that_conducts_nothing_counts(k0):
    """It vanished, in steps of heat, too, where a source in that cell did not."""
    k, f = field(k0, 1, 1, 1), field(0, 0, 0, 0)
    walls = ((Neumann(2.0), "neumann"),)
    v = diffusion(k, 1.0, boundary=walls, absorption=0.5).solve(f)
    torch.testing.assert_close((0.5 * v).sum().item(), 2.0)
    for method in ("euler", "midpoint"):
        heated = rc_step(f, diffusion(k, 1.0, boundary=walls), 1.0, 0.1, method=method)
        torch.testing.assert_close(heated.sum().item(), 0.2)
    u = helmholtz(k, 1.0, 0.5, 1.0, 1.0, boundary=walls).solve(f)
    torch.testing.assert_close(((-1 - 0.5j) * u).sum(), torch.tensor(2.0 + 0j, dtype=u.dtype))
    if not k0:
        with pytest.raises(ValueError, match=r"node \(0,\), and a source of 2 there"):
            diffusion(k, 1.0, boundary=walls).solve(f)


def test_fluxes_into_cells_that_conduct_nothing_on_meshes():
    mesh, volumes = Mesh(*SQUARE, {"left": [0, 2]}), FiniteVolumes.from_cells(*SQUARE)
    cells, nodes = (torch.zeros(1, n, 1).double() for n in (2, 4))
    left = mesh.diffusion(cells, boundary={"left": Neumann(2.0)}, absorption=0.5)
    for circuit, flux in ((left, 2.0), (volumes.circuit(nodes, 0.5, Neumann(2.0)), 8.0)):
        v = circuit.solve(nodes)
        torch.testing.assert_close((circuit.leak * v).sum().item(), flux)


# ---- derivatives at conductances of 0

PLATES = ((Dirichlet(1.0), Dirichlet(0.0)), "neumann")


def dense_loss(
    k: np.ndarray, widths: list[np.ndarray], faces: list, source: np.ndarray, weights: np.ndarray
) -> float:
    """sum(weights[0] v) + sum(weights[1] i) + sum(weights[2] j), i what leaves through the walls of
    each cell and j what flows to the next one along the first axis, by a dense matrix of finite
    volumes: independent of chonn_ops."""

    def said(face: Any) -> tuple:
        if isinstance(face, str):
            return face, 0.0
        if isinstance(face, Dirichlet):
            return "dirichlet", face.value, 0.0
        return "robin", face.coefficient, face.value, 0.0

    pairs = [(face, face) if isinstance(face, str) else face for face in faces]
    conditions = [tuple(map(said, pair)) for pair in pairs]
    matrix, right = plain(k, widths, conditions, np.zeros(k.shape), source)
    a, n = matrix.toarray(), k.size
    volume = functools.reduce(np.multiply.outer, widths).flatten()
    wall, fed = a.sum(1), right - source.flatten() * volume
    # Cells that no wall reaches have v = 0.
    reached = wall > 1e-9
    for _ in range(n):
        reached = reached | ((a != 0) @ reached)
    some = (a.diagonal() != 0) & reached
    v = np.zeros(n)
    v[some] = np.linalg.solve(a[np.ix_(some, some)], right[some])
    step = n // k.shape[0]
    flows = np.append(-np.diag(a, step) * (v[:-step] - v[step:]), np.zeros(step))
    return float((weights.reshape(3, -1) * (v, wall * v - fed, flows)).sum())


def porous(seed: int, axes: int) -> tuple:
    """A random image, its spacing and faces, and a loss of potentials and flows."""
    rng = np.random.default_rng(seed)
    grid = tuple(int(n) for n in rng.integers(2, {1: 9, 2: 7, 3: 4}[axes], axes))
    k = np.where(rng.random(grid) < 0.6, 0.2 + rng.random(grid), 0.0)
    widths = [np.full(n, 0.3 + rng.random()) for n in grid]
    if seed % 2:
        graded = int(rng.integers(axes))
        widths[graded] = 0.3 + rng.random(grid[graded])
    kinds = [Dirichlet(1.0), Dirichlet(0.3), "neumann", Robin(2.0, 0.7)]
    faces: list = [tuple(kinds[i] for i in rng.integers(4, size=2)) for _ in range(axes)]
    faces[0] = (kinds[int(rng.integers(2))], faces[0][1])
    if axes > 1 and seed % 3 == 0:
        faces[1] = "periodic"
    return k, widths, faces, rng.standard_normal(grid), rng.standard_normal((3, *grid))


def loss_of(k: Tensor, widths: list, faces: list, source: Tensor, weights: Tensor, **how) -> Tensor:
    circuit = diffusion(k, widths, boundary=tuple(faces))
    v = circuit.solve(source, **how)
    currents = circuit.currents(v)
    at_nodes = (weights[0] * v).sum() + (weights[1] * currents.walls).sum()
    return at_nodes + (weights[2] * currents.edges[0]).sum()


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("backend", [x for x in available_backends() if x == "cpu"] or ["torch"])
def test_porous_images_have_the_one_sided_derivatives_of_dense_solves(axes, backend):
    """Each cell of k = 0, at walls of every kind, graded grids included; every derivative of the
    cells that conduct, too. All were those of neighbours at potential 0: 59 of 61 had the wrong
    sign."""
    count = 0
    for seed in range(SEED, SEED + 24):
        k, widths, faces, source, weights = porous(seed, axes)
        tensors = [torch.from_numpy(x)[None, ..., None] for x in (k, source)]
        off = of_nodes(diffusion(tensors[0], widths, boundary=tuple(faces)))[0, ..., 0].numpy()
        source, weights[0] = np.where(off, 0, source), np.where(off, 0, weights[0])
        x = tensors[0].requires_grad_()
        given = [torch.from_numpy(y)[..., None] for y in (source[None], weights)]
        with on(backend):
            value = loss_of(x, widths, faces, *given)
        dense = (widths, faces, source, weights)
        base = dense_loss(k, *dense)
        assert abs(value.item() - base) < 1e-9 * (1 + abs(base))
        gradient = torch.autograd.grad(value, x)[0][0, ..., 0].numpy()
        scale = 1 + np.abs(gradient).max()
        for at in zip(*np.nonzero(~off | (k == 0)), strict=True):
            step, change = 1e-6, []
            for factor in (1, 2) if k[at] == 0 else (1, -1):
                moved = k.copy()
                moved[at] += factor * step
                change.append(dense_loss(moved, *dense) - base)
            one, two = change
            right = (2 * one - two / 2) / step if k[at] == 0 else (one - two) / (2 * step)
            assert abs(gradient[at] - right) < 1e-6 * scale, (seed, at)
            count += k[at] == 0
    assert count > {1: 40, 2: 150, 3: 150}[axes]


def flow(k: Tensor, **how) -> Tensor:
    circuit = diffusion(k, 1 / k.shape[1], boundary=(*PLATES, *["neumann"] * (k.dim() - 4)))
    return circuit.currents(circuit.solve(torch.zeros_like(k), **how)).walls[:, -1].sum()


def image(*grid: int, batch: int = 1, seed: int = SEED) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(batch, *grid, 1, generator=generator) < 0.7).double()


@pytest.mark.parametrize("way", ["cpu", "torch", "reference", "multigrid", "float32"])
@pytest.mark.parametrize("grid", [(14, 13), (6, 5, 7)])
def test_every_way_to_solve_has_the_same_derivatives(grid, way):
    if way in ("cpu", "reference") and way not in available_backends():
        pytest.skip(f"no {way}")
    k = image(*grid, batch=2)
    k[1] = 1.0  # the second one has no part without ground
    x = k.clone().requires_grad_()
    (right,) = torch.autograd.grad(flow(x), x)
    alone = k[1:].clone().requires_grad_()
    torch.testing.assert_close(right[1:], torch.autograd.grad(flow(alone), alone)[0])
    solver = Iterative(1e-10) if way == "multigrid" else Auto(1e-10)
    if way == "float32":
        x, solver = k.float().requires_grad_(), Auto()
    with on(way if way in available_backends() else None):
        (found,) = torch.autograd.grad(flow(x, solver=solver), x)
    loose = {"rtol": 1e-4, "atol": 1e-5} if way == "float32" else {"rtol": 1e-7, "atol": 1e-8}
    torch.testing.assert_close(found.double(), right, **loose)


def test_several_sources_have_the_same_derivatives():
    k = image(6, 7)
    x = k.clone().requires_grad_()

    def many(solve_by: Any) -> Tensor:
        circuit = diffusion(x, 1 / 6, boundary=PLATES)
        v = solve_by(circuit).solve(torch.stack([torch.zeros_like(x), circuit.leak.detach()], 1))
        total = sum(circuit.currents(one).walls[:, -1].sum() for one in v.unbind(1))
        return torch.autograd.grad(total, x)[0]

    torch.testing.assert_close(many(Circuit.factorize), many(lambda circuit: circuit))


def test_mixed_second_derivatives_are_those_of_the_first_ones():
    """The derivative for a solid cell depends on the k of pores."""
    k = image(5, 6)
    x = k.clone().requires_grad_()
    (first,) = torch.autograd.grad(flow(x), x, create_graph=True)
    torch.testing.assert_close(first, torch.autograd.grad(flow(x), x)[0])
    both = torch.func.vmap(torch.func.grad(flow))(torch.stack([k, 1 + 0 * k]))
    torch.testing.assert_close(both[0], first)
    solid, pores = (k == 0), k > 0
    (second,) = torch.autograd.grad(first[solid].sum(), x)
    for at in pores.nonzero().tolist()[::5]:
        sides = []
        for sign in (1, -1):
            moved = k.clone()
            moved[tuple(at)] += sign * 1e-5
            moved.requires_grad_()
            sides.append(torch.autograd.grad(flow(moved), moved)[0][solid].sum().item())
        assert abs(second[tuple(at)].item() - (sides[0] - sides[1]) / 2e-5) < 1e-6


def rise(loss: Any, base: Tensor, step: Tensor) -> float:
    """The one-sided derivative of a loss where its conductances rise from `base` by `step`."""
    start = loss(base).item()
    one, two = (loss(base + x * step).item() - start for x in (1e-6, 2e-6))
    return (2 * one - two / 2) / 1e-6


def cell(k: Tensor, at: list[int]) -> Tensor:
    return torch.zeros_like(k).index_put(tuple(torch.tensor(at)), torch.ones((), dtype=k.dtype))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_a_dead_end_has_no_derivative(dtype):
    graph = Graph([(0, 1), (1, 2)], 3)
    leak, s = field(1, 0, 0).to(dtype), field(0, 1, 0).to(dtype)
    for x in (1.0, 1e-9, 0.0):
        g = field(1, x).to(dtype).requires_grad_()
        v = Circuit(g, leak, graph).solve(s)
        assert abs(torch.autograd.grad(v[0, 1, 0].abs(), g)[0][0, 1, 0].item()) < 1e-12


@pytest.mark.parametrize("kind", ["plain", "held", "complex", "currents"])
def test_edges_of_a_part_that_rise_together(kind):
    """A cluster of two nodes between three others, against differences of equal small edges."""
    graph = Graph([(0, 1), (1, 2), (3, 4), (0, 3), (1, 3), (2, 4)], 5)
    dtype = torch.complex128 if kind == "complex" else torch.float64
    leak, s = field(1, 0, 0.5, 0, 0).to(dtype), field(0, 2, 1, 0, 0).to(dtype)
    turn = 1 + 0.5j if kind == "complex" else 1.0

    def loss(g: Tensor) -> Tensor:
        circuit = solved = Circuit(turn * g, leak, graph)
        if kind == "held":  # walls take the place of edges to node 0
            solved = circuit.hold((torch.arange(5) == 0)[:, None], 3.0)
        v = solved.solve(s)
        if kind == "currents":
            return (solved.currents(v).edges[0] * field(1, -2, 0, 3, 1, 4)).sum()
        if kind == "held":
            return (solved.currents(v).walls * field(0, 2, 3, 4, 5)).sum() + v[0, 1, 0]
        return (v * field(1, -2, 3, 0, 0)).abs().square().sum()

    base = field(1, 2, 5, 0, 0, 0)
    g = base.clone().to(dtype).requires_grad_()
    (gradient,) = torch.autograd.grad(loss(g), g)
    step = field(0, 0, 0, 1, 1, 1)
    right = rise(lambda g: loss(g.to(dtype)), base, step)
    assert abs((gradient.real * step).sum().item() - right) < 1e-6 * abs(right)
    assert abs(right) > 0.01


def test_cells_of_a_mesh_that_rise_together():
    """Triangles around nodes that conduct nothing; one of them alone has no such derivative,
    because its edges are those of its neighbours, too."""
    points = 6 * rings(6)
    points[10] += (0.2, 0.1)  # its edges have other weights than each other
    cells = Delaunay(points).simplices
    mesh = Mesh(points, cells, {"left": points[:, 0] < -4, "right": points[:, 0] > 4})
    inside, held = 10, points[:, 0] > 4
    void = torch.tensor([[inside in cell] for cell in cells])[None]
    base = torch.where(void, 0.0, 1.0).double()

    def through(k: Tensor) -> Tensor:
        circuit = mesh.diffusion(k, boundary={"left": Dirichlet(1.0), "right": Dirichlet(0.0)})
        v = circuit.solve(torch.zeros(1, len(points), 1, dtype=torch.float64))
        return circuit.currents(v).walls[:, torch.from_numpy(held)].sum()

    k = base.clone().requires_grad_()
    assert of_nodes(mesh.diffusion(k.detach(), boundary={"left": "dirichlet"}))[0, inside]
    (gradient,) = torch.autograd.grad(through(k), k)
    right = rise(through, base, void)
    assert abs(gradient[void].sum().item() - right) < 1e-5 * right
    assert gradient[void].min() >= 0


LABELS = torch.zeros(9, 8, dtype=torch.long)
LABELS[4:6, 3:5] = 1


def through_both_axes(k: Tensor) -> Tensor:
    """Conductivities along axes that rise together."""
    circuit = diffusion((k, k.clone()), (0.7, 1.3), boundary=PLATES)
    return circuit.currents(circuit.solve(torch.zeros_like(k))).walls[:, -1].sum()


def through_merged_cells(k: Tensor) -> Tensor:
    """Around an electrode of merged nodes, on cells that are longer than wide."""
    circuit, node = diffusion(k, (1.0, 2.5), boundary=PLATES).merge(LABELS)
    v = circuit.solve(torch.zeros(1, circuit.leak.shape[1], 1, dtype=torch.float64))
    return circuit.currents(v).walls[:, node[-1]].sum()


@pytest.mark.parametrize(
    ("loss", "grid"), [(through_both_axes, (5, 6)), (through_merged_cells, (9, 8))]
)
def test_solid_cells_have_the_derivatives_of_a_rise(loss, grid):
    k = image(*grid)
    x = k.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(x), x)
    apart = LABELS == 0 if loss is through_merged_cells else k[0, ..., 0] >= 0
    for at in ((k == 0) & apart[..., None]).nonzero().tolist():
        right = rise(loss, k, cell(k, at))
        assert abs(gradient[tuple(at)].item() - right) < min(1e-5, 1e-4 * (right + 0.01))


@pytest.mark.thorough
def test_exported_programs_know_no_operator_of_parts():
    class Flow(torch.nn.Module):
        def forward(self, k: Tensor) -> Tensor:
            return flow(k)

    k = image(4, 5)
    program = torch.export.export(Flow(), (k,)).run_decompositions(decompositions())
    assert not [x.target for x in program.graph.nodes if "chonn_ops" in str(x.target)]
    torch.testing.assert_close(program.module()(k), flow(k))


def test_circuits_with_rates_can_be_pickled():
    k = image(4, 4)
    for circuit in (diffusion(k, 1.0, boundary=PLATES), Circuit((k, k), k).hold(k > 0)):
        copy = pickle.loads(pickle.dumps(circuit))
        torch.testing.assert_close(copy._rates(), circuit._rates())
