"""`reconstruct`: its Jacobian against finite differences, its solution and error bars against
dense algebra, and what users bring."""

import copy
import math

import numpy as np
import pytest
import torch
from meshes import disc, grid_as_graph

from chonn_ops import Circuit, Direct, Dirichlet, Neumann, Robin, diffusion
from chonn_ops.boundary import Condition, Wall
from chonn_ops.inverse import Smoothness, TotalVariation, reconstruct
from chonn_ops.inverse.domain import domain_of, domain_on
from chonn_ops.inverse.experiment import Experiment, weights_of

CPU = torch.device("cpu")
NODES = torch.tensor([[1, 1], [1, 5], [4, 2], [6, 3], [6, 6], [3, 4]])
PRIOR = Smoothness(length=4.0, mean=1.0)
SETTINGS = {"prior": PRIOR, "noise": 0.01, "boundary": "dirichlet"}


def solved(measured, source, nodes=NODES, **changes):
    """`reconstruct` of wells in a box at potential 0."""
    return reconstruct(measured, nodes, source, **{**SETTINGS, **changes})


class Lossy(Condition):
    """A condition that a user adds: a conductance of 0.7 per unit area."""

    def wall(self, face):
        return Wall((face.conductivity != 0) * (0.7 * face.area))


def pulses(places, *grid):
    """A unit current into each of the places, (S, *grid)."""
    found = torch.zeros(len(places), *grid, dtype=torch.float64)
    index = torch.as_tensor(places).reshape(len(places), -1).T
    found[(range(len(places)), *index)] = 1.0
    return found


def wells(grid=(8, 8), *, seed=0, factor=1.0):
    """A medium of the prior, currents into three nodes, and the potentials at `NODES`."""
    generator = torch.Generator().manual_seed(seed)
    k = factor * PRIOR.sample(grid, generator=generator)[0].exp()
    source = pulses(NODES[:3], *grid)
    v = potentials(k, source, boundary="dirichlet")
    return k, source, v[:, NODES[:, 0], NODES[:, 1]]


def potentials(k, source, leak=None, *, spacing=1.0, mask=None, boundary="neumann"):
    k = k[None, ..., None]
    leak = torch.zeros_like(k) if leak is None else leak[None, ..., None]
    inner = None if mask is None else "neumann"
    made = diffusion(k, spacing, mask=mask, boundary=boundary, inner=inner)
    circuit = Circuit(made.conductance, made.leak + leak, made.layout)
    return circuit.solve(source[None, ..., None], Direct())[0, ..., 0]


@pytest.mark.parametrize("unknown", ["conductivity", "leak", "source"])
@pytest.mark.parametrize(
    ("grid", "boundary", "masked"),
    [
        ("disc", "dirichlet", False),
        ("disc", {"right": Robin(0.7)}, False),
        ("disc", "neumann", False),
        ((9,), "dirichlet", False),
        ((5, 6), "neumann", False),
        ((5, 6), ("periodic", ("dirichlet", "neumann")), False),
        ((6, 7), "dirichlet", True),
        ((6, 7), "neumann", True),
        ((6, 7), ("periodic", Robin(0.7)), False),
        ((6, 7), Lossy(), True),
        ((3, 4, 3), "dirichlet", False),
    ],
)
def test_the_jacobian_is_that_of_finite_differences(unknown, grid, boundary, masked):
    torch.manual_seed(0)
    if grid == "disc":
        domain = domain_on(disc(3), boundary, CPU)
        mask, grid = domain.mask, domain.grid
    else:
        mask = torch.ones(grid, dtype=torch.bool)
        if masked:
            mask[:2, :3] = False
        domain = domain_of(grid, [0.5 + 0.1 * a for a in range(len(grid))], mask, boundary, CPU)
    nodes = mask.nonzero()[::4]
    known = {
        "conductivity": torch.rand(grid, dtype=torch.float64) + 0.5,
        "leak": torch.rand(grid, dtype=torch.float64) + 0.1,
        "source": torch.randn(1 if unknown == "source" else 2, *grid, dtype=torch.float64) * mask,
    }
    known[unknown] = None
    experiment = Experiment(domain, unknown, **known, weights=weights_of(nodes, domain))
    x = torch.randn(mask.numel(), dtype=torch.float64) * mask.flatten()

    def predict(x):
        return experiment.predict(experiment.potentials(experiment.factorize(x), x))

    rows = torch.ones_like(predict(x)).nonzero()
    network = experiment.factorize(x)
    found = experiment.jacobian(network, x, experiment.potentials(network, x), rows)
    step = 1e-5
    for p in range(x.numel()):
        e = torch.zeros_like(x)
        e[p] = step
        expected = ((predict(x + e) - predict(x - e)) / (2 * step))[rows[:, 0], rows[:, 1]]
        expected = expected * mask.flatten()[p]
        torch.testing.assert_close(found[:, p], expected, rtol=1e-6, atol=1e-8)


def dense_covariance(prior, domain):
    n = domain.mask.numel()
    return prior.on(domain).gaussian.times(torch.eye(n, dtype=torch.float64))


def test_a_source_is_the_mean_of_the_linear_posterior_and_so_are_its_errors():
    """All is linear: solution, deviation and samples have closed forms."""
    torch.manual_seed(0)
    grid, noise = (6, 7), 0.05
    k, leak = torch.rand(2, *grid, dtype=torch.float64) + 0.2
    nodes = torch.tensor([[0, 0], [2, 3], [5, 6], [4, 1]])
    measured = torch.randn(4, dtype=torch.float64)
    prior = Smoothness(length=3.0, deviation=2.0, mean=0.5)
    options = {"unknown": "source", "conductivity": k, "leak": leak}
    found = reconstruct(measured, nodes, prior=prior, noise=noise, **options)
    one = torch.eye(42, dtype=torch.float64).reshape(42, *grid)
    J = potentials(k, one, leak)[:, nodes[:, 0], nodes[:, 1]].T
    C = dense_covariance(prior, domain_of(grid, 1.0, None, "neumann", CPU))
    precision = torch.linalg.inv(C) + J.T @ J / noise**2
    covariance = torch.linalg.inv(precision)
    mean = 0.5 + covariance @ J.T @ (measured - 0.5 * J.sum(1)) / noise**2
    assert found.converged
    assert found.iterations <= 2
    torch.testing.assert_close(found.field.flatten(), mean, rtol=1e-6, atol=1e-6)
    deviation = covariance.diagonal().sqrt()
    torch.testing.assert_close(found.deviation().flatten(), deviation, rtol=1e-4, atol=1e-5)
    low, high = found.interval(0.9)
    torch.testing.assert_close((high - low).flatten(), 2 * 1.6448536 * deviation, rtol=1e-4, atol=0)
    samples = found.sample(40_000, torch.Generator().manual_seed(0)).flatten(1)
    torch.testing.assert_close(samples.T.cov(), covariance, rtol=0, atol=0.06)


@pytest.mark.parametrize(
    ("on", "unknown"), [("grid", "conductivity"), ("grid", "leak"), ("disc", "conductivity")]
)
@pytest.mark.parametrize("prior", [PRIOR, TotalVariation(weight=1.0, mean=1.0, area=0.1)])
def test_the_objective_has_no_slope_at_the_solution(on, unknown, prior):
    """Which is nearer to the truth than the prior's mean is."""
    volumes, walls = disc(4), {"right": "dirichlet"}
    if on == "disc":
        domain, where = domain_on(volumes, walls, CPU), {"volumes": volumes}
    else:
        walls = "dirichlet"
        domain, where = domain_of((8, 8), 1.0, None, walls, CPU), {}
    nodes = torch.ones(domain.grid, dtype=torch.bool).nonzero()[1::5]
    source = pulses(nodes[::4], *domain.grid)
    generator = torch.Generator().manual_seed(0)
    truth = PRIOR.sample(volumes if on == "disc" else (8, 8), generator=generator)[0]
    known = {"conductivity": torch.ones(domain.grid, dtype=torch.float64), "leak": None}
    known[unknown] = None

    def predict(x):
        if on == "disc":
            made = volumes.circuit(x.exp()[None, :, None], boundary=walls)
            circuit = Circuit(made.conductance[0], made.leak, volumes.graph)
            v = circuit.solve(source[None, ..., None])[0, ..., 0]
        elif unknown == "leak":
            v = potentials(known["conductivity"], source, x.exp(), boundary=walls)
        else:
            v = potentials(x.exp(), source, boundary=walls)
        return v[(slice(None), *nodes.T)]

    noise = 0.02 * predict(truth).abs()
    measured = predict(truth) + noise
    found = reconstruct(
        measured, nodes if on == "grid" else nodes[:, 0], source, prior=prior, noise=noise,
        unknown=unknown, boundary=walls, tol=1e-6, max_iterations=300, **known, **where,
    )  # fmt: skip
    assert found.converged
    x = found.field.log().requires_grad_()
    (slope,) = torch.autograd.grad(((predict(x) - measured) / noise).square().sum() / 2, x)
    offset = x.detach().flatten()
    energy = (
        torch.linalg.solve(dense_covariance(prior, domain), offset)
        if prior is PRIOR
        else prior.on(domain).energy(offset, offset)[1]
    )
    assert slope.abs().max() > 0.1
    torch.testing.assert_close(slope.flatten(), -energy, rtol=1e-4, atol=1e-4)
    assert (x - truth).square().mean() < 0.7 * truth.square().mean()


@pytest.mark.parametrize("prior", [PRIOR, TotalVariation(weight=1.0)])
def test_data_of_any_unit_and_type_give_the_same_field(prior):
    """Permeability in m^2 and pressure in Pa, in float32, as against numbers near 1."""
    _, source, measured = wells()
    noise = 0.01 * measured.abs()
    prior = type(prior)(**{**vars(prior), "mean": None})
    options = {"prior": prior, "tol": 1e-3, "max_iterations": 600}
    plain = solved(measured, source, noise=noise, **options)
    scaled = solved((measured * 1e5).float(), source * 1e-8, noise=noise * 1e5, **options)
    assert plain.converged
    assert scaled.converged
    assert scaled.field.dtype == torch.float32
    ratio = scaled.field.double() / plain.field * 1e13
    assert (ratio.log().abs() < 0.05).all()
    assert (scaled.deviation() / plain.deviation() - 1).abs().max() < 0.05


ORDER = (NODES[:, 0] * 8 + NODES[:, 1]).argsort()
HERE = pulses(NODES, 8, 8).float()
FORMS = {
    "mask": lambda v, s: solved(v[:, ORDER], s, HERE.any(0)),
    "weights": lambda v, s: solved(v, s, HERE),
    "numpy": lambda v, s: solved(v.numpy(), s.numpy(), NODES.numpy()),
    "autograd": lambda v, s: solved(v.clone().requires_grad_(), s),
    "inference": torch.inference_mode()(solved),
    "a mean of lists": lambda v, s: solved(v, s, prior=Smoothness(4, mean=[[1.0] * 8] * 8)),
    "a mean of NumPy": lambda v, s: solved(
        v, s, prior=Smoothness(np.float32(4), mean=np.ones((8, 8)))
    ),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("form", FORMS)
def test_other_forms_of_the_arguments_say_the_same(form):
    _, source, measured = wells()
    found = FORMS[form](measured, source).field
    assert not found.requires_grad
    torch.testing.assert_close(found, solved(measured, source).field)


def test_currents_that_are_unknown_outside_of_the_mask():
    _, source, measured = wells()
    mask = torch.ones(8, 8, dtype=torch.bool)
    mask[7, 7] = False
    found = solved(measured, torch.where(mask, source, math.nan), mask=mask).field
    expected = solved(measured, source, mask=mask).field
    torch.testing.assert_close(found, expected, equal_nan=True)


@pytest.mark.parametrize("boundary", ["dirichlet", (("dirichlet", "neumann"), Robin(0.3))])
def test_a_grid_given_as_a_mesh_is_the_grid(boundary):
    k, source, _ = wells()
    h = 0.5
    v = potentials(k, source, spacing=h, boundary=boundary)
    measured = v[:, NODES[:, 0], NODES[:, 1]]
    found = solved(measured, source, spacing=h, boundary=boundary, tol=1e-6)
    walls = boundary
    if not isinstance(boundary, str):
        walls = {"low0": "dirichlet", "low1": Robin(0.3), "high1": Robin(0.3)}
    mesh = {"volumes": grid_as_graph((8, 8), (8 * h, 8 * h)), "boundary": walls, "tol": 1e-6}
    other = solved(measured, source.flatten(1), 8 * NODES[:, 0] + NODES[:, 1], **mesh)
    torch.testing.assert_close(other.field, found.field.flatten(), rtol=1e-7, atol=0)
    torch.testing.assert_close(other.deviation(), found.deviation().flatten(), rtol=1e-6, atol=0)


def test_missing_values_do_not_count_and_one_source_needs_no_axis():
    _, source, measured = wells()
    gaps = measured.clone()
    gaps[1:] = math.nan
    gaps[0, 2] = math.nan
    found = solved(gaps, source)
    kept = [0, 1, 3, 4, 5]
    alone = solved(measured[0, kept], source[0], NODES[kept])
    torch.testing.assert_close(found.field, alone.field)
    assert alone.residual.shape == (5,)
    assert found.residual.isnan().equal(gaps.isnan())


def test_a_network_without_ground_takes_currents_and_differences_that_sum_to_zero():
    """The mean potential is not determined: a ground anywhere changes nothing, and neither do leaks
    that only lift potentials. Currents sum to zero up to rounding, which over a leak of 1e-30 is
    10^13 volts."""
    grid, mask = (8, 8), torch.ones(8, 8, dtype=torch.bool)
    mask[1:3, 1:3] = False
    source = torch.zeros(2, *grid, dtype=torch.float64)
    source[:, 5, 5], source[0, 0, 0], source[0, 7, 1], source[1, 2, 4] = 0.3, -0.1, -0.2, -0.3
    assert source.sum((1, 2)).any()
    rim = torch.cartesian_prod(torch.tensor([0, 3, 7]), torch.tensor([0, 4, 7]))
    electrode = pulses(rim, *grid)
    weights = electrode.roll(1, 0) - electrode
    ground = torch.zeros(grid, dtype=torch.float64)
    ground[3, 3] = 1
    k = torch.ones(grid, dtype=torch.float64)
    k[2:5, 3:6] = 3
    v = potentials(k, source, ground, mask=mask)
    measured = torch.einsum("spq,mpq->sm", v, weights)
    options = {"prior": Smoothness(4.0, mean=1.0), "noise": 1e-3, "mask": mask}
    none, *others = (
        reconstruct(measured, weights, source, leak=leak, **options)
        for leak in (None, 3 * ground, *(torch.full(grid, x) for x in (1e-12, 1e-30, 1e-43)))
    )
    assert none.converged
    assert none.field.isnan().equal(~mask)
    inside = none.field[mask].log() - k[mask].log()
    assert inside.square().mean() < k[mask].log().square().mean()
    same = {"atol": 0, "equal_nan": True}
    for found in others:
        torch.testing.assert_close(found.field, none.field, rtol=1e-8, **same)
        torch.testing.assert_close(found.deviation(), none.deviation(), rtol=1e-7, **same)


def test_unknown_noise_is_estimated():
    k, source, _ = wells()
    v = potentials(k, source, boundary="dirichlet")
    generator = torch.Generator().manual_seed(1)
    nodes = torch.ones(8, 8, dtype=torch.bool)
    sigma = 0.02
    measured = v.flatten(1) + sigma * torch.randn(3, 64, dtype=v.dtype, generator=generator)
    found = solved(measured, source, nodes, noise=None)
    assert found.converged
    assert found.fit == pytest.approx(1, abs=0.03)
    assert found.noise.mean().item() == pytest.approx(sigma, rel=0.2)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("mean", [None, 1.0])
def test_a_wrong_sign_is_doubted_where_the_noise_is_estimated(mean):
    """`fit` cannot show it: it is 1 by construction."""
    _, source, measured = wells()
    prior = Smoothness(length=4.0, mean=mean)
    with pytest.warns(RuntimeWarning) as caught:
        found = solved(-measured, source, prior=prior, noise=None)
    assert found.fit == pytest.approx(1, abs=0.03)
    messages = [str(one.message) for one in caught]
    assert any("estimated noise" in text and "as large as" in text for text in messages)
    assert any("no constant conductivity" in text for text in messages) == (mean is None)
    assert not found.explained
    found = solved(measured, source, prior=prior, noise=None)
    assert found.converged  # although these measurements have no noise at all
    assert found.explained


@pytest.mark.parametrize("prior", [Smoothness(6.0, mean=1.0), TotalVariation(1.0, mean=1.0)])
def test_a_noise_far_below_the_first_misfit_converges(prior):
    """Exact data, and a noise of a millionth: the first linearisation is no guide to them."""
    generator = torch.Generator().manual_seed(0)
    truth = Smoothness(6.0).sample((12, 12), generator=generator, boundary="dirichlet")[0].exp()
    nodes = torch.cartesian_prod(torch.arange(12), torch.arange(12))[::3]
    source = pulses(nodes[[0, 23, 47]], 12, 12)
    leak = 0.01 * torch.rand(12, 12, dtype=torch.float64, generator=generator)
    measured = potentials(truth, source, leak, boundary="dirichlet")[:, nodes[:, 0], nodes[:, 1]]
    found = solved(measured, source, nodes, prior=prior, noise=1e-6, leak=leak)
    assert found.converged
    assert (found.noise / 1e-6 - 1).abs().max() < 1e-6
    assert found.residual.square().mean().sqrt() < 2e-6
    assert (found.field / truth).log().square().mean() < 0.1 * truth.log().square().mean()


@pytest.mark.parametrize("steps", [1, 50])
def test_measurements_that_no_field_explains_have_a_bad_fit(steps, capsys):
    """Which is said beside steps that have not converged, too."""
    _, source, measured = wells()
    assert solved(measured, source).fit < 2
    assert capsys.readouterr() == ("", "")
    with pytest.warns(RuntimeWarning, match=r"residuals are [\d.]+ times the noise") as caught:
        found = solved(-measured, source, max_iterations=steps, progress=True)
    shown = capsys.readouterr().err
    assert f"\rreconstruct: step {found.iterations}/{steps}, next " in shown
    assert shown.endswith("\n")
    assert found.fit > 10
    assert not found.explained
    ratio = (found.residual / found.noise).square().mean().sqrt().item()
    messages = " ".join(str(one.message) for one in caught)
    assert f"are {ratio:.3g} times" in messages
    assert (f"not converged after {steps} iterations" in messages) == (not found.converged)
    assert steps > 1 or not found.converged


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("prior", [PRIOR, TotalVariation(weight=1.0, mean=1.0)])
def test_a_right_noise_is_not_doubted(prior):
    _, source, measured = wells()
    generator = torch.Generator().manual_seed(3)
    noise = 0.02 * measured.abs()
    for _ in range(5):
        error = noise * torch.randn(measured.shape, dtype=noise.dtype, generator=generator)
        assert solved(measured + error, source, prior=prior, noise=noise).explained


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("part", "named"),
    [((1, slice(None)), "under source 1"), ((slice(None), 3), "of measurement 3")],
)
def test_one_bad_source_or_electrode_among_many_is_doubted(part, named):
    """20 or 50 of 1,000 measurements of a known network are 4 times the noise off: 1.1 times the
    noise over all of them. Some are missing."""
    k = torch.ones(6, 6, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    source = torch.randn(50, 6, 6, dtype=torch.float64, generator=generator)
    nodes = torch.cartesian_prod(torch.arange(6), torch.arange(6))[:20]
    measured = potentials(k, source, k)[:, nodes[:, 0], nodes[:, 1]]
    measured = measured + 0.1 * torch.randn(50, 20, dtype=torch.float64, generator=generator)
    measured[5, 3] = math.nan
    settings = {"prior": Smoothness(100.0, 0.01, mean=1.0), "noise": 0.1, "leak": k}
    assert reconstruct(measured, nodes, source, **settings).explained
    measured[part] += 0.4 * (-1.0) ** torch.arange(measured[part].numel())
    with pytest.warns(RuntimeWarning, match=f"the residuals {named} are [34].* times the noise"):
        found = reconstruct(measured, nodes, source, **settings)
    assert found.converged
    assert found.fit < 2
    assert not found.explained


ONE_NODE = {"unknown": "source"}
ONE_NODE |= dict.fromkeys(("conductivity", "leak"), torch.ones(1, 1, dtype=torch.float64))


@pytest.mark.parametrize("noise", [1e-2, 1e-4, 1e-6])
def test_error_bars_far_below_the_priors_deviation(noise):
    """One node with a leak of 1, whose source is measured as accurately as `noise`."""
    prior = Smoothness(length=1.0, deviation=0.7)
    found = reconstruct([2.0], [[0, 0]], prior=prior, noise=noise, **ONE_NODE)
    assert found.deviation().item() == pytest.approx((noise**-2 + 0.7**-2) ** -0.5, rel=1e-3)


def test_numbers_of_python_have_all_of_their_digits():
    """A pressure of an atmosphere, measured to a hundredth of a pascal: 0.008 Pa are float32's."""
    prior = Smoothness(length=1.0, mean=101325.0)
    found = reconstruct([101325.123], [[0, 0]], noise=1e-4, prior=prior, **ONE_NODE)
    assert found.field.item() == pytest.approx(101325.123, abs=1e-6)


@pytest.mark.parametrize("crosses", ["source", "weights"])
def test_no_current_or_difference_crosses_between_parts_without_ground(crosses):
    """Two parts of a line: a sum of zero over both is not enough."""
    mask = torch.tensor([True, True, True, False, True, True, True])
    within = torch.tensor([[1.0, 0, -1, 0, 0, 0, 0]], dtype=torch.float64)
    across = torch.tensor([[1.0, 0, 0, 0, 0, 0, -1]], dtype=torch.float64)
    given = {"source": within, "weights": within, crosses: across}
    with pytest.raises(ValueError, match=r"in every connected part.* that sum to zero"):
        reconstruct([[1.0]], given["weights"], given["source"], prior=PRIOR, noise=0.1, mask=mask)
    assert reconstruct([[1.0]], within, within, prior=PRIOR, noise=0.1, mask=mask).converged
    mask[1] = False  # now the first node is a part of its own
    with pytest.raises(ValueError, match=r"in every connected part.* that sum to zero"):
        reconstruct([[1.0]], within, within, prior=PRIOR, noise=0.1, mask=mask)


ON_MESH = {"measured": torch.ones(3, 2), "nodes": torch.tensor([1, 2]), "volumes": disc(3)}
ON_MESH |= {"source": torch.ones(3, 37)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"unknown": "capacitance"}, "unknown: expected one of"),
        ({"conductivity": torch.ones(8, 8)}, "conductivity: expected None, because it is unknown"),
        ({"source": None}, "source: expected values, because the unknown is the conductivity"),
        ({"unknown": "leak"}, "conductivity: expected values"),
        ({"measured": torch.zeros(3, 5)}, "expected 6 values a source, one a node, got 5"),
        ({"measured": torch.ones(2, 6)}, r"source: expected shape \(S, \*grid\) with S = 2"),
        ({"measured": torch.full((3, 6), math.nan)}, "measured: expected finite values"),
        ({"measured": torch.full((3, 6), math.inf)}, r"measured: .* got inf at \(0, 0\)"),
        ({"noise": 0.0}, r"noise: expected finite values > 0, got 0.0 at \(0, 0\)"),
        ({"measured": torch.ones(3, 6) + 1j}, "measured: expected real values.*complex64"),
        ({"source": torch.ones(3, 8, 8) + 1j}, "source: expected real values.*complex64"),
        ({"leak": torch.ones(8, 8) + 1j}, "leak: expected real values.*complex64"),
        ({"noise": torch.tensor(1j)}, "noise: expected real values.*complex64"),
        ({"noise": torch.ones(4)}, r"noise: expected a shape that broadcasts to \(3, 6\)"),
        ({"noise": "1 %"}, "noise: expected numbers, as an array or a Tensor, got '1 %'"),
        ({"noise": 1e-14}, "noise: expected at least 1e-7 of what the measurements vary by"),
        ({"measured": [[1.0], [1.0, 2.0]]}, "measured: expected numbers, as an array"),
        ({"nodes": "corner"}, "nodes: expected numbers, as an array"),
        ({"nodes": NODES + 0j}, "nodes: expected indices, a mask or real weights, got torch.compl"),
        ({"mask": "disc"}, "mask: expected numbers, as an array"),
        ({"mask": torch.arange(64).reshape(8, 8) > 0, "source": torch.ones(3, 8, 8)},
         r"source: expected 0 or NaN at missing nodes, got a current into \[0, 0\]"),
        ({"prior": Smoothness(4.0, mean=torch.ones(8, 8) + 1j)}, "mean: expected real values"),
        ({"nodes": NODES + 5}, r"nodes: expected indices of the grid \(8, 8\), from 0"),
        ({"nodes": NODES[:, :1]}, r"nodes: expected indices of shape \(M, 2\)"),
        ({"source": torch.ones(3, 8, 8, 1)}, r"grid \(8, 8, 1\), .* of source.* without channels"),
        ({"measured": torch.ones(6)}, r"grid \(3, 8, 8\), .*where measured is \(S, M\)"),
        ({"nodes": NODES.float()}, r"indices, which are integers, got torch.float32"),
        ({"nodes": torch.ones(6, 8, 7)}, r"nodes: expected weights of shape \(M, \*grid\)"),
        ({"nodes": torch.ones(6, dtype=torch.bool)}, r"nodes: expected a mask of shape"),
        ({"boundary": "neumann"}, "leak: expected a leak or a 'dirichlet' face"),
        ({"boundary": "robin"}, "boundary: expected one of"),
        ({"boundary": "matched"}, "boundary: expected conditions other than 'matched'"),
        ({"boundary": Dirichlet(1.0)}, "without a value or flux other than 0"),
        ({"boundary": Neumann(1.0)}, "without a value or flux other than 0"),
        ({"mask": torch.ones(8, 7, dtype=torch.bool)}, r"mask: expected shape \(\*grid\) = "),
        ({"mask": torch.ones(8, 8)}, "mask: expected dtype torch.bool"),
        ({"mask": torch.eye(8) < 0.5}, "nodes that exist, got a missing one, number 9"),
        ({"spacing": 0.0}, "spacing: expected a number > 0"),
        ({"leak": -torch.ones(8, 8)}, r"leak: expected >= 0 everywhere, got -1.0 at \(0, 0\)"),
        ({"tol": 0}, "tol: expected a finite number > 0"),
        ({"progress": 1}, "progress: expected a bool, got 1"),
        ({"max_iterations": 0}, "max_iterations: expected an integer of at least 1"),
        ({"prior": Smoothness(length=4.0, mean=-1.0)}, "mean: expected > 0 for a conductivity"),
        ({"prior": Smoothness(length=4.0, mean=torch.ones(3))}, "mean: expected a number or shape"),
        ({"prior": Smoothness(length=4.0, mean=[["a"] * 8] * 8)}, "mean: expected"),
        ({"measured": torch.ones(3, 4096), "nodes": torch.ones(64, 64, dtype=torch.bool),
          "source": torch.ones(3, 64, 64)}, r"at most 8\d\d\d values .* \(64, 64\), got 12288"),
        ({"source": None, "unknown": "source", "conductivity": torch.ones(8, 8),
          "leak": torch.ones(8, 8)}, "measured: expected one source's values"),
        (ON_MESH | {"mask": torch.ones(37, dtype=torch.bool)}, "mask, spacing: expected none of"),
        (ON_MESH | {"spacing": 0.5}, "none of them with volumes, got spacing 0.5"),
        (ON_MESH | {"boundary": "matched"}, "expected one of .*'neumann', 'dirichlet'"),
        (ON_MESH | {"boundary": {"left": "dirichlet"}}, r"of \('boundary', 'right'\), got 'left'"),
        (ON_MESH | {"boundary": {"right": Dirichlet(1.0)}}, "without a value or flux other than 0"),
        (ON_MESH | {"source": torch.ones(3, 36)}, r"source: expected shape \(\*grid\) = \(37,\)"),
        (ON_MESH | {"source": torch.ones(37)}, "measured: expected one source's values, got 3"),
        (ON_MESH | {"nodes": torch.tensor([1, 40])}, r"indices of the grid \(37,\), from 0"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_with_what_was_expected(changes, message):
    _, source, measured = wells()
    with pytest.raises(ValueError, match=message):
        solved(**{"measured": measured, "source": source, **changes})


def test_other_kinds_of_priors_and_meshes_and_levels_are_refused():
    _, source, measured = wells()
    with pytest.raises(TypeError, match="expected a Smoothness or a TotalVariation, got str"):
        solved(measured, source, prior="smooth")
    with pytest.raises(TypeError, match="volumes: expected FiniteVolumes, got str"):
        solved(**{**ON_MESH, "volumes": "mesh"})
    with pytest.raises(ValueError, match="level: expected above 0 and below 1, got 1"):
        solved(measured, source).interval(1)


def test_a_reconstruction_is_copied_and_saved(tmp_path):
    _, source, measured = wells()
    found = solved(measured, source)
    torch.save(found, tmp_path / "found.pt")
    drawn = found.sample(2, torch.Generator().manual_seed(0))
    for other in (torch.load(tmp_path / "found.pt", weights_only=False), copy.deepcopy(found)):
        torch.testing.assert_close(other.sample(2, torch.Generator().manual_seed(0)), drawn)
        torch.testing.assert_close(other.deviation(), found.deviation())


def test_a_price_of_the_area_finds_small_inclusions():
    """From the rim a small inclusion looks like a wide and faint one. Total variation alone takes
    that; a price of the area brings the small one back."""
    n = 20
    k = torch.ones(n, n, dtype=torch.float64)
    k[8:11, 6:9] = 10.0
    rim = [(0, j) for j in range(1, n, 3)] + [(n - 1, j) for j in range(1, n, 3)]
    rim += [(i, 0) for i in range(1, n, 3)] + [(i, n - 1) for i in range(1, n, 3)]
    one = pulses(rim, n, n)
    pairs = one.roll(-1, 0) - one
    ground = torch.zeros(n, n, dtype=torch.float64)
    ground[0, 0] = 1.0
    measured = torch.einsum("spq,mpq->sm", potentials(k, pairs, ground), pairs)
    errors = []
    for area in (0.0, 0.3):
        settings = {"prior": TotalVariation(0.1, mean=1.0, area=area), "max_iterations": 200}
        found = reconstruct(measured, pairs, pairs, noise=0.01 * measured.abs(), **settings)
        errors.append(((found.field - k).square().mean() / (k - 1).square().mean()).sqrt().item())
    assert errors[1] < 0.5 * errors[0]


@pytest.mark.slow
def test_intervals_hold_as_many_true_values_as_they_say():
    """Truths drawn from the prior, 25 wells, noise of 1 %, over 24 media."""
    n, covered, ratios = 16, [], []
    nodes = torch.cartesian_prod(*[torch.arange(1, n, 3)] * 2)
    prior = Smoothness(length=0.5, mean=1.0)
    source = pulses(nodes[[0, 4, 12, 20, 24]], n, n)
    for seed in range(24):
        generator = torch.Generator().manual_seed(seed)
        k = prior.sample((n, n), 1 / n, generator=generator)[0].exp()
        v = potentials(k, source, spacing=1 / n, boundary="dirichlet")[:, nodes[:, 0], nodes[:, 1]]
        noise = 0.01 * v.abs()
        measured = v + noise * torch.randn(v.shape, dtype=v.dtype, generator=generator)
        found = solved(measured, source, nodes, prior=prior, noise=noise, spacing=1 / n)
        assert found.converged
        low, high = found.interval(0.9)
        covered.append(((low < k) & (k < high)).double().mean())
        ratios.append((found.field / k).log().square().mean() / k.log().square().mean())
    assert 0.85 < torch.stack(covered).mean() < 0.95
    assert max(ratios) < 1
