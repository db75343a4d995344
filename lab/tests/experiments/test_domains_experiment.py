"""Darcy and Poisson on other domains and on finer grids: data, masks, losses, scores."""
# ruff: noqa: E402 - skipped before the imports where the extra is missing

import dataclasses
import json

import numpy as np
import pytest
import torch

h5py = pytest.importorskip("h5py")
pytest.importorskip("filelock")
pytest.importorskip("scipy")
pytest.importorskip("tqdm")

from steady import One

from chonn_lab import cli
from chonn_lab.experiments.darcy import EXPERIMENT as DARCY
from chonn_lab.experiments.poisson import EXPERIMENT as POISSON
from chonn_lab.experiments.steady import GRID_METRICS
from chonn_lab.problems.domains import domain_mask

EXPERIMENTS = (DARCY, POISSON)
VARIANTS = ("unet", "fno", "cno")


def smoke(experiment, **changes):
    """At 16 x 16, where data are made at once."""
    return dataclasses.replace(experiment.scales["smoke"], resolution=16, **changes)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Data of both experiments on all domains, with a finer grid."""
    found = {}
    for experiment in EXPERIMENTS:
        found[experiment.name] = tmp_path_factory.mktemp(experiment.name)
        for domain in ("square", "l-shape", "holes"):
            config = smoke(experiment, domain=domain, test_resolutions=(48, 256))
            experiment.prepare(config, found[experiment.name], progress=False)
    return found


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: e.name)
@pytest.mark.parametrize("domain", ["l-shape", "holes"])
def test_missing_nodes_are_neither_learned_nor_scored(experiment, domain, folders):
    config = smoke(experiment, domain=domain)
    data = experiment.load(config, folders[experiment.name])
    exists = experiment.mask(config, 16)
    np.testing.assert_array_equal(exists, domain_mask(domain, experiment.coordinates(16)))
    target = data.tests["test"].tensors[1]
    assert float(target[..., ~exists].std()) == pytest.approx(0, abs=1e-6)

    good = One(lambda x: torch.where(exists, 1.1 * x, 5.0))
    errors = experiment.errors(config, good, (target, target))
    torch.testing.assert_close(errors, torch.full_like(errors, 0.1))
    tests = {"test": torch.utils.data.TensorDataset(target, target)}
    evaluation = experiment.evaluate(config, good, dataclasses.replace(data, tests=tests))
    scores = evaluation.metrics["test"]
    assert set(scores) == set(experiment.metrics) - set(GRID_METRICS)
    assert scores["relative_l1"] == pytest.approx(0.1, rel=1e-5)
    if "rmse" in scores:
        rms = (0.1 * target[..., exists]).square().mean(-1).sqrt()
        assert scores["rmse"] == pytest.approx(float(rms.mean()), rel=1e-5)
    shown = evaluation.fields
    torch.testing.assert_close(shown["prediction"][:, ~exists], shown["target"][:, ~exists])

    bad = One(lambda x: torch.where(exists, x, 1.1 * x + 1))
    assert float(experiment.errors(config, bad, (target, target)).max()) == 0


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: e.name)
def test_models_see_the_mask_of_the_grid_they_are_asked_on(experiment):
    """Every model of a domain answers to it; of two channels, the second is the mask."""
    config = smoke(experiment, domain="holes")
    for variant in experiment.variants(config):
        if variant.name in VARIANTS:
            model = variant.build(config).eval()
            seen = []
            inner = model.model.model
            inner.register_forward_pre_hook(lambda _, inputs, seen=seen: seen.append(inputs[0]))
            for n in (16, 32):
                with torch.no_grad():
                    model(torch.rand(2, 1, n, n))
                mask = domain_mask("holes", experiment.coordinates(n))
                assert seen[-1].shape == (2, 2, n, n)
                np.testing.assert_array_equal(seen[-1][1, 1], mask)
    assert {variant.name for variant in experiment.variants(config)} > set(VARIANTS)


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: e.name)
def test_networks_take_the_mask_itself(experiment):
    config = smoke(experiment, domain="l-shape")
    (variant,) = (v for v in experiment.variants(config) if v.name == "network")
    model = variant.build(config).eval()
    exists = experiment.mask(config, 32)
    x = torch.rand(2, 1, 32, 32)
    with torch.no_grad():
        y = model(x)
        other = model(torch.where(exists, x, 7.0))
    torch.testing.assert_close(y, other)
    # The centre of the predicted fields is the model's own zero.
    assert float(y[..., ~exists].std()) == pytest.approx(0, abs=1e-6)
    assert float(y[..., exists].std()) > 0


@pytest.mark.parametrize("domain", ["square", "l-shape", "holes"])
@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: e.name)
def test_models_see_fields_of_about_unit_size(experiment, domain, folders):
    config = smoke(experiment, domain=domain)
    exists = experiment.mask(config, 16)
    model = experiment.variants(config)[0].build(config)
    # Of the model's output 0 and 1 in the data's units.
    model.model = One(torch.zeros_like)
    x = torch.zeros(1, 1, 16, 16)
    centre = float(model(x).mean())
    model.model = One(torch.ones_like)
    spread = float(model(x).mean()) - centre
    target = experiment.load(config, folders[experiment.name]).train.tensors[1][..., exists]
    assert abs(float(target.mean()) - centre) < 0.6 * spread
    assert 0.4 < float(target.std()) / spread < 1.8


def test_darcys_finer_tests_are_the_same_problem(folders):
    """Media at the same points, walls at the same place: nearly the same solutions."""
    for domain in ("square", "l-shape", "holes"):
        config = smoke(DARCY, domain=domain, test_resolutions=(48,))
        data = DARCY.load(config, folders["darcy"])
        assert list(data.tests) == ["test", "at_48"]
        (nu, u), (fine_nu, fine_u) = (data.tests[name].tensors for name in data.tests)
        assert len(nu) == len(fine_nu) == config.n_test
        # Centres of the coarse cells are those of every third fine cell.
        inner = fine_nu[..., 1::3, 1::3]
        assert float((inner == nu).double().mean()) > 0.98
        error = (fine_u[..., 1::3, 1::3] - u).abs().sum() / u.abs().sum()
        assert float(error) < 0.1
        with h5py.File(DARCY.files(config, folders["darcy"])[1]) as file:
            assert file.attrs["margin"] == 1 / 32


def test_poissons_finer_tests_are_the_same_samples(folders):
    for domain, tolerance in (("square", 1e-6), ("l-shape", 5e-3)):
        config = smoke(POISSON, domain=domain, test_resolutions=(256, 48))
        data = POISSON.load(config, folders["poisson"])
        names = ["test", "out_of_distribution", "at_256", "at_48"]
        names += [f"out_of_distribution_{name}" for name in names[2:]]
        assert list(data.tests) == names
        for coarse, fine in (("test", "at_256"), names[1:5:3]):
            # Of 256 nodes every 17th is one of 16, with the ranges of the training on those.
            for field, finer in zip(
                data.tests[coarse].tensors, data.tests[fine].tensors, strict=True
            ):
                assert float((finer[..., ::17, ::17] - field).abs().mean()) < tolerance


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: e.name)
def test_files_of_another_domain_are_refused(experiment, folders, tmp_path):
    config = smoke(experiment, domain="l-shape")
    other = smoke(experiment, domain="holes")
    folder = folders[experiment.name]
    for theirs, ours in zip(
        experiment.files(other, folder), experiment.files(config, tmp_path), strict=True
    ):
        ours.write_bytes(theirs.read_bytes())
    with pytest.raises(ValueError, match="expected data of the domain l-shape, got holes"):
        experiment.load(config, tmp_path)


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: e.name)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"domain": "disc"}, "domain: expected one of square, l-shape, holes, got 'disc'"),
        ({"domain": "holes", "resolution": 8}, "at least 16 for the domain holes, got 8"),
        ({"test_resolutions": (64, 100)}, "multiples of 16 above .* 32, got .64, 100."),
        ({"test_resolutions": (32,)}, "multiples of 16 above the resolution 32, got .32,."),
        ({"test_resolutions": (64, 64)}, "different multiples of 16"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else None,
)
def test_bad_settings(experiment, changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(experiment.scales["smoke"], **{"resolution": 32, **changes})


@pytest.mark.parametrize("experiment", ["darcy", "poisson"])
def test_command(experiment, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ["run", experiment, "--scale", "smoke", "--variants", "unet,network"]
    command += ["--jobs", "1", "--accelerator", "cpu", "--set", "resolution=16"]
    assert cli.main([*command, "--set", "domain=l-shape", "--set", "test_resolutions=32,64"]) == 0
    (folder,) = (tmp_path / "runs" / experiment).iterdir()
    assert folder.name == "smoke+domain=l-shape,resolution=16,test_resolutions=32-64"
    for name in ("unet", "network"):
        record = json.loads((folder / f"{name}-seed0.json").read_text())
        assert {"test", "at_32", "at_64"} <= set(record["metrics"])
        scores = [v for scores in record["metrics"].values() for v in scores.values()]
        assert np.isfinite(scores).all()
