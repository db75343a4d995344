"""The compiled library of all operators: found, checked before anything in it is called, loaded.

It is one file beside this one, called through ctypes, which releases the GIL. A file that is not
what the package next to it expects is refused with a warning, and callers fall back.

An operator ``x`` exports, in ``x/cpu/x.c``: ``chonn_x_arguments()``, the size of its argument
struct; ``chonn_x_lanes(isa, is_double)``, the channels a vector holds, 0 where the build or the
processor lacks the instruction set; ``chonn_x_workspace(isa, is_double, arguments)``, elements a
thread needs; and its calls ``chonn_x_<call>(isa, is_double, arguments)``.

Standard library only: ``hatch_build.py`` runs this file to know the sources and their version.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import struct
import sys
import warnings
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parent
SOURCES = ("scan/cpu", "network/cpu")  # those that do not exist are skipped
KERNEL = "_kernel.pyd" if os.name == "nt" else "_kernel.so"
ISAS = ("generic", "avx2", "avx512")  # slowest first; the index is what the kernel is called with


_refusals: list[str] = []


class Refused(Exception):
    """Why a file is not run."""


def interface_version(package: Path = PACKAGE) -> int | None:
    """A digest of the C sources, which the build compiles in as ``chonn_interface_version()``.

    So that no change of them can forget to count it up. None where the sources do not lie beside.
    """
    digest = hashlib.sha256()
    folders = [package / folder for folder in SOURCES if (package / folder).is_dir()]
    for path in (p for folder in folders for p in sorted(folder.glob("*.[ch]"))):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(package).as_posix()} {len(content)}\n".encode() + content)
    return int.from_bytes(digest.digest()[:8], "big") >> 1 if folders else None


def _check_whole(path: Path) -> None:
    """Not cut off: the loader maps a short ELF file as if it were whole, and dies of SIGBUS.

    macOS and Windows compare the sizes themselves.
    """
    size = path.stat().st_size
    if size == 0:
        raise Refused("expected a shared library, got an empty file")
    if sys.platform in ("darwin", "win32"):
        return
    with path.open("rb") as file:
        header = file.read(64)
        if header[:4] != b"\x7fELF":
            raise Refused(f"expected a shared library, got a file that begins with {header[:4]!r}")
        end = 64
        if size >= end and header[4] == 2:  # 64-bit; what loads another would be a 32-bit Python
            order = "<" if header[5] == 1 else ">"
            programs, sections = struct.unpack(order + "2Q", header[32:48])
            each, count, section, total = struct.unpack(order + "4H", header[54:62])
            table_end = programs + each * count
            end = max(table_end, sections + section * total)
            if table_end <= size and each >= 40:
                file.seek(programs)
                table = file.read(each * count)
                for at in range(0, len(table), each):
                    offset, _, _, length = struct.unpack_from(order + "4Q", table, at + 8)
                    end = max(end, offset + length)
    if size < end:
        raise Refused(f"expected at least {end} bytes, got {size}: it is cut off")


def _function(library: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> Any:
    try:
        function = getattr(library, name)
    except AttributeError:
        raise Refused(f"expected a function {name}, got none: an older or foreign build") from None
    function.restype, function.argtypes = result, arguments
    return function


def _load(path: Path) -> ctypes.CDLL:
    try:
        _check_whole(path)
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise Refused(f"expected a shared library of this platform, got {error}") from error
    built = _function(library, "chonn_interface_version", ctypes.c_int64)()
    expected = interface_version()
    if expected is not None and built != expected:
        raise Refused(
            f"expected a build of the C sources beside it, version {expected:x}, got {built:x}"
        )
    return library


def _remedy() -> str:
    root = PACKAGE.parent
    if (root / "hatch_build.py").exists():
        return f"run `python hatch_build.py` (or `pip install -e .`) in {root}"
    return "run `pip install --force-reinstall --no-deps --no-binary chonn-ops chonn-ops`"


def _refuse(reason: object) -> None:
    refusal = f"{PACKAGE / KERNEL} refused: {reason}"
    _refusals.append(refusal)
    warnings.warn(
        f"compiled kernel {refusal}. Slower fallbacks run instead; to rebuild it, {_remedy()}.",
        RuntimeWarning,
        stacklevel=2,
    )


@cache
def _opened() -> ctypes.CDLL | None:
    path = PACKAGE / KERNEL
    try:
        if os.path.lexists(path):
            return _load(path)
        if any((PACKAGE / "scan").glob("_kernel*.*")):
            raise Refused("expected this file, got only an older build in chonn_ops/scan")
    except Refused as reason:
        _refuse(reason)
    return None


class Operator:
    """One operator's functions in the library.

    Parameters
    ----------
    library : ctypes.CDLL
    name : str
        As in ``chonn_<name>_forward``.
    arguments : type of ctypes.Structure
        The C struct's mirror.
    calls : iterable of str
        Functions of (isa, is_double, arguments) without a result, reached by `call`.

    Raises
    ------
    Refused
        A function is missing, or the struct has another size.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        name: str,
        arguments: type[ctypes.Structure],
        calls: Iterable[str],
    ) -> None:
        size = _function(library, f"chonn_{name}_arguments", ctypes.c_int64)()
        if size != ctypes.sizeof(arguments):
            raise Refused(
                f"expected arguments of {ctypes.sizeof(arguments)} bytes for {name}, got {size}"
            )
        kernel = (ctypes.c_int32, ctypes.c_int32)
        given = (*kernel, ctypes.POINTER(arguments))
        self.lanes = _function(library, f"chonn_{name}_lanes", ctypes.c_int32, *kernel)
        self.workspace = _function(library, f"chonn_{name}_workspace", ctypes.c_int64, *given)
        self.call = {x: _function(library, f"chonn_{name}_{x}", None, *given) for x in calls}
        self.isas = tuple(isa for i, isa in enumerate(ISAS) if self.lanes(i, 0))

    def isa(self, variable: str) -> int:
        """The index of the fastest instruction set, or of what an environment variable names.

        Raises
        ------
        ValueError
            It names one that the build does not contain or this processor does not run.
        """
        isa = os.environ.get(variable) or self.isas[-1]
        if isa not in self.isas:
            raise ValueError(f"{variable}: expected one of {', '.join(self.isas)}, got {isa!r}")
        return ISAS.index(isa)


@cache
def operator(
    name: str, arguments: type[ctypes.Structure], calls: tuple[str, ...] = ("forward", "backward")
) -> Operator | None:
    """An `Operator`, or None, with one warning, where its library is absent or refused."""
    library = _opened()
    try:
        return Operator(library, name, arguments, calls) if library else None
    except Refused as reason:
        _refuse(reason)
        return None


@cache
def warn_of_fallback() -> None:
    """Say once that a kernel would be faster; one that was refused has had its warning."""
    if not _refusals:
        warnings.warn(
            "chonn-ops has no compiled kernel here: scans and networks on the CPU run on the "
            f"slower PyTorch backend. With a C compiler, {_remedy()}; backend='torch' (or "
            "CHONN_SCAN_BACKEND=torch, CHONN_NETWORK_BACKEND=torch) asks for it without a warning.",
            RuntimeWarning,
            stacklevel=2,
        )


def state() -> str:
    """Which file is loaded, or why none is."""
    library = _opened()
    if _refusals:
        return "; ".join(_refusals)
    return str(library._name) if library else "not built, CPU scans use the slower torch backend"
