"""The README's table: its last column is what the data's own scheme has on the same test data."""

import json
import re

import pytest

pytest.importorskip("matplotlib")

from chonn_lab.pages.kept import kept
from chonn_lab.pages.results import CHOSEN, chosen, headline, study_title
from chonn_lab.paths import ROOT
from chonn_lab.report.comparison import number
from chonn_lab.report.tables import metric_label

README = (ROOT / "README.md").read_text()
TABLE = README.partition("<!-- equal wall-clock -->")[2].partition("<!-- /equal wall-clock -->")[0]
ROWS = [line.strip("| ").split(" | ") for line in TABLE.strip().splitlines()[2:]]
# The models of ConDiff, and this control, do not see all of the coefficient.
SEEN_IN_PART = "condiff"
STUDIES = {f"{study_title(s)}, {metric_label(headline(s))}": s for s in chosen(kept())}


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_the_last_column_is_the_datas_own_scheme(row):
    study = STUDIES[row[0]]
    (told,) = (run for run in study.runs if run.variant == "own-scheme")
    value = told.metrics["test"][headline(study)]
    assert row[-1] == number(value)
    assert value < (0.06 if study.experiment == SEEN_IN_PART else 1e-6)
    assert told.provenance.known
    assert told.dirty is False
    # The same test samples as the network's: files of the same generator, seed and settings.
    network = next(r for r in study.runs if r.tags["role"] == "network")
    facts = ("generator", "generator_version", "seed", "settings")
    assert {name: [file[key] for key in facts] for name, file in told.data.items()} == {
        name: [file[key] for key in facts] for name, file in network.data.items()
    }
    sizes = ("n_train", "n_validation", "n_test", "resolution")
    assert [told.config[key] for key in sizes] == [network.config[key] for key in sizes]


def test_every_problem_with_the_settings_of_the_search_has_a_row():
    searched = {name for name, study in STUDIES.items() if "sizes=seconds" in study.scale}
    assert {row[0] for row in ROWS} == searched
    assert len(ROWS) > 6


def test_the_readme_says_what_the_search_was():
    search = README.partition("<!-- search -->")[2].partition("<!-- /search -->")[0]
    found = json.loads(CHOSEN.read_text())
    (darcy,), (poisson,) = found["darcy"]["seconds"], found["poisson"]["seconds"]
    for entry, text in ((darcy, "4 trials of 60 s"), (poisson, "3 trials of 60 s")):
        assert entry["budgets"].keys() == entry["models"].keys()
        trials, seconds = re.findall(r"\d+", text)
        assert entry["budgets"]["network"] == {"trials": int(trials), "seconds": float(seconds)}
        assert text in search
    assert "The other problems were not searched" in search
    assert set(found) == {"darcy", "poisson"}
