"""Whatever fails, imports of hosts go on, with one warning where it is ours."""

from itertools import permutations

import pytest

MODEL = "class Model:\n    pass\n"


def test_a_host_without_the_searched_module_and_no_host_at_all_are_silent(fakes):
    (fakes.folder / "host" / "models.py").unlink()
    code = """
    autoload.HOSTS["absent.models"] = "ours:install"
    chonn_autoload.autoload()
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
        fakes.silent(code.format(name=name, missing=missing))


def test_a_host_too_old_for_us_is_left_alone_silently(fakes):
    fakes.write({"ours.py": "from host.models import NewModel\n"})
    fakes.silent("chonn_autoload.autoload(); import host.models")


@pytest.mark.parametrize(
    "broken",
    ["raise RuntimeError('on purpose')", "import absent_dependency", "def f(:", "x = 1"],
    ids=["raises", "lacks-a-dependency", "syntax", "no-function"],
)
@pytest.mark.parametrize(
    "steps", list(permutations(("chonn_autoload.autoload()", "import host.models")))
)
def test_a_broken_integration_is_one_warning(fakes, broken, steps):
    fakes.write({"ours.py": broken, "host/twin.py": ""})
    run = fakes.run(
        f"""
        autoload.HOSTS["host.twin"] = "ours:install"
        {"; ".join(steps)}
        import host.twin
        autoload.arm()
        host.models.Model()
        """,
        *("-W", "always"),
    )
    assert run.stderr.count("RuntimeWarning: chonn-ops: integration with host disabled: ") == 1
    assert run.stderr.count("Warning: ") == 1


def test_warnings_turned_into_errors_do_not_break_the_host(fakes):
    fakes.write({"ours.py": "raise RuntimeError('on purpose')"})
    code = "chonn_autoload.autoload(); import host.models"
    run = fakes.run(code, "-W", "error::RuntimeWarning")
    expected = "chonn-ops: integration with host disabled: RuntimeError: on purpose\n"
    assert run.stderr == expected


def test_a_stand_in_for_the_host_does_no_harm(fakes):
    run = fakes.run("""
        class Strange:
            def __getattr__(self, name):
                raise RuntimeError(name)
        sys.modules["host.models"] = Strange()
        chonn_autoload.autoload()
        import host.other, json.tool
        """)
    assert run.stderr.count("integration with host disabled: RuntimeError: ") == 1
    assert run.stderr.count("Warning: ") == 1


def test_arming_never_raises(fakes):
    run = fakes.run("sys.meta_path = (); chonn_autoload.autoload()")
    assert run.stderr.count("RuntimeWarning: chonn-ops: integration with its hosts disabled") == 1


def test_a_host_that_fails_to_load_reports_its_own_error_and_may_be_tried_again(fakes):
    fakes.write({"host/models.py": "import os\nassert 'READY' in os.environ, 'not yet'\n" + MODEL})
    fakes.run("""
        import os
        chonn_autoload.autoload()
        try:
            import host.models
        except AssertionError as error:
            assert str(error) == "not yet"
        assert "ours" not in sys.modules
        os.environ["READY"] = "1"
        import host.models, ours
        assert ours.calls == [host.models.Model]
        """)


def test_a_finder_that_refuses_the_host_is_obeyed(fakes):
    fakes.silent("""
        class Refuses:
            def find_spec(self, name, path=None, target=None):
                if name == "host.models":
                    raise ImportError("refused")
        chonn_autoload.autoload()
        sys.meta_path.insert(1, Refuses())
        try:
            import host.models
        except ImportError as error:
            assert str(error) == "refused"
        else:
            raise AssertionError("imported")
        """)


def test_a_spec_that_takes_no_other_loader_is_left_alone(fakes):
    fakes.silent("""
        from importlib.machinery import ModuleSpec, PathFinder
        class Fixed(ModuleSpec):
            def __setattr__(self, name, value):
                assert name != "loader" or not hasattr(self, "loader"), "fixed"
                super().__setattr__(name, value)
        class Finder:
            def find_spec(self, name, path=None, target=None):
                if name == "host.models":
                    spec = PathFinder.find_spec(name, path)
                    return Fixed(name, spec.loader, origin=spec.origin)
        chonn_autoload.autoload()
        sys.meta_path.insert(1, Finder())
        import host.models
        host.models.Model()
        """)
