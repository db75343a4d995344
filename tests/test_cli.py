"""The chonn command: results, messages, exit codes."""

import pytest
import torch
from commands import python

import chonn_ops
from chonn_ops import _library, cli


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
        ({"CHONN_AUTOLOAD": "0"}, [1], "no, CHONN_AUTOLOAD=0 is set"),
        ({"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, [1], "no, TORCH_DEVICE_BACKEND_AUTOLOAD=0 is set"),
        ({}, [], "no, its entry point is missing: install chonn-ops again"),
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


def test_messages_are_one_line(capsys, monkeypatch):
    def fail(_):
        raise ValueError("first\n  second")

    monkeypatch.setattr(cli, "_info", fail)
    assert cli.main(["info"]) == 1
    assert capsys.readouterr().err == "chonn: error: first second\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["nonsense"], "invalid choice: 'nonsense'"),
    ],
    ids=["nothing", "nonsense"],
)
def test_wrong_usage(capsys, arguments, message):
    assert usage_error(*arguments) == 2
    assert message in capsys.readouterr().err


def test_help_needs_no_extra():
    probe = (
        "import sys; from chonn_ops import cli\n"
        "try: cli.main(['inspect', '--help'])\n"
        "except SystemExit: pass\n"
        "extras = {'h5py', 'scipy', 'matplotlib'}\n"
        "print(extras & {m.split('.')[0] for m in sys.modules})"
    )
    assert python(probe).stdout.splitlines()[-1] == "set()"
