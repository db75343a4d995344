"""Compiles the C kernels at install time; without a compiler the install goes on without them.

``python hatch_build.py`` compiles in place for development. gcc and clang compile the kernels, on
Windows clang. The environment's ``CC``, ``CFLAGS``, ``LDFLAGS`` and (macOS) ``ARCHFLAGS`` count.
"""

from __future__ import annotations

import hashlib
import os
import platform
import runpy
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run as a script
    BuildHookInterface = object

PACKAGE = Path(__file__).parent / "chonn_ops"
# The module that loads the library names it and its sources; it needs no installed package.
LIBRARY = runpy.run_path(str(PACKAGE / "_library.py"))
KERNEL = PACKAGE / LIBRARY["KERNEL"]
WINDOWS, MACOS = os.name == "nt", sys.platform == "darwin"

# No -ffast-math: where it reaches the linker, gcc adds a start-up file that flushes the whole
# process's denormals to zero. -fno-wrapv: a packager's CFLAGS often bring -fwrapv, under which gcc
# leaves the backward's sums over lanes scalar (2.6 times slower).
FLAGS = [
    *("-O3", "-std=gnu11", "-fvisibility=hidden"),
    *("-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fno-wrapv"),
]
# Bytes of a vector, and the flags, of each of `_library.ISAS`; generic is for every processor.
ISAS = {
    "generic": (16, []),
    "avx2": (32, ["-mavx2", "-mfma"]),
    "avx512": (
        64,
        ["-mavx512f", "-mavx512vl", "-mavx512dq", "-mfma", "-mprefer-vector-width=512"],
    ),
}
NUMBERS = {"float": 4, "double": 8}  # bytes of the numbers of a kernel
# A part of the library: what made it.
LABEL = '__attribute__((used, visibility("default"))) const char chonn_build[] = "%s";\n'
PROBE = "#ifdef _OPENMP\n#include <omp.h>\n#endif\nint probe(void) { return 0; }\n"


class CompilerError(Exception):
    """There is no compiler, or it failed."""


def given(name: str) -> list[str]:
    """The words of an environment variable."""
    return shlex.split(os.environ.get(name, ""), posix=not WINDOWS)


def find_compiler() -> list[str]:
    """The words of the command: CC as it is, else the first that is installed."""
    if command := given("CC"):
        return command
    # Microsoft's compiler has no vector types, and gcc for Windows misaligns 32-byte vectors on the
    # stack.
    python = shlex.split(sysconfig.get_config_var("CC") or "")
    for command in [["clang"]] if WINDOWS else [python, ["cc"], ["gcc"], ["clang"]]:
        if command and shutil.which(command[0]):
            return command
    raise CompilerError(f"expected {'clang' if WINDOWS else 'gcc or clang'}, found none")


def architectures() -> list[str]:
    """On macOS, the flags for the processors that the wheel's tag names."""
    if not MACOS or "ARCHFLAGS" in os.environ:
        return given("ARCHFLAGS") if MACOS else []
    universal = sysconfig.get_platform().endswith("universal2")
    return ["-arch", "arm64", "-arch", "x86_64"] if universal else []


def run(command: list[str]) -> str:
    """Run a compiler, on macOS for the oldest system that the wheel's tag admits; returns what it
    prints."""
    oldest = sysconfig.get_config_var("MACOSX_DEPLOYMENT_TARGET")
    env = {"MACOSX_DEPLOYMENT_TARGET": str(oldest), **os.environ} if oldest else None
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        said = ("error: ", "undefined ", "cannot find ")  # of compilers and linkers
        lines = [x for x in done.stderr.splitlines() if any(word in x for word in said)]
        reason = lines[0] if lines else f"exit status {done.returncode}"
        raise CompilerError(f"{command[0]} {command[-1]}: {reason}")
    sys.stderr.write(done.stderr)
    return done.stdout


def compile_kernel() -> Path:
    """Compile all sources into one shared library.

    The kernels, ``kernel*.c`` of each operator, are compiled once for each size of numbers and each
    instruction set that processor and compiler know, with the names that ``KERNEL`` makes.
    ``HAVE_AVX2`` and ``HAVE_AVX512`` tell ``_library.c`` which are there. A library that the same
    sources, flags and compiler made on this machine stays as it is, because every extra that is
    installed later comes here again.

    Raises
    ------
    CompilerError, OSError
        There is no compiler, or it failed.
    """
    position = [] if WINDOWS else ["-fPIC"]
    version = run([*find_compiler(), "--version"])
    compiler = [*find_compiler(), *architectures(), *given("CFLAGS"), *FLAGS, *position]

    def link(inputs: list[Path], output: Path, *flags: str) -> Path:
        math = [] if WINDOWS else ["-lm"]
        words = [*compiler, *flags, "-shared", *map(str, inputs), *math, *given("LDFLAGS")]
        run([*words, "-o", str(output)])
        return output

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        probe = folder / "probe.c"
        probe.write_text(PROBE)

        def accepts(flags: list[str]) -> bool:
            try:
                link([probe], folder / "probe", *flags)
            except CompilerError:
                return False
            return True

        # Apple's clang has no OpenMP, and clang's on Windows is a library that users do not have:
        # one thread.
        openmp = ["-fopenmp"] if not WINDOWS and accepts(["-fopenmp"]) else []
        x86 = platform.machine().lower() in ("x86_64", "amd64") and "arm64" not in architectures()
        isas = [isa for isa, (_, flags) in ISAS.items() if not flags or (x86 and accepts(flags))]
        macros = [f"-DHAVE_{isa.upper()}" for isa in isas]
        macros += [f"-D{name}={value}" for name, value in LIBRARY["CONSTANTS"].items()]
        macros.append(f"-DCHONN_INTERFACE={LIBRARY['interface_version']()}LL")

        # `-march=native` is another processor on another machine that sees this folder.
        machine = platform.node() if any("native" in word for word in compiler) else ""
        system = sysconfig.get_platform(), os.environ.get("MACOSX_DEPLOYMENT_TARGET"), machine
        settings = (compiler, version, given("LDFLAGS"), openmp, ISAS, macros, system)
        made_by = repr(settings) + Path(__file__).read_text("utf-8")
        label = f"chonn build {hashlib.sha256(made_by.encode()).hexdigest()}"
        if KERNEL.exists() and label.encode() in KERNEL.read_bytes():
            return KERNEL

        def compile_source(source: Path, isa: str, number: str) -> Path:
            width, flags = ISAS[isa]
            target = folder / f"{'_'.join(source.relative_to(PACKAGE).parts)}.{isa}.{number}.o"
            build = [*openmp, *flags, f"-I{PACKAGE}", *macros, f"-DVECTOR_BYTES={width}"]
            build += [f"-DREAL_BYTES={NUMBERS[number]}", f"-DKERNEL(x)=chonn_##x##_{isa}_{number}"]
            run([*compiler, *build, "-o", str(target), "-c", str(source)])
            return target

        sources = [x for part in LIBRARY["SOURCES"] for x in sorted(PACKAGE.glob(f"{part}/*.c"))]
        kernels = [x for x in sources if x.stem.startswith("kernel")]
        builds = list(product(kernels, isas, NUMBERS))
        others = [PACKAGE / "_library.c", *(x for x in sources if x not in kernels)]
        builds += [(x, "generic", "float") for x in others]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = pool.map(compile_source, *zip(*builds, strict=True))
        (folder / "label.c").write_text(LABEL % label)
        linked = link([*objects, folder / "label.c"], folder / KERNEL.name, *openmp)
        # A rename, so that a process that has the old library loaded keeps it.
        staged = KERNEL.with_name(KERNEL.name + ".tmp")
        shutil.copyfile(linked, staged)
        staged.replace(KERNEL)
    return KERNEL


class KernelBuildHook(BuildHookInterface):
    """Puts the kernel into wheels and editable installs, or says in one line that it could not."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        if self.target_name != "wheel":
            return
        try:
            compile_kernel()
        except (CompilerError, OSError) as error:
            KERNEL.unlink(missing_ok=True)
            reason = " ".join(str(error).split())
            print(
                f"chonn-ops: no compiled kernel ({reason}); operators fall back to PyTorch.",
                file=sys.stderr,
            )
            return
        # Plain C called through ctypes: one library serves every Python of this platform.
        tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{tag}"


if __name__ == "__main__":
    print(compile_kernel())
