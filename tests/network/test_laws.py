"""Circuits whose elements have laws, against solutions by others and in closed form."""

import itertools
import math
from functools import partial

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from chonn_ops import (
    Circuit,
    Dirichlet,
    FiniteVolumes,
    Graph,
    Grid,
    Mesh,
    NonlinearCircuit,
    Robin,
    diffusion,
    laws,
)

mpmath = pytest.importorskip("mpmath")


def positive(*shape):
    return torch.rand(*shape, dtype=torch.float64) + 0.5


def noise(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def cubic(a, d, k):
    return k * (d + a * d**3)


def sign_power(x, exponent):
    return mpmath.sign(x) * abs(x) ** exponent


# A law, and the same one as a function of numbers of mpmath.
LAWS = {
    "Ohm": (laws.Ohm(), lambda d, k: k * d),
    "Power(4)": (laws.Power(4), lambda d, k: k * sign_power(d, 3)),
    "Power(1.5)": (laws.Power(1.5), lambda d, k: k * sign_power(d, mpmath.mpf(1) / 2)),
    "Forchheimer": (
        laws.Forchheimer(5.0),
        lambda d, k: mpmath.sign(d) * (mpmath.sqrt(1 + 20 * k**2 * abs(d)) - 1) / (10 * k),
    ),
    "Diode": (laws.Diode(0.2), lambda d, k: k * mpmath.expm1(d / mpmath.mpf(0.2))),
    "Sinh": (laws.Sinh(0.3), lambda d, k: k * mpmath.mpf(0.3) * mpmath.sinh(d / mpmath.mpf(0.3))),
    "Radiation": (laws.Radiation(), lambda d, k: k * sign_power(d, 4)),
    "a function": (
        partial(cubic, torch.tensor(2.0, dtype=torch.float64)),
        lambda d, k: k * (d + 2 * d**3),
    ),
}
EDGES = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("of", ["edges", "leaks"])
def test_potentials_are_those_of_a_solver_with_forty_digits(name, of):
    torch.manual_seed(0)
    law, exact = LAWS[name]
    g, leak, s = positive(1, 5, 1), positive(1, 4, 1), noise(1, 4, 1)
    circuit = NonlinearCircuit(Circuit(g, leak, Graph(EDGES, 4)), **{of: law})
    v, info = circuit.solve_with_info(s)
    assert info.backward_error.item() <= 1e-10

    def residual(*v):
        out = [-mpmath.mpf(x) for x in s.flatten().tolist()]
        for p, c in enumerate(leak.flatten().tolist()):
            out[p] += exact(v[p], c) if of == "leaks" else c * v[p]
        for (p, q), k in zip(EDGES, g.flatten().tolist(), strict=True):
            i = exact(v[p] - v[q], k) if of == "edges" else k * (v[p] - v[q])
            out[p], out[q] = out[p] + i, out[q] - i
        return out

    with mpmath.workdps(40):
        start = [mpmath.mpf(round(x, 2)) for x in v.flatten().tolist()]
        truth = mpmath.findroot(residual, start, tol=1e-30, maxsteps=200)
    truth = torch.tensor([float(x) for x in truth], dtype=torch.float64)
    torch.testing.assert_close(v.flatten(), truth, rtol=1e-8, atol=1e-10)


NODES, HELD = (2, 2), torch.tensor([True, False, False, False]).reshape(1, 2, 2, 1)
# Laws of edges and leaks that hold the parameter a, and whether a node is held.
DIFFERENTIATED = {
    "Forchheimer": (lambda a: (laws.Forchheimer(a), None), False),
    "Power and Sinh": (lambda a: (laws.Power(4), laws.Sinh(a)), False),
    "Power(2.5)": (lambda a: (laws.Power(2.5), laws.Sinh(a)), False),
    "inverses": (lambda _: (laws.Power(1.5), laws.Power(4 / 3)), True),
    "Threshold": (lambda a: (laws.Threshold(a, 0.1), laws.Radiation()), False),
    "a function and Diode": (lambda a: (partial(cubic, a), laws.Diode(a)), True),
}


def differentiated(name):
    """A function of source, conductances, leak, parameter and held potential, and these."""
    torch.manual_seed(1)
    make, held = DIFFERENTIATED[name]

    def solve(s, g, leak, a, value):
        circuit = Circuit(tuple(g), leak, Grid(NODES))
        circuit = circuit.hold(HELD, value) if held else circuit
        return NonlinearCircuit(circuit, *make(a)).solve(s, tol=1e-13)

    a = torch.tensor([0.7], dtype=torch.float64)
    inputs = noise(1, 2, 2, 1), positive(2, 1, 2, 2, 1), positive(1, 2, 2, 1), a, noise(1, 2, 2, 1)
    return solve, [x.requires_grad_() for x in inputs]


@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_first_and_second_derivatives_are_those_of_differences(name):
    solve, inputs = differentiated(name)
    assert gradcheck(solve, inputs, eps=1e-5, atol=1e-8, rtol=1e-6, check_forward_ad=True)
    assert gradgradcheck(solve, inputs, eps=1e-5, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("p", [1.1, 1.2])
def test_nearly_vertical_laws_at_a_contrast_of_a_million_are_exact(p):
    """Beside the currents of least energy, by Newton's method with sixty digits."""
    torch.manual_seed(0)
    g, leak, s = 10 ** (6 * torch.rand(3, 5, 1).double() - 3), positive(3, 4, 1), noise(3, 4, 1)
    found = NonlinearCircuit(Circuit(g, leak, Graph(EDGES, 4)), laws.Power(p)).solve(s)
    ends = mpmath.matrix(4, 5)
    for j, (a, b) in enumerate(EDGES):
        ends[a, j], ends[b, j] = 1, -1
    for k, c, f, v in zip(g, leak, s, found, strict=True):
        with mpmath.workdps(60):
            k, f = ([*map(mpmath.mpf, x.flatten().tolist())] for x in (k, f))
            rest = mpmath.diag([1 / mpmath.mpf(x) for x in c.flatten().tolist()])
            power, i = 1 / (mpmath.mpf(p) - 1), mpmath.matrix([min(x, 1) / 2 for x in k])

            def potentials(i, f=f, rest=rest):
                return rest * (mpmath.matrix(f) - ends * i)

            def energy(i, k=k, rest=rest, power=power, potentials=potentials):
                v = potentials(i)
                inner = sum(x * abs(j / x) ** (power + 1) for x, j in zip(k, i, strict=True))
                return inner / (power + 1) + (v.T * mpmath.inverse(rest) * v)[0] / 2

            gain = mpmath.inf
            for _ in range(200):
                each = list(zip(i, k, strict=True))
                drops = mpmath.matrix([sign_power(j / x, power) for j, x in each])
                slope = mpmath.diag([power / x * abs(j / x) ** (power - 1) for j, x in each])
                beyond = ends.T * potentials(i) - drops
                move = mpmath.lu_solve(slope + ends.T * rest * ends, beyond)
                gain, step = (beyond.T * move)[0], mpmath.mpf(1)
                while energy(i + step * move) > energy(i) - step * gain / 4 and step > 1e-9:
                    step /= 2
                i += step * move
                if gain < mpmath.mpf(10) ** -50:
                    break
            assert gain < mpmath.mpf(10) ** -50
            truth = torch.tensor([float(x) for x in potentials(i)], dtype=torch.float64)
        assert (v.flatten() - truth).abs().max() < 1e-11 * truth.abs().max()


def test_diodes_behind_resistors_at_a_thousand_volts_are_exact():
    """39,000 thermal voltages, at saturation currents from 1e-15 to 1e-9."""
    thermal, nodes = 0.02585, torch.arange(4) == 0
    g, leak = positive(1, 5, 1), 10.0 ** torch.tensor([-99, -15, -12, -9]).double()
    leak = torch.where(nodes, 0, leak)[None, :, None]
    circuit = Circuit(g, leak, Graph(EDGES, 4)).hold(
        nodes[None, :, None], torch.full_like(leak, 1e3)
    )
    found = NonlinearCircuit(circuit, None, laws.Diode(thermal)).solve(0 * leak)
    with mpmath.workdps(40):
        k, c = ([*map(mpmath.mpf, x.flatten().tolist())] for x in (g, leak))

        def residual(*v):
            v = [mpmath.mpf(1000), *v]
            out = [x * mpmath.expm1(u / mpmath.mpf(thermal)) for x, u in zip(c, v, strict=True)]
            for (p, q), x in zip(EDGES, k, strict=True):
                out[p], out[q] = out[p] + x * (v[p] - v[q]), out[q] - x * (v[p] - v[q])
            return out[1:]

        start = [mpmath.mpf(round(x, 4)) for x in found.flatten().tolist()[1:]]
        truth = mpmath.findroot(residual, start, tol=1e-30, maxsteps=200)
    truth = torch.tensor([1e3, *map(float, truth)], dtype=torch.float64)
    torch.testing.assert_close(found.flatten(), truth, rtol=1e-9, atol=0)


def test_third_derivatives_and_those_of_torch_func():
    torch.manual_seed(1)
    circuit = Circuit((positive(1, 2, 2, 1), positive(1, 2, 2, 1)), positive(1, 2, 2, 1))
    circuit = circuit.hold(torch.tensor([[[True], [False]], [[False], [False]]]), noise(1, 2, 2, 1))
    s, a = noise(1, 2, 2, 1), torch.tensor([0.7], dtype=torch.float64, requires_grad=True)

    def loss(a):
        law = NonlinearCircuit(circuit, partial(cubic, a), laws.Diode(a))
        return law.solve(s, tol=1e-13).square().sum()

    def order(n, x):
        y = loss(x)
        for _ in range(n):
            (y,) = torch.autograd.grad(y, x, create_graph=True)
        return y

    step = 1e-4
    sides = [order(2, (a + x).detach().requires_grad_()).item() for x in (-step, step)]
    assert order(3, a).item() == pytest.approx((sides[1] - sides[0]) / (2 * step), rel=1e-5)
    a = a.detach()
    first = torch.func.grad(loss)
    assert first(a).item() == pytest.approx(order(1, a.requires_grad_()).item(), rel=1e-10)
    second = torch.func.jvp(first, (a.detach(),), (torch.ones_like(a),))[1]
    assert second.item() == pytest.approx(order(2, a).item(), rel=1e-9)


def test_a_start_changes_neither_potentials_nor_gradients():
    s = noise(2, 5, 5, 1)
    k = positive(2, 5, 5, 1).requires_grad_()
    circuit = NonlinearCircuit(diffusion(k, 0.2, boundary="dirichlet"), laws.Forchheimer(3.0))
    v, info = circuit.solve_with_info(s)
    start = v.detach().requires_grad_()
    again, fewer = circuit.solve_with_info(s, start=start)
    assert bool((fewer.iterations <= 1).all() & (info.iterations > 2).all())
    torch.testing.assert_close(again, v)
    grads = [torch.autograd.grad(x.square().sum(), k, retain_graph=True)[0] for x in (v, again)]
    torch.testing.assert_close(*grads)
    assert torch.autograd.grad(again.sum(), start, allow_unused=True) == (None,)


HARD = {
    **{f"p = {p}": (laws.Power(p), None, 1.0) for p in (1.1, 1.3, 1.5, 3, 10)},
    "diodes at a thousand kT/q": (None, laws.Diode(1.0), 1e3),
    "sinh of sources of 1e6": (None, laws.Sinh(), 1e6),
    "radiation": (None, laws.Radiation(), 1e4),
    "a sharp threshold": (laws.Threshold(0.5, 1e-6), None, 1.0),
}


@pytest.mark.parametrize("name", HARD)
def test_steep_laws_at_a_contrast_of_a_million_converge_from_zero(name):
    torch.manual_seed(0)
    edges, leaks, size = HARD[name]
    g = tuple(10 ** (6 * torch.rand(2, 2, 12, 12, 1, dtype=torch.float64) - 3))
    leak, s = torch.ones(2, 12, 12, 1, dtype=torch.float64), size * noise(2, 12, 12, 1)
    s = s.abs() if "diodes" in name else s  # a diode carries no more than its leak backwards
    _, info = NonlinearCircuit(Circuit(g, leak), edges, leaks).solve_with_info(s)
    assert bool((info.backward_error <= 1e-10).all())


def test_networks_stop_for_themselves():
    """Each is what it is alone, and a NaN stays in its own."""
    torch.manual_seed(0)
    s = noise(4, 6, 6, 1) * torch.tensor([1e-10, 1.0, 1e10, math.nan])[:, None, None, None]
    circuit = NonlinearCircuit(Circuit((positive(4, 6, 6, 1),) * 2, positive(4, 6, 6, 1)), None)
    circuit = NonlinearCircuit(circuit.circuit, laws.Forchheimer(1.0), laws.Sinh())
    v, info = circuit.solve_with_info(s)
    assert bool(v[3].isnan().all() & v[:3].isfinite().all())
    assert info.iterations[0] < info.iterations[2]
    for i in range(3):
        one = Circuit(
            [g[i : i + 1] for g in circuit.circuit.conductance], circuit.circuit.leak[i : i + 1]
        )
        alone, steps = NonlinearCircuit(one, circuit.edges, circuit.leaks).solve_with_info(
            s[i : i + 1]
        )
        torch.testing.assert_close(v[i : i + 1], alone, rtol=1e-9, atol=0)
        assert steps.iterations.item() == info.iterations[i].item()


@pytest.mark.parametrize("edges", [laws.Power(3), laws.Threshold(torch.tensor(0.3), 0.01)])
def test_channels_stop_for_themselves(edges):
    """Whether networks leave the batch or, as tensors of laws may belong to some, do not."""
    torch.manual_seed(0)
    s = noise(5, 6, 6, 2) * 10.0 ** torch.arange(-5, 5).reshape(5, 1, 1, 2)
    g, leak = positive(5, 6, 6, 2), positive(5, 6, 6, 2)
    v, info = NonlinearCircuit(Circuit((g, g), leak), edges, laws.Sinh()).solve_with_info(s)
    assert len(info.iterations.unique()) > 1
    for c in range(2):
        g1, leak1, s1 = (x[..., c : c + 1] for x in (g, leak, s))
        alone = NonlinearCircuit(Circuit((g1, g1), leak1), edges, laws.Sinh())
        w, steps = alone.solve_with_info(s1)
        torch.testing.assert_close(v[..., c : c + 1], w, rtol=1e-9, atol=0)
        assert torch.equal(steps.iterations, info.iterations[:, c : c + 1])


def test_what_is_not_solved_is_an_error_or_nan():
    k, f = positive(2, 8, 8, 1), noise(2, 8, 8, 1)
    f[0] *= 1e-9
    circuit = NonlinearCircuit(diffusion(k, 0.1, boundary="dirichlet"), None, laws.Sinh())
    circuit = NonlinearCircuit(
        diffusion(k, 0.1, boundary="dirichlet", absorption=1.0), None, laws.Sinh(1e-3)
    )
    with pytest.raises(RuntimeError, match=r"1 of 2 networks .* after 2 steps: \(1, 0\) at"):
        circuit.solve(f, max_steps=2)
    f.requires_grad_()
    v = circuit.solve(f, max_steps=2, unconverged="nan")
    assert bool(v[1].isnan().all() & v[0].isfinite().all())
    (grad,) = torch.autograd.grad(v[0].sum(), f)
    assert bool(grad.isfinite().all())
    floating = NonlinearCircuit(diffusion(k, 0.1), laws.Power(3))
    with pytest.raises(ValueError, match="potentials are not determined"):
        floating.solve(f)
    assert bool(floating.solve(f, ungrounded="nan").isnan().all())


def test_a_law_whose_tensor_no_gradient_would_find_is_refused():
    a = torch.ones(1, requires_grad=True)
    circuit = Circuit((torch.ones(1, 3, 1),), torch.ones(1, 3, 1))
    with pytest.raises(ValueError, match="law: expected tensors that need a gradient as arguments"):
        NonlinearCircuit(circuit, lambda d, k: a * k * d).solve(torch.ones(1, 3, 1))
    for wrong, kind in (
        (lambda: laws.Power(1.0), ValueError),
        (lambda: laws.Diode(-1.0), ValueError),
    ):
        with pytest.raises(kind, match="expected a number >"):
            wrong()


def test_volumes_that_touch_without_a_face_pass_no_current():
    volumes = FiniteVolumes([(0, 1), (1, 2)], [1.0, 0.0], torch.ones(3), [[0.0], [1.0], [2.0]])
    k, f = positive(1, 3, 1), noise(1, 3, 1)
    v = NonlinearCircuit(volumes.circuit(k, 2.0), laws.Power(4)).solve(f)
    assert v[0, 2].item() == pytest.approx(f[0, 2].item() / 2)


def test_the_p_laplacian_of_a_line_converges_to_its_closed_form():
    errors = []
    for n in (16, 64):
        one, x = torch.ones(1, n, 1, dtype=torch.float64), (torch.arange(n).double() + 0.5) / n
        v = NonlinearCircuit(diffusion(one, 1 / n, boundary="dirichlet"), laws.Power(4)).solve(one)
        u = 0.75 * (0.5 ** (4 / 3) - (x - 0.5).abs() ** (4 / 3))
        errors.append((v.flatten() - u).abs().max().item())
    assert errors[1] < 1e-4
    assert errors[1] < errors[0] / 6  # the solution is not smooth in the middle


def test_an_electrolyte_is_gouy_and_chapmans():
    """v'' = sinh v beside a wall at 4 thermal voltages."""
    n, h = 400, 0.025
    one, x = torch.ones(1, n, 1, dtype=torch.float64), h * (torch.arange(n).double() + 0.5)
    circuit = diffusion(one, h, boundary=((Dirichlet(4.0), "neumann"),), absorption=1.0)
    v = NonlinearCircuit(circuit, leaks=laws.Sinh()).solve(0 * one)
    truth = 4 * torch.atanh(math.tanh(1.0) * torch.exp(-x))
    torch.testing.assert_close(v.flatten(), truth, rtol=0, atol=2e-3)


def test_steps_of_the_porous_medium_are_barenblatts():
    """u' = (u^2)'': with v = u^2 the charge sqrt(v) / dt is the law of the leaks. Half the step,
    half the error."""
    n, h = 240, 0.05
    x = h * (torch.arange(n).double() + 0.5) - 6

    def profile(t):
        return (t ** (-1 / 3) * (1 - x**2 / (12 * t ** (2 / 3))).clamp(min=0))[None, :, None]

    one, errors = torch.ones(1, n, 1, dtype=torch.float64), []
    for steps in (5, 10, 20):
        u = profile(1.0)
        circuit = NonlinearCircuit(diffusion(one, h, absorption=steps), leaks=laws.Power(1.5))
        for _ in range(steps):
            u = circuit.solve(u * steps).clamp(min=0).sqrt()
        errors.append((u - profile(2.0)).abs().mean().item())
        assert u.sum().item() == pytest.approx(profile(1.0).sum().item(), rel=1e-5)
    assert errors[2] < 2e-3
    assert 1.8 < errors[0] / errors[1] < 2.2
    assert 1.8 < errors[1] / errors[2] < 2.2


@pytest.mark.parametrize("odd", [True, False])
def test_a_learned_law_increases_and_learns_a_cubic(odd):
    torch.manual_seed(0)
    law = laws.Monotone(4, odd=odd)
    with torch.no_grad():
        for parameter in law.parameters():
            parameter.add_(3 * torch.randn_like(parameter))
    d = torch.arange(-200, 201).double() / 40
    i = law(d, torch.ones_like(d))
    assert bool((i.diff() > 0).all())
    assert i[200].item() == 0
    assert torch.allclose(i, -i.flip(0), rtol=1e-12) is odd

    law = laws.Monotone(4, features=noise(1, 3, 3, 1, 2))
    circuit = Circuit((positive(1, 3, 3, 1),) * 2, positive(1, 3, 3, 1))
    s = noise(1, 3, 3, 1)
    truth = NonlinearCircuit(circuit, partial(cubic, 0.3)).solve(s)
    optimizer, losses = torch.optim.Adam(law.parameters(), 0.05), []
    for _ in range(30):
        loss = (NonlinearCircuit(circuit, law).solve(s) - truth).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]


@pytest.mark.parametrize("name", [name for name in LAWS if name != "a function"] + ["Threshold"])
def test_tangents_of_laws_are_their_derivatives(name):
    law = laws.Threshold(0.5, 0.1) if name == "Threshold" else LAWS[name][0]
    x, k = noise(50), positive(50)
    y, slope = law.tangent(x, k)
    torch.testing.assert_close(y, law(x, k))
    torch.testing.assert_close(slope, torch.func.vmap(torch.func.grad(law))(x, k))


STEPS = {  # on 8 networks of 16 x 16: the most steps that each law may take
    "Power(4)": (laws.Power(4), None, 8),
    "Power(10)": (laws.Power(10), None, 14),
    "Power(1.3)": (laws.Power(1.3), None, 14),
    "a porous medium": (None, laws.Power(4 / 3), 10),
    "radiation": (None, laws.Radiation(), 9),
    "diodes": (None, laws.Diode(), 9),
    "thresholds": (laws.Threshold(0.5, 1e-4), None, 15),
}


@pytest.mark.parametrize("name", STEPS)
def test_laws_take_few_steps(name):
    torch.manual_seed(0)
    edges, leaks, most = STEPS[name]
    circuit = Circuit((positive(8, 16, 16, 1),) * 2, positive(8, 16, 16, 1))
    s = noise(8, 16, 16, 1)
    s = s.abs() if name == "diodes" else s
    _, info = NonlinearCircuit(circuit, edges, leaks).solve_with_info(s)
    assert int(info.iterations.max()) <= most


def cells_of_a_square(n):
    """Triangles of a jittered grid, linear elements by word."""
    at = torch.arange((n + 1) ** 2).reshape(n + 1, n + 1)
    corners = [at[:-1, :-1], at[1:, :-1], at[1:, 1:], at[:-1, 1:]]
    triangles = [torch.stack([corners[i].flatten() for i in c], 1) for c in ((0, 1, 2), (0, 2, 3))]
    points = torch.stack([at // (n + 1), at % (n + 1)], -1).double() / n
    points[1:-1, 1:-1] += 0.2 / n * (torch.rand(n - 1, n - 1, 2).double() - 0.5)
    return Mesh(points.flatten(0, 1), torch.cat(triangles), elements=True)


def test_cells_that_make_a_matrix_singular_are_networks_that_do_not_converge():
    """Linear elements of a law that is nearly vertical; a network of small k converges."""
    torch.manual_seed(0)
    mesh = cells_of_a_square(4)
    f, k = noise(2, len(mesh.points), 1), positive(2, len(mesh.cells), 1)
    k[1] *= 1e-9
    f.requires_grad_()

    def circuit(k):
        return NonlinearCircuit(mesh.diffusion(k, boundary="dirichlet", absorption=0.3), law)

    law = laws.Power(1.05)
    with pytest.raises(RuntimeError, match=r"1 of 2 networks .* after 100 steps: \(0, 0\) at"):
        circuit(k).solve(f)
    v, info = circuit(k).solve_with_info(f, unconverged="nan")
    assert bool(v[0].isnan().all() & (info.backward_error[0] > 1e-10).all())
    alone = circuit(k[1:]).solve(f[1:])
    torch.testing.assert_close(v[1:], alone, rtol=1e-9, atol=0)
    grad, truth = (torch.autograd.grad(x.square().sum(), f)[0] for x in (v[1:], alone))
    torch.testing.assert_close(grad, truth)
    assert bool((grad[0] == 0).all())


def tetrahedra(n):
    """Six in each cube of a jittered grid."""
    at = torch.arange((n + 1) ** 3).reshape(n + 1, n + 1, n + 1)
    cells = []
    for order in itertools.permutations(range(3)):
        corner, path = [0, 0, 0], [at[:-1, :-1, :-1]]
        for axis in order:
            corner[axis] = 1
            path.append(at[tuple(slice(c, n + c) for c in corner)])
        if torch.linalg.det(torch.eye(3)[list(order)]) < 0:
            path[:2] = path[1::-1]
        cells.append(torch.stack([x.flatten() for x in path], 1))
    points = torch.stack(torch.meshgrid(*[torch.arange(n + 1)] * 3, indexing="ij"), -1).double() / n
    inner = (slice(1, -1),) * 3
    points[inner] += 0.2 / n * (torch.rand(points[inner].shape).double() - 0.5)
    return Mesh(points.flatten(0, 2), torch.cat(cells), elements=True)


def roof(n):
    """A curved surface in space."""
    flat = cells_of_a_square(n)
    x, y = flat.points.T
    lifted = torch.stack([x, y, 0.4 * torch.sin(3 * x) + 0.3 * x * y**2], 1)
    return Mesh(lifted, flat.cells, elements=True)


MESHES = {"plane": cells_of_a_square, "tetrahedra": tetrahedra, "surface": roof}


@pytest.mark.parametrize(
    ("p", "kind"),
    [(1.5, "plane"), (3, "plane"), (3, "tetrahedra"), (1.5, "surface"), (3, "surface")],
)
def test_derivatives_of_isotropic_laws_are_those_of_differences(p, kind):
    torch.manual_seed(0)
    mesh = MESHES[kind](1 if kind == "tetrahedra" else 2)
    nodes, cells = len(mesh.points), len(mesh.cells)

    def solve(f, k, a):
        circuit = mesh.diffusion(k, boundary={"boundary": Robin(1.0)}, absorption=1.0)
        return NonlinearCircuit(circuit, laws.Power(p), laws.Sinh(a)).solve(f, tol=1e-13)

    inputs = [noise(1, nodes, 1), positive(1, cells, 1), torch.tensor([0.7], dtype=torch.float64)]
    inputs = [x.requires_grad_() for x in inputs]
    assert gradcheck(solve, inputs, eps=1e-5, atol=1e-8, rtol=1e-6, check_forward_ad=True)
    assert gradgradcheck(solve, inputs, eps=1e-5, atol=1e-6, rtol=1e-5)
    law = torch.tensor([0.4], dtype=torch.float64, requires_grad=True)

    def forchheimer(beta):
        circuit = mesh.diffusion(inputs[1].detach(), boundary="dirichlet")
        return NonlinearCircuit(circuit, laws.Forchheimer(beta)).solve(
            inputs[0].detach(), tol=1e-13
        )

    assert gradcheck(forchheimer, [law], eps=1e-5, atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("p", [1.5, 3, 4])
def test_isotropic_laws_take_few_steps(p):
    torch.manual_seed(0)
    mesh = cells_of_a_square(8)
    k, f = positive(2, len(mesh.cells), 1), noise(2, len(mesh.points), 1)
    circuit = mesh.diffusion(k, boundary="dirichlet", absorption=0.3)
    _, info = NonlinearCircuit(circuit, laws.Power(p), laws.Radiation()).solve_with_info(f)
    assert int(info.iterations.max()) <= 12
