"""Markdown tables of docs/neuraloperator.md and docs/vision.md, from ``benchmarks/results/``."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from benchmark_tables import MISSING, load, markdown, mebibytes, number


def spread(values: Sequence[float], form: str = "{:.4f}") -> str:
    """Mean and standard deviation."""
    text = form.format(statistics.fmean(values))
    return f"{text} ± {form.format(statistics.stdev(values))}" if len(values) > 1 else text


def by_model(results: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    runs: dict[str, list[dict[str, Any]]] = {}
    for run in results:
        runs.setdefault(run["model"], []).append(run)
    return runs


def darcy_mixers(results: Sequence[dict[str, Any]]) -> str:
    lines = [
        [
            f"`{model}`",
            f"{runs[0]['parameters']:,}",
            *(spread([run["relative_l2"][points] for run in runs]) for points in ("16", "32")),
            str(len(runs)),
        ]
        for model, runs in by_model(results).items()
    ]
    return markdown(["model", "parameters", "16 x 16", "32 x 32", "seeds"], lines)


def darcy_networks() -> str:
    """Networks beside the plain FNO of the same protocol and the direct solve."""
    networks, fnos = load("darcy_networks"), load("darcy_mixers")
    if not networks.get("results"):
        return MISSING
    lines = []
    for results, model in (
        (networks["results"], "network"),
        (load("darcy_lift").get("results", []), "lift-network"),
        *((fnos["results"], name) for name in ("fno-stock", "fno")),
    ):
        runs = [run for run in results if run["model"] == model]
        if runs:
            errors = (spread([run["relative_l2"][n] for run in runs]) for n in ("16", "32"))
            lines.append([f"`{model}`", f"{runs[0]['parameters']:,}", *errors, str(len(runs))])
    for row in load("darcy_direct").get("results", []):
        name = f"direct solve, contrast {row['contrast']:.1f}, faces fitted"
        lines.append([name, "3", *(f"{row['relative_l2'][n]:.4f}" for n in ("16", "32")), "-"])
    return markdown(["model", "parameters", "16 x 16", "32 x 32", "seeds"], lines)


def network_ablations() -> str:
    found = load("network_ablations")
    return darcy_mixers(found["results"]) if found.get("results") else MISSING


def darcy_grids(results: Sequence[dict[str, Any]]) -> str:
    ways = {"32": "training grid", **{f"32 {w}": w for w in _WAYS}}
    lines = [
        [f"`{model}`", *(spread([run["relative_l2"][key] for run in runs]) for key in ways)]
        for model, runs in by_model(results).items()
        if "32 input grid" in runs[0]["relative_l2"]
    ]
    return markdown(["model", *ways.values()], lines)


_WAYS = ("input grid", "scaled steps", "dilated")


def vision() -> str:
    rows = load("vision").get("rows")
    if not rows:
        return MISSING
    lines = [
        [
            f"`{row['name']}`",
            f"{row['parameters']:,}",
            number(row, "forward_images_per_second", "{:.1f}"),
            number(row, "forward_speed", "{:.2f}x"),
            number(row, "step_images_per_second", "{:.2f}"),
            number(row, "step_speed", "{:.2f}x"),
            mebibytes(row),
            number(row, "scan_share", "{:.0%}"),
        ]
        for row in rows
    ]
    header = ["model", "parameters", "inference", "x", "training step", "x", "peak MiB", "scan"]
    return markdown(header, lines)


def vision_size() -> str:
    rows = load("vision_size").get("rows")
    if not rows:
        return MISSING
    lines = []
    for row in rows:
        published = row.get("published", {})
        lines.append(
            [
                f"`{row['name']}`",
                number(row, "parameters", "{:.1f}", 1e-6),
                number(row, "multiply_adds", "{:.2f}", 1e-9),
                number(row, "scan_multiply_adds", "{:.2f}", 1e-9),
                published.get("name", "-"),
                number(published, "parameters", "{:g}", 1e-6),
                number(published, "multiply_adds", "{:.1f}", 1e-9),
            ]
        )
    header = ["model", "parameters, M", "multiply-adds, G", "in scans, G", "published", "M", "G"]
    return markdown(header, lines)


def digits(results: Sequence[dict[str, Any]]) -> str:
    lines = []
    for model, runs in by_model(results).items():
        tests = [run["metrics"]["test"] for run in runs]
        lines.append(
            [
                model,
                f"{runs[0]['parameters']:,}",
                spread([100 * test["accuracy"] for test in tests], "{:.2f}"),
                spread([test["cross_entropy"] for test in tests]),
                str(len(runs)),
            ]
        )
    header = ["routing", "parameters", "test accuracy, %", "test cross-entropy", "seeds"]
    return markdown(header, lines)


NEURALOPERATOR: dict[str, Callable[[], str]] = {
    "darcy mixers": lambda: darcy_mixers(load("darcy_mixers")["results"]),
    "darcy grids": lambda: darcy_grids(load("darcy_mixers")["results"]),
}


NETWORK_MODELS: dict[str, Callable[[], str]] = {
    "darcy networks": darcy_networks,
    "network ablations": network_ablations,
}
VISION: dict[str, Callable[[], str]] = {
    "vision size": vision_size,
    "vision": vision,
    "digits": lambda: digits(
        load("digits_ablation")["results"] + load("digits_network").get("results", [])
    ),
}
