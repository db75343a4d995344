"""Result files: statistics over seeds, what differs between runs, damaged files, the kept form."""

import math

import numpy as np
import pytest
import result_files
from result_files import record
from scipy import stats

from chonn_lab import cli
from chonn_lab.report.comparison import Statistic, number, p_lower, sign
from chonn_lab.report.runs import keep, read_studies


def one_variant(values, **changes):
    for seed, value in enumerate(values):
        yield record("darcy", "fno", 1.0, seed, metrics={"test": {"rmse": value}}, **changes)


@pytest.mark.parametrize("gone", [None, math.nan, math.inf])
def test_numbers_over_the_seeds_and_a_diverged_run(tmp_path, gone):
    (study,) = read_studies(result_files.write(tmp_path, one_variant([0.25, gone, 0.75])))
    value = study.table["test/rmse"]["fno"]
    assert (value.values, value.diverged, value.mean) == ((0.25, 0.75), 1, 0.5)
    assert value.deviation == pytest.approx(np.std(value.values, ddof=1))
    assert str(value) == "0.50 ± 0.35 (1 of 3 diverged)"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Statistic(()), "-"),
        (Statistic((0.5,)), "0.500"),
        (Statistic((0.01, 0.0104)), "0.01020 ± 0.00028"),
        (Statistic((2e-6, 4e-6)), "3.00e-06 ± 1.4e-06"),
        (Statistic((1.0, 1.0)), "1.00 ± 0"),
        (Statistic((1234.0, 1236.0)), "1,235.0 ± 1.4"),
        (Statistic((), 3), "- (3 of 3 diverged)"),
    ],
)
def test_text_of_a_statistic(value, text):
    assert str(value) == text
    found = [number(value) for value in (0.0, 0.123456, 65.0, -2e-7, math.nan)]
    assert found == ["0", "0.123", "65.0", "-2.00e-07", "-"]


def test_a_difference_is_welchs_test_and_a_diverged_run_an_infinite_error():
    low, high = Statistic((1.0, 1.1, 0.9)), Statistic((2.0, 2.1, 1.8, 2.6))
    options = {"equal_var": False, "alternative": "less"}
    expected = stats.ttest_ind(low.values, high.values, **options).pvalue
    assert p_lower(low, high) == pytest.approx(expected)
    assert sign(low, high) + sign(high, low) + sign(low, low) == "<>≈"
    assert sign(Statistic((1.0,)), high) == "?"
    assert sign(Statistic((1.0, 1.1), 1), high) == "≈"
    assert sign(low, Statistic((), 3)) + sign(low, Statistic((2.0, 2.1), 1)) == "<<"


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda text: text[: len(text) // 2], "damaged"),
        (lambda text: text.replace('"parameters"', '"size"'), "argument: 'parameters'"),
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
    with pytest.raises(FileNotFoundError, match="no result files"):
        read_studies(tmp_path)
    runs = [*one_variant([1.0, 2.0]), record("order1d", "fno", 1.0)]
    result_files.write(tmp_path, runs)
    for place in ("fields.json", "demo/results.json", "darcy/small/notes.json", "a/b/c.json"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(content)
    # In the paper's order.
    found = [(study.experiment, len(study.runs)) for study in read_studies(tmp_path)]
    assert found == [("order1d", 1), ("darcy", 2)]


def test_a_copy_of_a_result_is_no_other_seed(tmp_path):
    folder = result_files.write(tmp_path, one_variant([1.0, 2.0])) / "darcy" / "small"
    (folder / "copy.json").write_text((folder / "fno-seed1.json").read_text())
    with pytest.raises(ValueError, match=r"got several of fno seed 1$"):
        read_studies(folder)


def test_runs_of_other_data_or_settings_are_named(tmp_path):
    runs = list(one_variant([1.0, 2.0, 3.0]))
    runs[1]["data"] = {"data.hdf5": {"sha256": "0" * 64}}
    # A setting that a model changes by design may differ between models, not within one.
    runs.append(record("darcy", "unet", 1.0))
    for run in runs:
        run["config"]["gamma"] = 1
    runs[2]["config"] = {"epochs": 39, "batch_size": 7, "gamma": 2}
    folder = result_files.write(tmp_path, runs) / "darcy" / "small"
    others = "fno seed 0, fno seed 1"
    expected = [
        f"data data.hdf5 (da7ada7ada7a; {'0' * 12}): "
        "fno seed 0, fno seed 2, unet seed 0; fno seed 1",
        f"setting epochs (40; 39), setting gamma (1; 2): {others}, unet seed 0; fno seed 2",
        f"setting batch_size of fno (8; 7): {others}; fno seed 2",
    ]
    (study,) = read_studies(folder)
    assert study.differences == expected


def test_a_kept_file_says_the_same_and_keeps_models_that_were_not_run_again(tmp_path):
    runs = list(result_files.steady("poisson", seeds=2))
    folder = result_files.write(tmp_path / "runs", runs) / "poisson" / "small"
    (path,) = keep(folder, output=tmp_path)
    assert path.name == "poisson-small.json"
    assert path.stat().st_size < sum(p.stat().st_size for p in folder.glob("*.json"))
    ((whole,), (kept,)) = read_studies(folder), read_studies(path)
    for one, other in zip(whole.table.runs.sum(), kept.table.runs.sum(), strict=True):
        for name in ("variant", "seed", "tags", "config", "versions", "hardware", "data", "code"):
            assert getattr(other, name) == getattr(one, name)
        assert other.metrics["test"] == pytest.approx(one.metrics["test"], rel=1e-5)
        assert other.curve["epoch"][::29] == [1, 40]
        error = one.curve["validation_error"]
        assert other.curve["validation_error"][::29] == pytest.approx(error[::39], rel=1e-5)
    again = [record("poisson", "fno", 0.5, date="2026-11-28")]
    keep(result_files.write(tmp_path / "again", again), output=tmp_path)
    dates = {(r.variant, r.seed): r.date for r in read_studies(path)[0].runs}
    assert dates.keys() == {("chonn", 0), ("chonn", 1), ("fno", 0), ("unet", 0), ("unet", 1)}
    assert dates["fno", 0] == "2026-11-28"
