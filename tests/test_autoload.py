"""Integrations switch themselves on in every import order, and never break an import."""

import os
import subprocess
import sys
import textwrap
import zipfile
from importlib.util import find_spec

import pytest

HOST = """
    class Model:
        pass
"""
# What autoload imports once `host.models` is loaded; it must find the host complete.
INTEGRATION = """
    from host.models import Model
    calls = []
    def install():
        from host.models import Model
        calls.append(Model)
"""
FAKES = """
    import sys, warnings
    from chonn_plugins import autoload
    autoload.HOSTS.clear()
    autoload.HOSTS["host.models"] = "ours:install"
"""


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


def python(folder, code, *options, **environment):
    """Run code in a process of its own, with the files in `folder` importable."""
    clean = {name: value for name, value in os.environ.items() if "AUTOLOAD" not in name}
    return subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(code)],
        env={**clean, "PYTHONPATH": str(folder), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def succeeds(folder, code, *options, **environment):
    run = python(folder, code, *options, **environment)
    assert run.returncode == 0, run.stderr
    return run


@pytest.fixture
def fakes(tmp_path):
    """A host package, a module that integrates it, and a table that says so."""
    files = {"host/__init__.py": "", "host/models.py": HOST, "host/other.py": "", "ours.py": ""}
    write(tmp_path, {**files, "ours.py": INTEGRATION, "fakes.py": FAKES})
    return tmp_path


@pytest.mark.parametrize(
    "order",
    [
        "autoload.autoload(); import host.models",
        "autoload.autoload(); from host import models, other",
        "import host.models; autoload.autoload()",
        "import host.models; autoload.autoload(); autoload.arm(); import host.other",
        "autoload.arm(); autoload.autoload(); import host.models",
    ],
)
def test_a_host_is_integrated_once_whatever_comes_first(fakes, order):
    run = succeeds(
        fakes,
        f"""
        from fakes import *
        {order}
        import ours
        assert ours.calls == [sys.modules["host.models"].Model], ours.calls
        assert sum(finder is autoload._finder for finder in sys.meta_path) == 1
        """,
    )
    assert run.stderr == ""


def test_a_host_that_loads_torch_itself_is_integrated_by_the_next_import(fakes):
    """`from neuralop.models import FNO`: its fno.py is half loaded when torch calls us."""
    write(
        fakes,
        {
            "host/models.py": """
    from fakes import autoload
    autoload.autoload()
    class Model:
        pass
    """
        },
    )
    write(fakes, {"host/__init__.py": "from host.models import Model\nimport host.other\n"})
    write(fakes, {"host/other.py": "import sys\nassert 'ours' in sys.modules\n"})
    run = succeeds(fakes, "import host, ours; assert ours.calls == [host.Model]")
    assert run.stderr == ""


def test_a_host_without_the_searched_module_and_no_host_at_all_are_silent(fakes):
    (fakes / "host" / "models.py").unlink()
    code = """
    from fakes import *
    autoload.HOSTS["absent.models"] = "ours"
    autoload.autoload()
    import host.other
    assert "ours" not in sys.modules
    try:
        import {name}
    except ModuleNotFoundError as error:
        assert str(error).startswith("No module named '{missing}'"), error
    else:
        raise AssertionError("imported")
    """
    for name, missing in [("host.models", "host.models"), ("absent.models", "absent")]:
        assert succeeds(fakes, code.format(name=name, missing=missing)).stderr == ""


def test_a_host_too_old_for_us_is_left_alone_silently(fakes):
    write(fakes, {"ours.py": "from host.models import NewModel\n"})
    run = succeeds(fakes, "from fakes import *; autoload.autoload(); import host.models")
    assert run.stderr == ""


@pytest.mark.parametrize(
    "broken",
    ["raise RuntimeError('on purpose')", "import absent_dependency", "def f(:", "x = 1"],
    ids=["raises", "lacks-a-dependency", "syntax", "no-function"],
)
@pytest.mark.parametrize(
    "order", ["autoload.autoload(); import host.models", "import host.models; autoload.autoload()"]
)
def test_a_broken_integration_is_one_warning(fakes, broken, order):
    write(fakes, {"ours.py": broken, "host/twin.py": ""})
    run = succeeds(
        fakes,
        f"""
        from fakes import *
        autoload.HOSTS["host.twin"] = "ours:install"
        {order}
        import host.twin
        autoload.arm()
        host.models.Model()
        """,
    )
    assert run.stderr.count("RuntimeWarning: chonn-ops: integration with host disabled: ") == 1
    assert run.stderr.count("Warning: ") == 1


def test_warnings_turned_into_errors_do_not_break_the_host(fakes):
    write(fakes, {"ours.py": "raise RuntimeError('on purpose')"})
    code = "from fakes import *; autoload.autoload(); import host.models"
    run = succeeds(fakes, code, "-W", "error::RuntimeWarning")
    expected = "chonn-ops: integration with host disabled: RuntimeError: on purpose\n"
    assert run.stderr == expected


def test_a_stand_in_for_the_host_does_no_harm(fakes):
    run = succeeds(
        fakes,
        """
        from fakes import *
        class Strange:
            def __getattr__(self, name):
                raise RuntimeError(name)
        sys.modules["host.models"] = Strange()
        autoload.autoload()
        import host.other, json.tool
        """,
    )
    assert run.stderr.count("integration with host disabled: RuntimeError: ") == 1
    assert run.stderr.count("Warning: ") == 1


def test_arming_never_raises(fakes):
    run = succeeds(fakes, "from fakes import *; sys.meta_path = (); autoload.autoload()")
    assert run.stderr.count("RuntimeWarning: chonn-ops: integration with its hosts disabled") == 1


def test_a_host_that_fails_to_load_reports_its_own_error_and_may_be_tried_again(fakes):
    write(
        fakes,
        {
            "host/models.py": """
    import os
    assert "READY" in os.environ, "not yet"
    class Model:
        pass
    """
        },
    )
    succeeds(
        fakes,
        """
        from fakes import *
        import os
        autoload.autoload()
        try:
            import host.models
        except AssertionError as error:
            assert str(error) == "not yet"
        assert "ours" not in sys.modules
        os.environ["READY"] = "1"
        import host.models, ours
        assert ours.calls == [host.models.Model]
        """,
    )


def test_the_host_keeps_its_own_loader(fakes):
    write(fakes, {"host/data.txt": "some data"})
    run = succeeds(
        fakes,
        """
        from fakes import *
        import importlib.machinery, importlib.resources, importlib.util
        import inspect, pickle, pkgutil, runpy
        autoload.autoload()
        spec = importlib.util.find_spec("host.models")
        assert "class Model" in spec.loader.get_source("host.models")
        assert not spec.loader.is_package("host.models")
        assert not hasattr(spec.loader, "absent")
        assert "Model" in runpy.run_module("host.models")
        assert "ours" not in sys.modules
        import host.models
        for loader in (host.models.__loader__, host.models.__spec__.loader):
            assert type(loader) is importlib.machinery.SourceFileLoader
        assert host.models.__spec__.origin == host.models.__file__
        assert inspect.getsource(host.models.Model).startswith("class Model")
        assert isinstance(pickle.loads(pickle.dumps(host.models.Model())), host.models.Model)
        assert pkgutil.get_data("host.models", "data.txt") == b"some data"
        assert importlib.resources.files("host").joinpath("data.txt").read_text() == "some data"
        """,
    )
    assert run.stderr == ""


def test_a_reloaded_host_is_integrated_again(fakes):
    succeeds(
        fakes,
        """
        from fakes import *
        import importlib
        autoload.autoload()
        import host.models, ours
        first = host.models.Model
        assert importlib.reload(host.models).Model is not first
        assert ours.calls == [first, host.models.Model]
        """,
    )


def test_a_zipped_host_is_integrated(fakes):
    with zipfile.ZipFile(fakes / "hosts.zip", "w") as archive:
        for name in ("__init__.py", "models.py", "other.py"):
            archive.write(fakes / "host" / name, f"zipped/{name}")
    write(fakes, {"ours.py": "import zipped.models"})
    run = succeeds(
        fakes,
        """
        from fakes import *
        sys.path.append("hosts.zip")
        autoload.HOSTS["zipped.models"] = "ours"
        autoload.autoload()
        import zipped.models, zipped.other
        assert "ours" in sys.modules
        assert type(zipped.models.__loader__).__name__ == "zipimporter"
        """.replace("hosts.zip", str(fakes / "hosts.zip")),
    )
    assert run.stderr == ""


@pytest.mark.parametrize("position", [0, 1, 99], ids=["front", "behind", "last"])
def test_finders_that_ask_all_others_are_asked_too(fakes, position):
    run = succeeds(
        fakes,
        f"""
        from fakes import *
        asked = []
        class Curious:
            def find_spec(self, name, path=None, target=None):
                if name != "host.models" or len(asked) > 9:
                    return None
                asked.append(name)
                if len(asked) == 1:
                    for finder in sys.meta_path:
                        spec = finder.find_spec(name, path, target)
                        if spec is not None:
                            return spec
        class Old:
            pass
        autoload.autoload()
        sys.meta_path.insert({position}, Curious())
        import host.models, ours
        assert len(asked) in (2, 0), asked
        assert ours.calls == [host.models.Model]
        """,
    )
    assert run.stderr == ""


def test_a_finder_that_refuses_the_host_is_obeyed(fakes):
    run = python(
        fakes,
        """
        from fakes import *
        class Refuses:
            def find_spec(self, name, path=None, target=None):
                if name == "host.models":
                    raise ImportError("refused")
        autoload.autoload()
        sys.meta_path.insert(1, Refuses())
        import host.models
        """,
    )
    assert run.stderr.endswith("ImportError: refused\n")
    assert "Warning" not in run.stderr


def test_threads_that_import_hosts_and_arm_at_once(fakes):
    slow = "\n    import time; time.sleep(0.05)"
    write(fakes, {"host/models.py": slow + HOST, "ours.py": slow + INTEGRATION})
    run = succeeds(
        fakes,
        """
        from fakes import *
        import threading
        start = threading.Barrier(12)
        def work(index):
            start.wait()
            if index % 3 == 0:
                autoload.arm()
            elif index % 3 == 1:
                import host.models
            else:
                import ours
        threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(12)]
        [thread.start() for thread in threads]
        [thread.join(30) for thread in threads]
        assert not any(thread.is_alive() for thread in threads)
        import host.other, ours
        assert set(ours.calls) == {sys.modules["host.models"].Model}
        """,
    )
    assert run.stderr == ""


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


def test_import_chonn_ops_arms_whatever_the_switch_says(tmp_path):
    run = succeeds(tmp_path, f"import chonn_ops, sys; print({ARMED})", CHONN_AUTOLOAD="0")
    assert run.stdout.split() == ["True"]


def test_a_broken_integration_leaves_torch_working_with_one_warning(fakes):
    write(fakes, {"ours.py": "raise RuntimeError('on purpose')"})
    # The environment's own start-up code, so that the program itself is just `import torch`.
    write(fakes, {"sitecustomize.py": "import fakes, host.models"})
    code = "import torch, timeit; import host.other; print(torch.ones(2).sum().item())"
    run = succeeds(fakes, code)
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
def test_import_chonn_ops_reaches_real_hosts_imported_before(
    tmp_path,
    host,
    code,
    name,
    stock_error,  # noqa: ARG001
):
    run = succeeds(tmp_path, f"import {host}; import chonn_ops; {code}", CHONN_AUTOLOAD="0")
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
