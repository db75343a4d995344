"""`import torch` arms the integrations; timm and neuraloperator then know us."""

from importlib.util import find_spec

import pytest
from autoload_processes import succeeds


def test_autoload_needs_the_standard_library_only(tmp_path):
    run = succeeds(
        tmp_path,
        """
        import sys
        before = set(sys.modules)
        from chonn_plugins import autoload
        autoload.arm()
        new = {name.partition(".")[0] for name in set(sys.modules) - before}
        print(*sorted(new - sys.stdlib_module_names))
        """,
    )
    assert run.stdout.split() == ["chonn_plugins"]


ARMED = "any(type(f).__module__ == 'chonn_plugins.autoload' for f in sys.meta_path)"


@pytest.mark.parametrize(
    ("environment", "options", "armed"),
    [
        ({}, (), True),
        ({}, ("-I",), True),
        ({"CHONN_AUTOLOAD": "1"}, (), True),
        ({"CHONN_AUTOLOAD": "0"}, (), False),
        ({"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, (), False),
    ],
    ids=["default", "isolated", "on", "off", "off-for-all"],
)
def test_import_torch_arms_and_loads_nothing_else(tmp_path, environment, options, armed):
    code = f"import torch, sys; print({ARMED}, 'chonn_ops' in sys.modules)"
    run = succeeds(tmp_path, code, *options, **environment)
    assert run.stdout.split() == [str(armed), "False"]
    assert run.stderr == ""


def test_arming_explicitly_works_whatever_the_switch_says(tmp_path):
    code = f"from chonn_plugins import autoload; autoload.arm(); import sys; print({ARMED})"
    assert succeeds(tmp_path, code, CHONN_AUTOLOAD="0").stdout.split() == ["True"]
    code = f"import chonn_ops, sys; print({ARMED})"
    assert succeeds(tmp_path, code, CHONN_AUTOLOAD="0").stdout.split() == ["False"]


def test_a_broken_integration_leaves_torch_working_with_one_warning(fakes):
    fakes.write({"ours.py": "raise RuntimeError('on purpose')"})
    # The environment's own start-up code, so that the program itself is just `import torch`.
    fakes.write({"sitecustomize.py": "import fakes, host.models"})
    code = "import torch, timeit; import host.other; print(torch.ones(2).sum().item())"
    run = succeeds(fakes.folder, code)
    assert run.stdout == "2.0\n"
    warning = "RuntimeWarning: chonn-ops: integration with host disabled: RuntimeError: on purpose"
    assert run.stderr.count("Warning: ") == run.stderr.count(warning) == 1


HOSTS = {
    "timm": "import timm; print(type(timm.create_model('test_chonn')).__name__)",
    "neuralop": "from neuralop.models import FNO;"
    "print('CHONN' if FNO((8, 8), 1, 1, 16, spectral_mixer='ckb') else '')",
}
FORKED = """
import multiprocessing, sys, torch
def work(): {code}
worker = multiprocessing.get_context("fork").Process(target=work)
worker.start()
worker.join()
sys.exit(worker.exitcode)
"""
LATE = "import {host}; from chonn_plugins import autoload; autoload.arm(); {code}"


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize(
    ("program", "environment"), [("{code}", {}), (LATE, {"CHONN_AUTOLOAD": "0"}), (FORKED, {})]
)
def test_real_hosts_know_us(tmp_path, host, program, environment):
    """With nothing else imported, armed after they were imported, and in a worker."""
    if find_spec(host) is None:
        pytest.skip(host)
    run = succeeds(tmp_path, program.format(host=host, code=HOSTS[host]), **environment)
    assert run.stdout.split() == ["CHONN"]
    assert "chonn" not in run.stderr


def test_our_side_may_be_imported_before_its_host(fakes):
    code = """
        import torch, fakes
        import ours
        import host.other
        print(len(ours.calls))
    """
    run = succeeds(fakes.folder, code)
    assert run.stdout == "1\n"
    assert run.stderr == ""
