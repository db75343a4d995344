"""Samples of generators that resume: what is kept, of whom, and when it goes."""
# ruff: noqa: E402 - skipped before the imports where the extra is missing

import errno
import os
import subprocess
import sys
import time

import pytest

h5py = pytest.importorskip("h5py")
pytest.importorskip("tqdm")

from chonn_ops import _files
from chonn_ops.problems import _parts, darcy3d, hdf5


def generate(path, n_samples=9, **options):
    return darcy3d.generate(path, n_samples, 3, progress=False, **options)


@pytest.fixture
def interrupt(monkeypatch):
    """Interrupts the generator after so many solves, if any; counts them."""
    solved = []

    def after(count):
        def solve(nu, beta):
            if len(solved) == count:
                raise KeyboardInterrupt
            solved.append(nu)
            return earlier(nu, beta)

        solved.clear()
        monkeypatch.setattr(darcy3d, "solve", solve)
        return solved

    earlier = darcy3d.solve
    return after


@pytest.fixture
def stopped(tmp_path, interrupt):
    """Path of a file whose generation was interrupted after two parts of four samples."""
    interrupt(8)
    with pytest.raises(KeyboardInterrupt):
        generate(tmp_path / "out")
    return tmp_path / "out"


def parts(path):
    return path.with_name(f".{path.name}.parts")


def test_next_call_solves_the_rest(stopped, interrupt):
    assert sorted(p.name for p in parts(stopped).iterdir()) == [
        "0-4.npz",
        "4-8.npz",
        "settings.json",
    ]
    solved = interrupt(None)
    generate(stopped)
    assert len(solved) == 1
    assert list(stopped.parent.iterdir()) == [stopped]
    assert stopped.read_bytes() == generate(stopped.with_name("whole")).read_bytes()


def test_another_number_of_samples_uses_them_too(stopped, interrupt):
    solved = interrupt(None)
    generate(stopped, 6)
    assert len(solved) == 2
    assert list(stopped.parent.iterdir()) == [stopped]
    assert stopped.read_bytes() == generate(stopped.with_name("whole"), 6).read_bytes()


def test_other_settings_are_refused_without_force(stopped, interrupt):
    before = {p.name: p.read_bytes() for p in parts(stopped).iterdir()}
    interrupt(None)
    with pytest.raises(FileExistsError, match=r'other settings: .*"seed": 0.*--force'):
        generate(stopped, seed=1)
    assert {p.name: p.read_bytes() for p in parts(stopped).iterdir()} == before
    generate(stopped, seed=1, force=True)
    assert list(stopped.parent.iterdir()) == [stopped]
    assert stopped.read_bytes() == generate(stopped.with_name("whole"), seed=1).read_bytes()


@pytest.mark.skipif(_files.fcntl is None, reason="files are locked on POSIX only")
def test_two_processes_do_not_share_a_folder(stopped):
    with open(parts(stopped) / "settings.json") as held:
        _files.fcntl.flock(held, _files.fcntl.LOCK_EX)
        with pytest.raises(FileExistsError, match=r"another process computes the samples in .*out"):
            generate(stopped)
    assert len(list(parts(stopped).iterdir())) == 3


def test_damaged_part_is_named(stopped, interrupt):
    interrupt(None)
    part = parts(stopped) / "4-8.npz"
    part.write_bytes(part.read_bytes()[:200])
    with pytest.raises(ValueError, match=r"4-8\.npz: damaged .*; remove it and go on"):
        generate(stopped)
    part.unlink()
    generate(stopped)


def test_folder_of_somebody_else_is_left_alone(tmp_path):
    folder = parts(tmp_path / "out")
    folder.mkdir()
    (folder / "notes").write_text("mine")
    with pytest.raises(FileExistsError, match=r"has files, but none of them is settings\.json"):
        generate(tmp_path / "out", force=True)
    assert [p.read_text() for p in folder.iterdir()] == ["mine"]


def test_somebody_elses_file_among_the_parts_stays(stopped, interrupt):
    interrupt(None)
    (parts(stopped) / "notes").write_text("mine")
    generate(stopped)
    assert [p.read_text() for p in parts(stopped).iterdir()] == ["mine"]


def test_nothing_stays_of_a_call_that_solved_nothing(tmp_path, interrupt):
    interrupt(0)
    with pytest.raises(KeyboardInterrupt):
        generate(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_existing_file_is_kept_and_nothing_is_solved(tmp_path, interrupt):
    (tmp_path / "out").write_text("mine")
    solved = interrupt(None)
    with pytest.raises(FileExistsError, match="output file exists"):
        generate(tmp_path / "out")
    assert not solved
    assert [p.read_text() for p in tmp_path.iterdir()] == ["mine"]


def test_full_disk_keeps_the_samples(tmp_path, interrupt, monkeypatch):
    class Sink(hdf5._Sink):
        def write(self, data):
            self._error = OSError(errno.ENOSPC, "full")
            return super().write(data)

    interrupt(None)
    with monkeypatch.context() as patch:
        patch.setattr(hdf5, "_Sink", Sink)
        with pytest.raises(OSError, match=r"full: '.*out'"):
            generate(tmp_path / "out")
    assert list(tmp_path.iterdir()) == [parts(tmp_path / "out")]
    solved = interrupt(None)
    generate(tmp_path / "out")
    assert not solved
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]


@pytest.fixture
def unremoved(tmp_path, monkeypatch):
    """A finished file of nine samples whose process ended while it removed the parts."""

    def stop(folder):
        (folder / "0-4.npz").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_parts, "_remove_parts", stop)
        with pytest.raises(KeyboardInterrupt):
            generate(tmp_path / "out")
    assert len(list(parts(tmp_path / "out").iterdir())) == 3
    return tmp_path / "out"


@pytest.mark.parametrize("which", ["none", "*.npz", "*"], ids=["none", "parts", "all"])
def test_next_call_removes_the_parts_of_a_finished_file(unremoved, which):
    for part in parts(unremoved).glob(which):
        part.unlink()
    before = unremoved.read_bytes()
    with pytest.raises(FileExistsError, match="output file exists"):
        generate(unremoved)
    assert list(unremoved.parent.iterdir()) == [unremoved]
    assert unremoved.read_bytes() == before


@pytest.mark.parametrize("which", ["none", "*.npz", "*"], ids=["none", "parts", "all"])
def test_clear_folder_removes_the_parts_of_a_finished_file(unremoved, which):
    for part in parts(unremoved).glob(which):
        part.unlink()
    _parts.clear_folder(unremoved.parent)
    assert list(unremoved.parent.iterdir()) == [unremoved]


def test_clear_folder_leaves_what_a_call_goes_on_with(stopped):
    before = {p.name: p.read_bytes() for p in parts(stopped).iterdir()}
    _parts.clear_folder(stopped.parent)
    assert {p.name: p.read_bytes() for p in parts(stopped).iterdir()} == before
    # Somebody else's file of that name was not made of them.
    stopped.write_text("mine")
    _parts.clear_folder(stopped.parent)
    assert {p.name: p.read_bytes() for p in parts(stopped).iterdir()} == before


def test_clear_folder_leaves_a_folder_of_somebody_else(tmp_path):
    (tmp_path / "out").write_text("mine")
    other = tmp_path / ".out.parts"
    other.mkdir()
    for name, text in (("settings.json", "[1]"), ("0-4.npz", "mine")):
        (other / name).write_text(text)
    _parts.clear_folder(tmp_path)
    assert sorted(p.name for p in other.iterdir()) == ["0-4.npz", "settings.json"]
    _parts.clear_folder(tmp_path / "missing")


@pytest.mark.parametrize(
    "other", [{"seed": 1}, {"n_samples": 12}], ids=["other settings", "more samples"]
)
def test_parts_of_another_call_stay_beside_a_finished_file(tmp_path, interrupt, other):
    interrupt(None)
    path = generate(tmp_path / "out", 8)
    interrupt(8)
    with pytest.raises(KeyboardInterrupt):
        generate(path, **other, force=True)
    before = {p.name: p.read_bytes() for p in parts(path).iterdir()}
    assert len(before) == 3
    with pytest.raises(FileExistsError, match="output file exists"):
        generate(path, 8)
    _parts.clear_folder(tmp_path)
    assert {p.name: p.read_bytes() for p in parts(path).iterdir()} == before


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_killed_call_goes_on(tmp_path, interrupt):
    command = ["data", "generate", "darcy3d", "--resolution", "3", "--n", "1000000"]
    process = subprocess.Popen(
        [sys.executable, "-m", "chonn_ops.cli", *command, "--workers", "1", "--output", "out"],
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 300
    while not (parts(tmp_path / "out") / "8-12.npz").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.kill()
    process.wait()
    solved = interrupt(None)
    generate(tmp_path / "out", 12)
    assert not solved
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]
    whole = generate(tmp_path / "whole", 12)
    assert (tmp_path / "out").read_bytes() == whole.read_bytes()
