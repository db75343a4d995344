"""Loading the compiled library: what is not the package's own build is refused before a call."""

import ctypes
import json
import shutil
import sys
from pathlib import Path

import pytest
from commands import python, run

from chonn_ops import _library

PACKAGE = Path(_library.__file__).parent
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

# An operator without a kernel: its lanes say whether it was called.
STUB = """
#include <stdint.h>
int64_t chonn_interface_version(void) { return VERSION; }
int64_t chonn_scan_arguments(void) { return SIZE; }
int32_t chonn_scan_lanes(int32_t isa, int32_t is_double) { return isa == 1 ? 7 : 0; }
int64_t chonn_scan_workspace(int32_t isa, int32_t is_double, const void *a) { return 0; }
void chonn_scan_forward(int32_t isa, int32_t is_double, const void *a) {}
#ifndef STALE
void chonn_scan_backward(int32_t isa, int32_t is_double, const void *a) {}
#endif
static const char filler[100000] = {1};
const char *chonn_filler = filler;
"""

LOAD = """
import ctypes, json, runpy, sys, warnings
class Arguments(ctypes.Structure):
    _fields_ = (("size", ctypes.c_int64 * 5),)
library = runpy.run_path(sys.argv[1])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    first, second = (library["operator"](name, Arguments) for name in ("scan", "scan"))
print(json.dumps({
    "isas": first and first.isas,
    "warnings": [f"{x.category.__name__}: {x.message}" for x in caught],
    "state": library["state"](),
}))
"""


def load(folder):
    done = run(sys.executable, "-S", "-c", LOAD, folder / "_library.py")
    return json.loads(done.stdout)


def refused(folder, *words):
    """One warning, with the file, the reason and the way out; `chonn info` says the same."""
    found = load(folder)
    assert found["isas"] is None
    (warning,) = found["warnings"]
    assert warning.startswith(f"RuntimeWarning: compiled kernel {folder / '_kernel.so'} refused: ")
    for word in (*words, "expected", "got", "python hatch_build.py"):
        assert word in warning
    assert found["state"] in warning


@pytest.fixture
def folder(tmp_path):
    """A package without a kernel."""
    package = tmp_path / "chonn_ops"
    (package / "scan" / "cpu").mkdir(parents=True)
    shutil.copy(_library.__file__, package)
    (package / "scan" / "cpu" / "kernel.c").write_text("int anything;\n")
    (tmp_path / "hatch_build.py").touch()
    return package


def build(folder, size=40, version=None, flags=(), stub=STUB):
    version = _library.interface_version(folder) if version is None else version
    source, target = folder / "stub.c", folder / "_kernel.so"
    source.write_text(stub)
    macros = [f"-DVERSION={version}LL", f"-DSIZE={size}", *flags]
    run("cc", "-shared", "-fPIC", *macros, "-o", target, source)
    return target


def test_no_library_is_no_fault(folder):
    found = load(folder)
    assert found["isas"] is None
    assert found["warnings"] == []
    assert found["state"] == "not built: scans and networks on the CPU use the slower torch backend"


@needs_compiler
def test_own_library_is_loaded(folder):
    target = build(folder)
    assert load(folder) == {"isas": ["avx2"], "warnings": [], "state": str(target)}


@needs_compiler
def test_builds_of_other_sources_or_without_a_function_are_refused(folder):
    build(folder, flags=["-DSTALE"])
    refused(folder, "chonn_scan_backward")
    build(folder)
    (folder / "scan" / "cpu" / "new.h").write_text("/* a change */\n")
    refused(folder, "version")


@needs_compiler
def test_without_sources_beside_it_the_sizes_decide(folder):
    build(folder, version=5)
    shutil.rmtree(folder / "scan" / "cpu")
    assert load(folder)["isas"] == ["avx2"]
    build(folder, version=5, size=48)
    refused(folder, "40 bytes", "48")


@needs_compiler
def test_a_library_of_somebody_else_is_refused(folder):
    build(folder, stub="int theirs(void) { return 1; }\n")
    refused(folder, "chonn_interface_version")


@pytest.mark.parametrize("content", [b"", b"not a library\n" * 1000], ids=["empty", "text"])
def test_what_is_no_library_is_refused(folder, content):
    (folder / "_kernel.so").write_bytes(content)
    refused(folder)


def checkout(folder):
    """A copy of the package without a kernel, and a program that solves with it twice."""
    package = folder.parent / "checkout" / "chonn_ops"
    ignored = shutil.ignore_patterns(_library.KERNEL, "__pycache__")
    shutil.copytree(PACKAGE, package, ignore=ignored)
    return package


def solve(package, **environment):
    script = (
        "import torch, chonn_ops\n"
        "x = torch.ones(1, 4, 2)\n"
        "for _ in range(2): print(chonn_ops.kirchhoff_scan(x, x, torch.ones(2, 2), x, x).shape)\n"
        "for _ in range(2): chonn_ops.Circuit((x,), x).solve(x)\n"
        "try: chonn_ops.kirchhoff_scan(x, x, torch.ones(2, 2), x, x, backend='cpu')\n"
        "except ValueError as error: print(error)\n"
        "print(chonn_ops.scan.available_backends(), chonn_ops.__file__)\n"
        "print(chonn_ops._library.state())\n"
    )
    done = python(script, cwd=package.parent, env=environment)
    assert f"('reference', 'torch') {package}" in done.stdout
    assert "('reference', 'torch'), got 'cpu', which needs the compiled kernel (see" in done.stdout
    return done


def test_scans_go_on_without_the_refused_library(folder):
    package = checkout(folder)
    (package / "_kernel.so").touch()
    done = solve(package)
    assert done.stderr.count("RuntimeWarning") == 1
    assert f"{package / '_kernel.so'} refused: " in done.stdout


def test_the_slow_fallback_is_said_once(folder):
    done = solve(checkout(folder))
    assert done.stderr.count("RuntimeWarning: chonn-ops has no compiled kernel here") == 1
    assert done.stderr.count("Warning: ") == 1
    assert "--no-deps .` in a clone of chonn-ops" in done.stderr


def test_the_fallback_that_was_asked_for_is_silent(folder):
    asked = {"CHONN_SCAN_BACKEND": "torch", "CHONN_NETWORK_BACKEND": "torch"}
    assert solve(checkout(folder), **asked).stderr == ""


HEADERS = {
    "scan/cpu/scan.h": ("scan_args", "scan_stream", "scan_loops"),
    "network/solve/cpu/network.h": ("network_args", "network_field"),
    "network/direct/cpu/direct.h": ("direct_args",),
    "models/cpu/carry.h": ("carry_args",),
}


@needs_compiler
@pytest.mark.parametrize("header", HEADERS)
def test_structures_have_the_compilers_layout(header, tmp_path):
    asked, expected = [], []
    for name in HEADERS[header]:
        kind = _library.structure(header, name)
        asked += [f"offsetof(struct {name}, {field})" for field, _ in kind._fields_]
        asked.append(f"sizeof(struct {name})")
        expected += [getattr(kind, field).offset for field, _ in kind._fields_]
        expected.append(ctypes.sizeof(kind))
    source, program = tmp_path / "layout.c", tmp_path / "layout"
    printed = "\n".join(f'printf("%zu\\n", {x});' for x in asked)
    includes = f'#include <stddef.h>\n#include <stdio.h>\n#include "{header}"\n'
    source.write_text(f"{includes}int main(void) {{ {printed} }}\n")
    macros = [f"-D{name}={value}" for name, value in _library.CONSTANTS.items()]
    run("cc", f"-I{PACKAGE}", *macros, "-o", program, source)
    assert [int(x) for x in run(program).stdout.split()] == expected


@pytest.mark.parametrize("field", ["float x", "int64_t x : 3", "int64_t x[n]", "void (*f)(void)"])
def test_other_fields_are_refused(field, monkeypatch, tmp_path):
    (tmp_path / "other.h").write_text(f"struct other {{\n    int64_t size;\n    {field};\n}};\n")
    monkeypatch.setattr(_library, "PACKAGE", tmp_path)
    with pytest.raises(ValueError, match=r"other.h: expected"):
        _library.structure("other.h", "other")


def test_enumerators_count_on_from_the_last_value(monkeypatch, tmp_path):
    (tmp_path / "other.h").write_text("enum other { A, /* first */ B = -3, C,\n D = 7, };\n")
    monkeypatch.setattr(_library, "PACKAGE", tmp_path)
    assert _library.enumerators("other.h", "other") == {"A": 0, "B": -3, "C": -2, "D": 7}
