"""The tables of README.md and docs/ are those of the result files, and nobody types a number."""

import itertools
import re

import pytest
from result_files import record, study

from chonn_lab.paths import ROOT, RUNS
from chonn_lab.report import docs, figures, page, tables
from chonn_lab.report.runs import read_studies


def test_tables_of_the_pages_come_from_the_result_files():
    pages = docs.pages()
    assert [path for path, text in pages.items() if path.read_text() != text] == []
    for name in page.WORDS["studies"]:
        (study,) = read_studies(RUNS / f"{name}.json")
        assert all(run.known for run in study.runs), "the docs show runs with data and code"
    shown = "".join(pages.values())
    assert [name for name in tables.TABLES if f"<!-- /{name} -->" not in shown] == []


def test_the_readme_has_no_typed_measurement():
    """Outside of code and blocks it has no decimals, exponents, percentages or factors."""
    text = (ROOT / "README.md").read_text()
    for part in (r"```.*?```", r"<!-- ([^/].*?) -->.*?<!-- /\1 -->", r"`[^`\n]*`", r"\]\([^)]*\)"):
        text = re.sub(part, "", text, flags=re.S)
    assert re.findall(r"\d+\.\d+|\de-?\d|\d ?%|\d times", text) == []


def test_a_table_is_made_as_it_is_described():
    rows = [{"size": 2, "name": n, "ms": ms} for n, ms in (("b", 1.5), ("a", 2.5), ("a", 3.5))]
    wide = {"columns": {"n": "size|f('d')"}, "across": "name", "cell": "ms|f('.1f')"}
    found = tables.tabulate(wide, rows[:2])
    assert found == "| n | b | a |\n| --- | ---: | ---: |\n| 2 | 1.5 | 2.5 |\n"
    tall = {"by": ["name"], "where": "ms > 1", "sort": "name", "below": "{{ size }} rows"}
    columns = {"name": "name", "ms": "runs.ms|statistic", "s": "seconds", "n": "table|length"}
    assert tables.tabulate({**tall, "columns": columns}, rows).splitlines()[2:] == [
        "| a | 3.00 ± 0.71 | - | 2 |",
        "| b | 1.50 | - | 2 |",
        "",
        "2 rows",
    ]


def test_rows_are_found_below_what_holds_them():
    record = {"size": 9, "parts": [{"size": 1, "rows": [{"ms": 2}]}, {"size": 3, "rows": []}]}
    (row,) = tables.descend(record, "parts.rows")
    assert (row["size"], row["ms"], row["section"]["size"]) == (1, 2, 1)
    assert tables.descend(record, "absent") == []


def test_a_block_is_lines_or_words():
    page = "a <!-- n -->1<!-- /n --> b\n<!-- m -->\n<!-- /m -->"
    text = docs.rewritten(page, {"n": str, "m": str})
    assert text == "a <!-- n --><!-- /n --> b\n<!-- m -->\n<!-- /m -->"
    with pytest.raises(KeyError, match="u"):
        docs.rewritten("<!-- u --><!-- /u -->", {})


@pytest.mark.parametrize(
    ("record", "known"),
    [
        ({"results": [{"code": "1"}, {}]}, False),
        ({"shared": {"code": "1"}, "runs": [{}]}, True),
        ({"environment": {"commit": "1"}, "rows": []}, False),
        ({"values": {"FNO": 0.01}}, True),
    ],
)
def test_a_page_names_its_files_without_a_record_of_their_code(record, known, monkeypatch):
    monkeypatch.setattr(tables, "LOADED", {"mine": record})
    assert ("`mine.json`" in docs.without_code()) != known


def test_figures_of_grids_budgets_and_laws_show_what_runs_have(tmp_path):
    law = {"law_input": [0.1, 1.0], "law_true": [0.3, 3.0], "law": [0.31, 2.9]}
    sizes = [(8, 10), (16, 10), (16, 20), (16, 40)]
    configs = [{"resolution": 64, "samples": n, "seconds": s} for n, s in sizes]
    pairs = itertools.product(("ours", "other"), configs)
    runs = [record("darcy", name, 0.1, config=x, curves=law) for name, x in pairs]
    for place, run in enumerate(runs):
        run["metrics"]["at_128"] = run["metrics"]["test"]
        run["variant"] += str(place)
    shown = study(runs, "small+curves")
    figures.draw_grids([shown], tmp_path / "grids.png")
    figures.draw_budgets([shown], tmp_path / "curves.svg")
    figures.draw_laws([shown], tmp_path / "laws.svg", "input", "k")
    names = {"grids.png", "curves-samples.svg", "curves-seconds.svg", "laws.svg"}
    assert {path.name for path in tmp_path.iterdir()} == names
    text = (tmp_path / "curves-samples.svg").read_text()
    assert "Darcy flow, 10 seconds" in text
    assert "Darcy flow, 16 samples" in (tmp_path / "curves-seconds.svg").read_text()
    none = tmp_path / "none.svg"
    figures.draw_laws([study([record("darcy", "a", 1)], "small")], none, "input", "k")
    assert not none.exists()
