"""Temporary files of processes that were killed, and which of them are removed."""

import os
import subprocess
import sys

import pytest

from chonn_ops import files

needs_posix = pytest.mark.skipif(os.name != "posix", reason="processes are looked up on POSIX only")


@pytest.fixture
def ended():
    """Number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@needs_posix
def test_remains_of_ended_processes_only(tmp_path, ended):
    path = tmp_path / "out"
    gone = tmp_path / f".out.{files.HOST}-{ended}-01234567.tmp"
    kept = [
        tmp_path / f".out.other-{ended}-01234567.tmp",  # The number of a process elsewhere.
        tmp_path / f".out.{files.HOST}-{os.getppid()}-01234567.tmp",
        tmp_path / f".other.{files.HOST}-{ended}-01234567.tmp",
        tmp_path / ".out.notes.tmp",
        tmp_path / f".out.{files.HOST}-{ended}.tmp",
    ]
    for file in (gone, *kept):
        file.write_text("content")
    (tmp_path / f".out.{files.HOST}-{ended}-00000000.tmp").mkdir()
    with files.whole_file(path, force=False) as staged:
        # Another call for the same file spares this one's.
        files.clear_remains(path)
        staged.write_text("ours")
    assert not gone.exists()
    assert {file.read_text() for file in kept} == {"content"}
    assert path.read_text() == "ours"


def test_of_two_writers_the_last_one_wins_whole(tmp_path):
    path = tmp_path / "out"
    with files.whole_file(path, force=True) as one, files.whole_file(path, force=True) as two:
        one.write_text("one")
        two.write_text("two, longer")
    assert path.read_text() == "one"
    late = tmp_path / "late"
    late.write_text("late")
    (tmp_path / "b").write_text("early")
    with pytest.raises(FileExistsError):
        files.publish(late, tmp_path / "b", force=False)
    assert (tmp_path / "b").read_text() == "early"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["b", "late", "out"]
