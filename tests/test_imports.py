"""A leading underscore means "this folder only", with the folders in it."""

import ast
import pydoc
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("chonn_ops", "plugins/chonn_plugins", "lab/chonn_lab")


def folder(name, packages):
    """The package that a module is in; a package is its own."""
    return name if name in packages else name.rpartition(".")[0]


def imported(tree):
    """Line and full name of all that a module imports, and of private attributes of modules."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.partition(".")[0]] = alias.name
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: expected an absolute import"
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                yield node.lineno, f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            owner = names.get(node.value.id, "") if isinstance(node.value, ast.Name) else ""
            yield node.lineno, f"{owner}.{node.attr}"


def offenders(sources):
    """Who imports what, from dotted names, a package's ending in ``.__init__``, and sources."""
    packages = {name.removesuffix(".__init__") for name in sources if name.endswith(".__init__")}
    found = []
    for name, source in sources.items():
        here = folder(name.removesuffix(".__init__"), packages)
        for line, target in imported(ast.parse(source)):
            parts = target.split(".")
            private = [i for i, x in enumerate(parts) if x.startswith("_") and x[:2] != "__"]
            owner = folder(".".join(parts[: private[0]]), packages) if private else ""
            if owner in packages and not f"{here}.".startswith(f"{owner}."):
                found.append(f"{name.removesuffix('.__init__')}:{line} {target}")
    return found


def sources():
    found = {}
    for package in PACKAGES:
        assert (ROOT / package / "__init__.py").is_file(), package
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to((ROOT / package).parent).with_suffix("").parts
            found[".".join(parts)] = path.read_text(encoding="utf-8")
    return found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from p.b import _x", ["p.b._x"]),
        ("from p.b._m import x", ["p.b._m.x"]),
        ("import p.b._m", ["p.b._m"]),
        ("from p.b import m\nm._x", ["p.b.m._x"]),
        ("from p.b.m import _x", ["p.b.m._x"]),
        ("from p.a import _x\nfrom p.a._m import x\nfrom p import _x", []),
        ("from p.b import x, __version__\nfrom torch import _C\nself._x", []),
    ],
)
def test_offenders_are_found(source, found):
    tree = {"p.__init__": "", "p.a.__init__": "", "p.a._m": "", "p.b.__init__": "", "p.b.m": ""}
    told = offenders({**tree, "p.a.one": source})
    assert [x.split(" ")[1] for x in told] == found


def test_private_names_of_pytorch_are_in_one_module():
    """A name that a new release lacks is named."""
    home, private = "chonn_ops._pytorch", re.compile(r"torch\.(.*\.)?_[^_]")
    trees = {name: ast.parse(source) for name, source in sources().items()}
    names = {name: {x for _, x in imported(tree)} for name, tree in trees.items()}
    assert [x for x in names if any(map(private.match, names[x]))] == [home]
    used = {ast.unparse(x) for x in ast.walk(trees[home]) if isinstance(x, ast.Attribute)}
    used = {x for x in used | names[home] if x.startswith("torch.")}
    assert not [x for x in used if pydoc.locate(x) is None]


def test_underscores_stay_in_their_folders():
    found = offenders(sources())
    assert not found, f"{len(found)} imports:\n" + "\n".join(found)
