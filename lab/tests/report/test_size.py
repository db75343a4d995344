"""`make size`: what it counts, and that it fails above a limit."""

from pathlib import Path

import pytest
from commands import run

from chonn_lab.report import size
from chonn_ops.checks import check_integer
from chonn_ops.files import finite

SETTINGS = """
[tool.chonn.size]
files = {{ budget = 1, at_most = 1000 }}
times_of_spsolve = {{ solve = 5, diffusion = 3 }}
lines = {{ house = {{ budget = 2, at_most = {} }} }}
"""


@pytest.fixture
def checkout(tmp_path):
    """Three lines that count, in two files, beside text and a file that git does not track."""
    files = {"a.py": "1\n", "deep/b.cu": "1\n2\n", "c.md": "1\n", "untracked.py": "1\n"}
    for name, text in files.items():
        path = tmp_path / "house" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    names = [f"house/{name}" for name in files if name != "untracked.py"]
    for command in (("git", "init", "-q"), ("git", "add", *names)):
        run(*command, cwd=tmp_path)
    return tmp_path


def test_lines_that_git_tracks_are_held_to_their_limit(checkout, monkeypatch, capsys):
    monkeypatch.setattr(size, "times_of_spsolve", lambda: {"solve": 9.0, "diffusion": 2.0})
    (checkout / "pyproject.toml").write_text(SETTINGS.format(3))
    size.main(checkout)
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert shown[1] == ["lines", "of", "house", "3", "3", "2", "1"]
    assert shown[3][-4:] == ["9.0", "-", "5", "4.0"], "a ratio of times fails nothing"
    (checkout / "pyproject.toml").write_text(SETTINGS.format(2))
    with pytest.raises(SystemExit, match="take something away"):
        size.main(checkout)
    assert "above the limit" in capsys.readouterr().out


def test_files_that_a_call_enters():
    entered = size.files_entered(lambda: (check_integer(1, n=2), finite(0.5), "no file of ours"))
    assert {Path(path).name for path in entered} == {"checks.py", "files.py"}
