"""What `conftest.py` says and does about skipped tests."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from commands import run

TESTS = """
import pytest

def test_runs():
    pass

@pytest.mark.parametrize("x", [])
def test_of_nothing(x):
    pass

@pytest.mark.parametrize("x", [1, 2])
@pytest.mark.skipif(True, reason="no such device")
def test_of_a_device(x):
    pass

@pytest.mark.skipif(True, reason="needs a tool: make setup-tool")
def test_of_a_tool():
    pass
"""


@pytest.mark.parametrize("processes", [0, 2])
def test_reasons_are_counted_and_missing_tools_fail_where_all_should_be_there(tmp_path, processes):
    """pytest-xdist drops files that skip as a whole; the hooks do not."""
    shutil.copy(Path(__file__).parents[1] / "conftest.py", tmp_path)
    (tmp_path / "test_one.py").write_text(TESTS)
    (tmp_path / "test_other.py").write_text("import pytest\npytest.importorskip('absent_module')\n")
    unwanted = ("CHONN_ALL_TOOLS", "PYTEST_", "COV_")
    unset = dict.fromkeys(k for k in os.environ if k.startswith(unwanted))
    # Plugins that other packages bring cost every process their imports.
    without = [
        f"-pno:{name}" for name in ("cacheprovider", "hydra_pytest", "anyio", "hypothesispytest")
    ]
    for all_tools in (False, True):
        command = [sys.executable, "-m", "pytest", *without, f"-n{processes}", "."]
        env = unset | ({"CHONN_ALL_TOOLS": "1"} if all_tools else {})
        done = run(*command, cwd=tmp_path, env=env, code=int(all_tools))
        printed = done.stdout.partition("skipped, and why")[2].splitlines()
        assert "   2  no such device: test_one.py" in printed, done.stdout + done.stderr
        assert "   1  needs a tool: make setup-tool: test_one.py" in printed
        assert any("absent_module" in line and "test_other.py" in line for line in printed)
        refused = [line for line in printed if line.startswith("ERROR")]
        assert len(refused) == (2 if all_tools else 0)  # the tool and the test of nothing
