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
CONTROLS = ("direct", "direct-fitted", "solve-cnn", "network-no-cell", "network-constant")
SEARCHED = "small+sizes=seconds"


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
    for said in (
        "processor: Intel",
        "commit: 0123456789ab;",
        "data.hdf5: da7ada7ada7a",
        "torch: 2",
    ):
        assert said in text, said
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
    text = write_report(tmp_path / "runs", tmp_path / "report", mixed=True).read_text()
    for said in (
        "## My own problem\n",
        f"Runs differ in data data.hdf5 ({'0' * 12}: one seed 0; da7ada7ada7a: one seed 1).",
        "resumed after epoch 3: code a there, b here: one.\n",
        f"commit: {'f' * 12} / 0123456789ab; date",
    ):
        assert said in text
    assert "claims" not in text


@pytest.mark.parametrize("experiment", ["navier_stokes", "order1d"])
def test_a_report_of_runs_that_diverged_or_were_not_trained(tmp_path, experiment):
    tags = {"family": "fno", "history": 3, "recipe": "paper", "role": "baseline"}
    runs = [
        record(experiment, "a", 1, tags=tags, metrics={}, curve={}, diverged="epoch 1"),
        record(experiment, "b", 1, tags={**tags, "family": "chonn"}, curve={}, seconds=0),
    ]
    result_files.write(tmp_path / "runs", runs)
    text = write_report(tmp_path / "runs", tmp_path / "report").read_text()
    assert "| a, 3 to 1 | 100,000 |" in text
    assert "supported |" not in text


# docs/lab/results.md -----------------------------------------------------------------------------


def equal_time(controls=2.0, network=0.01, **changes):
    """Ten baselines beside a network, and controls with so many times its error."""
    told = {"family": "direct", "role": "control"}
    for seed in range(5):
        models = {
            "network": (network, {"tags": {"family": "chonn", "role": "network"}}),
            **{f"base{i}": (0.03 + 0.01 * i, {}) for i in range(10)},
            **dict.fromkeys(CONTROLS, (controls * network, {"tags": told})),
        }
        for name, (error, own) in models.items():
            yield record("darcy", name, error, seed, **{**own, **changes})
    own = {"tags": told, "seconds": 0.0, "milliseconds": 2.5}
    yield record("darcy", OWN, 1e-8, **{**own, **changes})


def cells(line):
    return line.strip("| ").split(" | ")


def test_every_model_has_a_row_and_controls_follow():
    shown = page.section(study(equal_time(), SEARCHED), docs=True)
    rows = [cells(line) for line in re.findall(r"^\| (?!model|---).*$", shown, flags=re.M)]
    names = [row[0] for row in rows]
    assert names[:11] == ["network", *(f"base{place}" for place in range(10))]
    assert set(names[11:]) == {OWN, *CONTROLS}
    own = rows[names.index(OWN)]
    assert own[1:4] == ["100,000", "-", "2.5"]
    assert own[5].endswith("x ?")
    assert f"](../figures/results-darcy-{SEARCHED}.svg)" in shown
    assert "Searched; the controls are " in shown


def table(name, runs):
    rows = page.overview([study(runs, SEARCHED)])
    return [cells(line) for line in tables.tabulate(tables.TABLES[name], rows).splitlines()[2:]]


def test_the_first_table_has_a_row_for_each_problem_of_which_the_readme_shows_a_part():
    runs = list(equal_time(0.5, config={"n_train": 256, "resolution": 64}))

    def error(name, digits):
        found = [r["metrics"]["test"]["relative_l1"] for r in runs if r["variant"] == name]
        return f"{statistics.fmean(found):.{digits}f} ± {statistics.stdev(found):.{digits}f}"

    ours, other = error("network", 5), error("base0", 5)
    ratio = f"{float(other.split()[0]) / float(ours.split()[0]):.1f}x"
    best = min(CONTROLS[:3], key=lambda name: error(name, 5))
    parts = ["Darcy flow, relative L1", "256 of 64 x 64", "network", ours, "70.0", "base0", other]
    parts += ["70.0 (1.00x)", ratio, "1e-08 in 2.5 ms", error(best, 5)]
    assert table("all problems", runs) == [parts]
    (short,) = table("equal wall-clock", runs)
    assert short == [parts[0], *parts[3:10]]


def test_the_study_of_a_search_is_preferred_and_another_title_is_another_problem():
    slow, quick = study(equal_time()), study(equal_time(), SEARCHED)
    other = study(equal_time(), "small+sizes=parameters")
    assert page.chosen([slow, other, quick]) == [quick]
    assert page.chosen([slow, other]) == [slow]
    # Without a record of data and code a study is left out.
    assert page.chosen([study([*equal_time(), next(equal_time(data={}))])]) == []
    contrasts = [
        study([record("darcy_contrast", "fno", 1, title=title)]) for title in ("one", "another")
    ]
    assert page.chosen(contrasts) == contrasts


# The README --------------------------------------------------------------------------------------


def block(name):
    return README.partition(f"<!-- {name} -->")[2].partition(f"<!-- /{name} -->")[0]


def kept(name):
    """Runs of a file, read without the code of the laboratory."""
    record = json.loads((RESULTS / "runs" / f"{name}.json").read_text())
    return [{**record["shared"], **run} for run in record["runs"]]


def test_the_readmes_numbers_are_those_of_the_files():
    rows = [cells(line) for line in block("equal wall-clock").strip().splitlines()[2:]]
    for row, problem in zip(rows, ("darcy", "poisson"), strict=True):
        runs = kept(f"{problem}-small+sizes=seconds")
        for name, shown in (("CHONN network", row[1]), (row[3], row[4])):
            found = [r["metrics"]["test"]["relative_l1"] for r in runs if r["label"] == name]
            mean, deviation = map(float, shown.split(" ± "))
            assert mean == pytest.approx(statistics.fmean(found), rel=0.01)
            assert deviation == pytest.approx(statistics.stdev(found), rel=0.03)
            assert len(found) == 5
        assert float(row[6].strip("x")) == pytest.approx(mean / float(row[1].split()[0]), rel=0.01)
        assert float(re.search(r"\((.*)x\)", row[5])[1]) >= 0.9
