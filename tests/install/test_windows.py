"""The kernel for Windows, compiled here by clang: skips without clang and MinGW's libraries."""

import importlib.util
import shutil
from pathlib import Path

import pytest
from commands import run

from chonn_ops import _library

ROOT = Path(__file__).parents[2]
MINGW = "x86_64-w64-mingw32"
TOOLS = "clang", f"{MINGW}-gcc", f"{MINGW}-objdump"
missing, reason = not all(map(shutil.which, TOOLS)), "needs clang, and MinGW for its libraries"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing, reason=reason)]


@pytest.fixture
def library(tmp_path, monkeypatch):
    """Path of a DLL that the build hook makes as if it ran on Windows."""
    shutil.copy(ROOT / "hatch_build.py", tmp_path)
    ignored = shutil.ignore_patterns("*.py", "*.so", "__pycache__", "weights")
    shutil.copytree(ROOT / "chonn_ops", tmp_path / "chonn_ops", ignore=ignored)
    shutil.copy(_library.__file__, tmp_path / "chonn_ops")
    # clang does not find every version of MinGW's libgcc by itself.
    libraries = Path(run(f"{MINGW}-gcc", "-print-libgcc-file-name").stdout.strip()).parent
    wrapper = tmp_path / "clang"
    wrapper.write_text(f'#!/bin/sh\nexec clang --target={MINGW} "$@" -O0\n')
    wrapper.chmod(0o755)
    spec = importlib.util.spec_from_file_location("hatch_build", tmp_path / "hatch_build.py")
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    monkeypatch.setattr(build, "WINDOWS", True)
    monkeypatch.setattr(build, "KERNEL", build.PACKAGE / "_kernel.pyd")
    for name, value in {"CC": wrapper, "CFLAGS": "", "LDFLAGS": f"-L{libraries}"}.items():
        monkeypatch.setenv(name, str(value))
    return build.compile_kernel()


def test_windows_library_links_and_exports(library):
    """Unresolved symbols would fail the link; users have no OpenMP and no MinGW."""
    headers = run(f"{MINGW}-objdump", "-p", library).stdout
    needed = {x.split()[-1].lower() for x in headers.splitlines() if "DLL Name:" in x}
    assert needed <= {"kernel32.dll", "msvcrt.dll"}
    exported = headers.split("[Ordinal/Name Pointer] Table")[1]
    assert "chonn_interface_version" in exported
    for part in _library.SOURCES:
        source = ROOT / "chonn_ops" / part
        (operator,) = {p.stem for p in source.glob("*.c")} - {"generic", "avx2", "avx512"}
        for name in ("arguments", "lanes", "workspace"):
            assert f"chonn_{operator}_{name}" in exported
