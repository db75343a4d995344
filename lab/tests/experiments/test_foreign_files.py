"""Files of other programs are refused before any work or left out; ours are told by their marks."""

import pytest
import result_files
from running import Work, read

from chonn_lab import cli
from chonn_lab.marks import is_ours
from chonn_lab.report import figures
from chonn_lab.report.page import write_report
from chonn_lab.report.results import read_study
from chonn_lab.studies.keep_results import collect
from chonn_ops.files import HOST

MINE = b"of the user"
REFUSED = "not written by chonn-ops, and would be replaced; move it away, or choose another"


def tree(folder):
    """All files below a folder with their content."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Folder of a finished run of the tiny experiment, and its content."""
    folder = tmp_path_factory.mktemp("finished")
    work = Work(folder)
    work.run()
    return work.result.parent


def test_what_a_run_writes_is_marked(finished, tmp_path):
    assert read(finished / "order2-seed0.json")["generator"] == "chonn-ops"
    drawn = [path for _, path in figures.draw_study(read_study(finished), tmp_path)]
    for path in (*drawn, finished / "order2-seed0.json"):
        assert is_ours(path), path
    compact = collect(read_study(finished), tmp_path)
    assert is_ours(compact)
    assert len(read_study(collect(read_study(finished), tmp_path)).runs) == 1


def test_only_our_remains_are_removed(tmp_path):
    work = Work(tmp_path)
    work.folder.mkdir(parents=True)
    ours = [
        work.folder / f".last.ckpt.{HOST}-99999999-0123abcd.tmp",
        work.folder.parent / f".order2-seed0.json.{HOST}-99999999-00000000.tmp",
    ]
    others = [
        work.folder / ".notes.tmp",
        work.folder / ".last.ckpt.tmp",
        work.folder / f".thesis.tex.{HOST}-99999999-0123abcd.tmp",
        work.folder.parent / f".order1-seed0.json.{HOST}-99999999-00000000.tmp",
    ]
    for path in (*ours, *others):
        path.write_bytes(MINE)
    work.run()
    assert [path.exists() for path in ours] == [False, False]
    assert [path.read_bytes() for path in others] == [MINE] * 4


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    result_files.write(folder, result_files.shallow_water(seeds=1))
    return folder


@pytest.mark.parametrize("name", ["results.md", "figures/shallow_water/small/fields.png"])
def test_report_refuses_before_it_draws(results, tmp_path, capsys, name):
    path = tmp_path / "report" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(MINE)
    arguments = ["report", "--results", str(results), "--output", str(tmp_path / "report")]
    assert cli.main(arguments) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"chonn-lab: error: {path}: {REFUSED}")
    assert error.count("\n") == 1
    assert tree(tmp_path) == {path: MINE}


def test_report_replaces_its_own(results, tmp_path):
    for _ in range(2):
        write_report(results, tmp_path)
    for path in tree(tmp_path):
        assert is_ours(path), path
