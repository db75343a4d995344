"""Tables of the docs: `build` makes one from result files, as ``tables.yaml`` describes it."""

from __future__ import annotations

import functools
import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
import yaml

from chonn_lab.pages.files import load
from chonn_lab.report.comparison import Statistic
from chonn_lab.report.document import table_of

MISSING = "Not measured yet.\n"
Row = Mapping[str, Any]
TABLES: dict[str, dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("tables.yaml").read_text("utf-8")
)


def build(name: str, *records: Row) -> str:
    """The table of this name in Markdown, of its files or of the `records` of a run.

    It says so where nothing is measured.
    """
    table = TABLES[name]
    records = records or tuple(map(load, _listed(table["file"])))
    if not all(records):
        return MISSING
    paths = _listed(table.get("rows", "results"))
    found = [row for record in records for path in paths for row in descend(record, path)]
    return tabulate(table, found) if found else MISSING


def descend(record: Row, path: str) -> list[dict[str, Any]]:
    """The rows at a path of keys; a row has the entries of what holds it, and that as `section`."""
    found = [dict(record)]
    for key in path.split("."):
        found = [
            {**(section if "section" in section else {}), **row, "section": section}
            for section in found
            for row in _listed(section.get(key))
        ]
    return found


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def tabulate(table: Row, found: Sequence[Row]) -> str:
    """A line a row, or a group of rows, a column an expression; or one each value of `across`."""
    every = table.get("each", {})
    found = [
        {**row, **dict(zip(every, values, strict=True))}
        for row in found
        for values in itertools.product(*every.values())
    ]
    found = [row for row in found if evaluate(table.get("where", "true"), row)]
    if "sort" in table:
        found.sort(key=lambda row: evaluate(table["sort"], row))
    if "by" in table:
        found = list(grouped(found, table["by"]))
    found = [{**row, "table": found} for row in found]
    columns = table["columns"]
    frame = pd.DataFrame([[evaluate(cell, row) for cell in columns.values()] for row in found])
    frame.columns = [*columns]
    texts = table.get("texts", [0])
    if "across" in table:
        frame["across"] = [evaluate(table["across"], row) for row in found]
        frame["cell"] = [evaluate(table["cell"], row) for row in found]
        firsts = frame.drop_duplicates([*columns]).index
        wide = frame.set_index([*columns, "across"])["cell"].unstack(sort=False, fill_value="-")
        frame = wide[list(dict.fromkeys(frame["across"]))].reset_index()
        for header, cell in table.get("last", {}).items():
            frame[header] = [evaluate(cell, found[at]) for at in firsts]
        texts = table.get("texts", range(len(columns)))
    text = table_of(frame, texts)
    if table.get("below"):
        text += "\n" + ENVIRONMENT.from_string(table["below"]).render(found[0]) + "\n"
    return text


def grouped(found: Iterable[Row], keys: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The first row of each group, with the group as a table `runs` of flat columns."""
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in found:
        groups[tuple(evaluate(key, row) for key in keys)].append(row)
    for group in groups.values():
        own = [{name: value for name, value in row.items() if name != "section"} for row in group]
        yield {**group[0], "runs": pd.json_normalize(own)}


def evaluate(text: str, row: Row) -> Any:
    """The value of an expression of jinja2 for a row; "-" where the row lacks what it names."""
    try:
        found = _compiled(str(text))(row=row, **row)
    except jinja2.UndefinedError:
        return "-"
    return "-" if found is None else found


@functools.cache
def _compiled(text: str) -> Any:
    return ENVIRONMENT.compile_expression(text)


def _form(value: Any, form: str, scale: float = 1) -> str:
    if value is None or isinstance(value, jinja2.Undefined) or value == "-":
        return "-"
    return format(value / scale if scale != 1 else value, form)


def _spread(values: Iterable[float], form: str = ".4f") -> str:
    """Mean and standard deviation; of one number that is too small for the form its exponent."""
    found = list(values)
    if not found:
        return "-"
    mean = statistics.fmean(found)
    text = format(mean, form if len(found) > 1 or mean > 5e-5 else ".0e" if mean else "g")
    return f"{text} ± {format(statistics.stdev(found), form)}" if len(found) > 1 else text


ENVIRONMENT = jinja2.Environment(trim_blocks=True, undefined=jinja2.Undefined)
ENVIRONMENT.filters |= {
    "f": _form,
    "x": lambda sizes: "x".join(map(str, sizes)),
    "spread": _spread,
    "median": statistics.median,
    "mean": statistics.fmean,
    "statistic": lambda values: str(Statistic.of(values)),
}
ENVIRONMENT.globals["MiB"] = 2**20
