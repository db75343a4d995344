"""Tables of the networks' benchmark in docs/performance.md."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from pages.blocks import (
    MEBIBYTES,
    MISSING,
    Build,
    Row,
    block,
    load,
    markdown,
    number,
    tabulate,
    times,
)

COLUMNS = ("forward", "both")
JACOBI = "Jacobi-CG"
# What the operator was asked to reach: nodes a side and how many times as fast as Jacobi-CG.
OVER_JACOBI = {16: 3.0, 64: 6.0, 256: 15.0}
OVER_SPSOLVE = {64: 100.0}
ITERATIONS = {100.0: 12, 10_000.0: 25}
FIELDS = 12  # peak memory over the source's size
SLOPE = 1.1  # of time over nodes


def kind(section: Row) -> str:
    return f"{section['networks']} of {times(section['grid'])}"


def residual(row: Row) -> str:
    return number(row, "residual", "{:.0e}") + ("" if row.get("holds", True) else " !")


def peers(sections: list[Row]) -> str:
    def milliseconds(name: str) -> Any:
        def cell(row: Row) -> str:
            few = row["timed_networks"].get(name, row["networks"]) < row["networks"]
            return ("~" if few else "") + number(row, f"{name}_ms", "{:.2f}")

        return cell

    return tabulate(
        [{**section, **row} for section in sections for row in section["rows"]],
        ("networks", kind),
        ("solver", "name"),
        *(
            column
            for name in COLUMNS
            for column in (
                (f"{name}, ms", milliseconds(name)),
                ("x", f"{name}_ratio", "{:.1f}"),
                ("ns / node", f"{name}_ns", "{:.0f}"),
                ("/ floor", f"{name}_floors", "{:.0f}"),
            )
        ),
        ("iterations", "iterations", "{:d}"),
        ("residual", residual),
    )


def contrast(sections: list[Row]) -> str:
    """A line a grid and kind of region: iterations and time at each contrast."""
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


def growth(section: list[Row]) -> str:
    def ends(series: Row) -> str:
        return " to ".join(times(series["points"][i]["grid"]) for i in (0, -1))

    def slope(name: str) -> Any:
        return lambda series: series["slopes"].get(name)

    def counts(series: Row) -> str:
        return " ".join(number(point, "iterations", "{:d}") for point in series["points"])

    return tabulate(
        [series for series in section if series["points"]],
        ("sixteen networks of", ends),
        ("forward time", slope("forward_ms"), "{:.3f}"),
        ("both time", slope("both_ms"), "{:.3f}"),
        ("memory", slope("both_peak_bytes"), "{:.3f}"),
        ("iterations", slope("iterations"), "{:.3f}"),
        ("counts", counts),
        (
            "largest, MiB",
            lambda series: series["points"][-1].get("both_peak_bytes"),
            "{:.0f}",
            MEBIBYTES,
        ),
    )


def memory(rows: list[Row]) -> str:
    return tabulate(
        rows,
        ("networks", kind),
        ("solver", "name"),
        ("peak MiB", "peak_bytes", "{:.0f}", MEBIBYTES),
        ("fields", "peak_fields", "{:.1f}"),
    )


def expected(rows: list[Row]) -> str:
    return tabulate(
        rows,
        ("networks", kind),
        ("way", "way"),
        ("iterations", "iterations"),
        ("launches", "launches"),
        ("bytes alone, ms", "bytes_ms", "{:.3f}"),
        ("forward, ms", "forward_ms", "{:.3f}"),
        ("both, ms", "both_ms", "{:.3f}"),
    )


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


NETWORKS: dict[str, Build] = {
    "network bounds": bounds,
    "network peers": block("network", "peers", peers),
    "network contrast": block("network", "contrast", contrast),
    "network growth": block("network", "growth", growth),
    "network memory": block("network", "memory", memory),
    "network expected": block("network", "gpu", expected),
}
