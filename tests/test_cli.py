"""The chonn command: results, messages, exit codes, signals."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch

import chonn_ops
from chonn_ops import _library, cli


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def usage_error(*arguments):
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    return stop.value.code


def test_version(capsys):
    assert usage_error("--version") == 0
    assert capsys.readouterr().out == f"chonn-ops {chonn_ops.__version__}\n"


def test_info(capsys):
    assert cli.main(["info"]) == 0
    out = capsys.readouterr().out
    assert f"chonn-ops {chonn_ops.__version__}, Python" in out
    assert f"torch {torch.__version__.partition('+')[0]}" in out
    assert f"torch threads: {torch.get_num_threads()}; CUDA device: " in out
    assert f"scan backends: {', '.join(chonn_ops.scan.available_backends())}\n" in out
    assert f"network backends: {', '.join(chonn_ops.network.available_backends())}\n" in out
    assert f"\nC kernel: {_library.state()}\n" in out


@pytest.mark.parametrize(
    ("environment", "points", "state"),
    [
        ({}, [1], "yes"),
        ({"CHONN_AUTOLOAD": "0"}, [1], "no, CHONN_AUTOLOAD=0; after `import chonn_ops`, yes"),
        (
            {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
            [1],
            "no, TORCH_DEVICE_BACKEND_AUTOLOAD=0; after `import chonn_ops`, yes",
        ),
        ({}, [], "no, installed before it could: install chonn-ops again"),
    ],
    ids=["on", "ours-off", "torchs-off", "old-installation"],
)
def test_info_says_whether_import_torch_arms_the_integrations(
    capsys, monkeypatch, environment, points, state
):
    for switch in ("CHONN_AUTOLOAD", "TORCH_DEVICE_BACKEND_AUTOLOAD"):
        monkeypatch.delenv(switch, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: points)
    assert cli.main(["info"]) == 0
    line = f"timm and neuraloperator know chonn-ops after `import torch`: {state}\n"
    assert line in capsys.readouterr().out


def test_generate(folder, capsys):
    h5py = pytest.importorskip("h5py")
    pytest.importorskip("pooch")
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
        f"chonn: error: output file exists: {name} (replace it with --force / force=True)\n"
    )
    assert cli.main([*command, "--force", "--seed", "1", "--workers", "1"]) == 0
    with h5py.File(folder / name) as file:
        assert (file["tensor"][...] != first).any()


def test_fetch(folder, capsys, monkeypatch):
    darcy = pytest.importorskip("chonn_ops.problems.darcy")
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


def test_convert(folder, capsys):
    pytest.importorskip("h5py")
    torch.save({"x": torch.ones(3, 4, 4, dtype=torch.bool), "y": torch.ones(3, 4, 4)}, "in.pt")
    assert cli.main(["data", "convert", "in.pt", "out.hdf5"]) == 0
    assert capsys.readouterr().out == "wrote out.hdf5: 3 samples\n"
    assert (folder / "out.hdf5").is_file()
    assert cli.main(["data", "convert", "missing.pt", "other.hdf5"]) == 1
    assert capsys.readouterr().err == "chonn: error: no such file: missing.pt\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["data"], "the following arguments are required: ACTION"),
        (["data", "generate"], "the following arguments are required: PROBLEM"),
        (["nonsense"], "invalid choice: 'nonsense'"),
        (["data", "generate", "darcy", "--n", "0"], "argument --n: must be at least 1, got 0"),
        (["data", "generate", "darcy", "--n", "many"], "invalid integer value: 'many'"),
        (["data", "generate", "darcy", "--resolution", "1"], "must be at least 2, got 1"),
        (["data", "generate", "darcy", "--seed", "-1"], "must be at least 0, got -1"),
        (["data", "generate", "darcy", "--workers", "0"], "must be at least 1, got 0"),
        (["data", "generate", "darcy", "--beta", "nan"], "must be positive and finite, got nan"),
        (["data", "convert", "in.pt"], "the following arguments are required: OUT.hdf5"),
    ],
    ids=lambda value: " ".join(value) or "nothing" if isinstance(value, list) else None,
)
@pytest.mark.usefixtures("folder")
def test_wrong_usage(capsys, arguments, message):
    assert usage_error(*arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("h5py", ["generate", "darcy"]),
        ("scipy", ["generate", "darcy"]),
        ("tqdm", ["generate", "darcy"]),
        ("pooch", ["fetch", "darcy"]),
        ("h5py", ["convert", "a.pt", "b.hdf5"]),
    ],
)
def test_missing_extra_is_named(folder, capsys, monkeypatch, module, arguments):
    for name in [n for n in sys.modules if n.startswith("chonn_ops.problems")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    assert cli.main(["data", *arguments]) == 1
    expected = f"chonn: error: this needs {module}: pip install 'chonn-ops[experiments]'\n"
    assert capsys.readouterr().err == expected
    assert list(folder.iterdir()) == []


def test_messages_are_one_line(capsys, monkeypatch):
    def fail(_):
        raise ValueError("first\n  second")

    monkeypatch.setattr(cli, "_info", fail)
    assert cli.main(["info"]) == 1
    assert capsys.readouterr().err == "chonn: error: first second\n"


@pytest.mark.parametrize("command", [["data", "generate", "darcy"], ["run"]], ids=" ".join)
def test_help_needs_no_extra(command):
    probe = (
        "import sys; from chonn_ops import cli\n"
        f"try: cli.main({[*command, '--help']})\n"
        "except SystemExit: pass\n"
        "extras = {'h5py', 'scipy', 'pooch', 'tensorboard', 'matplotlib'}\n"
        "print(extras & {m.split('.')[0] for m in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


@pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("sent", "code", "message"),
    [(signal.SIGINT, 130, "chonn: interrupted"), (signal.SIGTERM, 143, "")],
    ids=["ctrl-c", "sigterm"],
)
def test_signal_leaves_no_file_and_no_traceback(folder, workers, sent, code, message):
    pytest.importorskip("h5py")
    pytest.importorskip("pooch")
    command = [sys.executable, "-m", "chonn_ops.cli", "data", "generate", "darcy"]
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
