"""What ``chonn-lab report`` and docs/lab/results.md show of made-up studies, and what the README
shows of the kept ones."""

import json
import re
import statistics
import xml.etree.ElementTree as ElementTree

import pytest
import result_files
from result_files import study

from chonn_lab import cli
from chonn_lab.pages import results
from chonn_lab.paths import RESULTS, ROOT
from chonn_lab.report.page import write_report

README = (ROOT / "README.md").read_text()
OWN = "own-scheme"
CONTROLS = ("direct", "direct-fitted", "solve-cnn", "network-no-cell", "network-constant")
SEARCHED = "small+sizes=seconds"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    return write_report(result_files.everything(folder / "runs", seeds=2), folder / "report")


def test_report_has_every_study_with_its_figure_and_numbers(path):
    text = path.read_text()
    titles = ["Order-defined benchmark", "Darcy flow", "Poisson equation", "Shallow water"]
    sections = re.findall(r"^## (.*), small$", text, flags=re.M)
    assert sections == [*titles, "Navier-Stokes"]
    shown = re.findall(r"^!\[.+\]\((\S+)\)$", text, flags=re.M)
    assert {path.parent / name for name in shown} == set(path.parent.glob("figures/*"))
    assert len(shown) == 5
    for name in shown:
        assert ElementTree.parse(path.parent / name).getroot().tag.endswith("svg")
    runs = [run for run in result_files.steady("darcy", 2) if run["variant"] == "unet"]
    errors = [run["metrics"]["test"]["relative_l1"] for run in runs]
    mean, deviation = statistics.fmean(errors), statistics.stdev(errors)
    assert f"| unet | {mean:.4f} ± {deviation:.4f} |" in text
    assert "| unet | 100,000 | 3.00 | 62.5 | 300 | 2 |" in text
    for said in ("scaled down", "a processor", "commit: 0123456789ab\n", "data.hdf5", "torch 2.15"):
        assert said in text, said
    assert "inconclusive" in text.partition("## The paper's claims")[2]


def test_the_same_results_give_the_same_report_which_replaces_its_own(path):
    before = {p: p.read_bytes() for p in path.parent.rglob("*") if p.is_file()}
    write_report(path.parents[1] / "runs", path.parent)
    assert before == {p: p.read_bytes() for p in path.parent.rglob("*") if p.is_file()}


@pytest.mark.parametrize("name", ["results.md", "figures/darcy-small.svg"])
def test_report_refuses_files_of_others_before_it_draws(path, tmp_path, capsys, name):
    foreign = tmp_path / name
    foreign.parent.mkdir(parents=True, exist_ok=True)
    foreign.write_text("of the user, about chonn-ops")
    arguments = ["--results", str(path.parents[1] / "runs"), "--output", str(tmp_path)]
    assert cli.main(["report", *arguments]) == 1
    refusal = "not written by chonn-ops, and would be replaced; move it away, or choose another"
    assert capsys.readouterr().err.startswith(f"chonn-lab: error: {foreign}: {refusal}")
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [foreign]


def test_the_report_of_an_own_experiment_says_which_runs_differ_and_fits_the_screen(tmp_path, look):
    """Built by Sphinx with the site's settings, with a model of a long name."""
    for module in ("sphinx", "myst_parser", "furo", "latex2mathml"):
        pytest.importorskip(module)
    from sphinx.cmd.build import build_main

    name = "a_name_of_many_words_without_a_space_between_them" * 2
    own = [
        result_files.record("mine", variant, {"family": "x"}, 0.1, seed, title="My own problem")
        for variant in ("one", name)
        for seed in (0, 1)
    ]
    own[0] |= {"data": {"data.hdf5": {"sha256": "0" * 64}}, "commit": "f" * 40}
    own[1]["notes"] = ["resumed after epoch 3: code a there, b here"]
    result_files.write(tmp_path / "runs", own)
    report = write_report(tmp_path / "runs", tmp_path / "report", mixed=True)
    text = report.read_text()
    assert "## My own problem, small" in text
    assert f"Runs differ in data data.hdf5 ({'0' * 12} / da7ada7ada7a): one seed 0 differ" in text
    assert "resumed after epoch 3: code a there, b here: one\n" in text
    code = f"code ({'f' * 12} c0dec0dec0de / 0123456789ab c0dec0dec0de): one seed 0 differ from "
    assert code in text
    assert "claims" not in text
    options = ["-q", "-c", str(ROOT / "docs"), "-D", "root_doc=results"]
    assert build_main([*options, str(report.parent), str(tmp_path / "site")]) == 0
    look(tmp_path / "site" / "results.html")


@pytest.mark.parametrize("experiment", ["navier_stokes", "order1d"])
def test_a_report_of_runs_that_diverged_or_were_not_trained(tmp_path, experiment):
    tags = {"family": "fno", "history": 3, "recipe": "paper", "role": "baseline"}
    runs = [
        result_files.record(experiment, "a", tags, 1, metrics={}, curve={}, diverged="epoch 1"),
        result_files.record(experiment, "b", {**tags, "family": "chonn"}, 1, curve={}, seconds=0),
    ]
    result_files.write(tmp_path / "runs", runs)
    text = write_report(tmp_path / "runs", tmp_path / "report").read_text()
    assert "| a, 3 to 1 | 100,000 |" in text
    assert "supported |" not in text


def test_no_results_are_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="no result files"):
        write_report(tmp_path, tmp_path / "report")
    assert not (tmp_path / "report").exists()


# docs/lab/results.md -----------------------------------------------------------------------------


def equal_time(controls=2.0, network=0.01, **changes):
    """Ten baselines beside a network, and controls with so many times its error."""
    told = {"family": "direct", "role": "control"}
    for seed in range(5):
        models = {
            "network": ({"family": "chonn", "role": "network"}, network),
            **{f"base{i}": ({"family": f"x{i}", "role": "baseline"}, 0.03 + 0.01 * i)
               for i in range(10)},
            **dict.fromkeys(CONTROLS, (told, controls * network)),
        }  # fmt: skip
        for name, (tags, error) in models.items():
            yield {**result_files.record("darcy", name, tags, error, seed), **changes}
    run = result_files.record("darcy", OWN, told, 1e-8, seconds=0.0, milliseconds=2.5)
    yield {**run, **changes}


def section(page, title):
    """Lines from a heading to the next one."""
    return page.partition(f"## {title}\n")[2].partition("\n## ")[0]


def cells(line):
    return line.strip("| ").split(" | ")


def test_every_model_has_a_row_and_controls_follow():
    page = results.sections([study(equal_time(), SEARCHED)])
    shown = section(page, "Darcy flow")
    rows = re.findall(r"^\| (?!model|---)(.*?) \|", shown, flags=re.M)
    assert rows[:11] == ["network", *(f"base{place}" for place in range(10))]
    assert set(rows[11:]) == {f"{OWN}, 2.5 ms a sample", *CONTROLS}
    (row,) = re.findall(r"^\| own-scheme, .*$", shown, re.M)
    assert cells(row)[1:3] == ["100,000", "-"]
    assert cells(row)[4].endswith("x ?")
    assert "](../figures/results-darcy.svg)" in shown
    assert "chonn-lab run problem=darcy model=chonn_network,direct," in shown


@pytest.mark.parametrize("ratio", [2.0, 0.5, 1.0])
def test_a_control_says_whether_its_difference_is_significant(ratio):
    page = results.sections([study(equal_time(ratio, network=0.01))])
    (row,) = re.findall(r"^\| solve-cnn \|.*$", page, flags=re.M)
    assert cells(row)[4].endswith(" ≈") == (ratio == 1.0)
    assert float(cells(row)[4].partition("x")[0]) == pytest.approx(ratio, rel=0.05)


def test_the_first_table_has_a_row_for_each_problem_of_which_the_readme_shows_a_part():
    runs = list(equal_time(0.5, config={"n_train": 256, "resolution": 64}))
    (row,) = results.problems([study(runs, SEARCHED)]).splitlines()[2:]

    def error(name, digits):
        found = [r["metrics"]["test"]["relative_l1"] for r in runs if r["variant"] == name]
        return f"{statistics.fmean(found):.{digits}f} ± {statistics.stdev(found):.{digits}f}"

    ours, other = error("network", 5), error("base0", 5)
    ratio = f"{float(other.split()[0]) / float(ours.split()[0]):.1f}x"
    best = min(CONTROLS[:3], key=lambda name: error(name, 5))
    parts = ["Darcy flow, relative L1", "256 of 64 x 64", "network", ours, "70.0", "base0", other]
    parts += ["70.0 (1.00x)", ratio, "1e-08 in 2.5 ms", error(best, 5)]
    assert cells(row) == parts
    (short,) = results.summary([study(runs, SEARCHED)]).splitlines()[2:]
    assert cells(short) == [parts[0], *parts[3:10]]
    four_seeds = study([run for run in runs if run["seed"] < 4], SEARCHED)
    assert results.summary([four_seeds]) == results.summary([study(runs)]) == ""


def test_the_study_of_a_search_is_preferred_and_claims_are_not_judged_on_it():
    slow, quick = study(equal_time()), study(equal_time(), SEARCHED)
    other = study(equal_time(), "small+sizes=parameters")
    for studies in ([slow, quick, other], [other, quick, slow]):
        assert results.chosen(studies) == [quick]
    assert results.chosen([other, slow]) == [slow]
    assert results.verdicts([quick, slow]).count("## Darcy flow") == 1
    assert "Searched; the controls are " in results.sections([quick])
    # Without a record of data and code a study is left out.
    unknown = study([*equal_time(), next(equal_time(data={}))])
    assert results.chosen([unknown]) == []


def test_another_contrast_is_another_problem():
    studies = [
        study(equal_time(experiment="darcy_contrast", title=title), scale)
        for title, scale in (
            ("Darcy flow, contrast 1,000", SEARCHED),
            ("Darcy flow, contrast 100,000", "small+contrast=100000.0,sizes=seconds"),
        )
    ]
    page = results.sections(studies[:1])
    assert "results-darcy_contrast.svg)" in section(page, "Darcy flow, contrast 1,000")
    assert results.figure_of(studies[1]) == "results-darcy_contrast-contrast=100000.0.svg"
    assert results.summary(studies).count("\n| Darcy flow, contrast") == 2


def test_published_numbers_stand_beside_ours():
    studies = [
        study(
            equal_time(experiment="fno_darcy", config={"hours": hours, "epochs": 40, "n_train": 9}),
            f"paper+hours={hours},sizes=small",
        )
        for hours in (1, 2)
    ]
    page = results.sections(studies)
    assert re.search(r"Published relative L2 error at 85 points, .*: Latent .* 0\.0049, Tran", page)
    assert re.search(r"other budgets here: network 0\.01\d+ after 40 epochs and 70\.0 s, ba", page)


# The README --------------------------------------------------------------------------------------


def block(name):
    return README.partition(f"<!-- {name} -->")[2].partition(f"<!-- /{name} -->")[0]


def kept(name):
    """Runs of a file, read without the code of the laboratory."""
    record = json.loads((RESULTS / "runs" / f"{name}.json").read_text())
    return [{**record["shared"], **run} for run in record["runs"]]


def test_the_readmes_numbers_are_those_of_the_files():
    errors = {}
    for run in kept("darcy-small+sizes=seconds"):
        errors.setdefault(run["label"], []).append(run["metrics"]["test"]["relative_l1"])
    row = next(
        cells(line) for line in block("equal wall-clock").splitlines() if "| Darcy f" in line
    )
    for name, shown in (("CHONN network", row[1]), (row[3], row[4])):
        mean, deviation = map(float, shown.split(" ± "))
        assert mean == pytest.approx(statistics.fmean(errors[name]), rel=0.01)
        assert deviation == pytest.approx(statistics.stdev(errors[name]), rel=0.03)
    ratio = statistics.fmean(errors[row[3]]) / statistics.fmean(errors["CHONN network"])
    assert row[6] == f"{ratio:.1f}x"


def test_rows_of_the_readme_have_equal_seconds_and_the_problems_own_scheme():
    rows = [cells(line) for line in block("equal wall-clock").strip().splitlines()[2:]]
    assert len(rows) > 1
    for row, name in zip(rows, ("darcy", "poisson"), strict=True):
        assert float(re.search(r"\((.*)x\)", row[5])[1]) >= 0.9
        (told,) = (r for r in kept(f"{name}-small+sizes=seconds") if r["variant"] == OWN)
        error = told["metrics"]["test"]["relative_l1"]
        assert row[-1] == f"{error:.0e} in {told['milliseconds']:.2g} ms"
        assert error < 1e-6


def test_the_readme_says_what_the_search_was():
    found = json.loads((RESULTS / "searches.json").read_text())["values"]
    for entry in found.values():
        budget = entry["network"]
        assert f"{budget['trials']} trials of {budget['seconds']:g} s" in block("search")
