"""The example in docs/lab/experiments.md runs as it is written there."""

import re

import pytest

pytest.importorskip("filelock")
from chonn_lab import cli
from chonn_lab.paths import DOCS


def test_example_of_the_docs(tmp_path, monkeypatch, capsys):
    text = (DOCS / "lab" / "experiments.md").read_text().partition("## Your own experiments\n")[2]
    code, commands = re.findall(r"```\w*\n(.*?)```", text, flags=re.S)[:2]
    (name,) = re.findall(r"`(\w+\.py)`", text.partition("```")[0])
    (tmp_path / name).write_text(code)
    monkeypatch.chdir(tmp_path)
    lines = [line.split()[1:] for line in commands.splitlines()]
    assert [line[0] for line in lines] == ["list", "run", "run", "report"]
    # The second run needs minutes; the first one needs seconds.
    for line in (lines[0], [*lines[1], "--jobs", "1"], lines[3]):
        assert cli.main(line) == 0
    assert "Antiderivatives of periodic signals" in capsys.readouterr().out
    page = (tmp_path / "report" / "results.md").read_text()
    assert "## Antiderivatives of periodic signals, smoke\n" in page
    assert page.count("](figures/antiderivative/smoke/") == 3
