"""Tables of docs/performance.md: the scan, the block and the models."""

from __future__ import annotations

from typing import Any

from pages.blocks import MEBIBYTES, Build, Row, block, number, shape, tabulate

COLUMNS = ("forward", "both")


def scans(rows: list[Row]) -> str:
    return tabulate(
        rows,
        ("B x L x D x N", shape),
        ("scan", "name"),
        *(
            column
            for name in COLUMNS
            for column in (
                (f"{name}, ms", f"{name}_ms", "{:.2f}"),
                ("x", f"{name}_ratio", "{:.1f}"),
                ("/ floor", f"{name}_floors", "{:.1f}"),
            )
        ),
        ("peak MiB", "peak_bytes", "{:.1f}", MEBIBYTES),
    )


def floors(limits: list[Row]) -> str:
    return tabulate(
        [{**limit, "pass": name, **limit[name]} for limit in limits for name in COLUMNS],
        ("B x L x D x N", shape),
        ("pass", "pass"),
        ("MiB", "bytes", "{:.1f}", MEBIBYTES),
        ("GB/s", "bytes_per_second", "{:.0f}", 1e-9),
        ("ms", "bytes_ms", "{:.3f}"),
        ("10^6 exp", "exponentials", "{:.1f}", 1e-6),
        ("10^9 exp/s", _rates),
        ("ms", "exponentials_ms", "{:.3f}"),
        ("floor", "larger"),
    )


def _rates(row: Row) -> str:
    found = row["exponentials_per_second"]
    return " / ".join(number(found, name, "{:.1f}", 1e-9) for name in ("torch", "exp_rate.c"))


def fields(section: Row) -> str:
    batch, height, width, channels, _ = section["field"]
    unit = 1 / (4 * batch * height * width * channels)
    return tabulate(
        [row for row in section["rows"] if "refused" not in row],
        ("field", "name"),
        *((f"{name}, ms", f"{name}_ms", "{:.2f}") for name in COLUMNS),
        *((f"{name} peak, fields", f"{name}_peak_bytes", "{:.1f}", unit) for name in COLUMNS),
    )


def field_ratios(section: Row) -> str:
    return tabulate(
        section["ratios"],
        ("time of", "name"),
        ("over that of", "over"),
        *((name, name, "{:.2f}") for name in COLUMNS),
        ("at most", "bound", "{:.2f}"),
    )


def growth(section: list[Row]) -> str:
    def sizes(series: Row) -> str:
        return " to ".join(shape(series["points"][i]) for i in (0, -1))

    def slope(name: str) -> Any:
        return lambda series: series["slopes"].get(name)

    return tabulate(
        [{**series["points"][-1], **series} for series in section],
        ("series", "name"),
        ("sizes", sizes),
        ("forward time", slope("forward_ms"), "{:.3f}"),
        ("both time", slope("both_ms"), "{:.3f}"),
        ("forward memory", slope("forward_bytes"), "{:.3f}"),
        ("both memory", slope("both_bytes"), "{:.3f}"),
        ("largest, MiB", "both_bytes", "{:.0f}", MEBIBYTES),
        ("resident, MiB", "both_peak_bytes", "{:.0f}", MEBIBYTES),
    )


def blocks(rows: list[Row]) -> str:
    return tabulate(
        rows,
        ("B x C x H x W", shape),
        ("block", "name"),
        ("parameters", "parameters", "{:,}"),
        ("forward, ms", "forward_ms", "{:.1f}"),
        ("step, ms", "step_ms", "{:.1f}"),
        ("x", "step_ratio", "{:.1f}"),
        ("peak MiB", "peak_bytes", "{:.0f}", MEBIBYTES),
        ("scan", "scan_share", "{:.0%}"),
    )


def models(rows: list[Row]) -> str:
    return tabulate(
        rows,
        ("model", "name", "`{}`"),
        ("parameters", "parameters", "{:,}"),
        ("step, ms", "step_ms", "{:.0f}"),
        ("/ plain", "step_ratio", "{:.2f}x"),
        ("peak MiB", "peak_bytes", "{:.0f}", MEBIBYTES),
        ("/ plain", "peak_ratio", "{:.2f}x"),
        ("scan", "scan_share", "{:.0%}"),
    )


def profiles(rows: list[Row], top: int = 6) -> str:
    """The operators that take most of the models' steps."""

    def shares(row: Row) -> str:
        return ", ".join(f"{op['op']} {op['share']:.0%}" for op in row["ops"][:top])

    return tabulate(rows, ("model", "name", "`{}`"), ("share of the step, self time", shares))


def changes(rows: list[Row]) -> str:
    """What was predicted before each change of the kernels and what was measured after it."""
    names = ("change", "case", "before", "predicted", "measured")
    return tabulate(rows, *((name, name) for name in names))


PERFORMANCE: dict[str, Build] = {
    "scan": block("scan", "rows", scans),
    "floors": block("scan", "floors", floors),
    "precision": block("scan", "precision", scans),
    "fields": block("scan", "fields", fields),
    "field ratios": block("scan", "fields", field_ratios),
    "growth": block("scan", "growth", growth),
    "block": block("block", "rows", blocks),
    "models": block("models", "rows", models),
    "profiles": block("models", "rows", profiles),
    "changes": block("changes", "rows", changes),
}
