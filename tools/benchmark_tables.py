"""Markdown tables of the speed benchmarks, from the files in ``benchmarks/results/``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "benchmarks" / "results"
COLUMNS = ("forward", "both")
MISSING = "Not measured yet.\n"


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


# What has been read since this was emptied.
LOADED: dict[str, dict[str, Any]] = {}


def load(name: str) -> dict[str, Any]:
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return {}
    LOADED[name] = json.loads(path.read_text())
    return LOADED[name]


def number(row: dict[str, Any], key: str, form: str = "{:.2f}", scale: float = 1) -> str:
    value = row.get(key)
    return "-" if value is None else form.format(value * scale)


def mebibytes(row: dict[str, Any], key: str = "peak_bytes") -> str:
    return number(row, key, "{:.0f}", 2**-20)


def times(sizes: Iterable[int]) -> str:
    return "x".join(map(str, sizes))


def scan_rows(section: str) -> str:
    rows = load("scan").get(section)
    if not rows:
        return MISSING
    lines = []
    for row in rows:
        line = [times(row["shape"]), row["name"]]
        for column in COLUMNS:
            line += [
                number(row, f"{column}_ms"),
                number(row, f"{column}_ratio", "{:.1f}"),
                number(row, f"{column}_floors", "{:.1f}"),
            ]
        lines.append([*line, number(row, "peak_bytes", "{:.1f}", 2**-20)])
    header = ["B x L x D x N", "scan", "forward, ms", "x", "/ floor", "both, ms", "x", "/ floor"]
    return markdown([*header, "peak MiB"], lines)


def floors() -> str:
    limits = load("scan").get("floors")
    if not limits:
        return MISSING
    lines = []
    for limit in limits:
        rates = limit["exponentials_per_second"]
        for column in COLUMNS:
            floor = limit[column]
            lines.append(
                [
                    times(limit["shape"]),
                    column,
                    number(floor, "bytes", "{:.1f}", 2**-20),
                    number(floor, "bytes_per_second", "{:.0f}", 1e-9),
                    number(floor, "bytes_ms", "{:.3f}"),
                    number(floor, "exponentials", "{:.1f}", 1e-6),
                    " / ".join(number(rates, n, "{:.1f}", 1e-9) for n in ("torch", "exp_rate.c")),
                    number(floor, "exponentials_ms", "{:.3f}"),
                    floor["larger"],
                ]
            )
    header = ["B x L x D x N", "pass", "MiB", "GB/s", "ms", "10^6 exp", "10^9 exp/s", "ms"]
    return markdown([*header, "floor"], lines)


def fields() -> str:
    section = load("scan").get("fields")
    if not section:
        return MISSING
    batch, height, width, channels, _ = section["field"]
    unit = 1 / (4 * batch * height * width * channels)
    lines = [
        [
            row["name"],
            *(number(row, f"{column}_ms") for column in COLUMNS),
            *(number(row, f"{column}_peak_bytes", "{:.1f}", unit) for column in COLUMNS),
        ]
        for row in section["rows"]
        if "refused" not in row
    ]
    header = ["field", "forward, ms", "both, ms", "forward peak, fields", "both peak, fields"]
    return markdown(header, lines)


def field_ratios() -> str:
    section = load("scan").get("fields")
    if not section:
        return MISSING
    lines = [
        [row["name"], row["over"], *(number(row, key) for key in (*COLUMNS, "bound"))]
        for row in section["ratios"]
    ]
    return markdown(["time of", "over that of", "forward", "both", "at most"], lines)


def growth() -> str:
    section = load("scan").get("growth")
    if not section:
        return MISSING
    lines = []
    for series in section:
        first, last = (times(series["points"][i]["shape"]) for i in (0, -1))
        slopes = (number(series["slopes"], key, "{:.3f}") for key in series["slopes"])
        largest = series["points"][-1]
        peak = [mebibytes(largest, key) for key in ("both_bytes", "both_peak_bytes")]
        lines.append([series["name"], f"{first} to {last}", *slopes, *peak])
    header = ["series", "sizes", "forward time", "both time", "forward memory", "both memory"]
    return markdown([*header, "largest, MiB", "resident, MiB"], lines)


def block() -> str:
    rows = load("block").get("rows")
    if not rows:
        return MISSING
    lines = [
        [
            times(row["shape"]),
            row["name"],
            f"{row['parameters']:,}",
            number(row, "forward_ms", "{:.1f}"),
            number(row, "step_ms", "{:.1f}"),
            number(row, "step_ratio", "{:.1f}"),
            mebibytes(row),
            number(row, "scan_share", "{:.0%}"),
        ]
        for row in rows
    ]
    header = ["B x C x H x W", "block", "parameters", "forward, ms", "step, ms", "x", "peak MiB"]
    return markdown([*header, "scan"], lines)


def models() -> str:
    rows = load("models").get("rows")
    if not rows:
        return MISSING
    lines = [
        [
            f"`{row['name']}`",
            f"{row['parameters']:,}",
            number(row, "step_ms", "{:.0f}"),
            number(row, "step_ratio", "{:.2f}x"),
            mebibytes(row),
            number(row, "peak_ratio", "{:.2f}x"),
            number(row, "scan_share", "{:.0%}"),
        ]
        for row in rows
    ]
    header = ["model", "parameters", "step, ms", "/ plain", "peak MiB", "/ plain", "scan"]
    return markdown(header, lines)


def profiles(top: int = 6) -> str:
    """The operators that take most of the models' steps."""
    rows = load("models").get("rows")
    if not rows:
        return MISSING
    lines = [
        [
            f"`{row['name']}`",
            ", ".join(f"{op['op']} {op['share']:.0%}" for op in row["ops"][:top]),
        ]
        for row in rows
    ]
    return markdown(["model", "share of the step, self time"], lines)


def changes() -> str:
    """What was predicted before each change of the kernels and what was measured after it."""
    lines = [
        [row[key] for key in ("change", "case", "before", "predicted", "measured")]
        for row in load("changes").get("rows", [])
    ]
    return markdown(["change", "case", "before", "predicted", "measured"], lines)


PERFORMANCE: dict[str, Callable[[], str]] = {
    "scan": lambda: scan_rows("rows"),
    "floors": floors,
    "precision": lambda: scan_rows("precision"),
    "fields": fields,
    "field ratios": field_ratios,
    "growth": growth,
    "block": block,
    "models": models,
    "profiles": profiles,
    "changes": changes,
}
