"""The page holds every study, figure and verdict."""

import re
from pathlib import Path

import pytest
import result_files

from chonn_lab.report.page import write_report


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    result_files.everything(folder / "runs", seeds=2)
    return write_report(folder / "runs", folder / "report")


def test_page_shows_every_figure_and_study(path):
    text = path.read_text()
    drawn = set((path.parent / "figures").glob("*/*/*"))
    shown = re.findall(r"^!\[.+\]\((\S+)\)$", text, flags=re.M)
    assert {path.parent / name for name in shown} == drawn
    assert len(shown) == 17
    assert re.findall(r"^## (.*), small$", text, flags=re.M) == [
        "Order-defined benchmark",
        "Darcy flow",
        "Poisson equation",
        "Shallow water",
        "Navier-Stokes",
    ]


def test_the_page_fits_the_screen(tmp_path, look):
    """Built by Sphinx with the site's settings, with a model of a long name."""
    for module in ("sphinx", "myst_parser", "furo", "latex2mathml"):
        pytest.importorskip(module)
    from sphinx.cmd.build import build_main

    name = "a_name_of_many_words_without_a_space_between_them" * 2
    result_files.everything(tmp_path / "runs", seeds=2)
    own = [
        result_files.record("mine", variant, {"family": "x"}, 0.1, title=f"Mine, {name}")
        for variant in ("one", name)
    ]
    result_files.write(tmp_path / "runs", own)
    report = write_report(tmp_path / "runs", tmp_path / "report")
    settings = Path(__file__).parents[3] / "docs"
    options = ["-q", "-c", str(settings), "-D", "root_doc=results"]
    assert build_main([*options, str(report.parent), str(tmp_path / "site")]) == 0
    look(tmp_path / "site" / "results.html")


def test_page_says_what_ran_where_and_how_well(path):
    text = path.read_text()
    for expected in (
        *("supported", "contradicted", "inconclusive", "not tested", "scaled down"),
        *("a processor", "0123456789ab", "data.hdf5", "da7ada7ada7a"),
        *("multiply-adds, M", "training, s", "parameters", "3.0", "torch 2.15", "±"),
    ):
        assert expected in text, expected


def test_rows_of_a_table_have_as_many_cells(path):
    text = path.read_text()
    assert text.startswith("# Results")
    for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.M):
        assert len({line.count(" | ") for line in block.splitlines()}) == 1, block


def test_own_experiment_has_its_title_and_no_claims(tmp_path):
    own = [
        result_files.record("mine", name, {"family": "x"}, 0.1, title="My own problem")
        for name in ("one", "two")
    ]
    result_files.write(tmp_path / "runs", own)
    text = write_report(tmp_path / "runs", tmp_path / "report").read_text()
    assert "## My own problem, small" in text
    for word in ("tested", "Scoreboard", "Not run", "Navier"):
        assert word not in text


def test_no_results_are_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="no result files"):
        write_report(tmp_path, tmp_path / "report")
    assert not (tmp_path / "report").exists()
