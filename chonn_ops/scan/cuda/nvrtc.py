"""Compile CUDA C++ by NVRTC, which comes with PyTorch's CUDA wheels, and keep what it made.

ctypes calls the library: PyTorch's own functions for this are private, and absent before 2.8.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
from collections.abc import Iterator, Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from chonn_ops._backends import KernelError
from chonn_ops.files import whole_file

_DIGEST = hashlib.sha256().digest_size


class CompilerError(KernelError):
    """NVRTC is absent, or it failed."""


def _names() -> Iterator[str]:
    """Paths and names of the library, those of PyTorch's release of CUDA first."""
    major = (torch.version.cuda or "").partition(".")[0]
    majors = sorted(("13", "12", "11"), key=lambda other: other != major)
    windows = os.name == "nt"
    patterns = ["nvrtc64_*_0.dll"] if windows else [f"libnvrtc.so.{x}*" for x in majors]
    nvidia = find_spec("nvidia")
    roots = [Path(root) for root in (nvidia and nvidia.submodule_search_locations) or ()]
    folders = [root / part for root in roots for part in (f"cu{major}/lib", "cuda_nvrtc/lib")]
    folders += [root / part for root in roots for part in (f"cu{major}/bin", "cuda_nvrtc/bin")]
    folders.append(Path(torch.__file__).parent / "lib")
    for pattern in patterns:
        for folder in folders:
            yield from map(str, sorted(folder.glob(pattern)))
    if not windows:
        yield from (f"libnvrtc.so.{x}" for x in majors)
        yield "libnvrtc.so"


@cache
def _library() -> Any:
    for name in _names():
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def is_installed() -> bool:
    """Whether NVRTC is here."""
    return _library() is not None


def _nvrtc() -> Any:
    if not is_installed():
        raise CompilerError("expected NVRTC (`pip install nvidia-cuda-nvrtc`), found none")
    return _library()


@cache
def version() -> tuple[int, int]:
    """NVRTC's release."""
    major, minor = c_int(), c_int()
    _nvrtc().nvrtcVersion(byref(major), byref(minor))
    return major.value, minor.value


@cache
def architecture(capability: tuple[int, int]) -> str:
    """The newest architecture that NVRTC knows and a GPU runs, as "sm_90".

    Machine code runs on later GPUs of the same major capability.
    """
    library, count = _nvrtc(), c_int()
    library.nvrtcGetNumSupportedArchs(byref(count))
    known = (c_int * count.value)()
    library.nvrtcGetSupportedArchs(known)
    major, minor = capability
    fitting = [x for x in known if x // 10 == major and x % 10 <= minor]
    if not fitting:
        raise CompilerError(
            f"expected a GPU of compute capability {', '.join(f'{x / 10:.1f}' for x in known)}, "
            f"which NVRTC {'.'.join(map(str, version()))} compiles for, got {major}.{minor}"
        )
    return f"sm_{max(fitting)}"


def _compile(source: str, options: Sequence[str]) -> bytes:
    """The machine code of a source."""
    library, program, size = _nvrtc(), c_void_p(), c_size_t()
    if library.nvrtcCreateProgram(byref(program), source.encode(), b"scan.cu", 0, None, None):
        raise CompilerError("NVRTC takes no program")
    try:
        words = (c_char_p * len(options))(*(option.encode() for option in options))
        failed = library.nvrtcCompileProgram(program, len(options), words)
        if failed:
            library.nvrtcGetProgramLogSize(program, byref(size))
            log = ctypes.create_string_buffer(size.value)
            library.nvrtcGetProgramLog(program, log)
            text = log.value.decode(errors="replace")
            lines = [line for line in text.splitlines() if "error" in line] or text.splitlines()
            raise CompilerError(f"NVRTC, error {failed}: {lines[0] if lines else options}")
        library.nvrtcGetCUBINSize(program, byref(size))
        code = ctypes.create_string_buffer(size.value)
        library.nvrtcGetCUBIN(program, code)
        return code.raw
    finally:
        library.nvrtcDestroyProgram(byref(program))


def cache_folder() -> Path:
    """Where machine code is kept: ``CHONN_CACHE``, else the user's folder for caches."""
    if given := os.environ.get("CHONN_CACHE"):
        return Path(given)
    if os.name == "nt":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = str(Path.home() / "Library" / "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "chonn-ops"


def _read(path: Path) -> bytes | None:
    """The machine code of a file; None if it is absent, or not what was written."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, code = content[:_DIGEST], content[_DIGEST:]
    return code if hashlib.sha256(code).digest() == digest else None


def machine_code(
    source: str, macros: Sequence[tuple[str, int]], capability: tuple[int, int]
) -> bytes:
    """Compile a source for a GPU's compute capability, or read what was compiled before.

    Raises
    ------
    CompilerError
        NVRTC is absent, does not know the GPU, or refuses the source.
    """
    options = [
        f"--gpu-architecture={architecture(capability)}",
        "--std=c++17",
        *(f"-D{name}={value}" for name, value in macros),
    ]
    key = hashlib.sha256(repr((source, options, version())).encode()).hexdigest()
    path = cache_folder() / f"scan-{key[:32]}.cubin"
    found = _read(path)
    if found is not None:
        return found
    code = _compile(source, options)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path, force=True) as staged:
            staged.write_bytes(hashlib.sha256(code).digest() + code)
    except OSError:  # a full or read-only disk: the next process compiles again
        pass
    return code
