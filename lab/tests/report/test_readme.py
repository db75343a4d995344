"""The README's table: its last column is what the data's own scheme has on the same test data."""

import json
import re

import pytest

pytest.importorskip("matplotlib")

from chonn_lab.pages.results import chosen, headline, kept, study_title
from chonn_lab.paths import RESULTS, ROOT
from chonn_lab.report.comparison import number
from chonn_lab.report.tables import metric_label

README = (ROOT / "README.md").read_text()
TABLE = README.partition("<!-- equal wall-clock -->")[2].partition("<!-- /equal wall-clock -->")[0]
ROWS = [line.strip("| ").split(" | ") for line in TABLE.strip().splitlines()[2:]]
STUDIES = {f"{study_title(s)}, {metric_label(headline(s))}": s for s in chosen(kept())}


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_the_last_column_is_the_datas_own_scheme(row):
    study = STUDIES[row[0]]
    rows = json.loads((RESULTS / "controls.json").read_text())["rows"]
    name = study.experiment
    name += row[0].partition("contrast")[2].partition(", rel")[0]
    (told,) = (r for r in rows if (r["problem"], r["name"]) == (name, "own scheme"))
    assert row[-1] == f"{told['error']:.0e} in {number(told['ms'], 2)} ms"
    assert told["metric"] == headline(study)
    assert told["error"] < 1e-7


def test_every_problem_with_the_settings_of_the_search_has_a_row():
    searched = {name for name, study in STUDIES.items() if "sizes=seconds" in study.scale}
    assert {row[0] for row in ROWS} == searched
    assert len(ROWS) > 6


def test_the_readme_says_what_the_search_was():
    search = README.partition("<!-- search -->")[2].partition("<!-- /search -->")[0]
    found = json.loads((RESULTS / "searches.json").read_text())["values"]
    for name, text in (("darcy", "4 trials of 60 s"), ("poisson", "3 trials of 60 s")):
        entry = found[name]
        assert entry["budgets"].keys() == entry["models"].keys()
        trials, seconds = re.findall(r"\d+", text)
        assert entry["budgets"]["network"] == {"trials": int(trials), "seconds": float(seconds)}
        assert text in search
    assert "The other problems were not searched" in search
    assert set(found) == {"darcy", "poisson"}
