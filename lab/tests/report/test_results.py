"""Result files: statistics over seeds, damaged files, the compact form."""

import json
import math

import pytest
import result_files

from chonn_lab.experiments.configuration import compose, resolved
from chonn_lab.pages.results import MODELS
from chonn_lab.report.comparison import Statistic, number
from chonn_lab.report.results import ROLES, read_studies, read_study
from chonn_lab.studies.keep_results import collect


def one_variant(values, **changes):
    tags = {"family": "fno", "role": "baseline"}
    for seed, value in enumerate(values):
        run = result_files.record("darcy", "fno", tags, 1.0, seed, **changes)
        run["metrics"] = {"test": {"rmse": value}}
        yield run


def study_of(folder, runs):
    result_files.write(folder, runs)
    (study,) = read_studies(folder)
    return study


def test_mean_and_deviation_over_the_seeds(tmp_path):
    (group,) = study_of(tmp_path, one_variant([1.0, 2.0, 6.0])).groups
    value = group.metric("rmse")
    assert (value.count, value.diverged) == (3, 0)
    assert value.mean == 3.0
    assert value.deviation == pytest.approx(math.sqrt((4 + 1 + 9) / 2))
    assert [run.seed for run in group.runs] == [0, 1, 2]


@pytest.mark.parametrize("gone", [None, math.nan, math.inf])
def test_diverged_run_is_counted_and_said(tmp_path, gone):
    (group,) = study_of(tmp_path, one_variant([0.25, gone, 0.75])).groups
    value = group.metric("rmse")
    assert (value.mean, value.count, value.diverged) == (0.5, 2, 1)
    assert str(value) == "0.50 ± 0.35 (1 of 3 diverged)"


def test_curves_have_statistics_at_every_point(tmp_path):
    runs = list(one_variant([1.0, 1.0]))
    for run, values in zip(runs, ([1.0, 2.0, 3.0], [3.0, None]), strict=True):
        run["curves"] = {"rollout_relative_l2": values}
    (group,) = study_of(tmp_path, runs).groups
    points = group.curve("rollout_relative_l2")
    assert [(point.mean, point.diverged) for point in points] == [(2.0, 0), (2.0, 1)]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Statistic(()), "-"),
        (Statistic((0.5,)), "0.500"),
        (Statistic((0.01, 0.0104)), "0.01020 ± 0.00028"),
        (Statistic((2e-6, 4e-6)), "(3.0 ± 1.4)e-6"),
        (Statistic((1.0, 1.0)), "1.00 ± 0"),
        (Statistic((0.0, 0.0)), "0 ± 0"),
        (Statistic((1234.0, 1236.0)), "1,235.0 ± 1.4"),
        (Statistic((), 3), "- (3 of 3 diverged)"),
    ],
)
def test_text_of_a_statistic(value, text):
    assert str(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (0.123456, "0.123"), (65.0, "65.0"), (-2e-7, "-2.00e-07")]
)
def test_text_of_a_number(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda text: text[: len(text) // 2], "damaged"),
        (lambda _: "[]", "expected an object, got list"),
        (lambda text: text.replace('"parameters"', '"size"'), "missing parameters"),
        (lambda text: text.replace('"seconds": 60.0', '"seconds": "long"'), "seconds: expected a"),
        (lambda text: text.replace('"curves": {}', '"curves": []'), "curves: expected an object"),
        (lambda _: "\udcff", "damaged"),
    ],
)
def test_damaged_file_gives_one_clear_error(tmp_path, spoil, reason):
    result_files.write(tmp_path, one_variant([1.0]))
    path = tmp_path / "darcy" / "small" / "fno-seed0.json"
    path.write_bytes(spoil(path.read_text()).encode(errors="surrogateescape"))
    with pytest.raises(ValueError, match=reason) as caught:
        read_studies(tmp_path)
    assert str(path) in str(caught.value)


def test_one_folder_holds_one_experiment(tmp_path):
    result_files.write(tmp_path, one_variant([1.0]))
    folder = tmp_path / "darcy" / "small"
    tags = {"family": "fno"}
    other = result_files.record("poisson", "fno", tags, 1.0, seed=3)
    (folder / "fno-seed3.json").write_text(json.dumps(other))
    with pytest.raises(ValueError, match="one experiment"):
        read_study(folder)


def test_studies_come_in_the_papers_order_and_models_in_the_tables(tmp_path):
    result_files.everything(tmp_path, seeds=1)
    studies = read_studies(tmp_path)
    assert [study.experiment for study in studies] == [
        *("order1d", "darcy", "poisson", "shallow_water", "navier_stokes")
    ]
    assert [group.variant for group in studies[1].groups] == [
        *("unet", "fno", "cno", "cno0", "cno1", "cno2", "cno3", "cno4"),
    ]


@pytest.mark.parametrize("experiment", ["order1d", "poisson", "navier_stokes"])
def test_compact_file_says_the_same(tmp_path, experiment):
    result_files.everything(tmp_path / "runs", seeds=2)
    folder = tmp_path / "runs" / experiment / "small"
    path = collect(read_study(folder), tmp_path / "kept")
    assert path.name == f"{experiment}-small.json"
    whole, compact = read_study(folder), read_study(path)
    assert (compact.experiment, compact.scale) == (experiment, "small")
    assert path.stat().st_size < sum(p.stat().st_size for p in folder.glob("*.json"))
    for before, after in zip(whole.groups, compact.groups, strict=True):
        assert after.tags == before.tags
        for one, other in zip(before.runs, after.runs, strict=True):
            assert (other.seed, other.config, other.versions) == (
                one.seed,
                one.config,
                one.versions,
            )
            assert other.hardware == one.hardware
        for name in whole.metrics():
            assert after.metric(name).mean == pytest.approx(before.metric(name).mean, rel=1e-5)
        epochs = after.runs[0].curve["epoch"]
        assert (epochs[0], epochs[-1], len(epochs)) == (1, 40, 30)
        final = before.final("validation_error").mean
        assert after.final("validation_error").mean == pytest.approx(final, rel=1e-5)


@pytest.mark.parametrize("name", sorted(path.stem for path in MODELS.glob("*.yaml")))
def test_tags_of_all_models_are_known(name):
    """A role that is misspelt would leave a model out of every table, silently."""
    problem = "order1d" if name.startswith("ckb") else "navier_stokes"
    tags = resolved(compose([f"problem={problem}", f"model={name}"]))["model"]["tags"]
    assert tags["family"]
    assert tags.get("target") or tags["role"] in ROLES


def test_tags_are_asked_by_name(tmp_path):
    tags = {"family": "depth", "order": 0, "mine": "x"}
    result_files.write(tmp_path, [result_files.record("mine", "a", tags, 1.0)])
    (group,) = read_study(tmp_path / "mine" / "small").groups
    assert (group.tags.family, group.tags.order, group.tags.target, group.tags.role) == (
        *("depth", 0, 0, ""),
    )
    assert group.has(order=0, mine="x", recipe="", theirs=None)
    assert group.has(order=[0, 1])
    assert not group.has(order=0, family="chonn")
    assert not group.has(mine=None)
