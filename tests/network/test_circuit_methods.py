"""All methods of circuits, against the same networks as dense matrices: on grids and graphs, real
and complex, with one source and several, as they are, with held nodes and with merged ones."""

import copy
import math

import pytest
import torch
from network_cases import GRAPH, edges_of, matrix

from chonn_ops import Circuit, Dirichlet, FiniteVolumes, Grid, Mesh

DOUBLE = torch.float64
B, C, S = 2, 2, 3


def numbers(*shape, seed=0, dtype=DOUBLE):
    made = torch.Generator().manual_seed(seed)
    parts = torch.rand(2, *shape, generator=made, dtype=DOUBLE) + 0.1
    return (torch.complex(*parts) if dtype.is_complex else parts[0]).to(dtype)


def circuit_of(kind, dtype):
    """A circuit with walls of other potentials than 0, and cells of other volumes than 1."""
    if kind == "graph":
        grid, g, layout = (7,), numbers(B, 9, C, seed=1, dtype=dtype), GRAPH
    else:
        grid = {"line": (7, 1), "plane": (3, 4), "torus": (3, 4)}[kind]
        g = [numbers(B, *grid, C, seed=i, dtype=dtype) for i in range(2)]
        layout = Grid(grid, kind == "torus")
    shape = (B, *grid, C)
    wall = 0.2 * numbers(*shape, seed=3, dtype=dtype) * (numbers(*shape, seed=4) < 0.5)
    leak, volume = wall + 0.1 * numbers(*shape, seed=5, dtype=dtype), numbers(*shape, seed=6)
    return Circuit(g, leak, layout, wall=wall, current=1.5 * wall, volume=volume)


def free(circuit):
    return circuit.before or circuit


class Dense:
    """Network (b, c) of a circuit as a matrix, with what is held eliminated from it."""

    def __init__(self, circuit, b, c):
        whole = free(circuit)
        _, *grid, channels = whole.leak.shape
        self.A = A = matrix(whole.conductance, whole.leak, whole.layout)[b * channels + c]
        self.leak = whole.leak[b, ..., c].flatten().to(A.dtype)
        # For each axis: both nodes of its edges, their entries and conductances.
        ends = zip(edges_of(whole.layout, grid), whole.conductance, strict=True)
        self.edges = [(*x, g[b, ..., c].flatten()[x[2]].to(A.dtype)) for x, g in ends]
        held = circuit.held
        n = len(self.leak)
        self.held = torch.zeros(n, dtype=torch.bool) if held is None else held[b, ..., c].flatten()
        self.inverse, f = torch.zeros_like(A), ~self.held
        self.inverse[f[:, None] & f] = torch.linalg.inv(A[f][:, f]).flatten()
        self.logdet = A[f][:, f].logdet()

    def solve(self, fed, value):
        """Potentials for currents and what is held (n, S)."""
        x = torch.where(self.held[:, None], value, 0).to(
            torch.promote_types(value.dtype, fed.dtype)
        )
        rest = self.A.to(x.dtype) @ x
        return x + self.inverse.to(x.dtype) @ (fed - rest)


def columns(field, b, c, several):
    """A field's values in network (b, c), (n, S)."""
    return (field if several else field[:, None])[b, ..., c].flatten(1).T


def nodes_of(circuit, seed=70):
    """Nodes to be held, others in each network; none of those that `labels_of` joins."""
    return (numbers(*circuit.leak.shape, seed=seed) < 0.4) & (labels_of(circuit)[..., None] == 0)


def labels_of(circuit):
    grid = circuit.leak.shape[1:-1]
    labels = torch.zeros(math.prod(grid), dtype=torch.long)
    labels[[0, 1, 3]] = 4
    return labels.reshape(grid)


def values_of(circuit, dtype=None):
    return numbers(*circuit.leak.shape, seed=8, dtype=dtype or circuit.leak.dtype)


def plain(circuit, dtype=None):
    return circuit, values_of(circuit, dtype)


def held(circuit, dtype=None):
    return circuit.hold(nodes_of(circuit), values_of(circuit, dtype)), values_of(circuit, dtype)


def held_twice(circuit, dtype=None):
    nodes, value = nodes_of(circuit), values_of(circuit, dtype)
    return circuit.hold(nodes_of(circuit, 71), 0.7).hold(nodes, value), value.where(nodes, 0.7)


def merged(circuit, dtype=None):
    return plain(circuit.merge(labels_of(circuit))[0], dtype)


def merged_and_held(circuit, dtype=None):
    return held(circuit.merge(labels_of(circuit))[0], dtype)


def held_and_merged(circuit, dtype=None):
    circuit, value = held(circuit, dtype)
    circuit, node = circuit.merge(labels_of(circuit))
    new = torch.zeros_like(circuit.leak, dtype=value.dtype)
    return circuit, new.index_copy(1, node.flatten(), value.flatten(1, -2))


KINDS = ("line", "plane", "torus", "graph")
DTYPES = (torch.float64, torch.complex128, torch.float32, torch.complex64)
HISTORIES = (plain, held, held_twice, merged, merged_and_held, held_and_merged)
NARROW = {torch.float32, torch.complex64}
EACH_HISTORY = pytest.mark.parametrize("history", HISTORIES)
EACH_KIND = pytest.mark.parametrize("kind", KINDS)


def within(dtype):
    return {"rtol": 2e-4, "atol": 2e-5} if dtype in NARROW else {"rtol": 1e-9, "atol": 1e-11}


@EACH_HISTORY
@EACH_KIND
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("fed", [DOUBLE, torch.complex128], ids=str)
def test_potentials_and_currents(history, kind, dtype, several, fed):
    """Currents and what nodes are held at may be complex where the circuit is real."""
    circuit, value = history(circuit_of(kind, dtype), torch.promote_types(dtype, fed))
    tol = within(dtype)
    shape = circuit.leak.shape
    f = numbers(B, S, *shape[1:], seed=9, dtype=fed) - 0.5
    f = f if several else f[:, 0]
    v = circuit.solve(f)
    torch.testing.assert_close(circuit.factorize().solve(f), v, **tol)
    edges, walls = circuit.currents(v)
    real = not (dtype.is_complex or fed.is_complex)
    if real:
        through = circuit.node_currents(v)
    else:
        with pytest.raises(ValueError, match=r"real potentials of a real circuit \(`currents`"):
            circuit.node_currents(v)
    assert walls.shape == v.shape
    whole = free(circuit)
    current, wall = whole.source(f), torch.zeros_like(v) if whole.wall is None else whole.wall
    for b, c in ((0, 0), (1, 1)):
        dense = Dense(circuit, b, c)
        through_walls = columns(whole.source(0 * f), b, c, several)
        x = dense.solve(columns(current, b, c, several), columns(value, b, c, False))
        torch.testing.assert_close(columns(v, b, c, several), x.to(v.dtype), **tol)
        net = through_walls - dense.leak[:, None] * x
        size = net.abs()
        for axis, (p, q, entry, g) in enumerate(dense.edges):
            along, flow = columns(edges[axis], b, c, several)[entry], g[:, None] * (x[p] - x[q])
            torch.testing.assert_close(along, flow.to(along.dtype), **tol)
            net = net.index_add(0, p, -flow).index_add(0, q, flow)
            size = size.index_add(0, p, flow.abs()).index_add(0, q, flow.abs())
        # What reaches a held node through edges and its own walls goes into what holds it.
        out = columns(wall, b, c, wall.dim() == f.dim() and several) * x - through_walls
        out = torch.where(dense.held[:, None], net + out, out)
        torch.testing.assert_close(columns(walls, b, c, several), out.to(walls.dtype), **tol)
        if real:
            half = (size + net.abs()) / 2
            torch.testing.assert_close(columns(through, b, c, several), half, **tol)


@EACH_HISTORY
@EACH_KIND
@pytest.mark.parametrize("dtype", [DOUBLE, torch.complex128], ids=str)
def test_inverses_determinants_and_samples(history, kind, dtype):
    """A held node has no variance; the others have those of the conditioned field."""
    circuit, _ = history(circuit_of(kind, dtype))
    factor, tol = circuit.factorize(), within(dtype)
    grid = circuit.leak.shape[1:-1]
    n = math.prod(grid)
    unit = torch.eye(n, dtype=DOUBLE).reshape(1, n, *grid, 1).expand(B, -1, *grid, C)
    diagonal, logdet = factor.diagonal_of_inverse(), factor.logdet()
    if dtype.is_complex:
        with pytest.raises(ValueError, match="real networks to sample from"):
            factor.sample(unit)
    for b, c in ((0, 0), (1, 1)):
        dense = Dense(circuit, b, c)
        found = diagonal[b, ..., c].flatten()
        torch.testing.assert_close(found, dense.inverse.diagonal(), **tol)
        turns = (logdet[b, c] - dense.logdet) / (2j * math.pi)  # complex ones have branches
        torch.testing.assert_close(turns, turns.real.round().to(turns.dtype), **tol)
        if not dtype.is_complex:
            root = factor.sample(unit)[b, ..., c].flatten(1)
            torch.testing.assert_close(root.T @ root, dense.inverse, **tol)


@EACH_HISTORY
@EACH_KIND
@pytest.mark.parametrize("gradient", [False, True])
def test_resistances(history, kind, gradient):
    circuit, _ = history(circuit_of(kind, DOUBLE))
    for g in circuit.conductance:
        g.requires_grad_(gradient)
    n = math.prod(circuit.leak.shape[1:-1])
    fixed = torch.zeros(n, dtype=torch.bool)
    if circuit.held is not None:
        fixed = circuit.held.flatten(1, -2).any(0).any(-1)
    pairs = torch.combinations((~fixed).nonzero()[:, 0])
    p, q = pairs.T
    found = circuit.resistance(pairs)
    for b, c in ((0, 0), (1, 1)):
        Z = Dense(circuit, b, c).inverse
        torch.testing.assert_close(found[b, :, c], Z[p, p] + Z[q, q] - Z[p, q] - Z[q, p])
    assert found.requires_grad == gradient
    for node in fixed.nonzero()[:, 0].tolist():
        with pytest.raises(ValueError, match=rf"not held .*before `hold`\), got \[{node}\]"):
            circuit.resistance(torch.tensor([(0, node), tuple(pairs[0])]))
    with pytest.raises(ValueError, match="real networks"):
        history(circuit_of(kind, torch.complex128))[0].resistance(pairs)


@EACH_KIND
@pytest.mark.parametrize("dtype", [DOUBLE, torch.complex128], ids=str)
def test_each_source_may_have_potentials_of_its_own(kind, dtype):
    """Held nodes at 1 in turn: a matrix of conductances between electrodes, by one elimination."""
    circuit = circuit_of(kind, dtype)
    nodes, shape = nodes_of(circuit), (B, S, *circuit.leak.shape[1:])
    value, f = (numbers(*shape, seed=i, dtype=dtype) for i in (20, 21))
    held = circuit.hold(nodes_of(circuit, 71), 0.7).hold(nodes, value)
    v = held.solve(f)
    torch.testing.assert_close(held.factorize().solve(f), v)
    merged, node = held.merge(labels_of(circuit))
    current = merged.before.source(torch.zeros(B, S, *merged.leak.shape[1:], dtype=dtype))
    again = merged.solve(current)
    walls = held.currents(v).walls
    alone = [circuit.hold(nodes_of(circuit, 71), 0.7).hold(nodes, x) for x in value.unbind(1)]
    for i, one in enumerate(alone):
        torch.testing.assert_close(v[:, i], one.solve(f[:, i]))
        torch.testing.assert_close(walls[:, i], one.currents(v[:, i]).walls)
        joined = one.merge(labels_of(circuit))[0].solve(current[:, i])
        torch.testing.assert_close(again[:, i], joined)
    assert torch.equal(node, alone[0].merge(labels_of(circuit))[1])
    for solve in (held.solve, held.factorize().solve):
        for source in (f[:, 0], f[:, :2]):
            with pytest.raises(ValueError, match=r"source: expected shape \(B, S, \*grid, C\) ="):
                solve(source)


@EACH_KIND
@pytest.mark.parametrize("dtype", [DOUBLE, torch.complex128], ids=str)
def test_merged_nodes_are_one(kind, dtype):
    """Edges between them are none; what else is at them is added."""
    circuit = circuit_of(kind, dtype)
    labels = labels_of(circuit)
    labels.view(-1)[[5, 6]] = 2
    merged, node = circuit.merge(labels)
    count, n = merged.layout.num_nodes, labels.numel()
    assert node.shape == labels.shape
    join = torch.zeros(count, n, dtype=dtype)
    join[node.flatten(), torch.arange(n)] = 1
    assert sorted(join.real.sum(1).tolist()) == [1.0] * (count - 2) + [2.0, 3.0]
    for region in (2, 4):
        assert len(node[labels == region].unique()) == 1
    a, b = (matrix(x.conductance, x.leak, x.layout) for x in (circuit, merged))
    torch.testing.assert_close(b, join @ a @ join.T)
    f = numbers(B, count, C, seed=9, dtype=dtype)
    walls = circuit.source(torch.zeros_like(circuit.leak)).flatten(1, -2)
    torch.testing.assert_close(merged.source(f), f + join @ walls)


def test_copies_know_what_is_held_and_potentials_have_the_dtype_of_sources():
    circuit, _ = held(circuit_of("plane", DOUBLE))
    factor = copy.deepcopy(circuit.factorize())
    f = numbers(*circuit.leak.shape, seed=9)
    torch.testing.assert_close(factor.solve(f), circuit.solve(f))
    assert torch.equal(copy.deepcopy(circuit).currents(f).walls, circuit.currents(f).walls)
    for dtype in (torch.complex64, torch.bfloat16, torch.float16):
        assert factor.solve(f.to(dtype)).dtype == circuit.solve(f.to(dtype)).dtype == dtype


SQUARE = [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0), (0.5, 0.5)]
TRIANGLES = [(0, 1, 4), (1, 2, 4), (2, 3, 4), (3, 0, 4)]


def test_meshes_with_losses_at_a_frequency_may_be_held():
    sides = {"left": [0, 3], "right": [1, 2]}
    volumes = FiniteVolumes.from_cells(SQUARE, TRIANGLES, sets=sides)
    ones = torch.ones(1, 5, 1, dtype=DOUBLE)
    circuit = volumes.circuit(
        ones, (0.3 - 2j) * ones, {"left": Dirichlet(1.0), "right": "dirichlet"}
    )
    v = circuit.solve(0 * ones)
    dense = Dense(circuit, 0, 0)
    x = dense.solve(torch.zeros(5, 1, dtype=torch.complex128), torch.ones(5, 1, dtype=DOUBLE))
    torch.testing.assert_close(v[0], x)
    mesh = Mesh(SQUARE, TRIANGLES, sides)
    plates = {"left": Dirichlet(1.0), "right": Dirichlet(2.0)}
    v = volumes.circuit(ones, (0.3 - 2j) * ones, plates).solve(0 * ones)
    waves = mesh.diffusion(ones[:, :4], absorption=(0.3 - 2j) * ones, boundary=plates)
    torch.testing.assert_close(waves.solve(0 * ones), v)
