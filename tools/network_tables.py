"""Markdown tables of the networks' benchmark, from ``benchmarks/results/network.json``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from benchmark_tables import COLUMNS, MISSING, load, markdown, mebibytes, number, times

JACOBI = "Jacobi-CG"
# What the operator was asked to reach: nodes a side and how many times as fast as Jacobi-CG.
OVER_JACOBI = {16: 3.0, 64: 6.0, 256: 15.0}
OVER_SPSOLVE = {64: 100.0}
ITERATIONS = {100.0: 12, 10_000.0: 25}
FIELDS = 12  # peak memory over the source's size
SLOPE = 1.1  # of time over nodes


def kind(section: dict[str, Any]) -> str:
    return f"{section['networks']} of {times(section['grid'])}"


def peers() -> str:
    sections = load("network").get("peers")
    if not sections:
        return MISSING
    lines = []
    for section in sections:
        for row in section["rows"]:
            line = [kind(section), row["name"]]
            for column in COLUMNS:
                few = row["timed_networks"].get(column, section["networks"]) < section["networks"]
                line += [
                    ("~" if few else "") + number(row, f"{column}_ms"),
                    number(row, f"{column}_ratio", "{:.1f}"),
                    number(row, f"{column}_ns", "{:.0f}"),
                    number(row, f"{column}_floors", "{:.0f}"),
                ]
            lines.append([*line, number(row, "iterations", "{:d}"), residual(row)])
    header = ["networks", "solver"]
    for column in COLUMNS:
        header += [f"{column}, ms", "x", "ns / node", "/ floor"]
    return markdown([*header, "iterations", "residual"], lines)


def residual(row: dict[str, Any]) -> str:
    return number(row, "residual", "{:.0e}") + ("" if row.get("holds", True) else " !")


def contrast() -> str:
    """A line a grid and kind of region: iterations and time at each contrast."""
    sections = load("network").get("contrast")
    if not sections:
        return MISSING
    contrasts = sorted({section["contrast"] for section in sections})
    lines: dict[tuple[str, str], list[str]] = {}
    for section in sorted(sections, key=lambda section: section["contrast"]):
        rows = {row["name"]: row for row in section["rows"]}
        ours = next((row for name, row in rows.items() if name != JACOBI), {})
        counts = [number(row, "iterations", "{:d}") for row in (ours, rows.get(JACOBI, {}))]
        cells = lines.setdefault((kind(section), section["regions"]), [])
        cells += [" / ".join(counts), number(ours, "forward_ns", "{:.0f}"), residual(ours)]
        cells.append(number(ours, "rounding", "{:.0e}"))
    header = ["networks", "regions"]
    for value in contrasts:
        header += [f"contrast {value:,.0f}: iterations", "ns / node", "residual", "rounding"]
    return markdown(header, [[*name, *cells] for name, cells in lines.items()])


def growth() -> str:
    section = load("network").get("growth")
    if not section:
        return MISSING
    lines = []
    for series in section:
        points, slopes = series["points"], series["slopes"]
        if points:
            ends = " to ".join(times(points[i]["grid"]) for i in (0, -1))
            keys = ("forward_ms", "both_ms", "both_peak_bytes", "iterations")
            found = [number(slopes, key, "{:.3f}") for key in keys]
            counts = " ".join(number(point, "iterations", "{:d}") for point in points)
            lines.append([ends, *found, counts, mebibytes(points[-1], "both_peak_bytes")])
    header = ["sixteen networks of", "forward time", "both time", "memory", "iterations"]
    return markdown([*header, "counts", "largest, MiB"], lines)


def memory() -> str:
    rows = load("network").get("memory")
    if not rows:
        return MISSING
    lines = [
        [kind(row), row["name"], mebibytes(row), number(row, "peak_fields", "{:.1f}")]
        for row in rows
    ]
    return markdown(["networks", "solver", "peak MiB", "fields"], lines)


def expected() -> str:
    rows = load("network").get("gpu")
    if not rows:
        return MISSING
    lines = [
        [
            kind(row),
            row["way"],
            f"{row['iterations']}",
            f"{row['launches']}",
            *(number(row, key, "{:.3f}") for key in ("bytes_ms", "forward_ms", "both_ms")),
        ]
        for row in rows
    ]
    header = ["networks", "way", "iterations", "launches", "bytes alone, ms"]
    return markdown([*header, "forward, ms", "both, ms"], lines)


def bounds() -> str:
    """What was asked beside what was measured; "no" where it does not hold."""
    result = load("network")
    lines = [*_ratios(result), *_counts(result), *_sizes(result)] if result else []
    if not lines:
        return MISSING
    return markdown(
        ["asked", "measured", "holds"],
        [[asked, measured, "yes" if holds else "no"] for asked, measured, holds in lines],
    )


Line = tuple[str, str, bool]


def _ratios(result: dict[str, Any]) -> Iterator[Line]:
    behind: list[tuple[float, str]] = []
    smallest = math.inf
    for section in result.get("peers", []):
        ours, *others = section["rows"]
        for column in COLUMNS:
            for row in others:
                ratio = row.get(f"{column}_ratio")
                if ratio is None or row["name"] == "torch":  # ours too
                    continue
                smallest = min(smallest, ratio)
                if ratio < 1:
                    name = f"{row['name']} at {times(section['grid'])}"
                    behind.append((ratio, f"{ratio:.2f} of {name}, {column}"))
        if len(section["grid"]) != 2:
            continue
        for peer, asked in ((JACOBI, OVER_JACOBI), ("spsolve", OVER_SPSOLVE)):
            least = asked.get(section["grid"][0])
            ratio = {row["name"]: row for row in others}.get(peer, {}).get("forward_ratio")
            if least is not None and ratio is not None:
                what = f"{ours['name']} at least {least:g} times as fast as {peer}"
                yield f"{what}, {kind(section)}", f"{ratio:.1f}", ratio >= least
    if smallest < math.inf:
        measured = f"at least {smallest:.1f} times"
        if behind:
            measured = f"{len(behind)} behind, the worst {min(behind)[1]}"
        yield "ahead of every peer at every size, forward and both", measured, not behind


def _counts(result: dict[str, Any]) -> Iterator[Line]:
    for value, most in ITERATIONS.items():
        found = [
            (row["iterations"], f"{times(section['grid'])} ({section['regions']})")
            for section in result.get("contrast", [])
            for row in section["rows"]
            if section["contrast"] == value and row["name"] != JACOBI and "iterations" in row
        ]
        if found:
            count, where = max(found)
            yield (
                f"at most {most} iterations at contrast {value:,.0f}",
                f"{count} at {where}",
                count <= most,
            )


def _sizes(result: dict[str, Any]) -> Iterator[Line]:
    for series in result.get("growth", []):
        for column in COLUMNS:
            found = series["slopes"].get(f"{column}_ms")
            if found is not None:
                asked = f"slope of time in nodes at most {SLOPE}, {series['name']}, {column}"
                yield asked, f"{found:.3f}", found <= SLOPE
    for row in result.get("memory", [])[:1]:
        fields = row.get("peak_fields")
        if fields is not None:
            asked = f"memory of forward and backward at most {FIELDS} fields, {kind(row)}"
            yield asked, f"{fields:.1f}", fields <= FIELDS


NETWORKS: dict[str, Callable[[], str]] = {
    "network bounds": bounds,
    "network peers": peers,
    "network contrast": contrast,
    "network growth": growth,
    "network memory": memory,
    "network expected": expected,
}
