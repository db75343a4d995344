"""Digests of a model's code: the files that its classes are in, and those that they import.

Imports are read, not run: the files are the same whatever has been imported so far. A name taken
from a package counts as the module that defines it. The operators, whose backends are chosen while
they run, count as a whole, with their kernels in C. Modules of other packages count by their
package's version, or by their own file if there is none, as in a script.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import itertools
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

import chonn_ops

PACKAGE = "chonn_ops"
OPERATORS = (f"{PACKAGE}.scan", f"{PACKAGE}.network")
DIGITS = 12
# Whose classes are no part of a model's own code.
_BASIC = ("builtins", "torch", "typing", "abc")


def digest(parts: Mapping[str, str]) -> str:
    """One for all of `parts`."""
    return _digest("\n".join(f"{name} {part}" for name, part in sorted(parts.items())).encode())


def package() -> str:
    """One for all files of this package, kernels included."""
    return _digest(b"\0".join(_tree().values()))


def parts(model: nn.Module, name: str) -> dict[str, str]:
    """Digests of the parts of a model's code.

    Parameters
    ----------
    model : nn.Module
    name : str
        Of its variant.

    Returns
    -------
    dict of str to str
        By file, folder of an operator, package (its version), and "<name> as built": its modules
        and shapes, which the code that built it chose.
    """
    kinds = {kind for module in model.modules() for kind in type(module).__mro__}
    modules = {k.__module__ for k in kinds if k.__module__.partition(".")[0] not in _BASIC}
    found = {part: value for module in sorted(modules) for part, value in _of(module).items()}
    if any(part.isidentifier() for part in found):
        # A package of models; its results are torch's as well.
        found["torch"] = torch.__version__
    tensors = itertools.chain(model.named_parameters(), model.named_buffers())
    shapes = [f"{key} {tuple(value.shape)} {value.dtype}" for key, value in tensors]
    tree = re.sub(r" at 0x[0-9a-f]+", "", repr(model))
    found[f"{name} as built"] = _digest("\n".join([tree, *shapes]).encode())
    return found


def _of(module: str) -> dict[str, str]:
    package = module.partition(".")[0]
    if package == PACKAGE:
        return _imported_from(module)
    loaded = sys.modules.get(package)
    if version := getattr(loaded, "__version__", None):
        return {package: str(version)}
    return {f"{module}.py": _file_of(module)}


@functools.cache
def _file_of(module: str) -> str:
    try:
        return _digest(inspect.getsource(sys.modules[module]).encode())
    # Typed into a console or a notebook.
    except (KeyError, OSError, TypeError):
        return "unknown"


@functools.cache
def _tree() -> dict[str, bytes]:
    """Content of the package's files as this process found them, which is what it runs."""
    root = Path(chonn_ops.__file__).parent
    kinds = ("*.py", "cpu/*.c", "cpu/*.h")
    paths = sorted({path for kind in kinds for path in root.rglob(kind)})
    return {path.relative_to(root.parent).as_posix(): path.read_bytes() for path in paths}


@functools.cache
def _imported_from(module: str) -> dict[str, str]:
    """Digests of a module of the package and of all that it imports from the package."""
    found: dict[str, str] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        operator = next((o for o in OPERATORS if f"{name}.".startswith(f"{o}.")), None)
        file = f"{operator.replace('.', '/')}/" if operator else _file(name)
        if file is None or file in found:
            continue
        files = [path for path in _tree() if path.startswith(file)]
        found[file] = _digest(b"\0".join(map(_tree().__getitem__, files)))
        for path in files:
            if path.endswith(".py"):
                waiting += [_defining(*pair) for pair in _imports(path)]
    return found


def _file(module: str) -> str | None:
    """None for what is no module, and for the package itself, which only gathers names."""
    if not module.startswith(f"{PACKAGE}."):
        return None
    stem = module.replace(".", "/")
    return next((f for f in (f"{stem}.py", f"{stem}/__init__.py") if f in _tree()), None)


@functools.cache
def _imports(file: str) -> tuple[tuple[str, str], ...]:
    """Modules and names that a file imports, wherever in it, but for type checkers only."""
    found: list[tuple[str, str]] = []
    waiting: list[ast.AST] = [ast.parse(_tree()[file])]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [(node.module, alias.name) for alias in node.names]
        waiting += ast.iter_child_nodes(node)
    return tuple(found)


def _defining(module: str, name: str) -> str:
    """The module that a name comes from."""
    if not name or _file(f"{module}.{name}"):
        return f"{module}.{name}".rstrip(".")
    file = _file(module) or ""
    if file.endswith("/__init__.py"):
        for origin, imported in _imports(file):
            if imported == name:
                return _defining(origin, name)
    return module


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:DIGITS]
