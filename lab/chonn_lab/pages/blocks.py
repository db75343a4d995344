"""Blocks of the docs: text made of result files, written between markers of the pages."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from chonn_lab.paths import RESULTS
from chonn_lab.report.document import markdown
from chonn_lab.results_file import has_origin

MISSING = "Not measured yet.\n"
MEBIBYTES = 2**-20

Row = Mapping[str, Any]
Build = Callable[[], str]
# Header; name of the value, or what finds it in a row; format; factor.
Column = tuple[Any, ...]

# The files that the current page has read.
LOADED: dict[str, dict[str, Any]] = {}


def load(name: str) -> dict[str, Any]:
    """A file of `RESULTS`; empty if there is none."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return {}
    LOADED[name] = json.loads(path.read_text())
    return LOADED[name]


def block(name: str, key: str, build: Callable[[Any], str]) -> Build:
    """Builds the table of one entry of a result file, or of all of it; or says it is missing."""

    def text() -> str:
        found = load(name).get(key) if key else load(name)
        return build(found) if found else MISSING

    return text


def tabulate(rows: Iterable[Row], *columns: Column, texts: Sequence[int] = (0,)) -> str:
    """A Markdown table: a line a row, a cell a `Column`, "-" where a row has no such value."""
    lines = [[number(row, *column[1:]) for column in columns] for row in rows]
    return markdown([column[0] for column in columns], lines, texts)


def pivot(
    rows: Iterable[Row],
    header: Sequence[str],
    line: Callable[[Row], Sequence[str]],
    column: Callable[[Row], str],
    cell: Callable[[Row], str],
) -> str:
    """A Markdown table: a line each value of `line`, under `header`, a column each of `column`."""
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        found.setdefault(tuple(line(row)), {})[column(row)] = cell(row)
    names = list(dict.fromkeys(name for cells in found.values() for name in cells))
    lines = ([*key, *(cells.get(name, "-") for name in names)] for key, cells in found.items())
    return markdown([*header, *names], lines, range(len(header)))


def number(
    row: Row, key: str | Callable[[Row], Any], form: str = "{}", scale: float | None = None
) -> str:
    value = key(row) if callable(key) else row.get(key)
    if value is None:
        return "-"
    return form.format(value if scale is None else value * scale)


def times(sizes: Iterable[int]) -> str:
    return "x".join(map(str, sizes))


def shape(row: Row) -> str:
    return times(row["shape"])


def spread(values: Iterable[float], form: str = "{:.4f}") -> str:
    """Mean and standard deviation."""
    found = list(values)
    text = form.format(statistics.fmean(found))
    return f"{text} ± {form.format(statistics.stdev(found))}" if len(found) > 1 else text


def by_model(results: Iterable[Row]) -> dict[str, list[Any]]:
    runs: dict[str, list[Any]] = {}
    for run in results:
        runs.setdefault(run["model"], []).append(run)
    return runs


def rewritten(page: str, text: str, blocks: Mapping[str, Build]) -> tuple[str, set[str]]:
    """Make everything between ``<!-- name -->`` and ``<!-- /name -->`` anew.

    The block "origin" names the result files of the page that lack a record of data and code.

    Returns
    -------
    str
        The page.
    set of str
        The names of its blocks.

    Raises
    ------
    SystemExit
        For a block that nothing makes.
    """
    LOADED.clear()
    names = re.findall(r"<!-- /(.+?) -->", text)
    for name in sorted(names, key=lambda name: name == "origin"):
        build = without_origin if name == "origin" else blocks.get(name)
        if build is None:
            raise SystemExit(f"{page}: expected a block out of {sorted(blocks)}, got {name!r}")
        made = build()
        text = re.sub(
            rf"(<!-- {re.escape(name)} -->\n).*?(<!-- /{re.escape(name)} -->)",
            lambda found, made=made: found[1] + made + found[2],
            text,
            flags=re.S,
        )
    return text, set(names) - {"origin"}


def without_origin() -> str:
    """The results files of a page that lack a record of data and code."""
    names = [f"`{name}.json`" for name, record in LOADED.items() if not has_origin(record)]
    if not names:
        return "Every number on this page has a record of its data and code in `lab/results`.\n"
    return (
        "† These files record at most a commit, but neither data nor code: "
        f"{', '.join(sorted(names))}.\n"
    )
