"""What ``chonn-lab run`` does to the folder of data: nothing but the files that are missing."""

import errno
import os

import pytest
from filelock import FileLock
from running import job, prepared

pytest.importorskip("filelock")
from chonn_lab.experiments import EXPERIMENTS, get, jobs, schedule


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def without_data(folder):
    """One job whose data are not there."""
    places = {"output": folder / "runs", "data": folder / "data"}
    (work,) = schedule.plan("tiny:EXPERIMENT", "smoke", variants=["order1"], **places)
    return work


@pytest.fixture
def read_only(monkeypatch):
    """Every lock fails as it does in a folder that nobody may write to."""

    def fail(path, *_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(jobs, "FileLock", fail)
    monkeypatch.setattr(os, "mkdir", fail)
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_data_that_are_there_need_no_lock(tmp_path, experiment, request):
    data = tmp_path / experiment
    (found, *_) = schedule.plan(experiment, "smoke", output=tmp_path / "runs", data=tmp_path)
    data.mkdir()
    paths = found.experiment.files(found.config, data)
    assert paths
    for path in paths:
        path.touch()
    before = data.stat().st_mtime_ns
    request.getfixturevalue("read_only")
    found.prepare()
    assert data.stat().st_mtime_ns == before


def test_data_of_an_own_experiment_in_a_read_only_folder(tmp_path, request):
    work = job(tmp_path)
    request.getfixturevalue("read_only")
    work.prepare()


def test_no_lock_stays(tmp_path):
    work = without_data(tmp_path)
    work.prepare()
    assert names(tmp_path) == ["data", "data/tiny", "data/tiny/tiny32.hdf5"]


@pytest.mark.parametrize("there", [(), ("data",), ("data", "data/tiny")])
def test_failure_leaves_the_folders_as_they_were(tmp_path, monkeypatch, there):
    for name in there:
        (tmp_path / name).mkdir()
    work = without_data(tmp_path)

    def fail(*_, **__):
        assert "data/tiny/.lock" in names(tmp_path)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(type(get("tiny:EXPERIMENT")), "prepare", fail)
    with pytest.raises(OSError, match="No space left"):
        work.prepare()
    assert names(tmp_path) == [*there]


def test_data_are_made_by_one_process_at_a_time(tmp_path, monkeypatch):
    folder = prepared(tmp_path) / "tiny"
    work = job(tmp_path, data=tmp_path)
    held = []

    def prepare(_self, _config, data):
        other = FileLock(data / ".lock", timeout=0)
        with pytest.raises(TimeoutError), other:
            pytest.fail("locked twice")
        held.append(data)

    monkeypatch.setattr(type(get("tiny:EXPERIMENT")), "prepare", prepare)
    work.prepare()
    assert held == [folder]
