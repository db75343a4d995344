"""`import torch` goes on wherever it sees our entry point, whatever is missing or broken behind it.

The package is installed in tests from an editable wheel whose ``.pth`` file is not processed, as
under ``python -S``.
"""

import os
import zipfile
from pathlib import Path

import pytest
import torch
from autoload_processes import succeeds, write
from commands import python

ROOT = Path(__file__).parents[2]
SITE_PACKAGES = Path(torch.__file__).parents[1]
PRINTS_WHERE = "import torch, chonn_autoload; print(chonn_autoload.__file__)"


@pytest.fixture(scope="module")
def editable(tmp_path_factory):
    """What an editable install puts into site-packages, without compiling, and torch behind it, as
    a PYTHONPATH."""
    pytest.importorskip("hatchling")
    site, folder = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("wheel")
    code = f"import hatchling.build as b; b.build_editable({str(folder)!r})"
    python(code, cwd=ROOT, env={"HATCH_BUILD_NO_HOOKS": "1"})
    zipfile.ZipFile(next(folder.glob("*.whl"))).extractall(site)
    return f"{site}{os.pathsep}{SITE_PACKAGES}"


def test_pip_removes_the_module_and_the_entry_point_together(editable):
    """Metadata without the module would make `import torch` fail, out of our reach."""
    (record,) = Path(editable.partition(os.pathsep)[0]).glob("*.dist-info/RECORD")
    listed = {line.partition(",")[0] for line in record.read_text().splitlines()}
    entry_points = f"{record.parent.name}/entry_points.txt"
    assert {"chonn_autoload.py", entry_points} <= listed


def test_an_editable_install_without_pth_files_is_one_warning(editable):
    run = succeeds(editable, PRINTS_WHERE, "-S")
    assert run.stdout.startswith(editable.partition(os.pathsep)[0])
    expected = (
        "RuntimeWarning: chonn-ops: integrations with timm and neuraloperator disabled "
        "(ModuleNotFoundError: No module named 'chonn_plugins')"
    )
    assert run.stderr.count(expected) == run.stderr.count("Warning: ") == 1


def test_it_is_silent_with_the_switch_off(editable):
    run = succeeds(editable, PRINTS_WHERE, "-S", CHONN_AUTOLOAD="0")
    assert run.stderr == ""


def test_warnings_as_errors_and_a_closed_stream_do_not_stop_torch(editable):
    code = f"import sys; sys.stderr.close(); {PRINTS_WHERE}"
    run = succeeds(editable, code, "-S", "-W", "error::RuntimeWarning")
    assert run.stdout


@pytest.mark.parametrize(
    "broken",
    ["raise ValueError('on purpose')", "def arm(:", "x = 1", "def arm(): raise KeyError('arm')"],
    ids=["raises", "syntax", "no-arm", "arm-raises"],
)
def test_a_broken_autoload_module_is_one_warning(tmp_path, broken):
    write(tmp_path, {"chonn_plugins/__init__.py": "", "chonn_plugins/autoload.py": broken})
    # What torch does with the entry points of this group.
    code = """
    from importlib.metadata import entry_points
    [point] = entry_points(group="torch.backends", name="chonn_ops")
    point.load()()
    """
    run = succeeds(tmp_path, code)
    assert run.stderr.count("RuntimeWarning: chonn-ops: integrations with timm and ") == 1
    assert run.stderr.count("Warning: ") == 1
    assert succeeds(tmp_path, code, CHONN_AUTOLOAD="0").stderr == ""


def test_torch_itself_goes_on(tmp_path):
    write(tmp_path, {"chonn_plugins/__init__.py": "raise ValueError('on purpose')"})
    run = succeeds(tmp_path, "import torch; print(torch.ones(2).sum().item())")
    assert run.stdout == "2.0\n"
    assert run.stderr.count("(ValueError: on purpose)") == run.stderr.count("Warning: ") == 1
