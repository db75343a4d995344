"""Tables of docs/reading.md: what networks learn to be conductivity, orders that were chosen."""

from __future__ import annotations

import statistics
from typing import Any

from pages.blocks import Build, Row, block, tabulate

ALLOWED = 1.05  # times the error of the best fixed order


def conductivity(numbers: Row) -> str:
    """A row a network: correlation with its deviation over the samples, variation inside."""
    return tabulate(
        [
            {"layer": layer, "network": c, **network}
            for layer, cell in enumerate(numbers["learned_conductivity"])
            for c, network in enumerate(cell["networks"])
        ],
        ("layer", "layer"),
        ("network", "network"),
        ("correlation", "correlation", "{:.3f}"),
        ("deviation", "deviation", "{:.3f}"),
        ("variation inside", "variation_inside", "{:.3f}"),
        texts=(),
    )


def adaptive_orders(rows: list[Row]) -> str:
    """Mean error of every problem, its fixed orders beside it."""

    def problem(row: Row) -> str:
        named = {"order1d": row["variant"][:2].upper(), "adaptive-depth": "darcy, depth"}
        return named.get(row["problem"], row["problem"])

    def fixed(order: str) -> Any:
        return lambda row: statistics.fmean(row["fixed"][order])

    def chosen(row: Row) -> str:
        return ", ".join("+".join(map(str, orders)) for orders in row["orders"])

    return tabulate(
        rows,
        ("problem", problem),
        ("sparsity", "sparsity", "{:g}"),
        ("seeds", lambda row: len(row["seeds"])),
        ("adaptive", lambda row: statistics.fmean(row["errors"]), "{:.4f}"),
        *((f"order {order}", fixed(order), "{:.4f}") for order in rows[0]["fixed"]),
        ("/ best fixed", "over_best_fixed", "{:.2f}"),
        ("within 5 %", lambda row: "yes" if row["over_best_fixed"] <= ALLOWED else "no"),
        ("orders chosen", chosen),
        ("pruned", "largest_difference_pruned", "{:.0e}"),
    )


READING: dict[str, Build] = {
    **{
        f"{name} conductivity": block("learned_conductivity", name, conductivity)
        for name in ("darcy", "poisson")
    },
    "adaptive order": block("adaptive_order", "results", adaptive_orders),
}
