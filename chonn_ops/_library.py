"""The compiled library of all operators: this module finds it, checks it and loads it.

The library is one file beside this module. ctypes calls it, which releases the GIL. A library that
does not match the package is refused with a warning, and the operators fall back to PyTorch.

``_library.c`` exports these functions of every operator ``x``: ``chonn_x_arguments()``, the size of
its argument struct; ``chonn_x_lanes(isa, kind)``, the elements that a vector holds, or 0 where
the build or the processor lacks the instruction set;
``chonn_x_workspace(isa, kind, arguments)``, the size of its workspace; and its calls
``chonn_x_<call>(isa, kind, arguments)``.

This module imports the standard library only, because ``hatch_build.py`` runs it at build time.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import warnings
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parent
SOURCES = ("scan/cpu", "network/solve/cpu", "network/direct/cpu", "models/cpu")
KERNEL = "_kernel.pyd" if os.name == "nt" else "_kernel.so"
ISAS = ("generic", "avx2", "avx512")  # slowest first; the index is what the kernel is called with
# Numbers that C and Python share; the build defines each as a macro for every C source.
CONSTANTS = {
    "SCAN_CHUNK": 32,  # steps: a chunk's arrays stay in the L1 cache
    "SCAN_LINE": 512,  # steps: both scans of a line up to here go in one pass, within the L2 cache
    # Codes of the dtypes of tensors; `_dtypes.CODES` maps PyTorch's dtypes to them.
    "DTYPE_FLOAT32": 0,
    "DTYPE_FLOAT64": 1,
    "DTYPE_BFLOAT16": 2,
    "DTYPE_FLOAT16": 3,
    "NETWORK_PARALLEL": 16384,  # nodes of a level that more than one thread visits
    # When iterations stop, see `Progress` in network/solve/torch.py.
    "NETWORK_RATIO_LEAST": 0.1,
    "NETWORK_RATIO_MOST": 0.9,
    "NETWORK_ERROR_ALLOWED": 0.5,
    # A residual within so many roundings of the terms that it sums up counts as rounding.
    "NETWORK_ROUNDING": 16,
    # Roundings of two potentials by which a solved difference of them may deviate from theirs. On
    # grids of up to 512 x 512 their own difference was off by 5 at most, on a line of 20,000 by 2.
    "DIRECT_OFF": 16,
    "DIRECT_REFINEMENTS": 4,  # most steps of refinement after the first solve of a complex network
    "DIRECT_PAD": 16,  # elements behind the factors of an item that whole blocks may touch
}
SHARED = ("_library.c", "_library.h", "_kernel.h", "_half.h")  # C sources of all operators


_refusals: list[str] = []


class Refused(Exception):
    """The reason why a library is not loaded."""


def interface_version(package: Path = PACKAGE) -> int | None:
    """A digest of the C sources and `CONSTANTS`, compiled in as ``chonn_interface_version()``.

    Every change of a source changes the digest, so there is no version number to maintain. The
    result is None where the sources are not installed.
    """
    paths = [p for folder in SOURCES for p in sorted((package / folder).glob("*.[ch]"))]
    if not paths:
        return None
    digest = hashlib.sha256(repr(CONSTANTS).encode())
    for path in (*(package / shared for shared in SHARED), *paths):
        content = path.read_bytes() if path.exists() else b""
        digest.update(f"{path.relative_to(package).as_posix()} {len(content)}\n".encode() + content)
    return int.from_bytes(digest.digest()[:8], "big") >> 1


def _function(library: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> Any:
    try:
        function = getattr(library, name)
    except AttributeError:
        raise Refused(f"expected a function {name}, got none: an older or foreign build") from None
    function.restype, function.argtypes = result, arguments
    return function


def _load(path: Path) -> ctypes.CDLL:
    try:
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
    return "run `pip install --force-reinstall --no-deps .` in a clone of chonn-ops"


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
    except Refused as reason:
        _refuse(reason)
    return None


_TYPES = {"int64_t": ctypes.c_int64, "int32_t": ctypes.c_int32, "double": ctypes.c_double}
_FIELD = r"(\*?)(\w+)(?:\[(\d+)\])?"


def _body(header: str, name: str, separator: str) -> list[str]:
    """The declarations of a struct or enum; only plain ones, without nested braces, are found."""
    source = re.sub(r"/\*.*?\*/", " ", (PACKAGE / header).read_text(), flags=re.DOTALL)
    body = re.search(rf"\b{name} \{{([^{{}}]*)\}};", source)
    if body is None:
        raise ValueError(f"{header}: expected a plain `{name} {{...}};`, found none")
    return [" ".join(x.split()) for x in body[1].split(separator) if x.strip()]


@cache
def structure(header: str, name: str) -> type[ctypes.Structure]:
    """The ctypes type of ``struct name``, read from the C header, which alone describes it. Its
    fields are pointers, or `_TYPES`, other structs of the header, and arrays of these; a ValueError
    for other kinds, and where the header has no such struct."""
    fields: list[tuple[str, Any]] = []
    for line in _body(header, f"struct {name}", ";"):
        declared = re.fullmatch(rf"(?:const )?(?:struct )?(\w+) ({_FIELD}(?:, {_FIELD})*)", line)
        if declared is None:
            raise ValueError(f"{header}: expected a field like `int64_t a, b[3]`, got `{line}`")
        for pointer, field, length in re.findall(_FIELD, declared[2]):
            kind = ctypes.c_void_p if pointer else _TYPES.get(declared[1])
            kind = kind or structure(header, declared[1])
            fields.append((field, kind * int(length) if length else kind))
    return type(name, (ctypes.Structure,), {"_fields_": fields})


def enumerators(header: str, name: str) -> dict[str, int]:
    """The values of ``enum name``, read from the C header."""
    values: dict[str, int] = {}
    for line in _body(header, f"enum {name}", ","):
        enumerator, _, value = line.partition(" = ")
        values[enumerator] = int(value) if value else [-1, *values.values()][-1] + 1
    return values


class Operator:
    """The functions ``chonn_x_...`` of the operator named x in the library: `arguments` mirrors its
    C struct, `calls` are the functions of (isa, kind, arguments) without a result. Raises `Refused`
    if a function is missing, or the struct has another size."""

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
        types = (*kernel, ctypes.POINTER(arguments))
        self.lanes = _function(library, f"chonn_{name}_lanes", ctypes.c_int32, *kernel)
        self.workspace = _function(library, f"chonn_{name}_workspace", ctypes.c_int64, *types)
        self.call = {x: _function(library, f"chonn_{name}_{x}", None, *types) for x in calls}
        self.isas = tuple(isa for i, isa in enumerate(ISAS) if self.lanes(i, 0))
        self._vectors = [ISAS.index(isa) for isa in self.isas[1:] or self.isas]

    def isa(self, variable: str) -> int:
        """The index of the fastest instruction set, or of the one that a variable names; a
        ValueError if the build does not contain that one, or this processor does not run it."""
        isa = os.environ.get(variable) or self.isas[-1]
        if isa not in self.isas:
            raise ValueError(f"{variable}: expected one of {', '.join(self.isas)}, got {isa!r}")
        return ISAS.index(isa)

    def isa_for(self, variable: str, lanes: int, kind: int) -> int:
        """The index of the narrowest instruction set whose vectors hold so many elements.

        If none is so wide, it is the fastest one. The environment variable overrides both.
        Generic vectors are not chosen for their width: without fused products they round otherwise.
        A network's result still depends on the number of networks beside it, which decides how they
        fill the vectors: by 6e-7 of the largest potential in float32, for grids of 8 x 8 to
        128 x 128 alone or among 40.
        """
        if os.environ.get(variable):
            return self.isa(variable)
        return next((i for i in self._vectors if self.lanes(i, kind) >= lanes), self._vectors[-1])


@cache
def operator(
    name: str, arguments: type[ctypes.Structure], calls: tuple[str, ...] = ("forward", "backward")
) -> Operator | None:
    """The `Operator`, or None where the library is absent or, with one warning, refused."""
    library = _opened()
    try:
        return Operator(library, name, arguments, calls) if library else None
    except Refused as reason:
        _refuse(reason)
        return None


@cache
def warn_of_fallback() -> None:
    """Warn once that no kernel is built; a refused kernel has caused a warning already."""
    if not _refusals:
        warnings.warn(
            "chonn-ops has no compiled kernel here: scans and networks on the CPU run on the "
            f"slower PyTorch backend. With a C compiler, {_remedy()}; backend='torch' (or "
            "CHONN_SCAN_BACKEND=torch, CHONN_NETWORK_BACKEND=torch) selects it without a warning.",
            RuntimeWarning,
            stacklevel=2,
        )


def state() -> str:
    """The path of the loaded library, or the reason why none is loaded."""
    library = _opened()
    if _refusals:
        return "; ".join(_refusals)
    fallback = "not built: scans and networks on the CPU use the slower torch backend"
    return str(library._name) if library else fallback
