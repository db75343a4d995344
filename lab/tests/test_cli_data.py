"""The chonn-lab data commands: results, messages, exit codes, signals."""

import importlib
import os
import runpy
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import pytest
import torch

from chonn_lab import cli, paths


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def generate(*options):
    return cli.main(["data", "generate", *options])


@pytest.mark.parametrize("problem", cli.modules("problems", "generate"))
def test_every_problem_has_a_command(problem):
    module = importlib.import_module(f"chonn_lab.problems.{problem}")
    options = vars(cli.options_of(problem, module).parse_args(["--seed", "5", "--force"]))
    assert (options["seed"], options["force"]) == (5, True)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("data generate", "poisson "),
        ("data fetch", "shallow_water "),
        ("bench", "scan "),
        ("data generate darcy", "div(nu grad u) + beta = 0"),
        ("data generate darcy", "--n-samples N_SAMPLES"),
    ],
)
def test_help_lists_modules_and_is_the_data_card(capsys, command, said):
    with pytest.raises(SystemExit) as stop:
        cli.main([*command.split(), "--help"])
    assert stop.value.code == 0
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    "command",
    [
        "darcy --n-samples 2 --resolution 16 --margin 0.125 --workers 1",
        "meshes --problem holes --resolution 8 --n-train 2",
    ],
)
def test_generate(folder, capsys, command):
    assert generate(*command.split(), "--seed", "5") == 0
    captured = capsys.readouterr()
    (made,) = folder.iterdir()
    assert captured.out == f"wrote {made.name}\n"
    assert ("100%" in captured.err) == ("meshes" not in command)
    assert generate(*command.split(), "--seed", "5") == 1
    assert f"output file exists: {made.name}" in capsys.readouterr().err
    assert generate(*command.split(), "--force", "--seed", "6") == 0
    with h5py.File(made) as file:
        assert (file.attrs["seed"], file.attrs.get("margin", 0.125)) == (6, 0.125)


def test_folder_and_the_file_that_is_there_already(folder, capsys):
    (folder / "data").mkdir()
    command = ["poisson", "--n-in", "3", "--n-out", "2", "--resolution", "8", "--folder", "data"]
    assert generate(*command) == 0
    (folder / "data" / "PoissonData_8x8_OUT.h5").unlink()
    capsys.readouterr()
    assert generate(*command) == 0
    name, printed = "data/PoissonData_8x8", capsys.readouterr().out
    assert printed == f"{name}_IN.h5 is there already\nwrote {name}_OUT.h5\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("generate navier_stokes --step 0", 1, "step: expected above 0 and at most 1, got 0.0"),
        ("", 2, "the following arguments are required: ACTION"),
        ("generate darcy --colour red", 2, "unrecognized arguments: --colour red"),
        ("fetch navier_stokes", 2, "invalid choice: 'navier_stokes'"),
    ],
)
def test_wrong_usage(folder, capsys, arguments, code, message):
    try:
        found = cli.main(["data", *arguments.split()])
    except SystemExit as stop:
        found = stop.code
    assert found == code
    assert message in capsys.readouterr().err
    assert list(folder.iterdir()) == []


def test_fetch(capsys, monkeypatch):
    monkeypatch.setattr("chonn_lab.problems.darcy.fetch", lambda _, force: force)
    for options, said in (((), "is there already"), (["--force"], "downloaded, checksum verified")):
        assert cli.main(["data", "fetch", "darcy", *options]) == 0
        assert capsys.readouterr().out == f"darcy: {said}\n"


@pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("sent", "code", "message"),
    [(signal.SIGINT, 130, "chonn-lab: interrupted"), (signal.SIGTERM, 143, "")],
    ids=["ctrl-c", "sigterm"],
)
def test_signal_leaves_no_file_and_no_traceback(folder, workers, sent, code, message):
    command = [sys.executable, "-m", "chonn_lab.cli", "data", "generate", "darcy"]
    command += ["--n-samples", "100000", "--workers", str(workers), "--output", "x.hdf5"]
    # Background jobs of a shell ignore Ctrl-C, and so would what they start.
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    options = {"stderr": subprocess.PIPE, "text": True, "start_new_session": True, "cwd": folder}
    process = subprocess.Popen(command, **options)
    signal.signal(signal.SIGINT, before)
    deadline = time.monotonic() + 60
    while not list(folder.glob(".*.tmp")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert {path.suffix for path in folder.iterdir()} == {".tmp"}
    # A terminal sends Ctrl-C to the workers too; a plain `kill` reaches the parent only.
    (os.killpg if sent == signal.SIGINT else os.kill)(process.pid, sent)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    assert message in errors
    assert "Traceback" not in errors
    assert list(folder.iterdir()) == []


def test_an_installed_copy_writes_results_below_the_working_directory(tmp_path):
    copy = shutil.copy(paths.__file__, tmp_path)
    assert runpy.run_path(copy)["RESULTS"] == Path("lab/results")
    assert paths.RESULTS.is_absolute()


@pytest.mark.usefixtures("hydra_here")
def test_a_missing_package_or_problem_is_named_and_denormals_stay(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "physicsnemo", None)
    chosen = ["problem=meshes", "model=mesh_transolver", "scale=smoke", f"data={folder}"]
    assert cli.main(["run", *chosen]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    where = "pip install '.[physicsnemo]' in a clone of chonn-ops"
    assert last == f"chonn-lab: error: this needs physicsnemo: {where}"
    assert cli.main(["run", "problem=darci"]) == 1
    shown = capsys.readouterr().err
    assert "chonn-lab: error: In 'run': Could not find 'problem/darci' Available" in shown
    assert torch.full((64,), 1e-40).mul(0.5).all()
