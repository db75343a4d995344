"""The page of results: what it shows of made-up studies, and that it copes without any."""

import re

import pytest

pytest.importorskip("matplotlib")
import result_files
from result_files import study

from chonn_lab.pages import results as results_page
from chonn_lab.pages.files import rewritten, without_origin
from chonn_lab.pages.results import WORDS
from chonn_lab.results_file import has_origin, read_record

OWN = "own-scheme"
CONTROLS = ("direct", "direct-fitted", "solve-cnn", "network-no-cell", "network-constant")


def equal_time(controls=2.0, network=0.01):
    """Ten baselines beside a network, and controls with so many times its error."""
    for seed in range(3):
        for place in range(10):
            tags = {"family": f"family{place}", "role": "baseline"}
            yield result_files.record("darcy", f"base{place}", tags, 0.03 + 0.01 * place, seed)
        tags = {"family": "chonn", "role": "network", "order": 1}
        yield result_files.record("darcy", "network", tags, network, seed)
        for name in CONTROLS:
            family = "chonn" if name.startswith("network") else "direct"
            tags = {"family": family, "role": "control"}
            yield result_files.record("darcy", name, tags, controls * network, seed)
    told = {"family": "direct", "role": "control"}
    yield result_files.record("darcy", OWN, told, 1e-8, seconds=0.0, milliseconds=2.5)


def section(page, title):
    """Lines from a heading to the next one."""
    return page.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_every_model_has_a_row_and_controls_follow():
    page = results_page.results_page([study(equal_time(), "small+sizes=seconds")])
    shown = section(page, "Darcy flow")
    rows = re.findall(r"^\| (?!model|---)(.*?) \|", shown, flags=re.M)
    assert rows[:11] == ["network", *(f"base{place}, scaled down" for place in range(10))]
    assert set(rows[11:]) == {OWN, *CONTROLS}
    assert "own-scheme is given the equation: " in shown
    assert "with nothing trained; 2.5 ms of processor time a sample." in shown
    assert re.search(r"^\| own-scheme \| 100,000 \| - \|", shown, flags=re.M)
    assert "Searched: 4 trials of 60 s for each model; " in shown
    assert "](../figures/results-darcy.svg)" in shown


def test_the_first_table_has_a_row_for_each_problem_of_which_the_readme_shows_a_part():
    found = study(equal_time(controls=0.5), "small+sizes=seconds")
    page = results_page.results_page([found])
    (row,) = re.findall(r"^\| Darcy flow, .*$", page.partition("\n## ")[0], flags=re.M)
    metric = {group.variant: group.metric("relative_l1") for group in found.groups}
    ours, best, told = metric["network"], metric["base0"], results_page.given(found)
    knows = min((metric[name] for name in CONTROLS[:3]), key=lambda value: value.mean)
    cells = row.strip("| ").split(" | ")
    assert len(cells) == len(results_page.HEADER)
    assert cells[0] == "Darcy flow, relative L1"
    assert cells[2] == "network"
    assert (cells[5], cells[9]) == (f"{ours} (3)", f"{best} (3)")
    assert cells[6] == "base0"
    assert cells[10] == f"{best.mean / ours.mean:.1f}x, significant"
    assert cells[11:] == [told, f"{knows} (3)", "-"]
    (short,) = results_page.summary([found]).splitlines()[2:]
    assert [cell for cell in short.strip("| ").split(" | ") if not cell.endswith("x")] == [
        *(cells[0], str(ours), cells[4], cells[6], str(best), f"{cells[8]} (1.00x)", told),
    ]
    two_seeds = study([run for run in equal_time() if run["seed"] < 2], "small+sizes=seconds")
    assert len(results_page.summary([two_seeds]).splitlines()) == 2
    assert len(results_page.summary([study(equal_time())]).splitlines()) == 2


@pytest.mark.parametrize(("factor", "said"), [(1.0, "equal to 10%"), (2.0, "a ratio of 2.0")])
def test_it_says_whether_seconds_are_equal(factor, said):
    runs = list(equal_time())
    for run in runs:
        if run["variant"] == "network":
            run["seconds"] *= factor
    shown = section(results_page.results_page([study(runs)]), "Darcy flow")
    assert "40 epochs. Training took" in shown
    assert said in shown
    runs[0]["config"]["epochs"] = 41
    shown = section(results_page.results_page([study(runs)]), "Darcy flow")
    assert "Each model has its own epochs" in shown


def test_runs_without_a_record_of_data_and_code_are_left_out():
    runs = list(equal_time())
    runs[0] |= {"data": {}, "model": "", "sources": {}}
    assert results_page.chosen([study(runs)]) == []
    assert "No runs with a record of data and code: `order1d`, `darcy`" in (
        results_page.results_page([study(runs)])
    )


def test_the_study_at_equal_wall_clock_is_preferred():
    slow, quick = study(equal_time()), study(equal_time(), "small+sizes=seconds")
    other = study(equal_time(), "small+sizes=parameters")
    for studies in ([slow, quick, other], [other, quick, slow]):
        assert results_page.chosen(studies) == [quick]
    assert results_page.chosen([other, slow]) == [slow]


def test_another_contrast_is_another_problem():
    studies = [
        study(
            [{**run, "experiment": "darcy_contrast", "title": title} for run in equal_time()],
            scale,
        )
        for title, scale in (
            ("Darcy flow, contrast 1,000", "small+sizes=seconds"),
            ("Darcy flow, contrast 100,000", "small+contrast=100000.0,sizes=seconds"),
        )
    ]
    page = results_page.results_page(studies)
    assert "\n## Darcy flow, contrast 1,000\n" in page
    assert "\n## Darcy flow, contrast 100,000\n" in page
    assert "results-darcy_contrast.svg)" in page
    assert "results-darcy_contrast-contrast=100000.0.svg)" in page
    assert results_page.summary(studies).count("\n| Darcy flow, contrast") == 2


@pytest.mark.parametrize(
    ("ratio", "follows"),
    [(2.0, "above"), (0.5, "below"), (1.0, "alike")],
)
def test_each_control_has_a_row_and_what_it_proves(ratio, follows):
    page = results_page.results_page([study(equal_time(controls=ratio))])
    shown = section(page, "Darcy flow")
    assert all(f"\n| {name} |" in shown for name in CONTROLS)
    for name in CONTROLS:
        words = WORDS["controls"][name]
        assert words["what"] in shown
        found = [how for how in ("above", "below", "alike") if words[how] in shown]
        assert found == [follows], name


def test_published_numbers_stand_beside_ours():
    runs = [{**run, "experiment": "fno_darcy", "title": "FNO's"} for run in equal_time()]
    page = results_page.results_page([study(runs, "paper+sizes=small")])
    assert re.search(r"Published relative L2 error at 85 points, .*: Latent .* 0\.0049, Tran", page)
    assert "Published order" not in page


@pytest.mark.parametrize(
    ("errors", "verdict"),
    [((0.03, 0.05), "the published order"), ((0.05, 0.03), "**not** the published order")],
)
def test_order_of_the_baselines_beside_the_published_one(errors, verdict):
    runs = [{**run, "experiment": "fno_darcy", "title": "FNO's"} for run in equal_time()]
    for name, error in zip(("transolver", "fno-neuralop"), errors, strict=True):
        tags = {"family": name, "role": "baseline"}
        run = result_files.record("darcy", name, tags, error, 0)
        runs.append({**run, "experiment": "fno_darcy", "title": "FNO's"})
    page = results_page.results_page([study(runs, "paper+sizes=small")])
    shown = page.partition("Published order, lowest error first: Transolver, FNO. Order here: ")[2]
    assert shown.partition("\n")[0].endswith(f": {verdict}.")
    assert shown.startswith("Transolver (0.0" if errors[0] < errors[1] else "FNO (0.0")


ORIGIN = {"data": {"a.hdf5": {"sha256": "0"}}}


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({**ORIGIN, "results": [{"code": "1"}, {"code": "1"}]}, True),
        ({"results": [{**ORIGIN, "code": "1"}]}, True),
        ({**ORIGIN, "results": [{"code": "1"}, {}]}, False),
        ({"data": {"file": "a.hdf5"}, "results": [{"code": "1"}]}, False),
        ({"results": [{"code": "1"}]}, False),
        ({"environment": {"code": "1"}, "rows": []}, True),
        ({"environment": {"commit": "1"}, "rows": []}, False),
        ({"values": {"FNO": 0.01}}, True),
    ],
)
def test_what_has_an_origin(record, expected, monkeypatch):
    assert has_origin(record) == expected
    monkeypatch.setattr("chonn_lab.pages.files.LOADED", {"a": record})
    assert ("`a.json`" in without_origin()) != expected


def test_a_page_names_the_files_without_an_origin():
    from chonn_lab.pages.files import load

    text = "<!-- t -->\n<!-- /t -->\n<!-- origin -->\n<!-- /origin -->\n"
    page, names = rewritten("p", text, {"t": lambda: f"{len(load('scan'))}\n"})
    assert names == {"t"}
    assert "`scan.json`" in page
    assert "darcy_16" not in page


def test_a_block_that_nothing_makes_is_an_error():
    with pytest.raises(SystemExit, match=r"p: expected a block out of \['t'\], got 'u'"):
        rewritten("p", "<!-- u -->\n<!-- /u -->\n", {"t": str})


def test_results_of_other_data_or_code_are_refused(tmp_path, monkeypatch):
    import json

    from chonn_lab.experiments import provenance

    path = tmp_path / "record.json"
    data = {"a.hdf5": {"sha256": "0"}}
    arguments = ("study", {"epochs": 1}, ("torch",), 1)
    record = read_record(path, *arguments, data)
    record["results"].append(provenance.code())
    path.write_text(json.dumps(record))
    assert read_record(path, *arguments, data) == record
    with pytest.raises(SystemExit, match=r"expected runs of the data \{'a.hdf5': '1'\}, got"):
        read_record(path, *arguments, {"a.hdf5": {"sha256": "1"}})
    monkeypatch.setattr("chonn_lab.experiments.provenance.digest", lambda: "other")
    with pytest.raises(SystemExit, match="expected runs of the code"):
        read_record(path, *arguments, data)


def test_rows_of_models_that_were_not_run_again_stay(tmp_path, monkeypatch):
    from chonn_lab.report.results import read_study
    from chonn_lab.studies import keep_results

    monkeypatch.setattr(keep_results, "RUNS", tmp_path / "kept")
    runs = [{**run, "scale": "small"} for run in equal_time()]
    result_files.write(tmp_path / "first", runs, resolution=8)
    keep_results.keep(tmp_path / "first")
    again = [run for run in runs if run["variant"] == "network" and run["seed"] == 0]
    result_files.write(tmp_path / "second", again, resolution=8)
    keep_results.keep(tmp_path / "second", beside=True)
    kept = read_study(tmp_path / "kept" / "darcy-small.json").runs
    named = {(run.variant, run.seed) for run in kept}
    others = {(run["variant"], run["seed"]) for run in runs if run["variant"] != "network"}
    assert named == others | {("network", 0)}
    keep_results.keep(tmp_path / "second")
    assert len(read_study(tmp_path / "kept" / "darcy-small.json").runs) == 1


def test_studies_of_a_search_are_kept_and_come_first(tmp_path, monkeypatch):
    from chonn_lab.studies import keep_results

    kept = tmp_path / "kept"
    scales = ("small", "small+sizes=seconds", "night", "small+epochs=2", "smoke")
    for scale in scales:
        runs = [{**run, "scale": scale} for run in equal_time()]
        result_files.write(tmp_path / "runs", runs, resolution=8)
    monkeypatch.setattr(keep_results, "RUNS", kept)
    monkeypatch.setattr(results_page, "RUNS", kept)
    keep_results.keep(tmp_path / "runs", ["small+sizes=seconds"])
    names = {f"darcy-{scale}.json" for scale in scales[:3]}
    assert {path.name for path in kept.iterdir()} == names
    studies = results_page.kept()
    assert [study.scale for study in studies].count("night") == 1
    studies = [study for study in studies if study.scale != "night"]
    assert results_page.chosen(studies)[0].scale == "small+sizes=seconds"
    # Claims are judged on the models that they are about.
    assert results_page.claims_page(studies).count("## Darcy flow") == 1
    assert "Searched: 4 trials of 60 s for each model; " in results_page.results_page(studies)
