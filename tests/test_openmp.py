"""Our programs say how OpenMP's threads wait before torch is loaded, unless the user has."""

import os
import re
import sys
from pathlib import Path

import pytest
import torch
from commands import python, run

from chonn_plugins.openmp import sleep_while_waiting

ROOT = Path(__file__).parents[1]
PYPROJECT = (ROOT / "pyproject.toml").read_text()
EXAMPLES = sorted(x.name for x in (ROOT / "examples").glob("[!_]*.py"))
MODULE, FUNCTION = re.findall(r'^chonn = "([\w.]+):(\w+)"$', PYPROJECT, flags=re.MULTILINE)[0]
PROGRAMS = {
    "chonn": ("-c", f"import {MODULE}; {MODULE}.{FUNCTION}()"),
    "chonn-lab": ("-m", "chonn_lab.cli", "data", "generate", "poisson"),
    "chonn-pdebench": ("-m", "chonn_plugins.pdebench.runner", "+args=config_Darcy.yaml"),
    "pdebench": ("-m", "pdebench.models.train_models_forward", "+args=config_Darcy.yaml"),
}
# What is imported before torch.
NEEDS = {
    "chonn-lab": ("chonn_lab",),
    **dict.fromkeys(("chonn-pdebench", "pdebench"), ("hydra", "pdebench")),
    **dict.fromkeys(EXAMPLES, ("h5py", "matplotlib", "scipy")),
    **dict.fromkeys(("gmsh_part.py", "mesh_file.py"), ("meshio",)),
}
REPORT = "import os; print('turns', os.environ.get('GOMP_SPINCOUNT'), flush=True); os._exit(0)\n"


def environment(*path, **variables):
    unset = dict.fromkeys(k for k in os.environ if k[:4] in ("OMP_", "GOMP", "KMP_"))
    there = (*path, ROOT, ROOT / "plugins", ROOT / "lab", os.environ.get("PYTHONPATH", ""))
    return {**unset, "PYTHONPATH": os.pathsep.join(map(str, there)), **variables}


@pytest.mark.parametrize(
    "program", [*PROGRAMS, *(pytest.param(x, marks=pytest.mark.thorough) for x in EXAMPLES)]
)
def test_programs_say_it_before_torch_is_loaded(program, tmp_path):
    """The import of torch ends in a stand-in, which prints what OpenMP would read."""
    for package in NEEDS.get(program, ()):
        pytest.importorskip(package)
    (tmp_path / "torch.py").write_text(REPORT)
    command = PROGRAMS.get(program, (str(ROOT / "examples" / program),))
    done = run(sys.executable, *command, env=environment(tmp_path), cwd=tmp_path)
    assert done.stdout == "turns 3000\n", done.stderr
    if program == "chonn":
        active = environment(tmp_path, OMP_WAIT_POLICY="active")
        done = run(sys.executable, *command, env=active, cwd=tmp_path)
        assert done.stdout == "turns None\n"


@pytest.mark.parametrize("setting", ["OMP_WAIT_POLICY", "KMP_BLOCKTIME", "KMP_LIBRARY"])
def test_other_settings_of_the_user_count(setting, monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY"):
        monkeypatch.delenv(name, raising=False)
    with monkeypatch.context() as patch:
        patch.setenv(setting, "1")
        sleep_while_waiting()
        assert "GOMP_SPINCOUNT" not in os.environ
    monkeypatch.setenv("GOMP_SPINCOUNT", "")  # so that what follows is taken back
    del os.environ["GOMP_SPINCOUNT"]
    sleep_while_waiting()
    assert os.environ["GOMP_SPINCOUNT"] == "3000"


@pytest.mark.skipif(not torch.backends.openmp.is_available(), reason="PyTorch without OpenMP")
@pytest.mark.skipif(sys.platform == "win32", reason="Microsoft's OpenMP has no OMP_DISPLAY_ENV")
def test_openmp_reads_it():
    code = "from chonn_plugins.openmp import *; sleep_while_waiting(); import torch"
    done = python(code, env=environment(OMP_DISPLAY_ENV="verbose"))
    if "GOMP" not in done.stderr:
        pytest.skip("PyTorch with an OpenMP that is not GNU's")
    assert "GOMP_SPINCOUNT = '3000'" in done.stderr
    # With torch in the process it is too late, and children do not inherit what is not so here.
    code = "import os, torch; from chonn_plugins.openmp import *; sleep_while_waiting()"
    code += "; assert 'GOMP_SPINCOUNT' not in os.environ"
    python(code, env=environment())
