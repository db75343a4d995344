"""Generators that were interrupted or killed, and what they leave for the next call."""
# ruff: noqa: E402 - skipped before the imports where the extra is missing

import hashlib
import os
import subprocess
import sys

import pytest

h5py = pytest.importorskip("h5py")
pytest.importorskip("pooch")

from chonn_lab import cli
from chonn_lab.problems import poisson
from chonn_ops import files

KINDS = ("IN", "OUT")


def generate(folder, n_in=5, **options):
    poisson.generate(folder, n_in=n_in, n_out=3, resolution=8, progress=False, **options)


def contents(folder):
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}


@pytest.fixture
def whole(tmp_path):
    folder = tmp_path / "whole"
    folder.mkdir()
    generate(folder)
    return contents(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_missing_file_is_made_the_same(tmp_path, whole, kind, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path / "whole")
    (tmp_path / "whole" / poisson.file_name(kind, 8)).unlink()
    command = ["data", "generate", "poisson", "--n-in", "5", "--n-out", "3", "--resolution", "8"]
    assert cli.main(command) == 0
    assert contents(tmp_path / "whole") == whole
    assert capsys.readouterr().out.count("is there already") == 1
    assert cli.main(command) == 1
    assert "output file exists" in capsys.readouterr().err


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_interrupt_between_the_two_files(tmp_path, whole, stop, monkeypatch):
    folder = tmp_path / "stopped"
    folder.mkdir()

    def publish(staged, path, force):
        if any(folder.glob("Poisson*")):
            raise stop
        earlier(staged, path, force)

    earlier = files.publish
    monkeypatch.setattr(files, "publish", publish)
    with pytest.raises(stop):
        generate(folder)
    monkeypatch.setattr(files, "publish", earlier)
    assert len(contents(folder)) == 1
    generate(folder)
    assert contents(folder) == whole


@pytest.mark.parametrize("options", [{"seed": 1}, {"n_in": 6}], ids=["seed", "size"])
def test_file_of_another_call_is_refused(tmp_path, whole, options):
    folder = tmp_path / "whole"
    (folder / poisson.file_name("OUT", 8)).unlink()
    with pytest.raises(FileExistsError, match=r"output file exists: .*IN\.h5"):
        generate(folder, **options)
    assert contents(folder).items() < whole.items()


def test_file_of_somebody_else_is_refused(tmp_path, whole):
    folder = tmp_path / "whole"
    (folder / poisson.file_name("OUT", 8)).unlink()
    with h5py.File(folder / poisson.file_name("IN", 8), "r+") as file:
        del file.attrs["generator"]
    with pytest.raises(FileExistsError, match=r"output file exists: .*IN\.h5"):
        generate(folder)
    (folder / poisson.file_name("IN", 8)).write_text("mine")
    with pytest.raises(FileExistsError, match=r"output file exists: .*IN\.h5"):
        generate(folder)
    assert len(whole) == 2
    assert [p.read_text() for p in folder.iterdir()] == ["mine"]


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs process groups")
def test_killed_command_leaves_no_worker_and_its_file_is_cleared(
    tmp_path, monkeypatch, wait_for_end
):
    monkeypatch.chdir(tmp_path)
    command = ["data", "generate", "darcy", "--resolution", "4", "--output", "out", "--workers"]
    process = subprocess.Popen(
        [sys.executable, "-m", "chonn_lab.cli", *command, "2", "--n-samples", "1000000"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr
    text = ""
    # Until the workers' first results.
    while " 0/" in text[-60:] or "sample/s" not in text:
        character = process.stderr.read(1)
        assert character, text
        text += character
    process.kill()
    process.wait()
    process.stderr.close()
    wait_for_end(process.pid, 60)
    assert {path.suffix for path in tmp_path.iterdir()} == {".tmp", ".parts"}
    assert cli.main([*command, "1", "--n-samples", "1"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.skipif(os.name != "posix", reason="needs a parent's number")
def test_worker_that_starts_after_its_parent_was_killed_ends():
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    code = f"from chonn_lab.problems.generation import _serve; _serve({gone.pid}); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as worker:
        assert worker.wait(60) == 1
