"""Blocks of the docs' pages: Markdown tables of what result files hold, between markers."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from results_file import has_origin

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
MISSING = "Not measured yet.\n"
MEBIBYTES = 2**-20

Row = Mapping[str, Any]
Build = Callable[[], str]
# Header; name of the value, or what finds it in a row; format; factor.
Column = tuple[Any, ...]

# What has been read since this was emptied.
LOADED: dict[str, dict[str, Any]] = {}


def load(name: str) -> dict[str, Any]:
    """A file of `RESULTS`; empty if there is none."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return {}
    LOADED[name] = json.loads(path.read_text())
    return LOADED[name]


def block(name: str, key: str, build: Callable[[Any], str]) -> Build:
    """The table of one entry of a result file, or of all of it; or that there is none."""

    def text() -> str:
        found = load(name).get(key) if key else load(name)
        return build(found) if found else MISSING

    return text


def markdown(
    header: Sequence[str], rows: Iterable[Sequence[str]], texts: Sequence[int] = (0,)
) -> str:
    """A table; of the columns, `texts` are no numbers."""
    align = ["---:"] * len(header)
    for place in texts:
        align[place] = "---"
    return "".join(f"| {' | '.join(line)} |\n" for line in (header, align, *rows))


def tabulate(rows: Iterable[Row], *columns: Column, texts: Sequence[int] = (0,)) -> str:
    """A line a row, a cell a `Column`; "-" where a row has no such value."""
    lines = [[number(row, *column[1:]) for column in columns] for row in rows]
    return markdown([column[0] for column in columns], lines, texts)


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


def rewritten(page: str, text: str, blocks: Mapping[str, Build]) -> str:
    """The text with everything between ``<!-- name -->`` and ``<!-- /name -->`` made anew.

    The last block, "origin", is of all the others.
    """
    LOADED.clear()
    for name, build in {**blocks, "origin": without_origin}.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
        made = build()
        text, count = re.subn(
            pattern, lambda found, made=made: found[1] + made + found[2], text, flags=re.S
        )
        if count != 1:
            raise SystemExit(f"{page}: expected one block {name!r}, got {count}")
    return text


def without_origin() -> str:
    """The results files of a page that do not say of which data and code they are."""
    names = [f"`{name}.json`" for name, record in LOADED.items() if not has_origin(record)]
    if not names:
        return "All numbers of this page have a record of their data and code.\n"
    return (
        "† Measured before results had a record of their data and code, of which these have at "
        f"most a commit: {', '.join(sorted(names))}.\n"
    )
