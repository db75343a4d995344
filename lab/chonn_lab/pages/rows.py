"""Rows of tables that are not rows of a result file."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from chonn_lab.pages.files import load

Record = Mapping[str, Any]
NAMES = {"darcy": "Darcy flow", "poisson": "Poisson"}
MESHES = (
    "Darcy flow, a square with two holes",
    "Darcy flow, another polygon each sample",
    "heat in a part of tetrahedra",
)
INTERPOLATED = "the true solution, interpolated"


def spread(values: Iterable[float], form: str = ".4f") -> str:
    """Mean and standard deviation; of one number that is too small for the form its exponent."""
    found = list(values)
    mean = statistics.fmean(found)
    text = format(mean, form if len(found) > 1 or mean > 5e-5 else ".0e" if mean else "g")
    return f"{text} ± {format(statistics.stdev(found), form)}" if len(found) > 1 else text


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


def meshes(*records: Record) -> Iterator[Record]:
    """A row a problem and model: relative L1 on meshes of training and finer ones, and how many
    times that of the circuits; the equation with the models' inputs; the data's own scheme."""
    for problem, record in zip(MESHES, records, strict=True):
        ours = 0.0
        results = [run for run in record["results"] if run["kind"] == "result"]
        for model in dict.fromkeys(run["model"] for run in results):
            runs = [run for run in results if run["model"] == model]
            errors, finer = ([run["errors"][k] for run in runs] for k in ("test", "test_fine"))
            ours = ours or statistics.fmean(errors)
            row = {"problem": problem, "model": model, "parameters": f"{runs[0]['parameters']:,}"}
            row |= {"error": spread(errors), "ratio": f"{statistics.fmean(errors) / ours:.1f}"}
            steps = f"{statistics.median(run['steps'] for run in runs):,.0f}"
            yield {**row, "steps": steps, "finer": spread(finer)}
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
