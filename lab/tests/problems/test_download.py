"""Downloads: from PDEBench's addresses, verified, whole or absent, and nothing is replaced."""

import hashlib
from pathlib import Path

import pytest

from chonn_lab.problems import darcy, origin, shallow_water

CONTENT = bytes(range(256)) * 2000
NAME = darcy.OFFICIAL_NAME
FAILURES = OSError("404 Not Found"), KeyboardInterrupt(), b"other"


@pytest.fixture
def server(monkeypatch):
    """Answers of a server: bytes, or an error; and the addresses that were asked for."""
    answers, asked = [], []

    def get(url, file, _):
        asked.append(url)
        answer = answers.pop(0)
        Path(file).write_bytes(answer if isinstance(answer, bytes) else CONTENT[:9])
        if not isinstance(answer, bytes):
            raise answer

    monkeypatch.setattr(origin.pooch, "HTTPDownloader", lambda **_: get)
    monkeypatch.setitem(origin.CHECKSUMS, NAME, hashlib.md5(CONTENT).hexdigest())
    return answers, asked


@pytest.mark.parametrize("before", [{}, {NAME: b"mine"}])
def test_a_file_is_there_whole_or_not_at_all_and_replaces_none(server, tmp_path, before):
    def contents():
        return {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    answers, asked = server
    for content in before.values():
        (tmp_path / NAME).write_bytes(content)
        with pytest.raises(FileExistsError, match="output file exists"):
            darcy.fetch(tmp_path)
    answers += [*FAILURES, CONTENT]
    for answer in FAILURES:
        with pytest.raises(ValueError if isinstance(answer, bytes) else type(answer)):
            darcy.fetch(tmp_path, force=bool(before))
        assert contents() == before
    assert darcy.fetch(tmp_path, force=bool(before)) is True
    assert contents() == {NAME: CONTENT}
    assert darcy.fetch(tmp_path) is darcy.fetch(tmp_path, force=True) is False
    assert len(asked) == 4


def test_pdebenchs_addresses(server, tmp_path):
    answers, asked = server
    for problem in (darcy, shallow_water):
        answers.append(b"")
        with pytest.raises(ValueError, match="does not match the known hash"):
            problem.fetch(tmp_path)
    address = "https://darus.uni-stuttgart.de/api/access/datafile"
    assert asked == [f"{address}/133219", f"{address}/133021"]
