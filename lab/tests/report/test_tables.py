"""The tables of README.md and docs/ are those of the result files, and nobody types a number."""

import re
import subprocess
import sys

from chonn_lab.pages import blocks, files
from chonn_lab.paths import ROOT


def test_tables_of_the_pages_come_from_the_result_files():
    subprocess.run([sys.executable, "-m", "chonn_lab.pages.tables", "--check"], check=True)


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
