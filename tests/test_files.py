"""Temporary files of processes that were killed, and which of them are removed."""

import os
import subprocess
import sys

import pytest

from chonn_ops import files

needs_flock = pytest.mark.skipif(files.fcntl is None, reason="files are locked on POSIX only")


@pytest.fixture
def ended():
    """Number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@needs_flock
def test_remains_of_ended_processes_only(tmp_path, ended):
    path = tmp_path / "out"
    gone = tmp_path / f".out.{ended}-01234567.tmp"
    elsewhere = tmp_path / f".out.{ended}-89abcdef.tmp"  # Its number says nothing here.
    kept = [
        elsewhere,
        tmp_path / f".out.{os.getppid()}-01234567.tmp",
        tmp_path / f".other.{ended}-01234567.tmp",
        tmp_path / ".out.notes.tmp",
        tmp_path / f".out.{ended}.tmp",
        tmp_path / f"out.{ended}-01234567.tmp",
    ]
    for file in (gone, *kept):
        file.write_text("content")
    (tmp_path / f".out.{ended}-00000000.tmp").mkdir()
    with open(elsewhere) as held:
        files.fcntl.flock(held, files.fcntl.LOCK_SH)
        with files.whole_file(path, force=False) as staged:
            # Another call for the same file spares this one's.
            files.clear_remains(path)
            staged.write_text("ours")
    assert not gone.exists()
    assert {file.read_text() for file in kept} == {"content"}
    assert path.read_text() == "ours"


@needs_flock
def test_remains_of_all_files_in_a_folder(tmp_path, ended):
    gone = [tmp_path / f".{name}.{ended}-01234567.tmp" for name in ("out", "other.hdf5")]
    kept = [tmp_path / f".out.{os.getppid()}-01234567.tmp", tmp_path / ".out.tmp"]
    for file in (*gone, *kept):
        file.write_text("content")
    files.clear_folder(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted(kept)
