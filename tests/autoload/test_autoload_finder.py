"""Hosts are integrated in every import order, and stay what they were."""

import zipfile

import pytest
from autoload_processes import HOST, INTEGRATION, succeeds


@pytest.mark.parametrize(
    "order",
    [
        "chonn_autoload.autoload(); import host.models",
        "chonn_autoload.autoload(); from host import models, other",
        "import host.models; chonn_autoload.autoload()",
        "import host.models; chonn_autoload.autoload(); autoload.arm(); import host.other",
        "autoload.arm(); chonn_autoload.autoload(); import host.models",
    ],
)
def test_a_host_is_integrated_once_whatever_comes_first(fakes, order):
    fakes.silent(f"""
        {order}
        import ours
        assert ours.calls == [sys.modules["host.models"].Model], ours.calls
        assert sum(finder is autoload._finder for finder in sys.meta_path) == 1
        """)


def test_a_host_that_loads_torch_itself_is_integrated_by_the_next_import(fakes):
    """`from neuralop.models import FNO`: its fno.py is half loaded when torch calls us."""
    code = "from fakes import chonn_autoload\nchonn_autoload.autoload()\nclass Model:\n    pass\n"
    fakes.write({"host/models.py": code})
    fakes.write({"host/__init__.py": "from host.models import Model\nimport host.other\n"})
    fakes.write({"host/other.py": "import sys\nassert 'ours' in sys.modules\n"})
    run = succeeds(fakes.folder, "import host, ours; assert ours.calls == [host.Model]")
    assert run.stderr == ""


def test_the_host_keeps_its_own_loader(fakes):
    fakes.write({"host/data.txt": "some data"})
    fakes.silent("""
        import importlib.machinery, importlib.resources, importlib.util
        import inspect, pickle, pkgutil, runpy
        chonn_autoload.autoload()
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
        """)


def test_a_reloaded_host_is_integrated_again(fakes):
    fakes.run("""
        import importlib
        chonn_autoload.autoload()
        import host.models, ours
        first = host.models.Model
        assert importlib.reload(host.models).Model is not first
        assert ours.calls == [first, host.models.Model]
        """)


def test_a_zipped_host_is_integrated(fakes):
    with zipfile.ZipFile(fakes.folder / "hosts.zip", "w") as archive:
        for name in ("__init__.py", "models.py", "other.py"):
            archive.write(fakes.folder / "host" / name, f"zipped/{name}")
    fakes.write({"ours.py": "calls = []\ndef install(): calls.append('zipped')\n"})
    fakes.silent(
        """
        sys.path.append("hosts.zip")
        autoload.HOSTS["zipped.models"] = "ours:install"
        chonn_autoload.autoload()
        import zipped.models, zipped.other, ours
        assert ours.calls == ["zipped"]
        assert type(zipped.models.__loader__).__name__ == "zipimporter"
        """.replace("hosts.zip", str(fakes.folder / "hosts.zip"))
    )


@pytest.mark.parametrize("position", [0, 1, 99], ids=["front", "behind", "last"])
def test_finders_that_ask_all_others_are_asked_too(fakes, position):
    fakes.silent(f"""
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
        chonn_autoload.autoload()
        sys.meta_path.insert({position}, Curious())
        import host.models, ours
        assert len(asked) in (2, 0), asked
        assert ours.calls == [host.models.Model]
        """)


def test_threads_that_import_hosts_and_arm_at_once(fakes):
    slow = "\n    import time; time.sleep(0.05)"
    fakes.write({"host/models.py": slow + HOST, "ours.py": slow + INTEGRATION})
    fakes.silent("""
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
        """)


def test_a_host_that_was_found_before_us_and_loaded_after(fakes):
    """As in a thread that imports the host while another one arms."""
    fakes.write({"host/models.py": HOST, "ours.py": INTEGRATION})
    fakes.run("""
        import host, importlib.util
        sys.meta_path.remove(autoload._finder) if autoload._finder in sys.meta_path else None
        spec = importlib.util.find_spec("host.models")
        autoload.arm()
        module = importlib.util.module_from_spec(spec)
        sys.modules["host.models"] = module
        spec.loader.exec_module(module)
        import host.other, ours
        assert ours.calls == [module.Model]
        """)


def test_a_thread_that_imports_our_side_while_another_loads_the_host(fakes):
    """Each waits for the other's module: Python lets one of them go on, with an exception."""
    fakes.write({"shared.py": "from threading import Event\nhost, ours = Event(), Event()\n"})
    body = """
    import shared, time
    shared.{mine}.set()
    assert shared.{other}.wait(30)
    time.sleep({pause})
    """
    host = body.format(mine="host", other="ours", pause=0.5) + HOST
    ours = body.format(mine="ours", other="host", pause=0) + INTEGRATION
    fakes.write({"host/models.py": host, "ours.py": ours})
    fakes.silent("""
        import threading
        chonn_autoload.autoload()
        thread = threading.Thread(target=__import__, args=["ours"])
        thread.start()
        import host.models
        thread.join()
        import host.other, ours
        assert ours.calls == [host.models.Model]
        """)
