"""`diffusion`: the finite volumes that a circuit is made of, their walls, and what they hold."""

import itertools
import math

import numpy as np
import pytest
import torch
from manufactured import manufactured, orders, plain, tensor, wall
from network_cases import edge_conductance, matrix_of, solve_helmholtz, uniform, wall_leak
from scipy.sparse.linalg import spsolve

from chonn_ops import (
    Direct,
    Dirichlet,
    LCState,
    Matched,
    Network,
    NetworkCell,
    Neumann,
    Periodic,
    Robin,
    diffusion,
    lc_step,
    rc_step,
)
from chonn_ops.boundary import conditions
from chonn_ops.inverse.domain import domain_of
from chonn_ops.inverse.experiment import Experiment, weights_of
from chonn_ops.nn.network_cell import WALL_GAIN

DOUBLE = torch.float64
CPU = torch.device("cpu")


def noise(grid, contrast, seed=0):
    """Two phases at random, 1 and `contrast`."""
    return torch.where(
        uniform(1, *grid, 1, seed=seed) < 0.5, torch.ones((), dtype=DOUBLE), contrast
    )


VALUES = {
    "dirichlet": (("dirichlet", 0.0, 0.0), Dirichlet()),
    "held": (("dirichlet", 2.0, 0.3), Dirichlet(2.0, distance=0.3)),
    "neumann": (("neumann", 0.0), Neumann()),
    "flux": (("neumann", -1.5), Neumann(-1.5)),
    "film": (("robin", 0.7, 3.0, 0.0), Robin(0.7, 3.0)),
    "far film": (("robin", 0.7, 3.0, 0.3), Robin(0.7, 3.0, 0.3)),
    "periodic": (("periodic",), Periodic()),
}
PAIRS = [
    ("dirichlet", "neumann"),
    ("held", "flux"),
    ("film", "held"),
    ("far film", "film"),
    ("periodic", "periodic"),
    ("flux", "film"),
]


def assert_scheme(circuit, source, expected, right, inside):
    """That a circuit is this matrix and right side; nodes that do not exist conduct nothing."""
    among = expected.toarray() * np.outer(inside, inside)
    np.testing.assert_allclose(matrix_of(circuit), among, rtol=1e-12, atol=1e-300)
    close = {"rtol": 1e-12, "atol": 1e-15 * np.abs(right).max()}
    np.testing.assert_allclose(source.flatten().numpy(), right, **close)


@pytest.mark.parametrize("contrast", [0.0, 1e-6, 1e2, 1e6, "axes"])
@pytest.mark.parametrize("start", range(len(PAIRS)))
@pytest.mark.parametrize(
    ("grid", "spacing"),
    [
        ((9,), (0.5,)),
        ((1, 4), (0.5, 0.3)),
        ((6, 5), (0.2, 1.5)),
        ((6, 5), (0.2, np.array([0.3, 3.0, 0.1, 0.1, 0.7]))),
        ((4, 3, 5), (1.0, 0.5, 2.0)),
        ((4, 3, 5), ([1.0, 0.2, 0.5, 3.0], torch.tensor([0.5, 0.1, 0.1]), 2.0)),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("masked", "arithmetic"), [("", 0.0), ("film", 1.0), ("held", 0.3), ("flux", 0.0)]
)
def test_the_scheme_is_the_plain_one(grid, spacing, start, contrast, masked, arithmetic):
    """Each matrix, right side and solution, for every condition at every face of every axis, in
    media of one conductivity and in those of one an axis."""
    f, c = uniform(1, *grid, 1, seed=1) - 0.5, uniform(1, *grid, 1)
    if contrast == "axes":
        media = [noise(grid, 1e3, seed=i) * (1 + c) for i in range(len(grid))]
    else:
        media = [noise(grid, contrast)]
    mask = uniform(*grid, seed=5) > 0.2 if masked else None
    pairs = [PAIRS[(start + axis) % len(PAIRS)] for axis in range(len(grid))]
    plain_inner, inner = VALUES[masked] if masked else (None, None)
    # Nothing flows into a cell that conducts nothing.
    if contrast == 0:
        media = [torch.where((uniform(*grid) < 0.5)[None, ..., None] & (c > 0.1), 0, media[0] + 1)]
        pairs = [tuple("film" if word == "flux" else word for word in pair) for pair in pairs]
        if masked == "flux":
            plain_inner, inner = VALUES["neumann"]
    k = media if contrast == "axes" else media[0]
    expected, right = plain(
        [x[0, ..., 0].numpy() for x in media] if contrast == "axes" else k[0, ..., 0].numpy(),
        spacing, [[VALUES[word][0] for word in pair] for pair in pairs],
        *(x[0, ..., 0].numpy() for x in (c, f)),
        None if mask is None else mask.numpy(), [[plain_inner] * 2] * len(grid), arithmetic,
    )  # fmt: skip
    boundary = [tuple(VALUES[word][1] for word in pair) for pair in pairs]
    circuit = diffusion(
        k, spacing, boundary=boundary, absorption=c, mask=mask, inner=inner, arithmetic=arithmetic
    )
    source = circuit.source(f if mask is None else f * mask[None, ..., None])
    inside = np.ones(math.prod(grid), bool) if mask is None else mask.numpy().flatten()
    assert_scheme(circuit, source, expected, right, inside)
    for v in (circuit.solve(f, solver=Direct()), circuit.factorize().solve(f)):
        v = v.flatten().numpy()
        left = np.abs(expected @ v - right)
        assert (left <= 1e-14 * (abs(expected) @ np.abs(v) + np.abs(right))).all()
        # `spsolve` itself loses seven digits at the largest contrasts.
        error = np.abs(v - spsolve(expected, right)).max() / np.abs(v).max()
        assert error <= (1e-12 if contrast == 1e2 else 1e-6)


def circuit_of_a_cell(boundary, k, h, mask):
    """What a cell makes of a medium, with harmonic means; its unit of length is a sixteenth."""
    cell = NetworkCell(1, 2, Network(1), boundary=boundary).double()
    cell.mean_param.data.fill_(-1e3)
    if cell.wall_param is not None:
        cell.wall_param.data.fill_(math.log(0.7) / WALL_GAIN)
    nothing = torch.zeros_like(k)
    cell.coefficients = lambda u: (k, nothing, u)
    return cell.assemble(nothing, h, mask)[0]


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("boundary", ["dirichlet", "neumann", "robin", "periodic"])
def test_operators_cells_waves_and_inverse_problems_have_the_same_walls(boundary, holes):
    """The same medium through all of them: edges and leaks, and the same potentials."""
    grid, h = (6, 7), 1 / 16
    k, f, mask = noise(grid, 1e4), uniform(1, *grid, 1), None
    if holes:
        mask = torch.ones(grid, dtype=torch.bool)
        mask[2:4, 3] = mask[0, 0] = mask[5, 3] = mask[1, 6] = False
        f = torch.where(mask[None, ..., None], f, 0)
    condition = Dirichlet(distance=0.7) if boundary == "robin" else boundary
    inner = None if mask is None else ("neumann" if boundary == "periodic" else condition)
    circuit = diffusion(k, 1.0, boundary=condition, mask=mask, inner=inner)
    found = circuit_of_a_cell(boundary, k, h, mask)
    torch.testing.assert_close(found.leak, circuit.leak, rtol=1e-12, atol=0)
    edges = [found.layout.entries(x.conductance) for x in (found, circuit)]
    torch.testing.assert_close(*edges, rtol=1e-12, atol=0)
    if boundary == "robin":  # which only cells have
        return
    # On a plane conductances do not depend on the unit of length.
    domain = domain_of(grid, h, mask, boundary, CPU)
    source, difference = torch.zeros(1, *grid, dtype=DOUBLE), torch.zeros(1, *grid)
    difference[0, 1, 1], difference[0, 1, 2] = 1, -1
    field, nodes = k[0, ..., 0], weights_of(difference, domain)
    experiment = Experiment(domain, "conductivity", None, 0 * field, source, nodes)
    leak, *edges = experiment.circuit(field.log())
    leak = leak - experiment.ground[None, ..., None]
    torch.testing.assert_close(leak, circuit.leak, rtol=1e-12, atol=0)
    torch.testing.assert_close(edges, [*circuit.conductance], rtol=1e-12, atol=0)
    if not holes and boundary != "periodic":
        leak = wall_leak(k, h, boundary=boundary)
        torch.testing.assert_close(leak, circuit.leak, rtol=1e-12, atol=0)
    # Obstacles of waves are hard.
    given = {"boundary": boundary, "mask": mask}
    wave = solve_helmholtz(f, k, 0.5, 0.25, 2.0, h, **given)
    hard = diffusion(k, h, **given, inner=None if mask is None else "neumann")
    u = wave[0, ..., 0].flatten().numpy()
    a = matrix_of(hard).astype(complex)
    exists = np.ones(u.size) if mask is None else mask.flatten().numpy()
    a += h * h * np.diag(exists * (-(2.0**2) * 0.5 - 2j * 0.25) + (1 - exists))
    expected = np.linalg.solve(a, h * h * f.flatten().numpy())
    np.testing.assert_allclose(u, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


def errors_of(exact, medium, walls, faces_of, sizes=(16, 32, 64, 128), absorption=0.0):
    """Errors of potentials, in the mean square over the unit square, on finer grids. `walls`
    has a letter a face, "periodic" or a condition; `faces_of` makes the ends of each axis's cells.
    """
    errors = []
    for n in sizes:
        faces = faces_of(n)
        widths, centres = zip(*((x.diff(), (x[1:] + x[:-1]) / 2) for x in faces), strict=True)
        x, y = torch.meshgrid(*centres, indexing="ij")
        u, _, f = manufactured(exact, medium, x, y, absorption=absorption)
        boundary = walls
        if len(walls) == 4:
            boundary = []
            for axis, end in itertools.product((0, 1), (0, 1)):
                along = centres[1 - axis]
                at = [torch.full_like(along, float(end)), along][:: 1 - 2 * axis]
                value, flux, _ = manufactured(exact, medium, *at)
                shape = (1, 1, -1, 1) if axis == 0 else (1, -1, 1, 1)
                outward = (2 * end - 1) * flux[axis]
                letter = walls[2 * axis + end]
                boundary.append(wall(letter, value.reshape(shape), outward.reshape(shape)))
            boundary = (tuple(boundary[:2]), tuple(boundary[2:]))
        k = medium(x, y)
        k = tensor(*k)[None, :, :, None] if isinstance(k, tuple) else k[None, ..., None]
        circuit = diffusion(k, widths, boundary=boundary, absorption=absorption)
        f = f.reshape(1, *circuit.leak.shape[1:-1], 1)
        v = circuit.solve(f, solver=Direct()).reshape(u.shape)
        weight = widths[0][:, None] * widths[1]
        errors.append(float((weight * (v - u).square()).sum().sqrt()))
        whole = circuit.source(torch.ones_like(f)) - circuit.source(torch.zeros_like(f))
        assert float(whole.sum()) == pytest.approx(1)
    return errors


def even(n, more=0):
    return [torch.linspace(0, 1, m + 1, dtype=DOUBLE) for m in (n, n + more)]


@pytest.mark.parametrize("walls", ["DDDD", "DNNN", "RRRR"])
@pytest.mark.parametrize("contrast", [1.0, 1e3])
def test_second_order_with_values_that_vary_along_walls(walls, contrast):
    """u = exp(x) cos(2 y) in a medium that varies by `contrast` towards one wall."""
    exact = lambda x, y: torch.exp(x) * torch.cos(2 * y)  # noqa: E731
    medium = lambda x, y: contrast**x * (1 + 0.3 * torch.sin(3 * y))  # noqa: E731
    errors = errors_of(exact, medium, walls, lambda n: even(n, 4))
    assert min(orders(errors)[1:]) > 1.8, errors


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("walls", ["periodic", "DDDD", "NNNN", "NDDN"])
@pytest.mark.parametrize("cross", [0.2, 0.75])
def test_second_order_with_full_tensors(walls, graded, cross):
    """A medium that turns from one diagonal to the other, with negative conductances where it does
    so by much; values and fluxes vary along walls."""
    turn = 2 * math.pi

    def exact(x, y):
        if walls == "periodic":
            return torch.sin(turn * x) * torch.cos(turn * y) + 0.3 * torch.cos(turn * (x + y))
        return torch.sin(1.3 * x + 0.4) * torch.exp(0.7 * y) + x * y * y

    def medium(x, y):
        xx = 1 + 0.3 * torch.sin(turn * x) * torch.cos(turn * y)
        return xx, 1.2 + 0.3 * torch.cos(turn * y), cross * torch.sin(turn * (x + y) + 0.5)

    def faces(n):
        sizes = zip(even(n), (0.06 * graded, -0.05 * graded), strict=True)
        return [x + size * torch.sin(turn * x) for x, size in sizes]

    errors = errors_of(exact, medium, walls, faces, (16, 32, 64), absorption=1.0)
    assert orders(errors)[-1] > 1.85, errors
    assert errors[-1] < 2e-3


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("ring", [False, True])
def test_what_flows_in_flows_out(holes, ring):
    k, c, f = noise((7, 6), 1e3), uniform(1, 7, 6, 1), uniform(1, 7, 6, 1, seed=3)
    mask, inner = None, None
    if holes:
        mask, inner = torch.ones(7, 6, dtype=torch.bool), Dirichlet(3.0)
        mask[2:4, 2] = mask[6, 5] = False
        c, f = (torch.where(mask[None, ..., None], x, 0) for x in (c, f))
    ends = "periodic" if ring else (Dirichlet(1.0), Robin(2.0, -1.0))
    boundary = (ends, (Neumann(0.4), "dirichlet"))
    circuit = diffusion(k, 0.5, boundary=boundary, absorption=c, mask=mask, inner=inner)
    v = circuit.solve(f, solver=Direct())
    flow = circuit.currents(v)
    kept = 0.25 * (f - c * v)
    torch.testing.assert_close(flow.walls.sum(), kept.sum(), rtol=1e-9, atol=1e-9)
    # Through the low face of axis 1, away from holes and corners.
    assert -flow.walls[:, 4:6, 0].sum().item() == pytest.approx(0.4 * 0.5 * 2)
    if not ring:  # by hand: through the high face of axis 0, a film and half a cell in series
        through = (v[0, 6, 1:5, 0] + 1) * 0.5 / (1 / 2 + 0.25 / k[0, 6, 1:5, 0])
        torch.testing.assert_close(flow.walls[0, 6, 1:4, 0], through[:3])
    away = flow.walls.clone()
    for axis, edge in enumerate(flow.edges, 1):
        away += edge - edge.roll(1, axis)
    torch.testing.assert_close(away, kept, rtol=1e-8, atol=1e-9)
    if holes:
        assert not any(x[:, ~mask].any() for x in (*flow.edges, flow.walls, v))


def test_matched_media_go_on_behind_the_face():
    """A plate that is cut where its ends are matched is the middle of a long one."""
    long, short = 400, 40
    k, f = torch.ones(1, long, 1, dtype=DOUBLE), torch.zeros(1, long, 1, dtype=DOUBLE)
    middle = slice((long - short) // 2, (long + short) // 2)
    f[:, middle] = uniform(1, short, 1)
    whole = diffusion(k, 0.5, absorption=0.3).solve(f, solver=Direct())[:, middle]
    cut = diffusion(k[:, middle], 0.5, absorption=0.3, boundary="matched").solve(f[:, middle])
    torch.testing.assert_close(cut, whole, rtol=1e-9, atol=1e-12)
    assert not diffusion(k, 0.5, boundary="matched").wall.any()  # without absorption nothing leaves
    assert isinstance(conditions("matched", 1)[0][0], Matched)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_circuits_are_in_float32_at_least(dtype):
    k = torch.ones(1, 3, 4, 1, dtype=dtype)
    wide = torch.promote_types(dtype, torch.float32)
    assert {g.dtype for g in edge_conductance(k, 0.3)} == {wide}
    assert wall_leak(k, 0.3).dtype == wide
    assert diffusion([k, k.double()]).leak.dtype == DOUBLE


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_volumes_are_beyond_half_precision(dtype):
    """A cell of 300 x 300 takes more current than float16 holds; a float32 source in a float64
    circuit is not rounded once more."""
    k = torch.full((1, 4, 4, 1), 1e6, dtype=torch.float64)
    f, rest = torch.ones_like(k), torch.zeros_like(k)
    circuit = diffusion(k, 300.1, boundary="dirichlet")
    assert circuit.source(f.to(dtype)).dtype == torch.float64
    state = LCState.at_rest(rest)
    results = (
        circuit.solve,
        circuit.factorize().solve,
        lambda f: rc_step(rest, circuit, 1.0, 1e-3, f),
        lambda f: lc_step(state, circuit, 1.0, 1e-3, f).voltage,
    )
    for result in results:
        found = result(f.to(dtype))
        torch.testing.assert_close(found, result(f).to(found.dtype))


@pytest.mark.parametrize("walls", [*map("".join, itertools.product("DN", repeat=4))])
@pytest.mark.parametrize("grid", [(3, 4), (1, 3), (2, 1)])
@pytest.mark.parametrize("cross", [0.4, -0.9])
def test_tensors_are_exact_for_linear_potentials(walls, grid, cross):
    """Also in the corners where an insulated wall, or one of a given flux, meets a held one."""
    h, slope = (0.3, 0.25), (1.3, -0.6)
    k = torch.tensor([[1.0, cross], [cross, 0.9]], dtype=torch.float64)
    flux = k @ torch.tensor(slope, dtype=torch.float64)
    x, y = (s * (torch.arange(n, dtype=torch.float64) + 0.5) for n, s in zip(grid, h, strict=True))
    x, y = x[:, None], y[None]
    exact = 0.2 + slope[0] * x + slope[1] * y

    def wall(axis, end):
        if walls[2 * axis + end] == "N":
            return Neumann((2 * end - 1) * flux[axis].item())
        at = end * grid[axis] * h[axis]
        value = exact.narrow(axis, 0, 1) + slope[axis] * (at - h[axis] / 2)
        return Dirichlet(value[None, ..., None])

    boundary = [(wall(axis, 0), wall(axis, 1)) for axis in (0, 1)]
    circuit = diffusion(k.expand(1, *grid, 1, 2, 2), h, boundary=boundary)
    v = exact.reshape(1, -1, 1)
    (edges,), out = circuit.currents(v)
    p, q = circuit.layout.ends
    left = out.index_add(1, p, edges).index_add(1, q, -edges)
    torch.testing.assert_close(left, torch.zeros_like(left), rtol=0, atol=1e-12)


@pytest.mark.parametrize("boundary", ["neumann", "dirichlet", ("periodic", "dirichlet")])
def test_tensors_that_are_conductivities_of_axes_make_the_same_circuit(boundary):
    kx, ky = (torch.rand(2, 5, 6, 3, dtype=torch.float64) + 0.1 for _ in range(2))
    tensors = torch.diag_embed(torch.stack([kx, ky], -1))
    spacing = (0.5, torch.rand(6) + 0.1)
    f = torch.randn(2, 5, 6, 3, dtype=torch.float64)
    one, other = (
        diffusion(k, spacing, boundary=boundary, absorption=0.1) for k in ((kx, ky), tensors)
    )
    v = other.solve(f.flatten(1, 2)).reshape(f.shape)
    torch.testing.assert_close(v, one.solve(f), rtol=1e-10, atol=1e-12)


def test_tensors_are_symmetric_and_have_no_negative_eigenvalue():
    k = tensor(*(torch.full((4, 5), x, dtype=DOUBLE) for x in (2.0, 5.0, 1.0)))[None, :, :, None]
    for spacing in (1.0, (2.0, 1.0)):
        assert (diffusion(k, spacing).conductance[0] >= 0).all()
    assert (diffusion(k, (3.0, 1.0)).conductance[0] < 0).any()
    unfit = [[0.0, 0.1], [0.0, 0.0]], [[0.0, 2.2], [2.2, 0.0]]
    for unit, wrong in itertools.product((1.0, 1e-12), unfit):
        tensors = k.clone()
        tensors[0, 3, 2, 0] += torch.tensor(wrong)
        named = r"symmetric positive semidefinite tensors, got \[\[.* at \(0, 3, 2, 0\)"
        with pytest.raises(ValueError, match=named):
            diffusion(unit * tensors)
