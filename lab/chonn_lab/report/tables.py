"""Tables of the docs: `build` makes one from result files, as ``tables.yaml`` describes it."""

import functools
import itertools
import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
import yaml

from chonn_lab.paths import RESULTS
from chonn_lab.report.comparison import Statistic, number

MISSING = "Not measured yet.\n"
Row = Mapping[str, Any]
TABLES: dict[str, dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_suffix(".yaml").read_text("utf-8")
)
# The files that were read.
LOADED: dict[str, dict[str, Any]] = {}


def load(name: str) -> dict[str, Any]:
    """A file of `RESULTS`; empty if there is none."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return {}
    LOADED[name] = json.loads(path.read_text())
    return LOADED[name]


def build(name: str) -> str:
    """The table or text of this name in Markdown; it says so where nothing is measured."""
    table = TABLES[name]
    records = [load(file) for file in _listed(table["file"])]
    if not all(records) and not table.get("partly"):
        return MISSING
    if "text" in table:
        return ENVIRONMENT.from_string(table["text"]).render(records[0])
    paths = _listed(table.get("rows", "results"))
    rows = [row for record in records for path in paths for row in descend(record, path)]
    return (tabulate(table, rows) if rows else "") or MISSING


def descend(record: Row, path: str) -> list[dict[str, Any]]:
    """The rows at a path of keys; a row has the entries of what holds it, or those that all runs of
    a record share, and that as `section`."""
    rows = [dict(record)]
    for key in path.split("."):
        rows = [
            {**(section if "section" in section else section.get("shared", {})), **row}
            | {"section": section}
            for section in rows
            for row in _listed(section.get(key))
        ]
    return rows


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def tabulate(table: Row, rows: Sequence[Row]) -> str:
    """A line a row, or a group of rows, a column an expression; or one each value of `across`."""
    every = table.get("each", {})
    rows = [
        {**row, **dict(zip(every, values, strict=True))}
        for row in rows
        for values in itertools.product(*every.values())
    ]
    rows = [row for row in rows if evaluate(table.get("where", "true"), row)]
    if "sort" in table:
        rows.sort(key=lambda row: evaluate(table["sort"], row))
    if "by" in table:
        rows = list(grouped(rows, table["by"]))
    rows = [{**row, "table": rows} for row in rows]
    columns, texts = [*table["columns"]], table.get("texts", [0])
    cells = table["columns"] | {n: table[n] for n in ("across", "cell") if n in table}
    frame = pd.DataFrame([{n: evaluate(cell, row) for n, cell in cells.items()} for row in rows])
    if "across" in table:
        order = frame["across"].unique()
        wide = frame.set_index([*columns, "across"])["cell"].unstack(sort=False, fill_value="-")
        frame, texts = wide[order].reset_index(), range(len(columns))
    text = markdown(frame, texts)
    if "below" in table and text:
        text += "\n" + ENVIRONMENT.from_string(table["below"]).render(rows[0]) + "\n"
    return text


def grouped(rows: Iterable[Row], keys: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The first row of each group, with the group as a table `runs` of flat columns."""
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[tuple(evaluate(key, row) for key in keys)].append(row)
    for group in groups.values():
        members = [
            {name: value for name, value in row.items() if name != "section"} for row in group
        ]
        yield {**group[0], "runs": pd.json_normalize(members)}


def markdown(frame: pd.DataFrame, texts: Iterable[int] = (0,)) -> str:
    """A table; columns in `texts` are left-aligned, the others hold numbers. Nothing of an empty
    one."""
    if frame.empty:
        return ""
    align = ["---" if place in texts else "---:" for place in range(len(frame.columns))]
    lines = [[*frame], align, *frame.to_numpy().tolist()]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def evaluate(text: str, row: Row) -> Any:
    """The value of an expression of jinja2 for a row; "-" where the row lacks what it names."""
    try:
        value = _compiled(str(text))(row=row, **row)
    except jinja2.UndefinedError:
        return "-"
    return "-" if value is None else value


@functools.cache
def _compiled(text: str) -> Any:
    return ENVIRONMENT.compile_expression(text)


def _form(value: Any, form: str, scale: float = 1) -> str:
    if value is None or isinstance(value, jinja2.Undefined) or value == "-":
        return "-"
    return format(value / scale if scale != 1 else value, form)


ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent), trim_blocks=True, lstrip_blocks=True
)
ENVIRONMENT.filters |= {
    "f": _form,
    "number": number,
    "x": lambda sizes: "x".join(map(str, sizes)),
    "median": statistics.median,
    "mean": statistics.fmean,
    "statistic": lambda values: str(Statistic.of(values)),
}
ENVIRONMENT.globals |= {"MiB": 2**20, "markdown": markdown}
