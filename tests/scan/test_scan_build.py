"""Building the kernel: with a compiler, without one, and what loading it must leave alone."""

import importlib.util
import shutil
import sys
from pathlib import Path

import commands
import pytest

ROOT = Path(__file__).parents[2]
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@pytest.fixture
def source_tree(tmp_path):
    """A copy of what the build needs, so that the real kernel stays in place."""
    shutil.copy(ROOT / "hatch_build.py", tmp_path)
    (tmp_path / "chonn_ops").mkdir()
    shared = ("_backends", "_dtypes", "_library", "_pytorch", "boundary", "checks")
    headers = ("_half.h", "_kernel.h", "_library.c", "_library.h")
    for name in (*(f"{x}.py" for x in shared), *headers):
        shutil.copy(ROOT / "chonn_ops" / name, tmp_path / "chonn_ops")
    for folder in ("scan", "network", "models/cpu"):
        there, ignored = Path("chonn_ops", folder), ("*.so", "*.pyd", "__pycache__")
        shutil.copytree(ROOT / there, tmp_path / there, ignore=shutil.ignore_patterns(*ignored))
    return tmp_path


def _run_hook(tree):
    spec = importlib.util.spec_from_file_location("hatch_build", tree / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    class Hook(module.KernelBuildHook):
        root = str(tree)
        target_name = "wheel"

        def __init__(self):
            """Hatchling's own arguments play no part."""

    build_data = {}
    Hook().initialize("standard", build_data)
    return build_data


def wrap(monkeypatch, path, refused, first=""):
    """A compiler that refuses some flags and optimises nothing."""
    path.write_text(
        f'#!/bin/sh\ncase " $* " in {refused}) exit 1;; esac\n{first}\nexec cc "$@" -O0\n'
    )
    path.chmod(0o755)
    monkeypatch.setenv("CC", str(path))


DENORMALS = """
import ctypes, sys
import numpy as np
tiny = np.array([1e-310]), np.array([1e-40], dtype=np.float32)
def alive(): return all((x * x.dtype.type(0.5) != 0).all() for x in tiny)
assert alive()
ctypes.CDLL(sys.argv[1])
assert alive(), "loading the kernel flushes denormals to zero"
"""


@pytest.mark.slow
@needs_compiler
def test_build_tags_the_wheel_for_this_platform_and_leaves_denormals_alone(
    source_tree, capfd, monkeypatch, quick_compiler
):
    monkeypatch.setenv("CC", quick_compiler)
    build_data = _run_hook(source_tree)
    assert build_data["pure_python"] is False
    assert build_data["tag"].startswith("py3-none-")
    assert "no compiled kernel" not in capfd.readouterr().err
    (library,) = source_tree.glob("chonn_ops/_kernel*so")
    commands.python(DENORMALS, library)


@pytest.mark.slow
@needs_compiler
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX compilers only")
def test_the_kernel_is_compiled_again_only_for_other_sources_flags_or_compilers(
    source_tree, tmp_path_factory, monkeypatch
):
    """As where extras are installed one after the other, each by a build of its own."""
    calls = tmp_path_factory.mktemp("calls")

    def compiled(name="cc"):
        # Without the flags of wide vectors there is less to compile.
        wrap(monkeypatch, calls / name, '*" -mavx"*', f'echo "$*" >> {calls}/log')
        (calls / "log").write_text("")
        assert _run_hook(source_tree)["pure_python"] is False
        return (calls / "log").read_text().count("kernel.c")

    library = source_tree / "chonn_ops" / "_kernel.so"
    most = compiled()
    assert most >= 3
    made = library.read_bytes()
    assert compiled() == 0
    assert library.read_bytes() == made
    header = source_tree / "chonn_ops" / "_kernel.h"
    header.write_text(header.read_text() + "/* a change */\n")
    assert compiled() == most
    assert compiled() == 0
    monkeypatch.setenv("CFLAGS", "-DANYTHING")
    assert compiled() == most
    assert compiled("another") == most
    library.write_bytes(b"damaged")
    assert compiled("another") == most


@pytest.mark.thorough
@pytest.mark.parametrize("compiler", ["/nowhere/cc", "/bin/false"])
def test_without_a_compiler_the_install_goes_on(source_tree, compiler, monkeypatch, capfd):
    monkeypatch.setenv("CC", compiler)
    assert _run_hook(source_tree) == {}
    (line,) = [x for x in capfd.readouterr().err.splitlines() if x.startswith("chonn-ops:")]
    assert "no compiled kernel" in line
    assert compiler in line


@pytest.mark.slow
@needs_compiler
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX compilers only")
def test_a_compiler_without_openmp_or_vector_flags_still_builds(source_tree, monkeypatch):
    """Apple's clang refuses -fopenmp; a universal build refuses the x86 flags."""
    wrap(monkeypatch, source_tree / "cc", '*" -fopenmp "*|*" -mavx"*')
    assert _run_hook(source_tree)["pure_python"] is False
    script = (
        "import sys, types, torch\npackage = types.ModuleType('chonn_ops')\n"
        "package.__path__ = [sys.argv[1] + '/chonn_ops']\nsys.modules['chonn_ops'] = package\n"
        "from chonn_ops.scan import cpu, kirchhoff_scan\n"
        "assert cpu.kernel().isas == ('generic',)\n"
        "torch.set_num_threads(2)\nx = torch.ones(4, 500, 64)\n"
        "args = x, x, torch.ones(64, 2), x[..., :2], x[..., :2]\n"
        "torch.testing.assert_close(kirchhoff_scan(*args, backend='cpu'),"
        " kirchhoff_scan(*args, backend='reference'))\n"
    )
    commands.python(script, source_tree, cwd=source_tree)
