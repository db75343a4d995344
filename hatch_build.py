"""Compiles the C kernels at install time; without a compiler the install goes on without it.

``python hatch_build.py`` compiles in place for development.
"""

from __future__ import annotations

import os
import platform
import runpy
import sys
import sysconfig
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run as a script
    BuildHookInterface = object

ROOT = Path(__file__).parent
# It loads what this builds, and says from which folders; it needs no installed package.
LIBRARY = runpy.run_path(str(ROOT / "chonn_ops" / "_library.py"))
SOURCES = [Path("chonn_ops", folder) for folder in LIBRARY["SOURCES"]]
KERNEL = Path("chonn_ops", LIBRARY["KERNEL"])

# No -ffast-math: where it reaches the linker, gcc adds a start-up file that flushes the whole
# process's denormals to zero. -fno-wrapv: Python's own flags often bring -fwrapv, under which gcc
# leaves the backward's sums over lanes scalar (2.6 times slower).
FLAGS = [
    *("-O3", "-std=gnu11", "-fvisibility=hidden"),
    *("-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fno-wrapv"),
]
X86_FLAGS = {
    "avx2": ["-mavx2", "-mfma"],
    "avx512": ["-mavx512f", "-mavx512vl", "-mavx512dq", "-mfma", "-mprefer-vector-width=512"],
}


def _x86_only() -> bool:
    """A macOS universal build compiles each file for ARM too, where the x86 flags fail."""
    machines = os.environ.get("ARCHFLAGS", "") or platform.machine()
    return "arm" not in machines and platform.machine().lower() in ("x86_64", "amd64")


def compile_kernel(root: Path = ROOT) -> Path:
    """Compile all sources into one shared library; raises where that fails.

    A folder ``x/cpu`` has ``generic.c``, a file for each instruction set, compiled with its flags,
    and ``x.c`` with the exported functions, which is told which of them there are.
    """
    import_module("setuptools")  # brings distutils, which Python 3.12 dropped
    from distutils import ccompiler
    from distutils.errors import CompileError, LinkError
    from distutils.sysconfig import customize_compiler

    compiler = ccompiler.new_compiler()
    customize_compiler(compiler)
    target = root / KERNEL

    version = LIBRARY["interface_version"](root / "chonn_ops")

    def compile_folder(sources: Path, output: str, openmp: list[str]) -> list[str]:
        def compile_source(name: str, flags: list[str], macros: list[tuple[str, str]]) -> list[str]:
            return compiler.compile(
                [str(sources / f"{name}.c")],
                output_dir=output,
                macros=macros,
                extra_postargs=[*FLAGS, *openmp, *flags],
            )

        objects = compile_source("generic", [], [])
        macros = [("CHONN_INTERFACE", f"{version}LL")]
        for isa, flags in X86_FLAGS.items() if _x86_only() else ():
            try:
                objects += compile_source(isa, flags, [])
            except CompileError:  # a compiler older than the instruction set
                continue
            macros.append((f"HAVE_{isa.upper()}", "1"))
        return objects + compile_source(sources.parent.name, [], macros)

    def build(folder: str, openmp: list[str]) -> None:
        objects = []
        for sources in SOURCES:
            if sources.is_dir():
                objects += compile_folder(sources, folder, openmp)
        linked = str(Path(folder, target.name))
        compiler.link_shared_object(objects, linked, extra_postargs=openmp)
        # A rename, so that a process that has the old library loaded keeps it.
        staged = target.with_name(target.name + ".tmp")
        staged.write_bytes(Path(linked).read_bytes())
        staged.replace(target)

    here = Path.cwd()
    os.chdir(root)
    try:
        with tempfile.TemporaryDirectory() as folder:
            try:
                build(folder, ["-fopenmp"])
            except (CompileError, LinkError):  # Apple's clang has no OpenMP: one thread
                build(folder, [])
    finally:
        os.chdir(here)
    return target


class KernelBuildHook(BuildHookInterface):
    """Puts the kernel into wheels and editable installs, or says in one line that it could not."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        try:
            compile_kernel(root)
        except Exception as error:  # whatever is wrong with the compiler, the package works
            (root / KERNEL).unlink(missing_ok=True)
            reason = " ".join(str(error).split())
            print(
                f"chonn-ops: no compiled kernel ({reason}); scans fall back to PyTorch.",
                file=sys.stderr,
            )
            return
        # Plain C called through ctypes: one library serves every Python of this platform.
        tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{tag}"


if __name__ == "__main__":
    print(compile_kernel())
