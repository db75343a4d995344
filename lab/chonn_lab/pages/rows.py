"""Rows of tables that are not rows of a result file."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from chonn_lab.pages.files import load

Record = Mapping[str, Any]
NAMES = {"darcy": "Darcy flow", "poisson": "Poisson"}
METHODS = {
    "uqno": "UQNO",
    "uqno, own rule": "UQNO, its own rule",
    "learned": "`fit_spread`, samples of its own",
    "learned, all samples": "`fit_spread`, training samples",
    "ensemble": "`Ensemble` of two",
    "base, constant": "constant, samples of UQNO's base",
    "member, constant": "constant, all samples",
}
SOURCES = {"neuralop": "neuraloperator's Darcy files", "darcy": "Darcy flow, 16 x 16"}
MESHES = (
    "Darcy flow, a square with two holes",
    "Darcy flow, another polygon each sample",
    "heat in a part of tetrahedra",
)
INTERPOLATED = "the true solution, interpolated"


def spread(values: Iterable[float], form: str = ".4f") -> str:
    """Mean and standard deviation."""
    found = list(values)
    text = format(statistics.fmean(found), form)
    return f"{text} ± {format(statistics.stdev(found), form)}" if len(found) > 1 else text


def results_of(record: Record) -> Iterator[tuple[dict[str, Any], list[Record]]]:
    """Cells of each model of an earlier study of equal seconds, and its results."""
    models: dict[str, list[Record]] = {}
    for run in record["results"]:
        if run["kind"] == "result":
            models.setdefault(run["model"], []).append(run)
    for model, runs in models.items():
        steps = f"{statistics.median(run['steps'] for run in runs):,.0f}"
        yield {"model": model, "parameters": f"{runs[0]['parameters']:,}", "steps": steps}, runs


def bands(record: Record) -> Iterator[Record]:
    """A row a problem, method and seed."""
    for run in record["results"]:
        for method, label in METHODS.items():
            yield {"problem": SOURCES[run["problem"]], "method": label, **run["bands"][method]}


def groups(record: Record, domain: str) -> dict[tuple[str, int, str], list[Record]]:
    """Runs on several grids by problem, grid of the training and label of the model."""
    found: dict[tuple[str, int, str], list[Record]] = {}
    runs = sorted(record.get("results", []), key=lambda run: (run["problem"], run["trained"]))
    for run in runs:
        if run["domain"] == domain and not run["diverged"]:
            key = run["problem"], run["trained"], run["label"]
            found.setdefault(key, []).append(run)
    return found


def grids(record: Record) -> Iterator[Record]:
    """A row a problem, model and grid of the training: errors on that grid and on the finest."""
    finest = max((n for run in record["results"] for n in run["errors"]["test"]), key=int)
    found = []
    for (problem, trained, label), runs in groups(record, "square").items():
        for split in runs[0]["errors"]:
            name = f"{NAMES[problem]}{', out of distribution' if split != 'test' else ''}"
            errors = [run["errors"][split] for run in runs]
            cells = (
                spread([error[n] for error in errors]) if n in errors[0] else "-"
                for n in (str(trained), finest)
            )
            row = dict(zip(("there", "finest"), cells, strict=True))
            row |= {"problem": name, "label": label, "trained": trained, "seeds": len(runs)}
            found.append({**row, "parameters": f"{runs[0]['parameters']:,}"})
    for row in record.get("interpolated", []):
        error = f"{row['errors'][finest]:.4f}" if finest in row["errors"] else "-"
        row = {"problem": NAMES[row["problem"]], "trained": row["trained"], "finest": error}
        found.append({**row, "label": INTERPOLATED})
    yield from sorted(found, key=lambda row: (row["problem"], row["trained"]))


def domains(record: Record) -> Iterator[Record]:
    """A row a problem and model: errors on the domains, and over that on the square."""
    parts = {"l-shape": "l_shape", "holes": "holes"}
    for key, runs in groups(record, "square").items():
        problem, trained, label = key
        own = [run["errors"]["test"][str(trained)] for run in runs]
        row = {"problem": NAMES[problem], "label": label, "trained": trained, "square": spread(own)}
        for domain, name in parts.items():
            if other := groups(record, domain).get(key):
                errors = [run["errors"]["test"][str(trained)] for run in other]
                ratio = statistics.fmean(errors) / statistics.fmean(own)
                row |= {name: spread(errors), f"{name}_ratio": f"{ratio:.2f}"}
        if len(row) > 4:
            yield row


def beyond_solvers(record: Record) -> Iterator[Record]:
    """A row a model and control of files of an earlier program, which docs/lab/studies.md names:
    errors on test data, of each kind of media too, milliseconds."""
    for row, runs in results_of(record):
        if row["model"] == "equation":
            row["model"] = "control: learned coefficients, the equation"
        row["ms"] = f"{statistics.median(run['milliseconds'] for run in runs):.1f}"
        row |= {key: spread([run[key] for run in runs]) for key in ("relative_l1", "nrmse")}
        yield row | {kind: spread([r["kinds"][kind] for r in runs]) for kind in runs[0]["kinds"]}
    for control in record["controls"]:
        row = {"model": f"control: {control['control']}", "ms": f"{control['milliseconds']:.1f}"}
        errors = {key: control[key] for key in ("relative_l1", "nrmse")} | control["kinds"]
        yield row | {
            key: f"{error:.4f}" if error > 5e-5 else f"{error:.0e}" if error else "0"
            for key, error in errors.items()
        }


def meshes(*records: Record) -> Iterator[Record]:
    """A row a problem and model: relative L1 on meshes of training and finer ones, and how many
    times that of the circuits; the equation with the models' inputs; the data's own scheme."""
    for problem, record in zip(MESHES, records, strict=True):
        ours = 0.0
        for row, runs in results_of(record):
            errors, finer = ([run["errors"][k] for run in runs] for k in ("test", "test_fine"))
            ours = ours or statistics.fmean(errors)
            row |= {
                "problem": problem,
                "error": spread(errors),
                "ratio": f"{statistics.fmean(errors) / ours:.1f}",
            }
            yield {**row, "finer": spread(finer)}
        told, scheme = record["controls"]["equation"], record["controls"]["scheme"]
        error = {"error": f"{told['test']:.4f}", "ratio": f"{told['test'] / ours:.1f}"}
        row = {"problem": problem, "model": "control: the equation, k at nodes", **error}
        yield {**row, "finer": f"{told['test_fine']:.4f}"}
        name = f"control: the data's scheme, {1e3 * scheme['seconds']:.0f} ms a sample"
        yield {"problem": problem, "model": name, "error": f"{scheme['error']:.2g}"}


def kernel_speed() -> str:
    """Least and largest ratio of the times of PyTorch and of our kernels, over all operators."""
    scan, network = load("scan"), load("network")
    cases: dict[Any, dict[str, Record]] = {}
    for at, peers in enumerate(network["peers"]):
        cases[at] = {row["name"]: row for row in peers["rows"]}
    for row in scan["rows"]:
        cases.setdefault(tuple(row["shape"]), {})[row["name"]] = row
    ratios = [
        case["torch"][time] / case["chonn-ops"][time]
        for case in cases.values()
        for time in ("forward_ms", "both_ms")
    ]
    return f"{min(ratios):.1f} to {max(ratios):.0f}"
