"""The tables of docs/code.md: files and functions of `chonn_ops` on the way from a call to C."""

from __future__ import annotations

import ast
import gc
import re
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple
from unittest import mock

import torch

import chonn_ops
from chonn_lab.pages.files import Build
from chonn_lab.report.document import markdown
from chonn_ops.network.direct.cpu.binding import kernel

PACKAGE = Path(chonn_ops.__file__).parent


class Function(NamedTuple):
    """A function of `chonn_ops`, with the first sentence of its docstring."""

    file: str
    name: str
    sentence: str


class Walk(NamedTuple):
    """What a call passes: all functions, and the longest chain of nested ones that ends in C."""

    functions: list[Function]
    chain: list[Function]


def follow(call: Callable[[], Any]) -> Walk:
    """The walk of a call's second run. The first one loads the library and plans eliminations."""
    call()
    codes: dict[CodeType, None] = {}
    chains: list[list[Function]] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and _ours(frame.f_code):
            codes[frame.f_code] = None

    def watched(function: Any) -> Callable[..., None]:
        def run(*arguments: Any) -> None:
            frame: FrameType | None = sys._getframe(1)
            chain = [Function("chonn_ops/_library.c", function.__name__, "")]
            while frame:
                chain += [_function(frame.f_code)] if _ours(frame.f_code) else []
                frame = frame.f_back
            chains.append(chain[::-1])
            function(*arguments)

        return run

    kind = type(kernel())
    with ExitStack() as changes:
        for operator in [x for x in gc.get_objects() if type(x) is kind]:
            calls = {name: watched(function) for name, function in operator.call.items()}
            changes.enter_context(mock.patch.dict(operator.call, calls))
        changes.callback(sys.setprofile, None)
        sys.setprofile(note)
        call()
    return Walk([_function(code) for code in codes], max(chains, key=len))


def _ours(code: CodeType) -> bool:
    """Whether it is a named function of the package: comprehensions have frames up to 3.11 only."""
    return PACKAGE in Path(code.co_filename).parents and not code.co_name.startswith("<")


def _function(code: CodeType) -> Function:
    return _functions(code.co_filename)[code.co_firstlineno]


@cache
def _functions(file: str) -> dict[int, Function]:
    """The functions of a file by the line of their first decorator, or of ``def``."""
    found: dict[int, Function] = {}
    path = Path(file).relative_to(PACKAGE.parent).as_posix()

    def visit(node: ast.AST, outer: str) -> None:
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                visit(child, outer)
                continue
            name = outer + child.name
            if isinstance(child, ast.FunctionDef):
                line = min([child.lineno, *(x.lineno for x in child.decorator_list)])
                words = " ".join((ast.get_docstring(child) or "").split("\n\n")[0].split())
                sentence = re.split(r"(?<=\.) ", words)[0]
                found[line] = Function(path, name, sentence.replace("|", "\\|"))
            visit(child, f"{name}.")

    visit(ast.parse(Path(file).read_text()), "")
    return found


def _calls() -> dict[str, Callable[[], Any]]:
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=generator)

    block, x = chonn_ops.CKB(8, 2), random(1, 8, 16, 16).requires_grad_()
    source, edges = random(1, 16, 16, 1), [random(1, 16, 16, 1), random(1, 16, 16, 1)]
    circuit = chonn_ops.diffusion(1 + source, boundary="dirichlet")
    line, states = random(1, 16, 8), random(2, 1, 16, 4)
    y = block(x).sum()
    return {
        "CKB(8, 2)(x)": lambda: block(x.detach()),
        "circuit.solve(f)": lambda: circuit.solve(source),
        "kirchhoff_network": lambda: chonn_ops.kirchhoff_network(source, edges, source),
        "kirchhoff_scan": lambda: chonn_ops.kirchhoff_scan(line, line, 1 + random(8, 4), *states),
        "CKB(8, 2)(x).sum().backward()": lambda: y.backward(retain_graph=True),
    }


@cache
def _walks() -> dict[str, Walk]:
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)  # one thread passes a function less
        return {name: follow(call) for name, call in _calls().items()}
    finally:
        torch.set_num_threads(threads)


def counts() -> str:
    """Files and functions of all calls."""
    rows = (
        [f"`{name}`", *(size for part in walk for size in (len({x.file for x in part}), len(part)))]
        for name, walk in _walks().items()
    )
    return markdown(["call", "files", "functions", "files on the way to C", "functions"], rows)


def way(name: str) -> Build:
    """The chain of a call, a function a line."""

    def table() -> str:
        rows = ([f"`{x.name}`", f"`{x.file}`", x.sentence] for x in _walks()[name].chain)
        return markdown(["function", "file", "what it does"], rows, (0, 1, 2))

    return table


WALKS: dict[str, Build] = {
    "files and functions of calls": counts,
    "from the block to C": way("CKB(8, 2)(x)"),
    "from the circuit to C": way("circuit.solve(f)"),
    "from the scan to C": way("kirchhoff_scan"),
    "from the backward to C": way("CKB(8, 2)(x).sum().backward()"),
}
