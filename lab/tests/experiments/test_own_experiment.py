"""The example in docs/lab/method.md runs as it is written there."""

import re
import sys

import pytest
from commands import run

from chonn_lab import cli
from chonn_lab.paths import DOCS


@pytest.mark.slow
def test_example_of_the_docs(tmp_path, monkeypatch):
    text = (DOCS / "lab" / "method.md").read_text().partition("## Your own experiments\n")[2]
    code, problem, model, commands = re.findall(r"```\w*\n(.*?)```", text, flags=re.S)[:4]
    (name,) = re.findall(r"`(\w+\.py)`", text.partition("```")[0])
    (tmp_path / name).write_text(code)
    for kind, content in (("problem/antiderivative", problem), ("model/block", model)):
        path = tmp_path / "conf" / f"{kind}.yaml"
        assert f"`conf/{kind}.yaml`" in text
        path.parent.mkdir(parents=True)
        path.write_text(content)
    first, second, report = (line.split()[1:] for line in commands.splitlines())
    assert (second[0], report) == ("run", ["report"])
    # The second run needs minutes; the first one needs seconds.
    program = (sys.executable, "-m", "chonn_lab.cli", *first)
    run(*program, cwd=tmp_path, env={"OMP_NUM_THREADS": "1"})
    monkeypatch.chdir(tmp_path)
    assert cli.main(report) == 0
    page = (tmp_path / "report" / "results.md").read_text()
    assert "Antiderivatives of periodic signals" in page
    assert "](figures/results-antiderivative-smoke.svg)" in page
