"""`import torch` arms the integrations; timm and neuraloperator then know us."""

import subprocess
import sys
from importlib.util import find_spec

import pytest
from autoload_processes import python, succeeds, write


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


TIMM = "import timm; print(type(timm.create_model('test_chonn')).__name__)"
NEURALOP = (
    "from neuralop.models import FNO;"
    "print(type(FNO((8, 8), 1, 1, 16, spectral_mixer='ckb')).__name__)"
)
real = pytest.mark.parametrize(
    ("host", "code", "name", "stock_error"),
    [
        pytest.param(*case, marks=pytest.mark.skipif(find_spec(case[0]) is None, reason=case[0]))
        for case in (
            ("timm", TIMM, "CHONN", "RuntimeError: Unknown model (test_chonn)"),
            ("neuralop", NEURALOP, "FNO", "unexpected keyword argument 'spectral_mixer'"),
        )
    ],
    ids=["timm", "neuralop"],
)


@real
def test_real_hosts_know_us_with_nothing_else_imported(tmp_path, host, code, name, stock_error):  # noqa: ARG001
    run = succeeds(tmp_path, code, "-I")
    assert run.stdout.split() == [name]
    assert "chonn" not in run.stderr


@real
def test_real_hosts_fail_as_before_with_the_switch_off(tmp_path, host, code, name, stock_error):  # noqa: ARG001
    run = python(tmp_path, code, CHONN_AUTOLOAD="0")
    assert run.returncode == 1
    assert stock_error in run.stderr


@real
def test_arming_reaches_real_hosts_imported_before(
    tmp_path,
    host,
    code,
    name,
    stock_error,  # noqa: ARG001
):
    arm = "from chonn_plugins import autoload; autoload.arm()"
    run = succeeds(tmp_path, f"import {host}; {arm}; {code}", CHONN_AUTOLOAD="0")
    assert run.stdout.split() == [name]


@real
@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_workers_know_us(tmp_path, host, code, name, stock_error, method):  # noqa: ARG001
    script = f"""
        import multiprocessing, sys
        def work():
            {code}
        if __name__ == "__main__":
            context = multiprocessing.get_context("{method}")
            if "{method}" == "fork":
                import torch
            worker = context.Process(target=work)
            worker.start()
            worker.join()
            sys.exit(worker.exitcode)
        """
    write(tmp_path, {"script.py": script})
    run = subprocess.run(
        [sys.executable, str(tmp_path / "script.py")], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == [name]


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
