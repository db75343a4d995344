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

from chonn_lab.problems import advection, generation


def generate(path, n_samples=33, **options):
    return advection.generate(path, n_samples, 16, n_frames=2, progress=False, **options)


@pytest.fixture
def interrupt(monkeypatch):
    """Interrupts the generator after so many solves, if any; counts them."""
    solved = []

    def after(count):
        def solve(wave, *settings):
            if len(solved) == count:
                raise KeyboardInterrupt
            solved.append(wave)
            return earlier(wave, *settings)

        solved.clear()
        monkeypatch.setattr(advection, "solve", solve)
        return solved

    earlier = advection.solve
    return after


@pytest.fixture
def stopped(tmp_path, interrupt):
    """Path of a file whose generation was interrupted after two parts of 16 samples."""
    interrupt(32)
    with pytest.raises(KeyboardInterrupt):
        generate(tmp_path / "out")
    return tmp_path / "out"


def parts(path):
    return path.with_name(f".{path.name}.parts")


def test_next_call_solves_the_rest(stopped, interrupt):
    assert len(list(parts(stopped).rglob("output.pkl"))) == 2
    solved = interrupt(None)
    generate(stopped)
    assert len(solved) == 1
    assert list(stopped.parent.iterdir()) == [stopped]
    assert stopped.read_bytes() == generate(stopped.with_name("whole")).read_bytes()


def test_another_number_of_samples_uses_them_too(stopped, interrupt):
    solved = interrupt(None)
    generate(stopped, 20)
    assert len(solved) == 4
    assert list(stopped.parent.iterdir()) == [stopped]
    assert stopped.read_bytes() == generate(stopped.with_name("whole"), 20).read_bytes()


def test_other_settings_use_none_of_them(stopped, interrupt):
    solved = interrupt(None)
    generate(stopped, seed=1)
    assert len(solved) == 33
    assert list(stopped.parent.iterdir()) == [stopped]
    assert stopped.read_bytes() == generate(stopped.with_name("whole"), seed=1).read_bytes()


def test_a_damaged_part_is_solved_again(stopped, interrupt):
    solved = interrupt(None)
    part = next(parts(stopped).rglob("output.pkl"))
    part.write_bytes(part.read_bytes()[:200])
    generate(stopped)
    assert len(solved) == 17
    assert stopped.read_bytes() == generate(stopped.with_name("whole")).read_bytes()


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
    def full(*_):
        raise OSError(errno.ENOSPC, "full")

    interrupt(None)
    with monkeypatch.context() as patch:
        patch.setattr(generation, "_store", full)
        with pytest.raises(OSError, match=r"full: '.*out'"):
            generate(tmp_path / "out")
    # Parts are written as they are solved.
    assert list(tmp_path.iterdir()) == [parts(tmp_path / "out")]
    solved = interrupt(None)
    generate(tmp_path / "out")
    assert len(solved) == 33 - 16
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_killed_call_goes_on(tmp_path, interrupt):
    command = ["data", "generate", "advection", "--resolution", "16", "--n-frames", "2"]
    command += ["--n-samples", "1000000"]
    process = subprocess.Popen(
        [sys.executable, "-m", "chonn_lab.cli", *command, "--workers", "1", "--output", "out"],
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 300
    while len(list(parts(tmp_path / "out").rglob("output.pkl"))) < 3:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.kill()
    process.wait()
    solved = interrupt(None)
    generate(tmp_path / "out", 48)
    assert not solved
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]
    whole = generate(tmp_path / "whole", 48)
    assert (tmp_path / "out").read_bytes() == whole.read_bytes()
