"""Files of other programs are refused before any work or left out; ours are told by their marks."""

import json

import pytest
import result_files
from running import NAME, job, prepared, read

pytest.importorskip("filelock")
from chonn_lab import cli
from chonn_lab.experiments import training
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
    training.execute(job(folder))
    return folder / "runs" / "tiny" / "smoke"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prepared(tmp_path / "data")
    return tmp_path


def test_what_a_run_writes_is_marked(finished, tmp_path):
    assert read(finished / "order2-seed0.json")["generator"] == "chonn-ops"
    drawn = figures.draw(finished, tmp_path)
    for path in (*drawn, finished / "order2-seed0.json"):
        assert is_ours(path), path
    compact = collect(read_study(finished), tmp_path)
    assert is_ours(compact)
    assert len(read_study(collect(read_study(finished), tmp_path)).runs) == 1


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("figures/learning.svg", lambda path: path.write_bytes(b"<svg/>")),
        ("figures/metrics.svg", lambda path: path.symlink_to("nowhere")),
    ],
)
def test_run_refuses_before_it_trains(folder, capsys, name, write):
    path = folder / "runs" / "tiny" / "smoke" / name
    path.parent.mkdir(parents=True)
    write(path)
    before = tree(folder / "runs")
    assert cli.main(["run", NAME, "--scale", "smoke", "--jobs", "1"]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith(f"chonn-lab: error: {path.relative_to(folder)}: {REFUSED}")
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    assert tree(folder / "runs") == before


@pytest.mark.parametrize("content", [MINE, b"[]", b'{"config": {}}'])
def test_foreign_result_is_refused_before_anything_is_trained(folder, capsys, content):
    path = folder / "runs" / "tiny" / "smoke" / "order2-seed0.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert cli.main(["run", NAME, "--scale", "smoke", "--jobs", "1"]) == 1
    error = capsys.readouterr().err
    assert error.startswith(
        f"chonn-lab: error: {path.relative_to(folder)}: damaged, or no result of"
    )
    assert error.count("\n") == 1
    assert tree(folder / "runs") == {path: content}


def test_result_of_another_variant_is_refused(tmp_path, finished):
    work = job(tmp_path, "learning_rate=2e-3", variant="order1")
    record = read(finished / "order2-seed0.json")
    path = work.result
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(record))
    with pytest.raises(ValueError, match="variant: order2 there, order1 here"):
        work.finished()


def test_other_json_among_the_results_is_left_out(folder, capsys):
    place = folder / "runs" / "tiny" / "smoke"
    place.mkdir(parents=True)
    (place / "notes.json").write_text('{"mine": 1}')
    (folder / "runs" / "list.json").write_text("[1")
    (folder / "runs" / "my" / "own").mkdir(parents=True)
    (folder / "runs" / "my" / "own" / "thing.json").write_text("{}")
    assert cli.main(["run", NAME, "--scale", "smoke", "--jobs", "1"]) == 0
    errors = capsys.readouterr().err
    assert "chonn-lab: warning: runs/tiny/smoke/notes.json: not a result file, left out\n" in errors
    assert (place / "figures" / "metrics.svg").exists()
    assert cli.main(["report"]) == 0
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 3
    assert all("not a result file, left out" in line for line in errors)
    assert (place / "notes.json").read_text() == '{"mine": 1}'


def test_only_our_remains_are_removed(folder):
    work = job(folder)
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
    training.execute(work)
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


def test_figure_that_fails_hides_no_reason(folder, capsys, finished):
    """The training's reason comes first, and a figure alone costs nothing."""
    place = folder / "runs" / "tiny" / "smoke"
    place.mkdir(parents=True)
    (place / "order2-seed0.json").write_bytes((finished / "order2-seed0.json").read_bytes())
    (place / "order2-seed0.npz").write_bytes(MINE)
    options = ["run", NAME, "--scale", "smoke", "--jobs", "1"]
    assert cli.main([*options, "--variants", "order2"]) == 0
    error = capsys.readouterr().err
    assert (
        "chonn-lab: warning: no figures: runs/tiny/smoke/order2-seed0.npz: not a file of" in error
    )

    (place / "order1-seed0").mkdir()
    (place / "order1-seed0" / "last.ckpt").write_bytes(b"PK\3\4")
    with pytest.raises(SystemExit) as stop:
        cli.main(options)
    assert stop.value.code == 1
    reason, warning = capsys.readouterr().err.splitlines()[-2:]
    assert reason.startswith(
        "chonn-lab: error: order1 seed 0: runs/tiny/smoke/order1-seed0/last.ckpt"
    )
    assert warning.startswith("chonn-lab: warning: no figures: ")
