"""Laws times discretisations times walls, held nodes and merged ones: each combination is right
beside elements that are counted one by one here, or a ValueError that says why."""

import itertools
import math
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad, grad

import chonn_ops
from chonn_ops import Circuit, Dirichlet, FiniteVolumes, Mesh, Neumann, Robin, diffusion, laws
from chonn_ops.network.discretise import grids


def cubic(a, d, k):
    return k * (d + a * d**3)


class Cubic(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.a = nn.Parameter(a)
        self.register_buffer("power", torch.tensor([3]))

    def forward(self, d, k):
        return k * (d + self.a * d**self.power)


def monotone(a):
    law = laws.Monotone(1, odd=False).double()
    law.weight = nn.Parameter(torch.cat([a, 0 * a]))
    return law


def learned(a, d, k):
    (linear, bent), shift = a.exp().log1p().split(1), math.tanh(-1)
    return k * (linear * d + bent * (torch.tanh(d - 1) - shift))


def forchheimer(a, d, k):
    return 2 * k * d / (1 + (1 + 4 * a * k * k * d.abs()).sqrt())


def threshold(a, d, k):
    """The root i of d = i / k + a i / sqrt(i^2 + 0.01), with two derivatives."""
    with torch.no_grad():
        low, high = -(k * d).abs(), (k * d).abs()
        for _ in range(100):
            i = (low + high) / 2
            above = i / k + a * i / (i * i + 0.01).sqrt() > d
            low, high = torch.where(above, low, i), torch.where(above, i, high)
        slope = 1 / k + a * 0.01 / (i * i + 0.01) ** 1.5
    for _ in range(2):
        i = i - (i / k + a * i / (i * i + 0.01).sqrt() - d) / slope
    return i


# Laws of a parameter; the same as functions; and whether they are odd, and in proportion to k.
LAWS = {
    "ohm": (lambda _: None, lambda _, d, k: k * d, True, True),
    "power": (lambda _: laws.Power(3.5), lambda _, d, k: k * d * d.abs() ** 1.5, True, True),
    "steep": (lambda _: laws.Power(1.5), lambda _, d, k: k * d / d.abs().sqrt(), True, True),
    "forchheimer": (laws.Forchheimer, forchheimer, True, False),
    "diode": (laws.Diode, lambda a, d, k: k * torch.expm1(d / a), False, True),
    "sinh": (laws.Sinh, lambda a, d, k: k * a * torch.sinh(d / a), True, True),
    "radiation": (lambda _: laws.Radiation(), lambda _, d, k: k * d * d.abs() ** 3, True, True),
    "threshold": (lambda a: laws.Threshold(a, 0.1), threshold, True, False),
    "monotone": (monotone, learned, False, True),
    "function": (lambda a: partial(cubic, a), cubic, True, True),
    "module": (Cubic, cubic, True, True),
}


class Net:
    """Elements, one by one, sources and cells; numbers of several networks are vectors."""

    def __init__(self, x, volumes=()):
        self.elements, self.held, self.mesh = [], {}, None
        self.k, self.c, self.source, self.fed = rows(x.k), rows(x.c), rows(x.f), []
        for p, size in enumerate(volumes):
            self.node(p, size)

    def node(self, p, size):
        self.add("leaks", p, None, self.c[p], 1.0, float(size))
        self.source[p] = self.source[p] * float(size)

    def add(self, kind, p, q, k, length=1.0, area=1.0, value=0.0):
        self.elements.append((kind, p, q, k, length, area, value))

    def wall(self, p, wall, k, distance, area, width=1.0, leak=0.0):
        if isinstance(wall, Robin) and wall.coefficient == math.inf:
            wall = Dirichlet(wall.value, wall.distance)
        if isinstance(wall, Dirichlet):
            self.add("edges", p, None, k, distance + wall.distance, area, wall.value)
        elif isinstance(wall, Robin):
            g = area / ((distance + wall.distance) / k + 1 / wall.coefficient)
            self.add("ohm", p, None, g, value=wall.value)
        elif isinstance(wall, Neumann):
            self.fed.append((p, wall.flux * area))
        else:  # an endless line
            g = k * area / width
            self.add("ohm", p, None, ((leak**2 + 4 * g * leak).sqrt() - leak) / 2)

    def residual(self, functions, v):
        """What elements carry out of each node less what comes in, (N, networks)."""
        like, known = torch.zeros_like(v[0]), {None, *self.held}
        out = torch.zeros_like(v)
        for p, current in [*enumerate(self.source), *self.fed]:
            out = out.index_add(0, torch.tensor([p]), -(current + like)[None])
        free = [e for e in self.elements if not known.issuperset(e[1:3])]
        for kind in sorted({e[0] for e in free}):
            _, p, q, *numbers = zip(*[e for e in free if e[0] == kind], strict=True)
            k, length, area, value = (torch.stack([x + like for x in y]) for y in numbers)
            ground = torch.tensor([x is None for x in q])[:, None]
            p, q = torch.tensor(p), torch.tensor([x or 0 for x in q])
            i = area * functions[kind]((v[p] - torch.where(ground, value, v[q])) / length, k)
            out = out.index_add(0, p, i).index_add(0, q, torch.where(ground, 0, -i))
        if self.mesh is not None:
            gradients, sizes, cells, k = self.mesh
            field = (gradients[..., None] * v[cells][:, :, None]).sum(1)  # (M, D, networks)
            length = field.square().sum(1).sqrt()
            flux = field * (functions["edges"](length, k) / length * sizes[:, None])[:, None]
            parts = (gradients[..., None] * flux[:, None]).sum(2)
            out = out.index_add(0, cells.flatten(), parts.flatten(0, 1))
        held = torch.tensor([p in self.held for p in range(len(v))])[:, None]
        value = torch.stack([self.held.get(p, 0.0) + like for p in range(len(v))])
        return torch.where(held, v - value, out)

    def solve(self, functions, start):
        """The root, with two derivatives: steps with one Jacobian gain an order each."""
        v, residual = start, partial(self.residual, functions)

        def step(v):
            jacobian = torch.func.jacrev(residual)(v).flatten(2).flatten(0, 1).detach()
            return lambda v: v - torch.linalg.solve(jacobian, residual(v).flatten()).view_as(v)

        for _ in range(3):
            v = step(v)(v).detach()
        chord = step(v)
        return chord(chord(v))


def rows(field):
    """A field (B, *grid, C) as a list of the numbers of all networks, node by node."""
    return list(field.double().flatten(1, -2).movedim(1, 0).flatten(1))


def grid(x, widths, faces, exists=None, inner=None, distances=((0.5, 0.5),) * 3, media=None):
    net, media = Net(x), [rows(k) for k in media or [x.k] * len(widths)]
    number = {cell: p for p, cell in enumerate(itertools.product(*(range(len(w)) for w in widths)))}
    for cell, p in number.items():
        if exists is not None and not exists[cell]:
            net.held[p] = 0.0
            continue
        sides = [widths[axis][i] for axis, i in enumerate(cell)]
        net.node(p, volume := math.prod(sides))
        for axis, (pair, k) in enumerate(zip(faces, media, strict=True)):
            width, area = sides[axis], volume / sides[axis]
            for way, wall, part in zip((-1, 1), pair, distances[axis], strict=True):
                there = [i + way * (other == axis) for other, i in enumerate(cell)]
                if wall == "periodic":
                    there[axis] %= len(widths[axis])
                q = number.get(tuple(there))
                if q is None:
                    net.wall(p, wall, k[p], part * width, area, width, net.c[p] * volume)
                elif exists is not None and not exists[tuple(there)]:
                    net.wall(p, inner, k[p], width / 2, area)
                elif way > 0:
                    far = widths[axis][there[axis]]
                    resistance = width / 2 / k[p] + far / 2 / k[q]
                    length = (width + far) / 2
                    net.add("edges", p, q, length / resistance, length, area)
    return net


def line(x):
    h, faces = [0.3, 0.2, 0.5, 0.1, 0.4, 0.7], ((Dirichlet(x.t), Robin(x.film, 0.5, 0.1)),)
    return diffusion(x.k, [h], boundary=faces, absorption=x.c), grid(x, [h], faces)


def plane(x):
    faces = (Dirichlet(x.t), Neumann(x.flux)), (Robin(x.film, 0.7), Dirichlet(-0.3, distance=0.2))
    circuit = diffusion(x.k, (0.4, 0.3), boundary=faces, absorption=x.c)
    return circuit, grid(x, [[0.4] * 3, [0.3] * 2], faces)


def ring(x):
    faces = (("periodic",) * 2, (chonn_ops.Matched(), Robin(math.inf, x.t, 0.1)))
    circuit = diffusion(x.k, (0.4, [0.3, 0.5]), boundary=("periodic", faces[1]), absorption=x.c)
    return circuit, grid(x, [[0.4] * 3, [0.3, 0.5]], faces)


def holes(x):
    exists = torch.tensor([[True, False], [True, True], [True, True]])
    faces, inner = ((Dirichlet(), Neumann()), (Neumann(), Robin(x.film))), Dirichlet(x.t)
    circuit = diffusion(x.k, 0.4, boundary=faces, absorption=x.c, mask=exists, inner=inner)
    return circuit, grid(x, [[0.4] * 3, [0.4] * 2], faces, exists, inner)


def volume(x):
    faces, media = ((Dirichlet(x.t), Robin(x.film)),) * 3, [x.k, 2 * x.k, x.k.square()]
    circuit = diffusion(media, 0.4, boundary=faces, absorption=x.c)
    return circuit, grid(x, [[0.4] * 3, [0.4], [0.4] * 2], faces, media=media)


def corners(x):
    faces, distances = ((Dirichlet(x.t), Robin(x.film)),) * 2, ((0.4, 1.0), (0.7, 0.3))
    k, leak = x.k.float() if x.k.dtype == torch.bfloat16 else x.k, 0.12 * x.c
    edges = grids.edges(k, [0.4, 0.3], [False] * 2)
    circuit = grids.circuit_of(k, edges, leak.to(k), [0.4, 0.3], faces, distances=distances)
    return circuit, grid(x, [[0.4] * 3, [0.3] * 2], faces, distances=distances)


def held(x):
    circuit, net = plane(x)
    net.held[3] = x.t
    return circuit.hold(torch.arange(6).reshape(3, 2, 1) == 3, x.t), net


POINTS = torch.tensor([[0, 0], [1, 0], [2, 0.1], [0.5, 0.9], [1.5, 0.85]]).double()
FLAT = torch.tensor([[0, 0], [1, 0], [2, 0.1], [0.5, 0.2], [1.5, 0.85]]).double()
LIFTED = torch.cat([POINTS, torch.tensor([[0.1], [0.7], [0.3], [0], [1]])], 1)
CELLS = torch.tensor([[0, 1, 3], [1, 4, 3], [1, 2, 4]])
TETRAHEDRA = torch.tensor([[0, 1, 3, 4], [1, 2, 3, 4]])
SIDES = {"left": [[0, 3]], "right": [[2, 4]]}
FACES = {"left": [[0, 1, 3]], "right": [[2, 3, 4]]}


def simplices(points, cells):
    """Gradients (M, d + 1, D) of linear functions, sizes of cells, and of their parts at nodes."""
    edges = (points[cells[:, 1:]] - points[cells[:, :1]]).mT
    others, d = torch.linalg.pinv(edges), edges.shape[-1]
    sizes = torch.linalg.det(edges.mT @ edges).sqrt() / math.factorial(d)
    parts = sizes[:, None].expand(cells.shape).flatten() / (d + 1)
    volumes = torch.zeros(len(points)).double().index_add(0, cells.flatten(), parts)
    return torch.cat([-others.sum(1, keepdim=True), others], 1), sizes, volumes


def along_edges(net, mean):
    """Edges of `POINTS` from the cotangents of opposite angles, with the mean k of their parts."""
    parts = {}
    for cell, corner in itertools.product(range(3), range(3)):
        p, q, far = CELLS[cell].roll(corner).tolist()
        a, b = POINTS[p] - POINTS[far], POINTS[q] - POINTS[far]
        part = float((a @ b) / (a[0] * b[1] - a[1] * b[0]).abs() / 2)
        parts.setdefault((min(p, q), max(p, q)), []).append((abs(part), part, mean(cell, p, q)))
    for (p, q), each in parts.items():
        area, weight = sum(x[0] for x in each), sum(x[1] for x in each)
        length = math.dist(POINTS[p], POINTS[q])
        net.add("edges", p, q, sum(a * k for a, _, k in each) / area, length, weight * length)


def mesh(x, points=POINTS, cells=CELLS, elements=True, sets=SIDES):
    gradients, sizes, volumes = simplices(points, cells)
    net = Net(x, volumes)
    if elements:
        net.mesh = gradients, sizes, cells, torch.stack(net.k)
    else:
        along_edges(net, lambda cell, *_: net.k[cell])
    (right,), (left,) = sets["right"], sets["left"]
    for p in right:
        area = simplices(points, torch.tensor([right]))[1].item() / len(right)
        net.wall(p, Robin(x.film, 0.3), 1.0, 0.0, area)
    net.held.update(dict.fromkeys(left, x.t))
    walls = {"left": Dirichlet(x.t), "right": Robin(x.film, 0.3)}
    return Mesh(points, cells, sets, elements).diffusion(x.k, boundary=walls, absorption=x.c), net


def volumes(x):
    """In another unit, with nodes at a wall of potential 0, and a film at other ones, which are a
    millionth of their volume over its area away from it."""
    domain = FiniteVolumes.from_cells(POINTS / 2, CELLS, sets=SIDES)
    sizes = simplices(POINTS, CELLS)[2].tolist()
    net, area = Net(x, sizes), math.dist(POINTS[2], POINTS[4]) / 2
    along_edges(net, lambda _, p, q: 2 / (1 / net.k[p] + 1 / net.k[q]))
    for p in (2, 4):
        net.wall(p, Robin(x.film, 0.3), net.k[p], 1e-6 * sizes[p] / area, area)
    net.held.update({0: 0.0, 3: 0.0})
    walls = {"left": "dirichlet", "right": Robin(x.film, 0.3)}
    return domain.circuit(x.k, x.c, walls, unit=2.0), net


def without_faces(x):
    domain = FiniteVolumes.from_cells(FLAT, CELLS, sets=SIDES)
    gradients, sizes, volumes = simplices(FLAT, CELLS)
    net = Net(x, volumes)
    net.mesh = gradients, sizes, CELLS, 1 / (1 / torch.stack(net.k)[CELLS]).mean(1)
    net.held.update({0: x.t, 3: x.t})
    return domain.circuit(x.k, x.c, {"left": Dirichlet(x.t)}), net


def of_raster(x):
    net = Net(x, [1] * 6)
    for p, q in itertools.combinations(range(6), 2):
        if (far := math.dist(divmod(p, 2), divmod(q, 2))) < 1.5:
            ends = (q, p) if (p, q) in ((1, 2), (3, 4)) else (p, q)  # as `lattice` has them
            net.add("edges", *ends, 2 / (net.k[p] + net.k[q]) / far)
    return chonn_ops.raster(x.k, leak=x.c.unflatten(1, (3, 2))), net


ENDS = [(1, 0), (1, 2), (3, 2), (0, 3), (2, 0)]


def graph(x):
    net = Net(x, [1] * 5)
    for (p, q), g in zip([*ENDS, (4, 1)], net.k, strict=True):
        net.add("edges", p, q, g)
    net.held[3] = x.t
    circuit = Circuit(x.k, x.c, chonn_ops.Graph([*ENDS, (4, 1)], 5))
    return circuit.hold(torch.arange(5)[:, None] == 3, x.t), net


def merged(x, make, labels):
    """Nodes of one label become one."""
    circuit, net = make(x)
    circuit, node = circuit.merge(torch.tensor(labels))
    at = dict(enumerate(node.flatten().tolist())) | {None: None}
    ends = [(kind, at[p], at[q], *rest) for kind, p, q, *rest in net.elements]
    net.elements = [e for e in ends if e[1] != e[2]]
    net.held = {at[p]: value for p, value in net.held.items()}
    total = circuit.leak.new_zeros(x.f.shape[0], circuit.leak.shape[1], x.f.shape[-1])
    fed = torch.stack(net.source).unflatten(1, (len(total), -1)).movedim(0, 1)
    net.fed, net.source = [(at[p], i) for p, i in [*net.fed, *enumerate(net.source)]], []
    return circuit, net, total.to(fed).index_add(1, node.flatten(), fed)


def given(circuit, x, sizes):
    """Edges and walls as `circuit` has them: its law has to be Ohm's."""
    given = circuit.before or circuit
    net, layout = Net(x, sizes), given.layout
    net.elements += [
        ("ohm", p, q, g, 1.0, 1.0, 0.0)
        for (p, q), g in zip(layout.ends.T.tolist(), rows(given.conductance[0]), strict=True)
    ]
    for p, (g, i) in enumerate(zip(rows(given.wall), rows(given.current), strict=True)):
        net.add("ohm", p, None, g)
        net.fed.append((p, i))
    return circuit, net


def tensors(x):
    k = x.k[..., None, None] * torch.tensor([[2, 0.5], [0.5, 1]], dtype=x.k.dtype)
    circuit = diffusion(k, 0.4, boundary=Dirichlet(x.t), absorption=x.c.unflatten(1, (3, 2)))
    return given(circuit, x, [0.4 * 0.4] * 6)


def away(x):
    faces = [0, 4], [1.0, 2.0], [0.5, 0.5]
    ends, places = [(0, 1), (1, 2), (2, 3), (3, 4)], torch.arange(5)[:, None]
    domain = FiniteVolumes(ends, [1.0] * 4, [0.5] * 5, places, faces)
    return given(domain.circuit(x.k, x.c, Dirichlet(x.t)), x, [0.5] * 5)


def far(x):
    walls = {"left": Dirichlet(x.t, distance=0.3), "right": Robin(x.film)}
    circuit = Mesh(POINTS, CELLS, SIDES).diffusion(x.k, boundary=walls, absorption=x.c)
    return given(circuit, x, simplices(POINTS, CELLS)[2])


# Shapes of conductivities and of nodes, and whether edges have no law but Ohm's.
GRID, OF_NODES, OF_CELLS = ((3, 2), (3, 2)), ((5,), (5,)), ((3,), (5,))
CASES = {
    "line": (line, (6,), (6,), False),
    "plane": (plane, *GRID, False),
    "ring": (ring, *GRID, False),
    "holes": (holes, *GRID, False),
    "volume": (volume, (3, 1, 2), (3, 1, 2), False),
    "corners": (corners, *GRID, False),
    "held": (held, *GRID, False),
    "raster": (of_raster, (3, 2), (6,), False),
    "tensors": (tensors, (3, 2), (6,), True),
    "mesh": (partial(mesh, elements=False), *OF_CELLS, False),
    "mesh with far walls": (far, *OF_CELLS, True),
    "elements": (mesh, *OF_CELLS, False),
    "surface": (partial(mesh, points=LIFTED), *OF_CELLS, False),
    "tetrahedra": (partial(mesh, points=LIFTED, cells=TETRAHEDRA, sets=FACES), (2,), (5,), False),
    "volumes": (volumes, *OF_NODES, False),
    "volumes without faces": (without_faces, *OF_NODES, False),
    "volumes with far walls": (away, *OF_NODES, True),
    "graph": (graph, (6,), (5,), False),
    "merged graph": (partial(merged, make=graph, labels=[1, 0, 1, 0, 0]), (6,), (5,), False),
    "merged plane": (partial(merged, make=plane, labels=[[0, 1], [0, 1], [0, 0]]), *GRID, True),
}
NAMES = list(LAWS)
PAIRS = [(name, NAMES[(i + 3) % len(NAMES)]) for i, name in enumerate(NAMES)]


def inputs(case, dtype=torch.float64, leaks=""):
    _, cells, nodes, _ = CASES[case]
    B, C = (1, 2) if "ring" in case else (2, 1)
    torch.manual_seed(0)
    diode = leaks == "diode"  # whose saturation current is far below what walls conduct
    numbers = {
        "k": torch.rand(B, *cells, C) + 0.5,
        "c": (torch.rand(B, *nodes, C) + 0.5) * (1e-13 if diode else 1),
        "f": 3 * torch.rand(B, *nodes, C) + 1,
        "edges": torch.tensor([0.6]),
        "leaks": torch.tensor([0.03 if diode else 0.6]),
        "t": torch.tensor(0.4),
        "flux": torch.tensor(0.3),
        "film": torch.tensor(1.5),
    }
    return {name: x.to(dtype).double().requires_grad_() for name, x in numbers.items()}


def solved(case, names, values, dtype=torch.float64, own=None):
    """Our potentials, and what makes those of elements one by one."""
    x = SimpleNamespace(**{name: value.to(dtype) for name, value in values.items()})
    circuit, _, *source = CASES[case][0](x)
    pair = zip(names, ("edges", "leaks"), strict=True)
    own = own or [LAWS[name][0](values[at]) for name, at in pair]
    for law, at in zip(own, ("edges", "leaks"), strict=True):
        if isinstance(law, nn.Module):  # whose first tensor is a leaf
            values[at] = next(iter(law.parameters()))
    v = chonn_ops.NonlinearCircuit(circuit, *own).solve(*source or [x.f], tol=1e-13)

    def truth(values):
        net = CASES[case][0](SimpleNamespace(**values))[1]
        functions = {"ohm": lambda d, k: k * d}
        for name, at in zip(names, ("edges", "leaks"), strict=True):
            functions[at] = partial(LAWS[name][1], values[at])
        return net.solve(functions, torch.stack(rows(v.detach())))

    return torch.stack(rows(v)), truth


def gradients(y, leaves):
    options = {"create_graph": True, "allow_unused": True, "materialize_grads": True}
    return grad(y, leaves, **options)


def refused(case, edges, leaks):
    alone = "merged" in case and not (all(LAWS[edges][2:]) and LAWS[leaks][3])
    return alone or (CASES[case][3] and edges != "ohm")


def same(ours, theirs, names, rtol, atol):
    for name, a, b in zip(names, ours, theirs, strict=True):
        close = torch.allclose(a, b, rtol, atol * b.abs().max().item() + 1e-9)
        assert close, f"derivative with {name}: {a} beside {b}"


@pytest.mark.parametrize("names", [*PAIRS, ("ohm", "power")], ids="-".join)
@pytest.mark.parametrize("case", CASES)
def test_each_law_is_right_or_refused(case, names):
    """Potentials, gradients, a Hessian's product, and forward mode, entry by entry."""
    values = inputs(case, leaks=names[1])
    if refused(case, *names):
        with pytest.raises(ValueError, match=r"edges: expected the law of Ohm|law: expected odd"):
            solved(case, names, values)
        return
    v, truth = solved(case, names, values)
    exact = truth(values)
    torch.testing.assert_close(v, exact.detach(), rtol=1e-9, atol=1e-11)
    w, u = torch.randn_like(v), torch.zeros_like(v, requires_grad=True)
    along = [torch.randn_like(x) * x.detach() for x in values.values()]
    leaves = list(values.values())

    def directed(y):
        """Gradients, and their sum along a direction."""
        each = gradients(y, leaves)
        return each, sum((a * b).sum() for a, b in zip(each, along, strict=True))

    (first, total), (truths, sums) = (directed((w * y.square()).sum()) for y in (v, exact))
    same(first, truths, values, 1e-6, 1e-7)
    same(*(gradients(y, leaves) for y in (total, sums)), values, 1e-6, 1e-7)
    if any(
        values[at].is_leaf and isinstance(values[at], nn.Parameter) for at in ("edges", "leaks")
    ):
        return  # parameters of modules have no tangents
    with forward_ad.dual_level():
        pairs = zip(values, leaves, along, strict=True)
        duals = {name: forward_ad.make_dual(x.detach(), b) for name, x, b in pairs}
        forth = forward_ad.unpack_dual(solved(case, names, duals)[0]).tangent
    (tangent,) = gradients(directed((exact * u).sum())[1], [u])
    same([forth], [tangent], ["forward mode"], 1e-6, 1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_narrow_numbers_are_those_of_wide_ones(case, dtype):
    """Up to the rounding of potentials and of conductances, which diodes do not lose at walls."""
    names = ("ohm" if CASES[case][3] else "sinh", "diode")
    values = inputs(case, dtype, "diode")
    v, truth = solved(case, names, values, dtype)
    eps = 10 * torch.finfo(dtype).eps
    exact = truth(values)
    torch.testing.assert_close(v, exact, rtol=eps, atol=eps)
    ours, theirs = (gradients(y.square().sum(), [*values.values()]) for y in (v, exact))
    same(ours, theirs, values, 100 * eps, 10 * eps)


CONDUCTING = ("raster", "volumes", "volumes without faces", "ring")  # where k or c is above 0


@pytest.mark.parametrize("zero", ["k", "film"])
@pytest.mark.parametrize("case", [x for x in CASES if not CASES[x][3] and x not in CONDUCTING])
def test_what_conducts_nothing_has_the_derivatives_of_what_conducts_little(case, zero):
    """With one object as the law of edges and leaks."""
    names, least = ("sinh", "sinh"), 1e-12
    zeros, values = inputs(case), inputs(case)
    for x, number in ((zeros, 0.0), (values, least)):
        for field in (x[zero].data.view(-1)[:1], x["c"].data.view(-1)[-1:]):
            field.fill_(number)
        x["leaks"].data.fill_(3.0)
    zeros["edges"] = values["edges"] = zeros["leaks"] = values["leaks"]
    law = laws.Sinh(zeros["leaks"])
    v, _ = solved(case, names, zeros, own=[law, law])
    exact = solved(case, names, values)[1](values)
    torch.testing.assert_close(v, exact, rtol=1e-7, atol=1e-7)
    pairs = (v, zeros), (exact, values)
    ours, theirs = (gradients(y.square().sum(), [*x.values()]) for y, x in pairs)
    same(ours, theirs, zeros, 1e-5, 1e-6)


def refusals():
    """Circuits, laws of edges, and what errors say."""
    x, one, ohm = SimpleNamespace(**inputs("plane")), torch.ones(1, 5, 1), "edges: expected the law"
    yield diffusion(x.k, boundary="dirichlet"), laws.Forchheimer(x.k.detach()), "law: .* elements"
    films = Robin(torch.tensor([0.0, math.inf, 1.0]).reshape(1, 3, 1, 1))
    yield diffusion(x.k, boundary=("neumann", films)), laws.Power(3), "Robin.coefficient"
    flat, domain = (FiniteVolumes.from_cells(points, CELLS) for points in (FLAT, POINTS))
    yield flat.circuit(one, boundary="dirichlet", unit=3.0), laws.Power(3), ohm
    yield domain.circuit(one, boundary=Robin(math.inf * one)), laws.Power(3), ohm


def test_laws_of_other_elements_are_refused():
    for circuit, law, message in refusals():
        with pytest.raises(ValueError, match=message):
            chonn_ops.NonlinearCircuit(circuit, law).solve(torch.ones_like(circuit.leak))
    k = torch.ones(1, 3, 1)
    circuit = diffusion(k, boundary="dirichlet")

    def holding(a):
        return chonn_ops.NonlinearCircuit(circuit, lambda d, k: cubic(a, d, k)).solve(k)

    for transform in (torch.func.jacrev, torch.func.jacfwd):
        with pytest.raises(ValueError, match="law: expected tensors that need a gradient"):
            transform(holding)(k[0, 0])
    with pytest.raises(TypeError, match="circuit: expected a Circuit, got NonlinearCircuit"):
        chonn_ops.rc_step(k, chonn_ops.NonlinearCircuit(circuit), 1.0, 1.0)
