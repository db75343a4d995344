"""What ``chonn-lab report`` and docs/lab/results.md show of made-up studies, and what the README
shows of the kept ones."""

import json
import re
import statistics
import xml.etree.ElementTree as ElementTree

import pytest
import result_files
from result_files import record, study

from chonn_lab import cli
from chonn_lab.paths import RESULTS, ROOT
from chonn_lab.report import page, tables
from chonn_lab.report.page import write_report

README = (ROOT / "README.md").read_text()
OWN = "own-scheme"
SEARCHED, EQUAL = "small+train.seconds=40", "equal wall-clock"


def test_a_report_has_every_study_and_replaces_files_on_request(tmp_path, capsys):
    runs = [run for name in ("shallow_water", "poisson") for run in result_files.steady(name, 2)]
    arguments = ["report", "--results", str(result_files.write(tmp_path / "runs", runs))]
    arguments += ["--output", str(tmp_path / "report")]
    assert cli.main(arguments) == 0
    path = tmp_path / "report" / "results.md"
    text = path.read_text()
    sections = re.findall(r"^## (.*)$", text, flags=re.M)
    assert sections == ["Poisson equation", "Shallow water", "The paper's claims"]
    shown = re.findall(r"^!\[.+\]\((\S+)\)$", text, flags=re.M)
    assert {path.parent / name for name in shown} == set(path.parent.glob("figures/*"))
    for name in shown:
        assert ElementTree.parse(path.parent / name).getroot().tag.endswith("svg")
    errors = [run["metrics"]["test"]["relative_l1"] for run in runs if run["variant"] == "unet"][:2]
    mean, deviation = statistics.fmean(errors), statistics.stdev(errors)
    assert f"| unet | 100,000 | 62.5 | {mean:.4f} ± {deviation:.4f} |" in text
    facts = "processor: Intel", "commit: 0123456789ab;", "data.hdf5: da7ada7ada7a", "torch: 2"
    assert [said for said in facts if said not in text] == []
    assert "| supported | 3 of 3; " in text
    before = {p: p.read_bytes() for p in path.parent.rglob("*") if p.is_file()}
    capsys.readouterr()
    assert cli.main(arguments) == 1
    assert f"output file exists: {path} (replace it with --force" in capsys.readouterr().err
    assert cli.main([*arguments, "--force"]) == 0
    assert before == {p: p.read_bytes() for p in path.parent.rglob("*") if p.is_file()}


def test_the_report_of_an_own_experiment_says_which_runs_differ(tmp_path):
    own = [record("mine", "one", 0.1, seed, title="My own problem") for seed in (0, 1)]
    own[0] |= {"data": {"data.hdf5": {"sha256": "0" * 64}}, "commit": "f" * 40}
    own[1]["notes"] = ["resumed after epoch 3: code a there, b here"]
    result_files.write(tmp_path / "runs", own)
    text = write_report(tmp_path / "runs", tmp_path / "report").read_text()
    for said in (
        "## My own problem\n",
        f"Runs differ in data data.hdf5 ({'0' * 12}; da7ada7ada7a): one seed 0; one seed 1.",
        "resumed after epoch 3: code a there, b here: one.\n",
        f"commit: {'f' * 12} / 0123456789ab; date",
    ):
        assert said in text
    assert "claims" not in text


@pytest.mark.parametrize("experiment", ["navier_stokes", "order1d"])
def test_a_report_of_runs_that_diverged_or_were_not_trained(tmp_path, experiment):
    tags = {"family": "fno", "history": 3, "recipe": "paper", "role": "baseline"}
    runs = [record(experiment, "a", 1, tags=tags, metrics={}, curve={}, diverged="epoch 1")]
    tags = {**tags, "family": "chonn"}
    runs.append(record(experiment, "b", 1, tags=tags, curve={}, seconds=0))
    result_files.write(tmp_path / "runs", runs)
    text = write_report(tmp_path / "runs", tmp_path / "report").read_text()
    assert "| a, 3 to 1 | 100,000 |" in text
    assert "supported |" not in text


# docs/lab/results.md -----------------------------------------------------------------------------


def equal_time():
    """A network, a baseline and two controls."""
    told, ours = {"family": "direct", "role": "control"}, {"family": "chonn", "role": "network"}
    config = {"n_train": 256, "resolution": 64}
    for seed in range(3):
        for name, error, tags in (("network", 0.01, ours), ("solve-cnn", 0.01, told)):
            yield record("darcy", name, error, seed, tags=tags, config=config)
        yield record("darcy", "base", 0.03, seed, config=config)
    yield record("darcy", OWN, 1e-8, tags=told, config=config, seconds=0.0, milliseconds=2.5)


def cells(text):
    return [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]


def test_every_model_has_a_row_and_controls_follow():
    shown = page.section(study(equal_time(), SEARCHED), docs=True)
    assert cells(shown)[2:] == [
        ["network", "100,000", "65.0", "-", "0.01007 ± 0.00031", "1x", "3"],
        ["base", "100,000", "65.0", "-", "0.03040 ± 0.00092", "3x", "3"],
        [OWN, "100,000", "-", "2.5", "9.60e-09", "9.5e-07x ?", "1"],
        ["solve-cnn", "100,000", "65.0", "-", "0.01013 ± 0.00031", "1x ≈", "3"],
    ]
    assert f"](../figures/results-darcy-{SEARCHED}.svg)" in shown
    assert "Ours has its defaults, the other models are searched" in shown


def test_a_line_of_all_models_is_a_problem():
    other = [record("other", name, 0.01, tags={"role": name}) for name in ("network", "more")]
    shown = page.by_model([study(equal_time(), SEARCHED), study(other, "small")])
    assert cells(shown)[0] == ["problem", "CHONN network", "other models"]
    darcy = ["Darcy flow", "0.01007 ± 0.00031", "base 0.03040 ± 0.00092"]
    assert cells(shown)[2:] == [darcy, ["other", "0.0100", "more 0.0104"]]


def test_the_first_table_has_a_row_for_each_problem_of_which_the_readme_shows_a_part():
    rows = page.overview([study(equal_time(), SEARCHED)])
    full, short = (tables.tabulate(tables.TABLES[name], rows) for name in ("all problems", EQUAL))
    parts = ["Darcy flow, relative L1", "256 of 64 x 64", "network"]
    parts += [*cells(short)[2][1:], "0.01013 ± 0.00031"]
    assert cells(full)[2] == parts
    base = ["base", "0.03040 ± 0.00092", "65.0 (1.00x)", "3.0x"]
    assert parts[4:10] == ["65.0", *base, "1e-08 in 2.5 ms"]


# The README --------------------------------------------------------------------------------------


def test_the_readmes_numbers_are_those_of_the_files():
    shown = README.partition(f"<!-- {EQUAL} -->")[2].partition(f"<!-- /{EQUAL} -->")[0]
    for row, problem in zip(cells(shown)[2:], ("darcy", "poisson"), strict=True):
        # Read without the code of the laboratory.
        record = json.loads((RESULTS / "runs" / f"{problem}-{SEARCHED}.json").read_text())
        runs = [{**record["shared"], **run} for run in record["runs"]]
        for name, shown in (("CHONN network", row[1]), (row[3], row[4])):
            found = [r["metrics"]["test"]["relative_l1"] for r in runs if r["label"] == name]
            mean, deviation = map(float, shown.split(" ± "))
            assert mean == pytest.approx(statistics.fmean(found), rel=0.01)
            assert deviation == pytest.approx(statistics.stdev(found), rel=0.03)
            assert len(found) == 5
        assert float(row[6].strip("x")) == pytest.approx(mean / float(row[1].split()[0]), rel=0.01)
        assert float(re.search(r"\((.*)x\)", row[5])[1]) >= 0.9
