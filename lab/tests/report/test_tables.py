"""The tables of README.md and docs/ are those of the result files, and nobody types a number."""

import json
import re
import sys

import pytest

from chonn_lab.pages import blocks, files, results, tables
from chonn_lab.paths import ROOT


def test_tables_of_the_pages_come_from_the_result_files(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["tables", "--check"])
    tables.main()


def test_the_readme_has_no_typed_measurement():
    """Outside of code and blocks it has no decimals, exponents, percentages or factors."""
    text = (ROOT / "README.md").read_text()
    for part in (r"```.*?```", r"<!-- ([^/].*?) -->.*?<!-- /\1 -->", r"`[^`\n]*`", r"\]\([^)]*\)"):
        text = re.sub(part, "", text, flags=re.S)
    assert re.findall(r"\d+\.\d+|\de-?\d|\d ?%|\d times", text) == []


def test_a_table_is_made_as_it_is_described():
    rows = [{"size": 2, "name": n, "ms": ms} for n, ms in (("b", 1.5), ("a", 2.5), ("a", 3.5))]
    rows[0]["seconds"] = 1000
    wide = {"columns": {"n": "size|f('d')"}, "across": "name", "cell": "ms|f('.1f')"}
    wide["last"] = {"s": "seconds|f(',')"}
    assert blocks.tabulate(
        wide, rows[:2]
    ) == "| n | b | a | s |\n| --- | ---: | ---: | ---: |\n" + ("| 2 | 1.5 | 2.5 | 1,000 |\n")
    tall = {"by": ["name"], "where": "ms > 1", "sort": "name"}
    tall["columns"] = {
        "name": "name",
        "ms": "runs.ms|spread('.1f')",
        "s": "seconds",
        "n": "table|length",
    }
    assert blocks.tabulate(tall, rows).splitlines()[2:] == [
        "| a | 3.0 ± 0.7 | - | 2 |",
        "| b | 1.5 | 1000 | 2 |",
    ]


def test_rows_are_found_below_what_holds_them():
    record = {"size": 9, "parts": [{"size": 1, "rows": [{"ms": 2}]}, {"size": 3, "rows": []}]}
    ((row,),) = (blocks.descend(record, "parts.rows"),)
    assert (row["size"], row["ms"], row["section"]["size"]) == (1, 2, 1)
    assert blocks.descend(record, "absent") == []


def test_words_of_a_line_are_a_block_too():
    page, names = files.rewritten("p", "a <!-- n -->1<!-- /n --> b", {"n": lambda: "2"})
    assert (page, names) == ("a <!-- n -->2<!-- /n --> b", {"n"})


def test_a_block_that_nothing_makes_is_an_error():
    with pytest.raises(SystemExit, match=r"p: expected a block out of \['t'\], got 'u'"):
        files.rewritten("p", "<!-- u -->\n<!-- /u -->\n", {"t": str})


ORIGIN = {"data": {"a.hdf5": {"sha256": "0"}}}


@pytest.mark.parametrize(
    ("record", "known"),
    [
        ({**ORIGIN, "results": [{"code": "1"}, {"code": "1"}]}, True),
        ({"results": [{**ORIGIN, "code": "1"}]}, True),
        ({**ORIGIN, "results": [{"code": "1"}, {}]}, False),
        ({"data": {"file": "a.hdf5"}, "results": [{"code": "1"}]}, False),
        ({"environment": {"code": "1"}, "rows": []}, True),
        ({"environment": {"commit": "1"}, "rows": []}, False),
        ({"values": {"FNO": 0.01}}, True),
    ],
)
def test_a_page_names_its_files_without_an_origin(record, known, tmp_path, monkeypatch):
    (tmp_path / "mine.json").write_text(json.dumps(record))
    monkeypatch.setattr(files, "RESULTS", tmp_path)
    text = "<!-- t -->\n<!-- /t -->\n<!-- origin -->\n<!-- /origin -->\n"
    page, names = files.rewritten("p", text, {"t": lambda: f"{len(files.load('mine'))}\n"})
    assert names == {"t"}
    assert ("`mine.json`" in page) != known


def test_a_table_of_finer_grids():
    def run(domain, seed, diverged=None, **errors):
        about = {"problem": "darcy", "trained": 64, "label": "network", "parameters": 1234}
        about |= {"domain": domain, "seed": seed, "diverged": diverged}
        return about | {"errors": {"test": {name[2:]: error for name, error in errors.items()}}}

    results = [
        run("square", 0, at64=0.010, at256=0.008),
        run("square", 1, at64=0.010, at256=0.010),
        run("l-shape", 0, at64=0.016),
        run("square", 2, "in epoch 2", at64=9.0, at256=9.0),
    ]
    exact = {"problem": "darcy", "trained": 64, "errors": {"256": 0.0125}}
    record = {"results": results, "interpolated": [exact]}
    assert blocks.build("grids", record).splitlines()[2:] == [
        "| Darcy flow | network | 64 | 1,234 | 0.0100 ± 0.0000 | 0.0090 ± 0.0014 | 2 |",
        "| Darcy flow | the true solution, interpolated | 64 | - | - | 0.0125 | - |",
    ]


def test_the_figure_of_finer_grids_is_drawn_from_its_file(tmp_path):
    results.draw_grids(files.load("resolution"), tmp_path / "grids.png")
    assert (tmp_path / "grids.png").read_bytes().startswith(b"\x89PNG")
