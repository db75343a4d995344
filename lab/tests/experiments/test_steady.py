"""Steady problems: data, splits, units, masks, losses, scores, what solvers know, errors."""

import dataclasses

import h5py
import numpy as np
import pytest
import torch
from running import One, model, smoke
from torch import nn
from torch.utils.data import TensorDataset

from chonn_lab.experiments.modules import Extended, Standardized
from chonn_lab.experiments.steady import GRID_METRICS
from chonn_lab.problems import condiff, darcy, fno_darcy
from chonn_lab.problems.domains import domain_mask
from chonn_ops.metrics import MetricAccumulator

STEADY = (
    *("darcy", "poisson", "fno_darcy", "darcy_contrast", "darcy_lognormal", "darcy_loguniform"),
    *("condiff", "helmholtz", "helmholtz_open", "upscaling", "unknown_law"),
)
# With the finer grids that their tests need: of 256 nodes every 17th is one of 16.
WITH_DOMAINS = {"darcy": "48", "poisson": "256,48"}


def small(name, domain="square", finer=""):
    """At 16 x 16, where data are made at once."""
    return smoke(name, "resolution=16", f"domain={domain}", f"test_resolutions=[{finer}]")


@pytest.fixture(scope="module")
def folders(smoke_data):
    """Data of all problems at scale smoke."""
    for name in STEADY:
        smoke(name).prepare(smoke_data / name)
    return {name: smoke_data / name for name in STEADY}


@pytest.fixture(scope="module")
def domains(tmp_path_factory):
    """Data of two problems on all domains, with finer grids."""
    found = {}
    for name in WITH_DOMAINS:
        found[name] = tmp_path_factory.mktemp(name)
        for domain in ("square", "l-shape", "holes"):
            small(name, domain, WITH_DOMAINS[name]).prepare(found[name])
    return found


def files(folder):
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


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


@pytest.mark.parametrize(
    "name", ["darcy", "darcy_contrast", "darcy_lognormal", "darcy_loguniform", "helmholtz"]
)
def test_splits_follow_each_other_in_the_file(folders, name):
    (path,) = smoke(name).makers(folders[name])
    with h5py.File(path) as file:
        inputs = file["k" if name == "helmholtz" else "nu"][...]
        outputs = file["tensor"][...]
    data = smoke(name).load(folders[name])
    splits = (data.train, data.validation, data.tests["test"])
    for at, stored in enumerate((inputs[:, None], outputs)):
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
    scores = evaluation.metrics["test"]
    assert next(iter(scores)) == found.error
    for metric in ("relative_l1", "relative_l1_median", found.error):
        assert scores[metric] == pytest.approx(0.1, rel=1e-5)
    accumulator = MetricAccumulator()
    accumulator.update(*(f[:, 0, :, :, None, None] for f in (1.1 * target, target)))
    expected = accumulator.compute()
    scores.pop("relative_l1_median")
    assert scores == pytest.approx({metric: expected[metric] for metric in scores}, rel=1e-5)
    torch.testing.assert_close(evaluation.fields["prediction"], 1.1 * evaluation.fields["target"])
    assert evaluation.milliseconds > 0


def test_the_published_file_is_read_and_never_replaced(tmp_path):
    sizes = ("n_train=3", "n_validation=1", "n_test=1")
    found = smoke("darcy", *sizes, "resolution=128")
    path = tmp_path / darcy.OFFICIAL_NAME
    nu = np.random.default_rng(0).random((6, 128, 128)).astype("f4")
    with h5py.File(path, "w") as file:
        file["nu"], file["tensor"] = nu, nu[:, None]
    found.prepare(tmp_path)
    assert files(tmp_path) == [path]
    test = found.load(tmp_path).tests["test"]
    np.testing.assert_array_equal(test.tensors[0][:, 0], nu[4:5])


def test_one_of_two_files_that_belongs_to_others_is_explained(tmp_path):
    found = smoke("poisson")
    inside, outside, *_ = found.makers(tmp_path)
    inside.write_bytes(b"mine")
    with pytest.raises(ValueError, match=f"{outside.name}: missing, and made together with"):
        found.prepare(tmp_path)
    assert inside.read_bytes() == b"mine"


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
    """Both or none: ours and theirs are not of one law."""
    sizes = ("n_train=3", "n_validation=1021", "n_test=2", "resolution=22")
    found = smoke("fno_darcy", *sizes, "solver_resolution=421", "resolution=85")
    a = np.random.default_rng(0).random((43, 43, 1024), dtype="f4")
    paths = [tmp_path / name for name in fno_darcy.OFFICIAL_NAMES]

    def write(path):
        with h5py.File(path, "w") as file:
            for name in ("coeff", "sol"):
                file.create_dataset(name, data=a, chunks=(43, 43, 1))

    write(paths[0])
    with pytest.raises(FileNotFoundError, match=r"smooth2.mat: expected beside the published"):
        found.prepare(tmp_path)
    write(paths[1])
    assert list(found.makers(tmp_path)) == paths


def test_who_is_told_condiff_lacks_the_last_cells_alone(folders):
    """With the cells that no model sees as the solver takes them, it is exact."""
    found = smoke("condiff")
    told = found.own_scheme()
    x, u = found.load(folders["condiff"]).train.tensors
    rows = x.double().numpy()
    padded = [(np.pad(k, (0, 1), mode="edge"), f) for k, *_, f in rows]
    exact = torch.tensor(np.stack([condiff.solve(k, f) for k, f in padded]))
    torch.testing.assert_close(told(x.double())[:, 0], exact, rtol=1e-10, atol=1e-15)
    assert 1e-3 < float(found.errors(told, (x, u)).mean()) < 0.2


@pytest.mark.parametrize(
    "name", sorted(set(STEADY) - {"condiff", "fno_darcy", "poisson", "unknown_law"})
)
def test_who_is_told_the_equation_and_its_scheme_knows_the_data(folders, name):
    """To the rounding of float32 fields; another scheme, as `direct`, leaves 1e-3 and more."""
    found = smoke(name)
    train = found.load(folders[name]).train
    assert found.errors(found.own_scheme(), train.tensors).max() < 3e-7


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("fno_darcy", "own_scheme", "inputs suffice for the data's scheme, got fno_darcy"),
        ("condiff", "direct", "is a coefficient or a source, got condiff: coefficient and source"),
        ("darcy", "coarse_mean", "whose input is a medium in blocks, got darcy: coefficient"),
        ("upscaling", "monotone_law", "whose input is a porosity, got upscaling: medium in blocks"),
        ("fno_darcy", "learned_coefficients", "is a medium in blocks or a porosity, got fno_darcy"),
    ],
)
def test_models_that_a_problem_cannot_have(name, kind, message):
    with pytest.raises(ValueError, match=message):
        model(smoke(name), kind)


def test_kinds_of_media_are_scored_apart(folders):
    """Of the means of blocks, each is the best one for another kind."""
    found = smoke("upscaling")
    data = found.load(folders["upscaling"])
    kinds = ["log-normal", "two-phase", "channels"]
    assert list(data.tests) == ["test", *kinds]
    assert [len(data.tests[kind]) for kind in kinds] == [2, 2, 2]
    assert torch.equal(data.tests["two-phase"].tensors[1], data.tests["test"].tensors[1][1::3])
    means = {m: model(found, "coarse_mean", f"model.mean={m}") for m in ("flow", "arithmetic")}
    scores = {mean: found.evaluate(control, data).metrics for mean, control in means.items()}
    flow, arithmetic = ({k: scores[m][k]["relative_l1"] for k in kinds} for m in means)
    assert flow["two-phase"] < arithmetic["two-phase"]
    assert arithmetic["channels"] < flow["channels"]
    with pytest.raises(ValueError, match=r"mean: expected one of .*'flow'.*, got 'power'"):
        model(found, "coarse_mean", "model.mean=power")


def test_waves_at_other_frequencies_and_on_finer_grids(tmp_path):
    """The same media and sources as the test samples."""
    sizes = ("n_train=2", "n_validation=1", "n_test=1")
    found = smoke("helmholtz_open", *sizes, "test_resolutions=[96]", "test_wavenumbers=[15]")
    found.prepare(tmp_path)
    data = found.load(tmp_path)
    assert list(data.tests) == ["test", "at_96", "at_wavenumber_15"]
    (x, u), (fine, fine_u), (slow, _) = (test.tensors for test in data.tests.values())
    assert fine.shape == (1, 2, 96, 96)
    averaged = nn.functional.avg_pool2d(fine_u, 2)
    assert float((averaged - u).norm() / u.norm()) < 0.3
    torch.testing.assert_close(slow[:, 0] / x[:, 0], torch.full_like(x[:, 0], 15 / 20))
    torch.testing.assert_close(slow[:, 1], x[:, 1])


def test_a_margin_goes_on_beyond_the_domain_and_is_taken_off():
    seen = []
    x = torch.arange(16.0).reshape(1, 1, 4, 4)
    y = Extended(One(lambda x: seen.append(x) or x), 0.25)(x)
    assert torch.equal(y, x)
    assert seen[0].shape == (1, 1, 6, 6)
    assert seen[0][0, 0, 0].tolist() == [0, 0, 1, 2, 3, 3]


@pytest.mark.parametrize("name", WITH_DOMAINS)
@pytest.mark.parametrize("domain", ["l-shape", "holes"])
def test_missing_nodes_are_neither_learned_nor_scored(name, domain, domains):
    found = small(name, domain, WITH_DOMAINS[name])
    data = found.load(domains[name])
    exists = found.mask(16)
    np.testing.assert_array_equal(exists, domain_mask(domain, type(found).coordinates(16)))
    target = data.tests["test"].tensors[1]
    assert float(target[..., ~exists].std()) == pytest.approx(0, abs=1e-6)
    good = One(lambda x: torch.where(exists, 1.1 * x, 5.0))
    errors = found.errors(good, (target, target))
    torch.testing.assert_close(errors, torch.full_like(errors, 0.1))
    data = dataclasses.replace(data, tests={"test": TensorDataset(target, target)})
    evaluation = found.evaluate(good, data)
    scores = evaluation.metrics["test"]
    assert set(scores) == set(found.metrics) - set(GRID_METRICS)
    assert scores["relative_l1"] == pytest.approx(0.1, rel=1e-5)
    shown = evaluation.fields
    torch.testing.assert_close(shown["prediction"][:, ~exists], shown["target"][:, ~exists])
    bad = One(lambda x: torch.where(exists, x, 1.1 * x + 1))
    assert float(found.errors(bad, (target, target)).max()) == 0


@pytest.mark.parametrize("name", WITH_DOMAINS)
@pytest.mark.parametrize("kind", ["unet", "fno", "cno"])
def test_models_see_the_mask_of_the_grid_they_are_evaluated_on(name, kind):
    found = small(name, "holes")
    wrapped = model(found, kind).eval()
    seen = []
    wrapped.model.model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    for n in (16, 32):
        with torch.no_grad():
            wrapped(torch.rand(2, 1, n, n))
        assert seen[-1].shape == (2, 2, n, n)
        mask = domain_mask("holes", type(found).coordinates(n))
        np.testing.assert_array_equal(seen[-1][1, 1], mask)


@pytest.mark.parametrize("name", WITH_DOMAINS)
def test_networks_take_the_mask_itself(name):
    found = small(name, "l-shape")
    network = model(found, "chonn_network").eval()
    exists = found.mask(32)
    x = torch.rand(2, 1, 32, 32)
    with torch.no_grad():
        y = network(x)
        other = network(torch.where(exists, x, 7.0))
    torch.testing.assert_close(y, other)
    assert float(y[..., ~exists].std()) == pytest.approx(0, abs=1e-6)
    assert float(y[..., exists].std()) > 0


def test_darcys_finer_tests_are_the_same_problem(domains):
    """Media at the same points, walls at the same place: nearly the same solutions."""
    for domain in ("square", "l-shape", "holes"):
        found = small("darcy", domain, "48")
        data = found.load(domains["darcy"])
        (nu, u), (fine_nu, fine_u) = (data.tests[name].tensors for name in data.tests)
        # Centres of the coarse cells are those of every third fine cell.
        inner = fine_nu[..., 1::3, 1::3]
        assert float((inner == nu).double().mean()) > 0.98
        error = (fine_u[..., 1::3, 1::3] - u).abs().sum() / u.abs().sum()
        assert float(error) < 0.1
        with h5py.File(list(found.makers(domains["darcy"]))[1]) as file:
            assert file.attrs["margin"] == 1 / 32


def test_poissons_finer_tests_are_the_same_samples(domains):
    for domain, tolerance in (("square", 1e-6), ("l-shape", 5e-3)):
        data = small("poisson", domain, "256,48").load(domains["poisson"])
        names = ["test", "out_of_distribution", "at_256", "at_48"]
        names += [f"out_of_distribution_{name}" for name in names[2:]]
        assert list(data.tests) == names
        for coarse, fine in (("test", "at_256"), names[1:5:3]):
            # With the ranges of the training on the nodes that both have.
            both = zip(data.tests[coarse].tensors, data.tests[fine].tensors, strict=True)
            for field, finer in both:
                assert float((finer[..., ::17, ::17] - field).abs().mean()) < tolerance


@pytest.mark.parametrize(
    ("name", "override", "message"),
    [
        ("darcy", "domain=disc", "domain: expected one of square, l-shape, holes, got 'disc'"),
        ("darcy", "test_resolutions=[64,100]", "multiples of 16 above .* 32, got .64, 100."),
        ("darcy", "test_resolutions=[64,64]", "different multiples of 16"),
        ("darcy", "error=l3", "error: expected one of .*relative_l2.*, got 'l3'"),
        ("poisson", "n_train=1025", "n_train: expected 1 to 1024, got 1025"),
        ("poisson", "resolution=2", "resolution: expected an integer of at least 3, got 2"),
        ("condiff", "variance=0.5", "variance: expected one of 0.1, 0.4, 1, 2, got 0.5"),
        ("condiff", "test_resolutions=[128]", "test_resolutions: expected none"),
        ("helmholtz", "domain=holes", "domain: expected 'square' for this problem, got 'holes'"),
        ("fno_darcy", "resolution=20", "expected 1 . divisors of 42 .*, got 20"),
    ],
)
def test_bad_settings(name, override, message):
    with pytest.raises(ValueError, match=message):
        smoke(name, override)


def test_files_of_another_domain_or_grid_are_refused(domains, tmp_path):
    for name in WITH_DOMAINS:
        found, other = small(name, "l-shape"), small(name, "holes")
        both = zip(other.makers(domains[name]), found.makers(tmp_path), strict=True)
        for theirs, ours in both:
            ours.write_bytes(theirs.read_bytes())
        with pytest.raises(ValueError, match="expected data of the domain l-shape, got holes"):
            found.load(tmp_path)
    (theirs,), (ours,) = (small("darcy").makers(domains["darcy"]), smoke("darcy").makers(tmp_path))
    ours.write_bytes(theirs.read_bytes())
    with pytest.raises(ValueError, match=r"expected 16 of 32\^2, got"):
        smoke("darcy").load(tmp_path)
