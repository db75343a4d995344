"""Tables of models inside PDEBench, neuraloperator and timm, and of tested environments."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from chonn_lab.pages.blocks import (
    MEBIBYTES,
    MISSING,
    Build,
    Row,
    block,
    by_model,
    load,
    spread,
    tabulate,
)
from chonn_lab.report.document import markdown

POINTS = ("16", "32")
# Files of results of `examples/pdebench_darcy.py` at these learning rates.
RATES = ("5e-4", "1e-3", "3e-3", "1e-2", "2e-2")


def pdebench(runs: Sequence[dict[str, Any]]) -> str:
    lines = []
    for label, results in by_model({**run, "model": _label(run)} for run in runs).items():
        seconds = statistics.median(result["seconds_per_epoch"] for result in results)
        metrics = ("nrmse", "relative_l1", "boundary_rmse")
        errors = (spread(result["metrics"][name] for result in results) for name in metrics)
        size = f"{results[0]['parameters']:,}"
        lines.append([label, size, *errors, f"{seconds:.2f}", str(len(results))])
    header = ["model", "parameters", "nRMSE", "rel. L1", "boundary RMSE", "s / epoch", "seeds"]
    return markdown(header, lines)


def rates() -> str:
    """A line a learning rate of `chonn_network` on the data and settings of ``make demo``."""
    lines = []
    for name in RATES:
        found = load(f"pdebench_rate_{name}")
        if not found:
            return MISSING
        errors = [run["metrics"]["nrmse"] for run in found["results"]]
        rate = f"{found['config']['learning_rate']:g}"
        lines.append([rate, spread(errors), f"{max(errors):.4f}", str(len(errors))])
    return markdown(["learning rate", "nRMSE", "worst", "seeds"], lines)


def _label(run: Row) -> str:
    """The name, and what is not its default: the paper's scans."""
    ours = run["model"].startswith("chonn_")
    scans = ours and run.get("options", {}).get("cell", "scan") == "scan"
    return f"`{run['model']}`{', scans' if scans else ''}"


def series(runs: Sequence[Row]) -> str:
    """A line a problem and model of PDEBench's time series."""
    lines = []
    for problem in dict.fromkeys(run["problem"] for run in runs):
        for model, found in by_model(r for r in runs if r["problem"] == problem).items():
            errors = (spread(run["metrics"][name] for run in found) for name in ("nrmse", "csv"))
            seconds = statistics.median(run["seconds"] for run in found)
            size = f"{found[0]['parameters']:,}"
            lines.append([problem, f"`{model}`", size, *errors, f"{seconds:.0f}", str(len(found))])
    header = ["problem", "model", "parameters", "nRMSE", "cRMSE", "seconds", "seeds"]
    return markdown(header, lines, (0, 1))


def neuraloperator(results: Iterable[Row]) -> str:
    """A line a model of `chonn_lab.studies.neuralop_darcy`, and a direct solve."""
    lines = [_line(f"`{model}`", runs) for model, runs in by_model(results).items()]
    for row in load("darcy_direct").get("results", []):
        name = f"direct solve, contrast {row['contrast']:.1f}, faces fitted"
        errors = (f"{row['relative_l2'][points]:.4f}" for points in POINTS)
        lines.append([name, "3", *errors, "-", "-"])
    return markdown(["model", "parameters", "16 x 16", "32 x 32", "s", "seeds"], lines)


def _line(name: str, runs: Sequence[Row]) -> list[str]:
    errors = (spread(run["relative_l2"][points] for run in runs) for points in POINTS)
    seconds = statistics.median(run["seconds"] for run in runs)
    return [name, f"{runs[0]['parameters']:,}", *errors, f"{seconds:.0f}", str(len(runs))]


def vision(rows: list[Row]) -> str:
    return tabulate(
        rows,
        ("model", "name", "`{}`"),
        ("parameters", "parameters", "{:,}"),
        ("inference", "forward_images_per_second", "{:.1f}"),
        ("x", "forward_speed", "{:.2f}x"),
        ("training step", "step_images_per_second", "{:.2f}"),
        ("x", "step_speed", "{:.2f}x"),
        ("peak MiB", "peak_bytes", "{:.0f}", MEBIBYTES),
        ("scan", "scan_share", "{:.0%}"),
    )


def vision_size(rows: list[Row]) -> str:
    def published(key: str) -> Any:
        return lambda row: row.get("published", {}).get(key)

    return tabulate(
        rows,
        ("model", "name", "`{}`"),
        ("parameters, M", "parameters", "{:.1f}", 1e-6),
        ("multiply-adds, G", "multiply_adds", "{:.2f}", 1e-9),
        ("in scans, G", "scan_multiply_adds", "{:.2f}", 1e-9),
        ("published", published("name")),
        ("M", published("parameters"), "{:g}", 1e-6),
        ("G", published("multiply_adds"), "{:.1f}", 1e-9),
    )


def digits(results: Iterable[Row]) -> str:
    lines = []
    for model, runs in by_model(results).items():
        tests = [run["metrics"]["test"] for run in runs]
        accuracy = spread((100 * test["accuracy"] for test in tests), "{:.2f}")
        entropy = spread(test["cross_entropy"] for test in tests)
        lines.append([model, f"{runs[0]['parameters']:,}", accuracy, entropy, str(len(runs))])
    header = ["routing", "parameters", "test accuracy, %", "test cross-entropy", "seeds"]
    return markdown(header, lines)


def versions(rows: list[Row]) -> str:
    def package(name: str):
        return lambda row: row["versions"][name]

    def commit(row: Row) -> str:
        return f"`{row['commit'][:8]}`{', changed' if row['dirty'] else ''}"

    return tabulate(
        rows,
        ("Python", "python"),
        *((name, package(name)) for name in ("torch", "numpy", "neuraloperator", "timm")),
        ("tests", "tests"),
        ("passed", "passed", "{:,}"),
        ("failed", "failed"),
        ("skipped", "skipped"),
        ("on", lambda row: row["system"]),
        ("commit, day", lambda row: f"{commit(row)}, {row['date']}"),
        texts=(0, 1, 2, 3, 4, 5, 9, 10),
    )


HOSTS: dict[str, Build] = {
    "darcy": block("darcy_16", "results", pdebench),
    "rates": rates,
    "series": block("pdebench_series", "results", series),
    "neuraloperator darcy": block("neuralop_darcy", "results", neuraloperator),
    "vision size": block("vision_size", "rows", vision_size),
    "vision": block("vision", "rows", vision),
    "digits": lambda: digits(
        load("digits_ablation")["results"] + load("digits_network").get("results", [])
    ),
    "versions": block("versions", "results", versions),
}
