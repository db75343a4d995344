"""Steady problems: data, splits, units, losses, scores, errors; controls that know the equation."""

import dataclasses
import itertools
import math
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
import torch
from running import One, model, problem, smoke
from torch import nn
from torch.utils.data import TensorDataset

from chonn_lab.experiments import solvers as controls
from chonn_lab.experiments.base import Standardized, Units
from chonn_lab.experiments.fields import law_error, media_error
from chonn_lab.experiments.models import Extended
from chonn_lab.problems import darcy, fno_darcy
from chonn_lab.problems.darcy_solver import solve_steady
from chonn_ops import Circuit
from chonn_ops.inspect import conductivity_law
from chonn_ops.metrics import MetricAccumulator
from chonn_ops.models import CHONNNetwork2d

STEADY = (
    *("darcy", "poisson", "fno_darcy", "darcy_contrast", "darcy_lognormal", "darcy_loguniform"),
    *("upscaling", "unknown_law", "rectangle", "helmholtz", "flux_law"),
)


@pytest.fixture(scope="module")
def folders(smoke_data):
    """Data of all problems at scale smoke."""
    for name in STEADY:
        smoke(name).prepare(smoke_data / name)
    return {name: smoke_data / name for name in STEADY}


@pytest.mark.parametrize("name", STEADY)
def test_units_fit_the_fields(smoke_data, name):
    """Models see and predict fields of about unit size around zero."""
    found = smoke(name, "n_train=56")
    found.prepare(smoke_data / name)
    units = found.about_unit_size
    source, target = found.load(smoke_data / name).train.tensors
    for scaled in (units.scaled(source), (target - units[2]) / units[3]):
        assert abs(float(scaled.mean())) < 0.35
        assert 0.6 < float(scaled.std()) < 1.5
    wrapped = found.wrap(nn.Identity())
    assert isinstance(wrapped, Standardized)
    expected = units[2] + units[3] * units.scaled(source[:2])
    torch.testing.assert_close(wrapped(source[:2]), expected)


def test_splits_follow_each_other_in_the_file(folders):
    (path,) = smoke("darcy").makers(folders["darcy"])
    with h5py.File(path) as file:
        fields = file["nu"][...][:, None], file["tensor"][...]
    data = smoke("darcy").load(folders["darcy"])
    splits = (data.train, data.validation, data.tests["test"])
    for at, stored in enumerate(fields):
        found = torch.cat([split.tensors[at] for split in splits])
        np.testing.assert_array_equal(found, stored)
    assert [len(split) for split in splits] == [8, 4, 4]


@pytest.mark.parametrize("name", ["darcy", "poisson", "fno_darcy"])
def test_scores_of_a_known_error(folders, name):
    found = smoke(name)
    data = found.load(folders[name])
    target = data.tests["test"].tensors[1]
    data = dataclasses.replace(data, tests={"test": TensorDataset(target, target)})
    evaluation = found.evaluate(One(lambda x: 1.1 * x), data)
    scores = evaluation["metrics"]["test"]
    assert next(iter(scores)) == found.error
    for metric in ("relative_l1", "relative_l1_median", found.error):
        assert scores[metric] == pytest.approx(0.1, rel=1e-5)
    accumulator = MetricAccumulator()
    accumulator.update(*(f[:, 0, :, :, None, None] for f in (1.1 * target, target)))
    expected = accumulator.compute()
    scores.pop("relative_l1_median")
    assert scores == pytest.approx({metric: expected[metric] for metric in scores}, rel=1e-5)
    assert evaluation["milliseconds"] > 0


def test_the_published_file_is_read_and_never_replaced(tmp_path):
    sizes = ("n_train=3", "n_validation=1", "n_test=1")
    found = smoke("darcy", *sizes, "resolution=128")
    path = tmp_path / darcy.OFFICIAL_NAME
    nu = np.random.default_rng(0).random((6, 128, 128)).astype("f4")
    with h5py.File(path, "w") as file:
        file["nu"], file["tensor"] = nu, nu[:, None]
    found.prepare(tmp_path)
    assert list(tmp_path.iterdir()) == [path]
    test = found.load(tmp_path).tests["test"]
    np.testing.assert_array_equal(test.tensors[0][:, 0], nu[4:5])


def test_fno_darcy_is_every_so_many_nodes_of_two_files(folders):
    found = smoke("fno_darcy", "test_resolutions=[43]")
    train, test = found.makers(folders["fno_darcy"])
    data = found.load(folders["fno_darcy"])
    a, u = fno_darcy.read(train, 43)
    assert a.shape == (12, 43, 43)
    for split, rows in ((data.train, slice(0, 8)), (data.validation, slice(8, 12))):
        torch.testing.assert_close(split.tensors[0][:, 0], a[rows, ::2, ::2])
        torch.testing.assert_close(split.tensors[1][:, 0], u[rows, ::2, ::2])
    a, u = fno_darcy.read(test, 43)
    torch.testing.assert_close(data.tests["test"].tensors[1][:, 0], u[:, ::2, ::2])
    torch.testing.assert_close(data.tests["at_43"].tensors[0][:, 0], a)


def test_published_files_of_fno_are_read_in_place_of_ours(tmp_path):
    sizes = ("n_train=3", "n_validation=1021", "n_test=2", "resolution=22")
    found = smoke("fno_darcy", *sizes, "solver_resolution=421", "resolution=85")
    paths = [tmp_path / name for name in fno_darcy.OFFICIAL_NAMES]
    for path in paths:
        path.touch()
    assert list(found.makers(tmp_path)) == paths


OTHERS = {"fno_darcy", "poisson", "unknown_law", "flux_law"}


@pytest.mark.parametrize("name", sorted({*STEADY} - OTHERS))
def test_who_is_told_the_equation_and_its_scheme_knows_the_data(folders, name):
    """To the rounding of float32 fields; another scheme, as `direct`, leaves 1e-3 and more."""
    found = smoke(name)
    train = found.load(folders[name]).train
    assert found.errors(model(found, "own_scheme"), train.tensors).max() < 3e-7


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("fno_darcy", "own_scheme", "inputs suffice for the data's scheme, got fno_darcy"),
        ("upscaling", "direct", "is a coefficient or a source, got upscaling: medium in blocks"),
        ("fno_darcy", "learned_coefficients", "is a medium in blocks or a porosity, got fno_darcy"),
    ],
)
def test_models_that_a_problem_cannot_have(name, kind, message):
    with pytest.raises(ValueError, match=message):
        model(smoke(name), kind)


def test_kinds_of_media_are_scored_apart(folders):
    found = smoke("upscaling")
    data = found.load(folders["upscaling"])
    kinds = ["log-normal", "two-phase", "channels"]
    assert list(data.tests) == ["test", *kinds]
    assert [len(data.tests[kind]) for kind in kinds] == [2, 2, 2]
    assert torch.equal(data.tests["two-phase"].tensors[1], data.tests["test"].tensors[1][1::3])


def test_a_learned_law_is_compared_up_to_a_factor():
    torch.manual_seed(0)
    x = 0.01 + torch.rand(2, 1, 16, 16)
    network = CHONNNetwork2d(1, 1)
    network.calibrate(x, torch.rand(2, 1, 16, 16))
    k = conductivity_law(network, x.flatten()[:, None]).mean((1, 2))
    error, curves = law_error(network, x.flatten(), 7 * k)
    assert error < 1e-4
    torch.testing.assert_close(curves["law"], curves["law_true"], rtol=1e-3, atol=0)
    assert curves["law_input"] == sorted(curves["law_input"])
    error, _ = law_error(network, x.flatten(), k * torch.tensor([1.1, 1 / 1.1]).repeat(256))
    assert error < 0.05  # of groups, most of the scatter is gone


def test_what_is_added_to_a_grid_goes_on_beyond_its_ends_and_is_taken_off():
    seen = []
    x = torch.arange(14 * 16.0).reshape(1, 1, 14, 16)
    y = Extended(One(lambda x: seen.append(x) or x))(x)
    assert torch.equal(y, x)
    assert seen[0].shape == (1, 1, 16, 16)
    assert torch.equal(seen[0][0, 0, 13:], x[0, 0, 13:].expand(3, -1))


def test_darcys_finer_tests_are_the_same_problem(tmp_path):
    """Media at the same points, walls at the same place: nearly the same solutions."""
    found = smoke("darcy", "resolution=16", "test_resolutions=[48]")
    found.prepare(tmp_path)
    data = found.load(tmp_path)
    (nu, u), (fine_nu, fine_u) = (data.tests[name].tensors for name in data.tests)
    # Centres of the coarse cells are those of every third fine cell.
    assert float((fine_nu[..., 1::3, 1::3] == nu).double().mean()) > 0.98
    error = (fine_u[..., 1::3, 1::3] - u).abs().sum() / u.abs().sum()
    assert float(error) < 0.1
    assert found.errors(model(found, "own_scheme"), (fine_nu, fine_u)).max() < 3e-7


def test_poissons_finer_tests_are_the_same_samples(tmp_path):
    """Every 17th of 256 nodes is one of 16."""
    found = smoke("poisson", "resolution=16", "test_resolutions=[256,48]")
    found.prepare(tmp_path)
    data = found.load(tmp_path)
    names = ["test", "out_of_distribution", "at_256", "at_48"]
    names += [f"out_of_distribution_{name}" for name in names[2:]]
    assert list(data.tests) == names
    for coarse, fine in (("test", "at_256"), names[1:5:3]):
        # With the ranges of the training on the nodes that both have.
        both = zip(data.tests[coarse].tensors, data.tests[fine].tensors, strict=True)
        for field, finer in both:
            assert float((finer[..., ::17, ::17] - field).abs().mean()) < 1e-6


@pytest.mark.parametrize("hole", ["none", "insulated"])
def test_a_plate_with_or_without_a_hole(tmp_path, hole):
    """The scheme knows the data on every grid; in the hole targets and outputs are 0."""
    found = smoke("rectangle", f"hole={hole}", "test_resolutions=[96]")
    found.prepare(tmp_path)
    data = found.load(tmp_path)
    for test in data.tests.values():
        assert found.errors(model(found, "own_scheme"), test.tensors).max() < 3e-7
    x, y = data.train.tensors
    assert x.shape == (8, 1, 32, 48)
    inside = (slice(None), 0, slice(12, 20), slice(16, 24))
    network = model(found, "chonn_network")
    found.calibrate(network, data.train)
    for v in (y, network(x), model(found, "fno_neuralop")(x)):
        assert (v[inside] == 0).all() == (hole != "none")
        assert (v[:, 0, :12] != 0).all()


def test_fields_in_other_units_are_those_of_the_data_for_the_scores(folders):
    found = problem("problem=darcy", "+problem.rescale=[1e6,1e3,0.5]")
    x, y = found.load(folders["darcy"]).train.tensors
    one = One(lambda given: 1e3 * (given / 1e6 - 0.5))
    one.in_data_units = True
    torch.testing.assert_close(found.wrap(one)(x), x)
    raw, network = model(smoke("darcy"), "chonn_network"), model(found, "chonn_network")
    raw.calibrate(x, y)
    network.calibrate(x, y)
    torch.testing.assert_close(network(x), raw(x), rtol=1e-3, atol=1e-4)


def test_a_law_is_read_in_the_media_of_the_data(folders):
    """Up to a factor of all faces, not of those along one axis."""
    x = smoke("unknown_law").load(folders["unknown_law"]).train.tensors[0]
    torch.manual_seed(0)
    network = CHONNNetwork2d(1, 1, width=4, depth=1)
    network.calibrate(x, x)
    with torch.no_grad():
        given = []
        network.head.register_forward_pre_hook(lambda _, features: given.extend(features))
        network(x)
        g = network.head.assemble(*given)[0].conductance
        same, other = (Circuit([7 * g[0], factor * g[1]], 0 * g[0]) for factor in (7, 21))
        assert media_error(network, x, same) < 1e-5
        assert media_error(network, x, other) > 0.2


CONTROLS = ("direct", "solve_cnn")
PHYSICS = controls.Physics("coefficient", "centres")
MEDIUM = SimpleNamespace(physics=PHYSICS, about_unit_size=Units(0.5, 0.45, 0.15, 0.12))
PHYSICS = controls.Physics("source", "corners", strength=2 * math.pi**2)
SOURCE = SimpleNamespace(physics=PHYSICS, about_unit_size=Units(0.5, 0.1, 0.5, 0.1))


def test_poissons_own_scheme_finds_the_ranges_of_the_normalised_fields(smoke_data):
    found = problem("problem=poisson", "problem.test_resolutions=[96]")
    found.prepare(smoke_data / "poisson")
    data = found.load(smoke_data / "poisson")
    scheme = model(found, "own_scheme")
    for test in data.tests.values():
        assert found.errors(scheme, test.tensors).min() > 0.1
    scheme.fit(data.train)
    assert set(data.tests) >= {"test", "out_of_distribution", "at_96"}
    for name, test in data.tests.items():
        assert found.errors(scheme, test.tensors).max() < 3e-6, name


def test_the_textbooks_walls_are_at_the_ends():
    solve = controls.DirectSolve(MEDIUM).double()
    even = torch.full((1, 1, 24, 24), 0.3, dtype=torch.float64)
    expected = torch.from_numpy(solve_steady(even[0, 0].numpy(), 1.0, margin=0.0))
    torch.testing.assert_close(solve(even).detach()[0, 0], expected, rtol=1e-4, atol=1e-6)


def test_both_affine_functions_of_a_source_are_learned():
    """Data in other units than the solver's: u of a - b f, to a thousandth of its size."""
    torch.manual_seed(0)
    x = torch.linspace(0, 1, 17)
    modes = torch.stack([torch.sin(math.pi * k * x) for k in (1, 2, 3)])
    f = torch.einsum("nij,ix,jy->nxy", torch.randn(8, 3, 3), modes, modes)[:, None]
    solve = controls.DirectSolve(SOURCE)
    u = solve.solve(torch.ones_like(f), f).detach()
    source, target = 0.45 + 0.1 * f, 0.6 + 2 * u
    optimizer = torch.optim.Adam(solve.parameters(), 2e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 300)
    for _ in range(300):
        optimizer.zero_grad()
        loss = (solve(source) - target).abs().mean()
        loss.backward()
        optimizer.step()
        schedule.step()
    assert float(loss.detach()) < 1e-3 * float((target - target.mean()).abs().mean())


def test_convolutions_correct_the_solve():
    torch.manual_seed(0)
    model = controls.SolveThenConvolve(MEDIUM, width=4, depth=3)
    direct, k = controls.DirectSolve(MEDIUM), 0.1 + torch.rand(2, 1, 24, 24)
    assert model(k).shape == k.shape
    assert not torch.allclose(model(k), direct(k))
    torch.nn.init.zeros_(model.network[-1].weight)
    torch.nn.init.zeros_(model.network[-1].bias)
    torch.testing.assert_close(model(k), direct(k))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *itertools.product(("darcy", "poisson"), CONTROLS),
        *itertools.product(("upscaling", "unknown_law"), ["learned_coefficients"]),
    ],
)
def test_gradients_reach_every_parameter(name, kind, assert_learns):
    found = problem(f"problem={name}")
    built = model(found, kind)
    x = 0.1 + torch.rand(2, found.in_channels, 17, 12) / 4
    (built(x) - torch.rand(2, 1, 17, 12)).abs().mean().backward()
    assert_learns(built)
