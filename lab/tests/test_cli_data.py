"""The chonn-lab data commands: results, messages, exit codes, signals."""
# ruff: noqa: E402 - skipped before the imports where the extra is missing

import os
import runpy
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

h5py = pytest.importorskip("h5py")
pytest.importorskip("pooch")
pytest.importorskip("tqdm")

from chonn_lab import cli, paths


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def generate(*options):
    return cli.main(["data", "generate", *options])


# Problem, options, files, and what is in the first of them.
CALLS = {
    "order1d": (
        ["--n-train", "3", "--n-validation", "2", "--n-test", "1"],
        ["order1d.hdf5"],
        ("train/x", (3, 256)),
    ),
    "poisson": (
        ["--n-in", "3", "--n-out", "2", "--resolution", "8"],
        ["PoissonData_8x8_IN.h5", "PoissonData_8x8_OUT.h5"],
        ("Sample_2/input", (8, 8)),
    ),
    "darcy": (
        ["--n-samples", "2", "--resolution", "8", "--beta", "0.1", "--contrast", "1000"],
        ["2D_DarcyFlow_beta0.1_Train_contrast1000.hdf5"],
        ("tensor", (2, 1, 8, 8)),
    ),
    "navier_stokes": (
        [
            *("--n-samples", "2", "--n-frames", "3", "--resolution", "8"),
            *("--solver-resolution", "16", "--step", "0.1", "--field", "fno-code"),
        ],
        ["ns_V1e-3_N2_T3.mat"],
        ("u", (3, 8, 8, 2)),
    ),
    "advection": (
        ["--n-samples", "2", "--resolution", "16", "--n-frames", "5", "--beta", "0.5"],
        ["1D_Advection_Sols_beta0.5.hdf5"],
        ("tensor", (2, 5, 16)),
    ),
    "burgers": (
        ["--n-samples", "2", "--resolution", "16", "--n-frames", "5", "--nu", "0.5"],
        ["1D_Burgers_Sols_Nu0.5.hdf5"],
        ("tensor", (2, 5, 16)),
    ),
    "fno_darcy": (
        ["--n-train", "2", "--n-test", "1", "--resolution", "9"],
        ["piececonst_r9_N2_smooth1.mat", "piececonst_r9_N1_smooth2.mat"],
        ("sol", (9, 9, 2)),
    ),
    "condiff": (
        [
            "--n-samples",
            "2",
            "--resolution",
            "16",
            "--covariance",
            "exponential",
            "--variance",
            "1",
        ],
        ["condiff_exponential1.0_grid16.hdf5"],
        ("rhs", (2, 256)),
    ),
    "helmholtz": (
        ["--n-samples", "1", "--resolution", "20", "--wavenumber", "8", "--ratio", "1.25"],
        ["2D_Helmholtz_k8_ratio1.25_r20.hdf5"],
        ("tensor", (1, 1, 20, 20)),
    ),
    "helmholtz_open": (
        ["--n-samples", "1", "--resolution", "16", "--wavenumber", "5", "--contrast", "1.5"],
        ["2D_HelmholtzOpen_k5_contrast1.5_r16.hdf5"],
        ("tensor", (1, 2, 16, 16)),
    ),
}


@pytest.mark.parametrize("problem", CALLS)
def test_generate(folder, capsys, problem):
    options, names, (dataset, shape) = CALLS[problem]
    has_workers = problem not in ("order1d", "poisson", "navier_stokes")
    options = [problem, *options, *(["--workers", "1"] if has_workers else [])]
    assert generate(*options, "--seed", "5") == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [f"wrote {name}" for name in names]
    assert "100%" in captured.err
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    with h5py.File(folder / names[0]) as file:
        assert file[dataset].shape == shape
        assert file.attrs["seed"] == 5
        first = file[dataset][...]
    assert generate(*options, "--seed", "5") == 1
    assert f"output file exists: {names[0]}" in capsys.readouterr().err
    assert generate(*options, "--force", "--seed", "6") == 0
    with h5py.File(folder / names[0]) as file:
        assert (file[dataset][...] != first).any()


def test_folder_and_the_file_that_is_there_already(folder, capsys):
    (folder / "data").mkdir()
    command = ["poisson", "--n-in", "3", "--n-out", "2", "--resolution", "8", "--folder", "data"]
    assert generate(*command) == 0
    (folder / "data" / "PoissonData_8x8_OUT.h5").unlink()
    capsys.readouterr()
    assert generate(*command) == 0
    assert capsys.readouterr().out.splitlines() == [
        "data/PoissonData_8x8_IN.h5 is there already",
        "wrote data/PoissonData_8x8_OUT.h5",
    ]


def test_generate_shallow_water(capsys):
    pytest.importorskip("clawpack", reason="PyClaw missing: make setup-pyclaw")
    command = ["shallow_water", "--n-samples", "2", "--resolution", "8", "--workers", "1"]
    assert generate(*command) == 0
    assert capsys.readouterr().out == "wrote 2D_rdb_NA_NA.h5\n"
    with h5py.File("2D_rdb_NA_NA.h5") as file:
        assert file["0001/data"].shape == (101, 8, 8, 1)


def test_generate_maze(capsys):
    pytest.importorskip("clawpack", reason="PyClaw missing: make setup-pyclaw")
    assert generate("maze", "--n-samples", "2", "--resolution", "12", "--workers", "1") == 0
    assert capsys.readouterr().out == "wrote maze_grid12.hdf5\n"
    with h5py.File("maze_grid12.hdf5") as file:
        assert file["pressure"].shape == (2, 24, 12, 12)


def test_shallow_water_without_pyclaw(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "clawpack", None)
    assert cli.main(["data", "generate", "shallow_water"]) == 1
    assert capsys.readouterr().err == (
        "chonn-lab: error: these data are computed by PyClaw, which is not installed: "
        "`make setup-pyclaw`, or a Fortran compiler and `pip install --no-deps clawpack`\n"
    )
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["order1d", "--n-train", "0"], "n_train: expected at least 1, got 0"),
        (["poisson", "--resolution", "2"], "resolution: expected at least 3, got 2"),
        (["navier_stokes", "--step", "0"], "step: expected above 0 and at most 1, got 0.0"),
        (["navier_stokes", "--field", "x"], "field: expected one of ['paper', 'fno-code']"),
        (["navier_stokes", "--device", "nowhere"], "device 'nowhere' cannot compute"),
        (["darcy", "--workers", "0"], "workers: expected at least 1, got 0"),
        (
            ["darcy", "--coefficient", "x"],
            "coefficient: expected one of two-phase, log-normal, log-uniform",
        ),
        (["darcy", "--contrast", "0.5"], "contrast: expected 1 to 1e+06, got 0.5"),
        (["condiff", "--variance", "3"], "variance: expected one of 0.1, 0.4, 1, 2, got 3.0"),
        (["helmholtz", "--wavenumber", "4"], "above sqrt(2) pi = 4.44288"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_values_that_a_problem_refuses(folder, capsys, arguments, message):
    assert generate(*arguments) == 1
    assert message in capsys.readouterr().err
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: ACTION"),
        (["generate"], "the following arguments are required: PROBLEM"),
        (["generate", "darcy", "--n-samples", "many"], "invalid int value: 'many'"),
        (["generate", "darcy", "--colour", "red"], "unrecognized arguments: --colour red"),
        (["fetch", "navier_stokes"], "invalid choice: 'navier_stokes'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_wrong_usage(folder, capsys, arguments, message):
    with pytest.raises(SystemExit) as stop:
        cli.main(["data", *arguments])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
    assert list(folder.iterdir()) == []


def test_help_is_the_data_card(capsys):
    with pytest.raises(SystemExit) as stop:
        generate("darcy", "--help")
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert "div(nu grad u) + beta = 0" in shown
    assert "--n-samples N_SAMPLES" in shown


@pytest.mark.parametrize("problem", ["darcy", "poisson", "shallow_water"])
def test_fetch(capsys, monkeypatch, problem):
    calls = []

    def fetch(folder, force):
        calls.append((folder, force))
        return len(calls) == 1

    monkeypatch.setattr(f"chonn_lab.problems.{problem}.fetch", fetch)
    assert cli.main(["data", "fetch", problem]) == 0
    assert cli.main(["data", "fetch", problem, "--folder", "data", "--force"]) == 0
    assert calls == [(".", False), ("data", True)]
    assert capsys.readouterr().out.splitlines() == [
        f"{problem}: downloaded, checksum verified",
        f"{problem}: is there already",
    ]


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("h5py", ["generate", "darcy"]),
        ("scipy", ["generate", "darcy"]),
        ("tqdm", ["generate", "darcy"]),
        ("pooch", ["fetch", "darcy"]),
    ],
)
def test_missing_package_is_named(folder, capsys, monkeypatch, module, arguments):
    for name in [n for n in sys.modules if n.startswith("chonn_lab.problems")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    assert cli.main(["data", *arguments]) == 1
    where = "pip install './lab' in a clone of chonn-ops"
    expected = f"chonn-lab: error: this needs {module}: {where}\n"
    assert capsys.readouterr().err == expected
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("sent", "code", "message"),
    [(signal.SIGINT, 130, "chonn-lab: interrupted"), (signal.SIGTERM, 143, "")],
    ids=["ctrl-c", "sigterm"],
)
def test_signal_leaves_no_file_and_no_traceback(folder, workers, sent, code, message):
    command = [sys.executable, "-m", "chonn_lab.cli", "data", "generate", "darcy"]
    command += [
        "--n-samples",
        "100000",
        "--workers",
        str(workers),
        "--output",
        str(folder / "x.hdf5"),
    ]
    # Background jobs of a shell ignore Ctrl-C, and so would what they start.
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True, cwd=folder
    )
    signal.signal(signal.SIGINT, before)
    deadline = time.monotonic() + 60
    while not list(folder.glob(".*.tmp")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert {path.suffix for path in folder.iterdir()} - {".parts"} == {".tmp"}
    # A terminal sends Ctrl-C to the workers too; a plain `kill` reaches the parent only.
    (os.killpg if sent == signal.SIGINT else os.kill)(process.pid, sent)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert message in errors
    assert "Traceback" not in errors
    assert {path.suffix for path in folder.iterdir()} <= {".parts"}


@pytest.mark.parametrize("checkout", [True, False])
def test_an_installed_copy_writes_results_below_the_working_directory(tmp_path, checkout):
    package = tmp_path / "lab" / "chonn_lab"
    package.mkdir(parents=True)
    shutil.copy(paths.__file__, package)
    if checkout:
        (tmp_path / "lab" / "pyproject.toml").touch()
    found = runpy.run_path(str(package / "paths.py"))
    root = tmp_path if checkout else Path()
    assert found["RESULTS"] == root / "lab" / "results"


def test_a_models_missing_package_is_named(folder, capsys, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    monkeypatch.setitem(sys.modules, "physicsnemo", None)
    assert cli.main(["run", "model=transolver", "scale=smoke", f"data={folder}"]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    where = "pip install '.[physicsnemo]' in a clone of chonn-ops"
    assert last == f"chonn-lab: error: this needs physicsnemo: {where}"
