"""The example of docs/own_experiments.md runs as it is written there."""

import re
from pathlib import Path

import pytest

pytest.importorskip("filelock")
from chonn_ops import cli

DOCS = Path(__file__).parents[2] / "docs"


def test_example_of_the_docs(tmp_path, monkeypatch, capsys):
    text = (DOCS / "own_experiments.md").read_text()
    code, commands = re.findall(r"```\w*\n(.*?)```", text, flags=re.S)
    (name,) = re.findall(r"`(\w+\.py)`", text.partition("```")[0])
    (tmp_path / name).write_text(code)
    monkeypatch.chdir(tmp_path)
    lines = [line.split()[1:] for line in commands.splitlines()]
    assert [line[0] for line in lines] == ["list", "run", "run", "report"]
    # The larger run needs minutes; that of seconds, in this process.
    for line in (lines[0], [*lines[1], "--jobs", "1"], lines[3]):
        assert cli.main(line) == 0
    assert "Antiderivatives of periodic signals" in capsys.readouterr().out
    page = (tmp_path / "report" / "index.html").read_text()
    assert ">Antiderivatives of periodic signals, smoke</h2>" in page
    assert page.count("<figure>") == 3


def test_pages_link_to_each_other():
    for page, other in (("experiments", "own_experiments"), ("own_experiments", "experiments")):
        assert f"({other}.md)" in (DOCS / f"{page}.md").read_text()
    assert "docs/own_experiments.md" in (DOCS.parent / "README.md").read_text()
