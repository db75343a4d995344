"""The chonn-lab data commands: results, messages, exit codes, signals."""
# ruff: noqa: E402 - skipped before the imports where the extra is missing

import os
import signal
import subprocess
import sys
import time

import pytest

h5py = pytest.importorskip("h5py")
pytest.importorskip("pooch")
pytest.importorskip("tqdm")

from chonn_lab import cli
from chonn_lab.problems import darcy


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_generate_order1d(folder, capsys):
    sizes = ["--train", "3", "--validation", "2", "--test", "1"]
    assert cli.main(["data", "generate", "order1d", *sizes, "--seed", "5"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "wrote order1d.hdf5: 6 samples\n"
    assert "6/6" in captured.err
    with h5py.File(folder / "order1d.hdf5") as file:
        assert [file[f"{split}/x"].shape[0] for split in ("train", "validation", "test")] == [
            3,
            2,
            1,
        ]
        assert file["train"].attrs["seed"] == 5
    assert cli.main(["data", "generate", "order1d", *sizes]) == 1
    assert "output file exists: order1d.hdf5" in capsys.readouterr().err
    assert cli.main(["data", "generate", "order1d", *sizes, "--force"]) == 0


def test_generate_poisson(folder, capsys):
    (folder / "data").mkdir()
    command = ["data", "generate", "poisson", "--n", "3", "--n-out", "2", "--output", "data"]
    assert cli.main([*command, "--resolution", "8"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "wrote data/PoissonData_8x8_IN.h5: 3 samples",
        "wrote data/PoissonData_8x8_OUT.h5: 2 samples",
    ]
    with h5py.File(folder / "data" / "PoissonData_8x8_IN.h5") as file:
        assert file["Sample_2/input"].shape == (8, 8)


def test_generate_shallow_water(folder, capsys):
    pytest.importorskip("clawpack", reason="PyClaw missing: make setup-pyclaw")
    command = ["data", "generate", "shallow_water", "--n", "2", "--resolution", "8"]
    assert cli.main([*command, "--workers", "1"]) == 0
    assert capsys.readouterr().out == "wrote 2D_rdb_NA_NA.h5: 2 samples\n"
    assert [path.name for path in folder.iterdir()] == ["2D_rdb_NA_NA.h5"]
    with h5py.File("2D_rdb_NA_NA.h5") as file:
        assert file["0001/data"].shape == (101, 8, 8, 1)


def test_shallow_water_without_pyclaw(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "clawpack", None)
    assert cli.main(["data", "generate", "shallow_water"]) == 1
    assert capsys.readouterr().err == (
        "chonn-lab: error: shallow-water data are computed by PyClaw, which is not installed: "
        "`make setup-pyclaw`, or a Fortran compiler and `pip install --no-deps clawpack`\n"
    )
    assert list(folder.iterdir()) == []


def test_generate_navier_stokes(folder, capsys):
    command = ["data", "generate", "navier_stokes", "--n", "2", "--frames", "3"]
    command += ["--resolution", "8", "--solver-resolution", "16", "--step", "0.1"]
    assert cli.main([*command, "--field", "fno-code", "--device", "cpu"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "wrote ns_V1e-3_N2_T3.mat: 2 samples\n"
    assert "6/6" in captured.err
    with h5py.File(folder / "ns_V1e-3_N2_T3.mat") as file:
        assert file["u"].shape == (3, 8, 8, 2)
        assert "field fno-code, solver 16, step 0.1" in file.attrs["source"]
    assert cli.main([*command, "--device", "nowhere"]) == 1
    assert "chonn-lab: error: device 'nowhere' cannot compute" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("problem", "option", "attribute", "name"),
    [
        ("advection", "--beta", "beta", "1D_Advection_Sols_beta0.5.hdf5"),
        ("burgers", "--nu", "Nu", "1D_Burgers_Sols_Nu0.5.hdf5"),
    ],
)
def test_generate_on_a_line(folder, capsys, problem, option, attribute, name):
    command = ["data", "generate", problem, "--n", "2", "--resolution", "16", "--frames", "5"]
    command += ["--workers", "1", option, "0.5"]
    assert cli.main(command) == 0
    captured = capsys.readouterr()
    assert captured.out == f"wrote {name}: 2 samples\n"
    assert "2/2" in captured.err
    with h5py.File(folder / name) as file:
        assert file["tensor"].shape == (2, 5, 16)
        assert file.attrs[attribute] == 0.5
    assert cli.main(command) == 1
    assert f"output file exists: {name}" in capsys.readouterr().err
    assert cli.main([*command, "--force", "--output", "other.hdf5"]) == 0
    assert sorted(path.name for path in folder.iterdir()) == sorted([name, "other.hdf5"])


def test_generate_fno_darcy(folder, capsys):
    command = ["data", "generate", "fno_darcy", "--n", "2", "--n-test", "1", "--resolution", "9"]
    assert cli.main([*command, "--workers", "1", "--seed", "3"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "wrote piececonst_r9_N2_smooth1.mat: 2 samples",
        "wrote piececonst_r9_N1_smooth2.mat: 1 samples",
    ]
    with h5py.File(folder / "piececonst_r9_N2_smooth1.mat") as file:
        assert file["sol"].shape == (9, 9, 2)
        assert file.attrs["seed"] == 3
    (folder / "piececonst_r9_N1_smooth2.mat").unlink()
    assert cli.main([*command, "--workers", "1", "--seed", "3"]) == 0
    assert capsys.readouterr().out.count("is there already") == 1


def test_generate_darcy3d(folder, capsys):
    command = ["data", "generate", "darcy3d", "--n", "2", "--resolution", "4", "--workers", "1"]
    assert cli.main([*command, "--coefficient", "log-normal", "--contrast", "100"]) == 0
    name = "3D_DarcyFlow_log-normal_contrast100_r4.hdf5"
    assert capsys.readouterr().out == f"wrote {name}: 2 samples\n"
    assert [path.name for path in folder.iterdir()] == [name]
    assert cli.main([*command, "--contrast", "0.5"]) == 1
    assert "chonn-lab: error: contrast: expected 1 to 1e+06, got 0.5" in capsys.readouterr().err


def test_generate_helmholtz(folder, capsys):
    command = ["data", "generate", "helmholtz", "--n", "1", "--resolution", "20", "--workers", "1"]
    assert cli.main([*command, "--wavenumber", "8", "--ratio", "1.25"]) == 0
    assert capsys.readouterr().out == "wrote 2D_Helmholtz_k8_ratio1.25_r20.hdf5: 1 samples\n"
    assert cli.main([*command, "--wavenumber", "4"]) == 1
    assert "above sqrt(2) pi = 4.44288" in capsys.readouterr().err
    assert len(list(folder.iterdir())) == 1


def test_generate_darcy_of_high_contrast(folder, capsys):
    command = ["data", "generate", "darcy", "--n", "2", "--resolution", "8", "--workers", "1"]
    assert cli.main([*command, "--contrast", "1000"]) == 0
    name = "2D_DarcyFlow_beta1.0_Train_contrast1000.hdf5"
    assert capsys.readouterr().out == f"wrote {name}: 2 samples\n"
    with h5py.File(folder / name) as file:
        assert file["nu"][...].min() == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["order1d", "--train", "0"], "argument --train: must be at least 1, got 0"),
        (["poisson", "--resolution", "2"], "must be at least 3, got 2"),
        (["navier_stokes", "--step", "0"], "must be positive and finite, got 0"),
        (["navier_stokes", "--field", "x"], "argument --field: invalid choice: 'x'"),
        (["shallow_water", "--workers", "0"], "must be at least 1, got 0"),
        (["fno_darcy", "--resolution", "2"], "must be at least 3, got 2"),
        (["darcy3d", "--coefficient", "x"], "argument --coefficient: invalid choice: 'x'"),
        (["helmholtz", "--ratio", "0"], "must be positive and finite, got 0"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_wrong_usage(folder, capsys, arguments, message):
    with pytest.raises(SystemExit) as stop:
        cli.main(["data", "generate", *arguments])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
    assert list(folder.iterdir()) == []


def test_fetch_shallow_water(capsys, monkeypatch):
    from chonn_lab.problems import shallow_water

    calls = []

    def fetch(output, force):
        calls.append((output, force))
        return len(calls) == 1

    monkeypatch.setattr(shallow_water, "fetch", fetch)
    assert cli.main(["data", "fetch", "shallow_water"]) == 0
    assert cli.main(["data", "fetch", "shallow_water", "--output", "x.h5", "--force"]) == 0
    assert calls == [("2D_rdb_NA_NA.h5", False), ("x.h5", True)]
    assert capsys.readouterr().out.splitlines() == [
        "wrote 2D_rdb_NA_NA.h5: checksum verified",
        "x.h5 is there already: checksum verified",
    ]


def test_fetch_poisson(capsys, monkeypatch):
    from chonn_lab.problems import poisson

    answers = iter([True, False])
    monkeypatch.setattr(poisson, "fetch", lambda _folder, force: next(answers) or force)
    assert cli.main(["data", "fetch", "poisson"]) == 0
    assert cli.main(["data", "fetch", "poisson", "--output", "data"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("_OUT.h5: archive verified against the record's checksum")
    assert second == (
        "data/PoissonData_64x64_IN.h5 and data/PoissonData_64x64_OUT.h5 are there already: "
        "not checked, no checksum of them is known"
    )


def test_navier_stokes_has_no_stable_address(capsys):
    with pytest.raises(SystemExit):
        cli.main(["data", "fetch", "navier_stokes"])
    assert "invalid choice: 'navier_stokes'" in capsys.readouterr().err


def test_help_needs_no_extra(monkeypatch):
    for name in ("h5py", "scipy", "pooch", "tqdm"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in [n for n in sys.modules if n.startswith("chonn_lab.problems")]:
        monkeypatch.delitem(sys.modules, name)
    problems = ("order1d", "darcy", "poisson", "shallow_water", "navier_stokes")
    for problem in (*problems, "fno_darcy", "darcy3d", "helmholtz"):
        with pytest.raises(SystemExit) as stop:
            cli.main(["data", "generate", problem, "--help"])
        assert stop.value.code == 0


def test_generate_darcy(folder, capsys):
    command = ["data", "generate", "darcy", "--n", "2", "--resolution", "8", "--beta", "0.1"]
    assert cli.main(command) == 0
    name = "2D_DarcyFlow_beta0.1_Train.hdf5"
    captured = capsys.readouterr()
    assert captured.out == f"wrote {name}: 2 samples\n"
    assert "2/2" in captured.err
    with h5py.File(folder / name) as file:
        first = file["tensor"][...]
        assert first.shape == (2, 1, 8, 8)
        assert file.attrs["beta"] == 0.1

    assert cli.main(command) == 1
    assert capsys.readouterr().err == (
        f"chonn-lab: error: output file exists: {name} (replace it with --force / force=True)\n"
    )
    assert cli.main([*command, "--force", "--seed", "1", "--workers", "1"]) == 0
    with h5py.File(folder / name) as file:
        assert (file["tensor"][...] != first).any()


def test_fetch(folder, capsys, monkeypatch):
    answers = iter([True, False])
    calls = []

    def fetch(output, force):
        calls.append((output, force))
        return next(answers)

    monkeypatch.setattr(darcy, "fetch", fetch)
    assert cli.main(["data", "fetch", "darcy"]) == 0
    assert cli.main(["data", "fetch", "darcy", "--output", "x.hdf5", "--force"]) == 0
    assert calls == [("2D_DarcyFlow_beta1.0_Train.hdf5", False), ("x.hdf5", True)]
    assert capsys.readouterr().out.splitlines() == [
        "wrote 2D_DarcyFlow_beta1.0_Train.hdf5: checksum verified",
        "x.hdf5 is there already: checksum verified",
    ]
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["data"], "the following arguments are required: ACTION"),
        (["data", "generate"], "the following arguments are required: PROBLEM"),
        (["data", "generate", "darcy", "--n", "0"], "argument --n: must be at least 1, got 0"),
        (["data", "generate", "darcy", "--n", "many"], "invalid integer value: 'many'"),
        (["data", "generate", "darcy", "--resolution", "1"], "must be at least 2, got 1"),
        (["data", "generate", "darcy", "--seed", "-1"], "must be at least 0, got -1"),
        (["data", "generate", "darcy", "--workers", "0"], "must be at least 1, got 0"),
        (["data", "generate", "darcy", "--beta", "nan"], "must be positive and finite, got nan"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_wrong_usage_of_data(capsys, arguments, message):
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("h5py", ["generate", "darcy"]),
        ("scipy", ["generate", "darcy"]),
        ("tqdm", ["generate", "darcy"]),
        ("pooch", ["fetch", "darcy"]),
    ],
)
def test_missing_extra_is_named(folder, capsys, monkeypatch, module, arguments):
    for name in [n for n in sys.modules if n.startswith("chonn_lab.problems")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    assert cli.main(["data", *arguments]) == 1
    expected = f"chonn-lab: error: this needs {module}: pip install 'chonn-lab'\n"
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
    command += ["--n", "100000", "--workers", str(workers), "--output", str(folder / "x.hdf5")]
    # Background jobs of a shell ignore Ctrl-C, and so would what they start.
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True, cwd=folder
    )
    signal.signal(signal.SIGINT, before)
    deadline = time.monotonic() + 60
    while not list(folder.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [path.suffix for path in folder.iterdir()] == [".tmp"]
    # A terminal sends Ctrl-C to the workers too; a plain `kill` reaches the parent only.
    (os.killpg if sent == signal.SIGINT else os.kill)(process.pid, sent)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert message in errors
    assert "Traceback" not in errors
    assert list(folder.iterdir()) == []
