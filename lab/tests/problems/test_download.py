"""Downloads: from PDEBench's addresses, verified, whole or absent, and nothing is replaced."""

import hashlib
from pathlib import Path

import pytest

from chonn_lab.problems import darcy, origin, shallow_water

CONTENT = bytes(range(256)) * 2000
NAME = darcy.OFFICIAL_NAME


@pytest.fixture
def server(monkeypatch):
    """Answers of a server: bytes, or an error; and the addresses that were asked for."""
    answers, asked = [], []

    def get(url, file, _):
        asked.append(url)
        answer = answers.pop()
        Path(file).write_bytes(answer if isinstance(answer, bytes) else CONTENT[:9])
        if not isinstance(answer, bytes):
            raise answer

    monkeypatch.setattr(origin.pooch, "HTTPDownloader", lambda **_: get)
    monkeypatch.setitem(origin.CHECKSUMS, NAME, hashlib.md5(CONTENT).hexdigest())
    return answers, asked


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_file_is_there_whole_or_not_at_all(server, tmp_path):
    answers, asked = server
    for answer in (OSError("404 Not Found"), KeyboardInterrupt(), b"other"):
        answers.append(answer)
        with pytest.raises(ValueError if isinstance(answer, bytes) else type(answer)):
            darcy.fetch(tmp_path)
    assert contents(tmp_path) == {}
    answers.append(CONTENT)
    assert darcy.fetch(tmp_path) is True
    assert contents(tmp_path) == {NAME: CONTENT}
    assert darcy.fetch(tmp_path) is darcy.fetch(tmp_path, force=True) is False
    assert len(asked) == 4


def test_another_file_is_replaced_only_with_force_and_only_by_the_right_one(server, tmp_path):
    answers, asked = server
    (tmp_path / NAME).write_bytes(b"mine")
    with pytest.raises(FileExistsError, match="output file exists"):
        darcy.fetch(tmp_path)
    assert asked == []
    answers += [CONTENT, OSError("404")]
    with pytest.raises(OSError, match="404"):
        darcy.fetch(tmp_path, force=True)
    assert contents(tmp_path) == {NAME: b"mine"}
    assert darcy.fetch(tmp_path, force=True) is True
    assert contents(tmp_path) == {NAME: CONTENT}


def test_pdebenchs_addresses(server, tmp_path):
    answers, asked = server
    for problem in (darcy, shallow_water):
        answers.append(b"")
        with pytest.raises(ValueError, match="does not match the known hash"):
            problem.fetch(tmp_path)
    address = "https://darus.uni-stuttgart.de/api/access/datafile"
    assert asked == [f"{address}/133219", f"{address}/133021"]
