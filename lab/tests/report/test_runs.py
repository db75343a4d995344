"""Result files: statistics over seeds, what differs between runs, damaged files, the kept form."""

import json
import math

import numpy as np
import pytest
import result_files
from scipy import stats

from chonn_lab import cli
from chonn_lab.report.comparison import Statistic, gap, number, sign
from chonn_lab.report.keep import keep
from chonn_lab.report.runs import read_studies, read_study

FNO = {"family": "fno", "role": "baseline"}


def one_variant(values, **changes):
    for seed, value in enumerate(values):
        run = result_files.record("darcy", "fno", FNO, 1.0, seed, **changes)
        run["metrics"] = {"test": {"rmse": value}}
        yield run


def error_of(folder, runs):
    (study,) = read_studies(result_files.write(folder, runs))
    return study.table["test/rmse"]["fno"]


def test_mean_and_deviation_over_the_seeds(tmp_path):
    value = error_of(tmp_path, one_variant([1.0, 2.0, 6.0]))
    assert (value.values, value.diverged) == ((1.0, 2.0, 6.0), 0)
    assert value.mean == pytest.approx(np.mean(value.values))
    assert value.deviation == pytest.approx(np.std(value.values, ddof=1))


@pytest.mark.parametrize("gone", [None, math.nan, math.inf])
def test_diverged_run_is_counted_and_said(tmp_path, gone):
    value = error_of(tmp_path, one_variant([0.25, gone, 0.75]))
    assert str(value) == "0.50 ± 0.35 (1 of 3 diverged)"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Statistic(()), "-"),
        (Statistic((0.5,)), "0.500"),
        (Statistic((0.01, 0.0104)), "0.01020 ± 0.00028"),
        (Statistic((2e-6, 4e-6)), "(3.0 ± 1.4)e-6"),
        (Statistic((1.0, 1.0)), "1.00 ± 0"),
        (Statistic((1234.0, 1236.0)), "1,235.0 ± 1.4"),
        (Statistic((), 3), "- (3 of 3 diverged)"),
    ],
)
def test_text_of_a_statistic(value, text):
    assert str(value) == text


def test_text_of_a_number():
    found = [number(value) for value in (0.0, 0.123456, 65.0, -2e-7, math.nan)]
    assert found == ["0", "0.123", "65.0", "-2.00e-07", "-"]


def test_a_difference_is_welchs_test():
    rng = np.random.default_rng(0)
    signs = []
    for _ in range(50):
        ours = rng.normal(0, rng.uniform(0.1, 3), rng.integers(2, 7))
        other = rng.normal(rng.uniform(-2, 3), 1, rng.integers(2, 7))
        both = Statistic(tuple(ours)), Statistic(tuple(other))
        tests = [stats.ttest_ind(ours, other, equal_var=False, alternative=side).pvalue
                 for side in ("less", "greater")]  # fmt: skip
        for count in (1, 12):
            assert gap(*both).above(count) == (tests[0] < 0.05 / count)
            assert gap(*both).below(count) == (tests[1] < 0.05 / count)
        signs.append(sign(*both))
        assert signs[-1] == ("<" if tests[0] < 0.05 else ">" if tests[1] < 0.05 else "≈")
    assert set(signs) == {"<", ">", "≈"}
    assert sign(Statistic((1.0,)), Statistic((2.0, 2.1))) == "?"


def test_a_diverged_run_is_an_infinite_error():
    low, high = Statistic((1.0, 1.1, 0.9)), Statistic((2.0, 2.1, 1.9))
    assert sign(low, high) == "<"
    assert sign(Statistic((1.0, 1.1), 1), high) == "≈"
    assert sign(low, Statistic((), 3)) == "<"
    assert sign(low, Statistic((2.0, 2.1), 1)) == "<"


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda text: text[: len(text) // 2], "damaged"),
        (lambda text: text.replace('"parameters"', '"size"'), "argument: 'parameters'"),
        (lambda text: text.replace("{", '{"checksum": "0",', 1), "expected those of checksum '0'"),
        (lambda _: "\udcff", "damaged"),
    ],
)
def test_damaged_file_gives_one_clear_error(tmp_path, capsys, spoil, reason):
    result_files.write(tmp_path, one_variant([1.0]))
    path = tmp_path / "darcy" / "small" / "fno-seed0.json"
    path.write_bytes(spoil(path.read_text()).encode(errors="surrogateescape"))
    assert cli.main(["report", "--results", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"chonn-lab: error: {path} is not a result file, or damaged: ")
    assert reason in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("content", ["[]", '{"rows": []}'])
def test_files_of_other_programs_are_left_out(tmp_path, content):
    result_files.write(tmp_path, one_variant([1.0, 2.0]))
    for place in ("fields.json", "demo/results.json", "darcy/small/notes.json", "a/b/c.json"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(content)
    (study,) = read_studies(tmp_path)
    assert (study.experiment, len(study.runs)) == ("darcy", 2)


def test_one_folder_holds_one_experiment(tmp_path):
    other = result_files.record("poisson", "fno", FNO, 1.0, seed=3)
    folder = result_files.write(tmp_path, one_variant([1.0])) / "darcy" / "small"
    (folder / "fno-seed3.json").write_text(json.dumps(result_files.marked(other)))
    with pytest.raises(ValueError, match="one experiment"):
        read_study(folder)


def test_a_copy_of_a_result_is_no_other_seed(tmp_path):
    folder = result_files.write(tmp_path, one_variant([1.0, 2.0])) / "darcy" / "small"
    (folder / "copy.json").write_text((folder / "fno-seed1.json").read_text())
    with pytest.raises(ValueError, match=r"got several of fno seed 1$"):
        read_study(folder, mixed=True)


def test_runs_of_other_data_or_settings_are_named_and_need_a_word(tmp_path):
    runs = list(one_variant([1.0, 2.0, 3.0]))
    runs[1]["data"] = {"data.hdf5": {"sha256": "0" * 64}}
    runs[2]["config"] = {"epochs": 39, "batch_size": 8}
    # A setting that a model changes by design may differ between models, not within one.
    runs.append(result_files.record("darcy", "unet", FNO, 1.0))
    runs[3]["config"]["batch_size"] = 2
    folder = result_files.write(tmp_path, runs) / "darcy" / "small"
    expected = (
        "setting epochs (39 / 40): fno seed 2 differ from fno seed 0, fno seed 1, unet seed 0",
        f"data data.hdf5 ({'0' * 12} / da7ada7ada7a): fno seed 1 differ from fno seed 0, "
        "fno seed 2, unet seed 0",
    )
    assert read_study(folder, mixed=True).mixed == expected
    with pytest.raises(ValueError, match="same data and settings") as caught:
        read_study(folder)
    assert all(text in str(caught.value) for text in expected)


def test_studies_come_in_the_papers_order_and_models_in_the_tables(tmp_path):
    studies = read_studies(result_files.everything(tmp_path, seeds=1))
    names = ["order1d", "darcy", "poisson", "shallow_water", "navier_stokes"]
    assert [study.experiment for study in studies] == names
    models = ["unet", "fno", "cno", "cno0", "cno1", "cno2", "cno3", "cno4"]
    assert [*studies[1].table.index] == models
    assert [*studies[1].find(role="ablation", order=[4, 2]).index] == ["cno2", "cno4"]
    assert studies[1].find(role="ablation", mine=1).empty


def test_a_kept_file_says_the_same(tmp_path):
    result_files.write(tmp_path / "runs", result_files.steady("poisson", seeds=2))
    folder = tmp_path / "runs" / "poisson" / "small"
    path = keep(folder, output=tmp_path)
    assert path.name == "poisson-small.json"
    assert path.stat().st_size < sum(p.stat().st_size for p in folder.glob("*.json"))
    whole, kept = read_study(folder), read_study(path)
    assert (kept.experiment, kept.scale) == ("poisson", "small")
    for one, other in zip(whole.table.runs.sum(), kept.table.runs.sum(), strict=True):
        for name in ("variant", "seed", "tags", "config", "versions", "hardware", "data", "code"):
            assert getattr(other, name) == getattr(one, name)
        for split, scores in one.metrics.items():
            assert other.metrics[split] == pytest.approx(scores, rel=1e-5)
        assert other.curve["epoch"][::29] == [1, 40]
        error = one.curve["validation_error"]
        assert other.curve["validation_error"][::29] == pytest.approx(error[::39], rel=1e-5)


def test_runs_of_models_that_were_not_run_again_stay(tmp_path):
    runs = list(result_files.steady("darcy"))
    again = [{**run, "date": "2026-11-28"} for run in runs if run["variant"] == "fno"][:1]
    for name, found in (("first", runs), ("second", again)):
        result_files.write(tmp_path / name, found)
        path = keep(tmp_path / name / "darcy" / "small", output=tmp_path)
    kept = {(run.variant, run.seed): run.date for run in read_study(path, mixed=True).runs}
    expected = {(run["variant"], run["seed"]) for run in runs if run["variant"] != "fno"}
    assert kept.keys() == expected | {("fno", 0)}
    assert kept["fno", 0] == "2026-11-28"
