"""Elliptic problems beyond the paper's: data, splits, models, scores, errors."""
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

from steady import One, check_smoke, check_sources, check_units

from chonn_lab.experiments import FURTHER_STEADY, get, schedule, steady_models
from chonn_lab.experiments import condiff as condiff_experiment
from chonn_lab.experiments.darcy import NIGHT
from chonn_lab.experiments.modules import Extended, Padded
from chonn_lab.problems import condiff, fno_darcy, helmholtz, origin

# Trained in a second or two: one of each kind that the paper's problems do not have.
TRAINED = {
    "fno_darcy": ("unet", "cno", "transolver", "network", "direct"),
    "darcy_contrast": ("network", "direct-fitted"),
    "darcy_lognormal": ("network", "direct-fitted"),
    "darcy_loguniform": ("network", "direct-fitted"),
    "condiff": ("unet", "fno", "dilresnet", "network", "own-scheme"),
    "helmholtz": ("network", "network-ac", "ffno", "own-scheme"),
    "helmholtz_open": ("network-ac", "unet", "fno", "uno", "own-scheme"),
}
CONTROLS = {"direct", "direct-fitted", "solve-cnn", "network-no-cell", "network-constant"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Data of all problems at scale smoke."""
    found = {}
    for name in FURTHER_STEADY:
        experiment = get(name)
        found[name] = tmp_path_factory.mktemp(name)
        experiment.prepare(experiment.scales["smoke"], found[name], progress=False)
    return found


@pytest.mark.parametrize("name", FURTHER_STEADY)
def test_smoke_runs_write_their_scores(tmp_path, name):
    experiment = get(name)
    run = check_smoke(experiment, tmp_path, TRAINED[name])
    assert list(run.metrics) == ["test"]
    # A grid as coarse as this may lack a Fourier band.
    bands = {metric for metric in experiment.metrics if metric.startswith("fourier")}
    assert set(experiment.metrics) - bands <= set(run.metrics["test"])
    assert all(file["official"] is False for file in run.data.values())


@pytest.mark.parametrize("name", FURTHER_STEADY)
def test_settings_and_units(name):
    experiment = get(name)
    check_sources(experiment)
    for config in experiment.scales.values():
        assert config.standardize


@pytest.mark.parametrize("name", FURTHER_STEADY)
def test_units_fit_the_fields(tmp_path, name):
    experiment = get(name)
    config = dataclasses.replace(experiment.scales["smoke"], n_train=56)
    experiment.prepare(config, tmp_path, progress=False)
    check_units(experiment, experiment.load(config, tmp_path))


@pytest.mark.parametrize(
    "name", ["darcy_contrast", "darcy_lognormal", "darcy_loguniform", "helmholtz"]
)
def test_splits_follow_each_other_in_the_file(folders, name):
    experiment = get(name)
    config = experiment.scales["smoke"]
    (path,) = folders[name].iterdir()
    with h5py.File(path) as file:
        inputs = file["k" if name == "helmholtz" else "nu"][...]
        outputs = file["tensor"][...]
    data = experiment.load(config, folders[name])
    splits = (data.train, data.validation, data.tests["test"])
    for at, stored in enumerate((inputs[:, None], outputs)):
        found = torch.cat([split.tensors[at] for split in splits])
        np.testing.assert_array_equal(found, stored)
    assert [len(split) for split in splits] == [8, 4, 4]


@pytest.mark.parametrize(
    ("name", "coefficient", "contrast"),
    [
        ("darcy_contrast", "two-phase", 1000.0),
        ("darcy_lognormal", "log-normal", 100.0),
        ("darcy_loguniform", "log-uniform", 1e4),
    ],
)
def test_media_are_what_they_are_called(folders, name, coefficient, contrast):
    (path,) = folders[name].iterdir()
    settings = origin.read(path).settings
    assert (settings["coefficient"], settings["contrast"]) == (coefficient, contrast)
    k = get(name).load(get(name).scales["smoke"], folders[name]).train.tensors[0]
    phases = len(k.unique())
    assert phases == 2 if coefficient == "two-phase" else phases > 1000


def test_fno_darcy_is_every_so_many_nodes_of_two_files(folders, tmp_path):
    experiment = get("fno_darcy")
    config = experiment.scales["smoke"]
    train, test = experiment.files(config, folders["fno_darcy"])
    data = experiment.load(config, folders["fno_darcy"])
    a, u = fno_darcy.read(train, 43)
    assert a.shape == (12, 43, 43)
    for split, rows in ((data.train, slice(0, 8)), (data.validation, slice(8, 12))):
        torch.testing.assert_close(split.tensors[0][:, 0], a[rows, ::2, ::2])
        torch.testing.assert_close(split.tensors[1][:, 0], u[rows, ::2, ::2])
    torch.testing.assert_close(
        data.tests["test"].tensors[1][:, 0], fno_darcy.read(test, 43)[1][:, ::2, ::2]
    )
    finer = dataclasses.replace(config, test_resolutions=(43,))
    tests = experiment.load(finer, folders["fno_darcy"]).tests
    torch.testing.assert_close(tests["at_43"].tensors[0][:, 0], fno_darcy.read(test, 43)[0])
    # The published sizes have the published name.
    paper = experiment.scales["paper"]
    assert experiment.files(paper, tmp_path)[0].name == fno_darcy.OFFICIAL_NAMES[0]
    sizes = (paper.n_train, paper.n_test, paper.solver_resolution, paper.resolution)
    assert sizes == (1000, 200, 421, 85)


def test_a_night_of_small_models():
    """At the paper's scale with small sizes; epochs that are set hold for all."""
    experiment = get("fno_darcy")
    config = dataclasses.replace(experiment.scales["paper"], sizes="small")
    found = {variant.name: variant.changes for variant in experiment.variants(config)}
    assert {name: changes["epochs"] for name, changes in found.items()} == NIGHT
    assert (found["unet"]["unet_features"], found["fno"]["fno_width"]) == (3, 8)
    assert found["unet"]["learning_rate"] == 5e-2
    hour = {v.name: v.changes for v in experiment.variants(dataclasses.replace(config, hours=0.9))}
    assert [hour[name]["epochs"] for name in ("network", "fno", "transolver")] == [100, 86, 21]
    with pytest.raises(ValueError, match="hours: expected above 0, got 0"):
        dataclasses.replace(config, hours=0)
    few = dataclasses.replace(config, epochs=2)
    assert all("epochs" not in variant.changes for variant in experiment.variants(few))


def test_fno_darcy_learns_and_is_scored_by_the_l2_error(folders):
    experiment = get("fno_darcy")
    config = experiment.scales["smoke"]
    data = experiment.load(config, folders["fno_darcy"])
    batch = data.train.tensors
    found = experiment.errors(config, One(lambda x: 0 * x), batch)
    torch.testing.assert_close(found, torch.ones(8))
    uneven = One(lambda x: torch.where(torch.arange(22) < 11, 1.5, 1.0) * batch[1][: len(x)])
    error, truth = 0.5 * batch[1][..., :11], batch[1]
    expected = error.square().sum((1, 2, 3)).sqrt() / truth.square().sum((1, 2, 3)).sqrt()
    torch.testing.assert_close(experiment.errors(config, uneven, batch), expected)
    assert float(experiment.loss(config, uneven, batch)) == pytest.approx(float(expected.mean()))
    scores = experiment.evaluate(config, One(lambda x: 0 * x), data).metrics["test"]
    assert next(iter(scores)) == "relative_l2"
    assert scores["relative_l2"] == pytest.approx(1, rel=1e-5)


def test_published_files_are_read_in_place_of_ours(tmp_path):
    """Both or none: ours and theirs are not of one law."""
    experiment = get("fno_darcy")
    config = dataclasses.replace(
        experiment.scales["paper"], n_train=3, n_validation=1021, n_test=2, resolution=22
    )
    a = np.random.default_rng(0).random((43, 43, 1024), dtype="f4")
    paths = [tmp_path / name for name in fno_darcy.OFFICIAL_NAMES]

    def write(path):
        with h5py.File(path, "w") as file:
            for name in ("coeff", "sol"):
                file.create_dataset(name, data=a, chunks=(43, 43, 1))

    write(paths[0])
    with pytest.raises(FileNotFoundError, match=r"smooth2.mat: expected beside the published"):
        experiment.prepare(config, tmp_path)
    write(paths[1])
    assert experiment.files(config, tmp_path) == tuple(paths)
    data = experiment.load(config, tmp_path)
    assert [len(split) for split in (data.train, data.tests["test"])] == [3, 2]
    np.testing.assert_array_equal(data.train.tensors[0][1, 0], a[::2, ::2, 1].T)


def test_making_fno_darcy_goes_on(tmp_path, monkeypatch):
    """What is complete is not made again; many samples are made by all cores."""
    experiment = get("fno_darcy")
    config = experiment.scales["smoke"]
    experiment.prepare(config, tmp_path, progress=False)
    train, test = experiment.files(config, tmp_path)
    test.unlink()
    kept = train.stat().st_mtime_ns
    experiment.prepare(config, tmp_path, progress=False)
    assert train.stat().st_mtime_ns == kept
    assert test.exists()

    seen = []
    monkeypatch.setattr(fno_darcy, "generate", lambda *_, **options: seen.append(options))
    monkeypatch.setattr(helmholtz, "generate", lambda *_, **options: seen.append(options))
    monkeypatch.setattr("chonn_lab.experiments.steady.usable_cores", lambda: 7)
    for name in ("fno_darcy", "helmholtz"):
        for scale in ("smoke", "paper"):
            get(name).prepare(get(name).scales[scale], tmp_path / scale, progress=False)
    assert [options["workers"] for options in seen] == [1, 7, 1, 7]


def test_condiff_is_all_of_a_file_but_the_last_cells(folders):
    experiment = get("condiff")
    config = experiment.scales["smoke"]
    (path,) = folders["condiff"].iterdir()
    assert path.name == "condiff_cubic0.4_grid32_16.hdf5"
    data = experiment.load(config, folders["condiff"])
    k, f, u = condiff.read(path)
    splits = (data.train, data.validation, data.tests["test"])
    assert [len(split) for split in splits] == [8, 4, 4]
    found, targets = (torch.cat([split.tensors[at] for split in splits]) for at in (0, 1))
    assert torch.equal(found[:, (0, -1)], torch.stack((k[:, :32, :32], f), 1))
    # Cell (i + 1, j), then (i, j + 1) and (i + 1, j + 1); the last ones are copies.
    assert torch.equal(found[:, 1, :-1], k[:, 1:32, :32])
    assert torch.equal(found[:, 2, :, :-1], k[:, :32, 1:32])
    assert torch.equal(found[:, 3, :-1, :-1], k[:, 1:32, 1:32])
    assert torch.equal(found[:, 1:4, -1, -1], k[:, None, 31, 31].expand(-1, 3))
    assert torch.equal(targets, u[:, None])


def own_scheme(experiment, config):
    return next(v for v in experiment.variants(config) if v.name == "own-scheme").build(config)


def test_who_is_told_condiff_lacks_the_last_cells_alone(folders):
    """With the cells that no model sees as the solver takes them, it is exact."""
    experiment = get("condiff")
    config = experiment.scales["smoke"]
    told = own_scheme(experiment, config)
    data = experiment.load(config, folders["condiff"])
    x, u = data.train.tensors
    exact = torch.tensor(
        np.stack(
            [condiff.solve(np.pad(k, (0, 1), mode="edge"), f) for k, *_, f in x.double().numpy()]
        )
    )
    with torch.no_grad():
        torch.testing.assert_close(told(x.double())[:, 0], exact, rtol=1e-10, atol=1e-15)
        errors = experiment.errors(config, told, (x, u))
    assert 1e-3 < float(errors.mean()) < 0.2


def test_networks_see_a_coefficient_itself_where_it_is_alone(folders):
    """They take its logarithm. Beside a source, its mean would be another source."""
    for name, itself in (("darcy_lognormal", True), ("condiff", False)):
        experiment = get(name)
        config = experiment.scales["smoke"]
        x = experiment.load(config, folders[name]).train.tensors[0]
        variants = {variant.name: variant for variant in experiment.variants(config)}
        network, fno = (variants[kind].build(config).units.scaled(x) for kind in ("network", "fno"))
        assert float(fno[:, 0].mean()) == pytest.approx(0, abs=0.2)
        assert torch.equal(network, x if itself else fno)


def test_condiff_in_equal_seconds(tmp_path):
    """Darcy flow's sizes; the settings that ConDiff changes win over those of the search."""
    experiment = get("condiff")
    config = dataclasses.replace(experiment.scales["small"], sizes="seconds")
    found = {variant.name: variant.changes for variant in experiment.variants(config)}
    searched = steady_models.chosen(config, "darcy")
    assert found["fno"].items() >= searched["fno"].items()
    assert {"unet", "fno", "ffno", "network", "dilresnet", "own-scheme"} <= set(found)
    for name, changed in condiff_experiment.CHANGED.items():
        assert found[name].items() >= {**searched[name], **changed}.items()
    assert found["dilresnet"].items() >= condiff_experiment.DILRESNET["seconds"].items()
    for changes, message in (
        ({"covariance": "matern"}, "covariance: expected one of"),
        ({"variance": 0.5}, "variance: expected one of 0.1, 0.4, 1, 2, got 0.5"),
        ({"test_resolutions": (128,)}, "test_resolutions: expected none"),
    ):
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(config, **changes)
    rough = dataclasses.replace(config, covariance="exponential", variance=1.0)
    (path,) = experiment.files(rough, tmp_path)
    assert path.name == "condiff_exponential1.0_grid64_384.hdf5"


def test_no_m_matrix_can_solve_helmholtz(folders):
    experiment = get("helmholtz")
    config = experiment.scales["smoke"]
    names = {variant.name for variant in experiment.variants(config)}
    assert names & CONTROLS == {"network-no-cell", "network-constant"}
    u = experiment.load(config, folders["helmholtz"]).train.tensors[1]
    # The field without negative values that is nearest to each solution.
    best = experiment.errors(config, One(lambda x: x.clamp(min=0)), (u, u))
    assert 0.5 < float(best.mean()) < 0.8


@pytest.mark.parametrize("name", sorted(set(FURTHER_STEADY) - {"condiff", "fno_darcy"}))
def test_who_is_told_the_equation_and_its_scheme_knows_the_data(folders, name):
    """To the rounding of float32 fields; another scheme, as `direct`, leaves 1e-3 and more."""
    experiment = get(name)
    config = experiment.scales["smoke"]
    data = experiment.load(config, folders[name]).train
    assert experiment.errors(config, own_scheme(experiment, config), data.tensors).max() < 3e-7


def test_the_data_of_every_fifth_node_have_no_scheme_on_their_grid():
    experiment = get("fno_darcy")
    names = {variant.name for variant in experiment.variants(experiment.scales["small"])}
    assert "own-scheme" not in names


def test_waves_at_other_frequencies_and_on_finer_grids(tmp_path):
    """The same media and sources as the test samples."""
    experiment = get("helmholtz_open")
    config = dataclasses.replace(
        experiment.scales["smoke"],
        n_train=2,
        n_validation=1,
        n_test=1,
        batch_size=1,
        test_resolutions=(96,),
        test_wavenumbers=(15.0,),
    )
    experiment.prepare(config, tmp_path, progress=False)
    tests = experiment.load(config, tmp_path).tests
    assert list(tests) == ["test", "at_96", "at_wavenumber_15"]
    k, u = tests["test"].tensors
    finer, slower = tests["at_96"].tensors, tests["at_wavenumber_15"].tensors
    mean = torch.nn.functional.avg_pool2d
    torch.testing.assert_close(mean(finer[0], 2)[:, 0], k[:, 0], rtol=2e-2, atol=0)
    assert float((mean(finer[1], 2) - u).abs().sum() / u.abs().sum()) < 0.1
    torch.testing.assert_close(slower[0][:, 0] / 15, k[:, 0] / 20)
    torch.testing.assert_close(slower[0][:, 1], k[:, 1])


@pytest.mark.parametrize("name", FURTHER_STEADY)
def test_models(name):
    experiment = get(name)
    names = [variant.name for variant in experiment.variants(experiment.scales["small"])]
    assert {"unet", "fno", "fno-neuralop", "network", "network-constant"} <= set(names)
    assert "chonn2" not in names
    assert ("direct" in names) == ("darcy" in name)
    assert ("own-scheme" in names) == (name != "fno_darcy")
    assert ("network-ac" in names) == name.startswith("helmholtz")
    if name == "fno_darcy":
        assert CONTROLS | {"ffno", "transolver", "galerkin", "mgno", "uno", "cno"} <= set(names)


def test_a_margin_goes_on_beyond_the_domain_and_is_taken_off():
    seen = []

    def keep(x):
        seen.append(x)
        return x

    x = torch.rand(2, 2, 8, 16)
    torch.testing.assert_close(Extended(One(keep), 0.25)(x), x)
    assert seen[0].shape == (2, 2, 12, 24)
    torch.testing.assert_close(seen[0][:, :, :2, 4:-4], x[:, :, :1].expand(-1, -1, 2, -1))
    torch.testing.assert_close(seen[0][:, :, 2:-2, -4:], x[..., -1:].expand(-1, -1, -1, 4))


def test_padding_repeats_the_last_points_and_takes_them_off():
    seen = []

    def double(x):
        seen.append(x)
        return 2 * x

    x = torch.rand(2, 1, 5, 8)
    torch.testing.assert_close(Padded(One(double), 4)(x), 2 * x)
    assert seen[0].shape == (2, 1, 8, 8)
    torch.testing.assert_close(seen[0][:, :, 5:], x[:, :, 4:].expand(-1, -1, 3, -1))


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("helmholtz", {"domain": "holes"}, "domain: expected 'square' for this problem"),
        ("helmholtz", {"test_resolutions": (16,)}, "test_resolutions: expected different"),
        ("fno_darcy", {"resolution": 20}, r"expected 1 \+ divisors of 42 .*, got 20"),
        ("fno_darcy", {"test_resolutions": (30,)}, r"expected 1 \+ divisors of 42 .*, got 30"),
    ],
)
def test_bad_settings(name, changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(get(name).scales["smoke"], **changes)


def test_the_search_on_darcy_flow_serves_where_there_is_none(tmp_path, monkeypatch):
    chosen = tmp_path / "chosen.json"
    monkeypatch.setattr(steady_models, "CHOSEN", chosen)
    config = get("darcy").scales["smoke"]
    data = {"n_train": config.n_train, "resolution": config.resolution}
    searches = {"darcy": {"seconds": [{"data": data, "models": {"unet": {"epochs": 7}}}]}}

    def epochs(name):
        chosen.write_text(json.dumps(searches))
        jobs = schedule.plan(
            name, "smoke", output=tmp_path, data=tmp_path, assignments=["sizes=seconds"]
        )
        return {job.variant_name: job.config.epochs for job in jobs}

    # Nothing trains the control that is told the scheme: its epochs do not count.
    assert epochs("darcy_contrast") == {"unet": 7, "own-scheme": config.epochs}
    # With the models that Darcy flow does not have, as set by hand.
    assert epochs("helmholtz") == {"unet": 7, "network-ac": 11, "own-scheme": config.epochs}
    searches["darcy_contrast"] = {"seconds": [{"data": data, "models": {"fno": {"epochs": 3}}}]}
    assert epochs("darcy_contrast") == {"fno": 3, "own-scheme": config.epochs}
    with pytest.raises(ValueError, match=r"expected a search for poisson with"):
        epochs("poisson")


def test_missing_files(tmp_path):
    for name in FURTHER_STEADY:
        with pytest.raises(FileNotFoundError, match="no such file"):
            get(name).load(get(name).scales["smoke"], tmp_path)
