"""chonn-lab run, list and report: messages, tables, exit codes."""

import os
import subprocess
import sys

import pytest
from running import NAME, start

pytest.importorskip("filelock")
import chonn_lab.experiments
from chonn_lab import cli
from chonn_lab.experiments import EXPERIMENTS


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_run(folder):
    process = start(folder, "--scale", "smoke", "--seeds", "2", "--jobs", "2", "--set", "epochs=3")
    out, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    # Nothing but the progress bar.
    bars = errors.replace("\r", "\n").splitlines()
    assert not [line for line in bars if line.strip() and " of 4 runs" not in line]
    assert bars[-1].startswith("4 of 4 runs 100%")
    assert "-00:" not in errors
    *lines, metrics, fields, learning, last = out.splitlines()
    figures = "wrote runs/tiny/smoke+epochs=3/figures"
    assert metrics == f"{figures}/metrics.svg"
    assert (fields, learning) == (f"{figures}/fields.png", f"{figures}/learning.svg")
    assert last == "results in runs/tiny/smoke+epochs=3"
    assert lines[-3].split() == ["variant", "split", "runs", "parameters", "relative_l2"]
    assert [line.split()[:4] for line in lines[-2:]] == [
        ["order1", "test", "2", "129"],
        ["order2", "test", "2", "169"],
    ]
    assert len(list((folder / "runs" / "tiny" / "smoke+epochs=3").glob("*.json"))) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["burgers"], "experiment: expected one of order1d, darcy"),
        ([NAME, "--variants", "cno"], "variant: expected one of order1, order2, got 'cno'"),
        ([NAME, "--set", "epochs=many"], "epochs: expected an integer, got 'many'"),
    ],
)
def test_wrong_names(folder, capsys, arguments, message):
    assert cli.main(["run", *arguments]) == 1
    errors = capsys.readouterr().err
    assert errors.startswith(f"chonn-lab: error: {message}")
    assert errors.count("\n") == 1
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["run", NAME, "--scale", "huge"],
        ["run", NAME, "--jobs", "0"],
        ["run", NAME, "--seeds", "x"],
    ],
)
@pytest.mark.usefixtures("folder")
def test_wrong_usage(arguments):
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2


def test_list(capsys):
    assert cli.main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line.partition(":")[0] for line in lines if not line.startswith(" ")]
    assert names == list(EXPERIMENTS)
    for scale in ("smoke", "small", "paper"):
        assert sum(line.startswith(f"  {scale}: ") for line in lines) == len(EXPERIMENTS)


def test_list_one(capsys):
    assert cli.main(["list", NAME]) == 0
    *lines, settings, source = capsys.readouterr().out.splitlines()
    assert "n_train: 4096 / 96, " in settings
    assert settings.endswith("modes: (1, 2)")
    assert source == "      no source given"
    assert lines == [
        "tiny:EXPERIMENT: Smoothing of periodic signals",
        "  smoke: 32 samples, 2 epochs, 2 models",
        "  small: 96 samples, 12 epochs, 2 models",
        "  paper: 4,096 samples, 100 epochs, 2 models",
        "  order1  Order 1 (smoke, small, paper)",
        "  order2  Order 2 (smoke, small, paper)",
    ]


def test_list_one_with_sources(capsys):
    assert cli.main(["list", "darcy_contrast"]) == 0
    assert "  contrast: 1000.0\n      Ours: " in capsys.readouterr().out


def test_a_closed_pipe_ends_the_list_quietly(folder):
    """As in ``chonn-lab list | head -1``."""
    reader, writer = os.pipe()
    with open(writer, "w") as pipe:
        os.close(reader)
        command = [sys.executable, "-m", "chonn_lab.cli", "list"]
        done = subprocess.run(
            command, cwd=folder, stdout=pipe, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (1, "")


def test_missing_extra_is_named(folder, capsys, monkeypatch):
    # What is imported here must not stay an attribute of the package.
    monkeypatch.setattr(chonn_lab, "experiments", chonn_lab.experiments)
    for name in [n for n in sys.modules if n.startswith("chonn_lab.experiments")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "filelock", None)
    assert cli.main(["run", "order1d"]) == 1
    where = "pip install './lab' in a clone of chonn-ops"
    expected = f"chonn-lab: error: this needs filelock: {where}\n"
    assert capsys.readouterr().err == expected
    assert list(folder.iterdir()) == []
