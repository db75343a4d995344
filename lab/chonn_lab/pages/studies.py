"""Tables of studies: error bars, finer grids and domains, rollouts."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from typing import Any

from chonn_lab.pages.blocks import MISSING, Build, Row, block, by_model, load, number, pivot, spread
from chonn_lab.paths import DOCS, RUNS
from chonn_lab.report import style
from chonn_lab.report.comparison import Statistic
from chonn_lab.report.document import markdown
from chonn_lab.report.results import Study, read_studies

Record = dict[str, Any]
NAMES = {"darcy": "Darcy flow", "poisson": "Poisson"}
INTERPOLATED = "the true solution, interpolated"
RESULTS, LINES = RUNS / "rollouts", RUNS / "lines" / "line_rollouts.json"
FLOW, WATER = "navier_stokes_rollouts", "shallow_water_rollouts"
METRICS = (
    "one_step_relative_l2",
    "rollout_relative_l2",
    "rollout_relative_l2_last",
    "growth_200",
)
CURVE = "rollout_relative_l2"
FIGURE = DOCS / "figures" / "rollouts.svg"
# Models of the table of flows and, but for the first history alone, of the figure.
SHOWN = (
    "fno-longer",
    "fno-pushforward-longer",
    "networks-longer",
    "networks-pushforward-longer",
    "substeps",
)


def groups(record: Record, domain: str) -> dict[tuple[str, int, str], list[Record]]:
    """Runs by problem, grid of the training and label of the model."""
    found: dict[tuple[str, int, str], list[Record]] = {}
    runs = sorted(record.get("results", []), key=lambda run: (run["problem"], run["trained"]))
    for run in runs:
        if run["domain"] == domain and not run["diverged"]:
            key = run["problem"], run["trained"], run["label"]
            found.setdefault(key, []).append(run)
    return found


def grids(record: Record) -> str:
    """A line a problem, model and grid of the training: errors on that grid and on the finest."""
    finest = max(int(n) for run in record["results"] for n in run["errors"]["test"])
    lines = []
    for (problem, trained, label), runs in groups(record, "square").items():
        for split in runs[0]["errors"]:
            name = f"{NAMES[problem]}{', out of distribution' if split != 'test' else ''}"
            cells = [
                spread([run["errors"][split][str(grid)] for run in runs])
                if str(grid) in runs[0]["errors"][split]
                else "-"
                for grid in (trained, finest)
            ]
            size = f"{runs[0]['parameters']:,}"
            lines.append([name, label, f"{trained}", size, *cells, str(len(runs))])
    for row in record.get("interpolated", []):
        error = number(row["errors"], str(finest), "{:.4f}")
        lines.append(
            [NAMES[row["problem"]], INTERPOLATED, f"{row['trained']}", "-", "-", error, "-"]
        )
    lines.sort(key=lambda line: (line[0], int(line[2])))
    header = ["problem", "model", "trained at", "parameters", "there", f"at {finest}", "seeds"]
    return markdown(header, lines)


def domains(record: Record) -> str:
    """A line a problem and model, a column a domain, each beside the square."""
    parts = [name for name in ("l-shape", "holes") if groups(record, name)]
    lines = []
    for (problem, trained, label), runs in groups(record, "square").items():
        own = spread([run["errors"]["test"][str(trained)] for run in runs])
        line = [NAMES[problem], label, f"{trained}", own]
        for domain in parts:
            other = groups(record, domain).get((problem, trained, label))
            if other:
                line += [
                    spread([run["errors"]["test"][str(trained)] for run in other]),
                    f"{mean(other, str(trained)) / mean(runs, str(trained)):.2f}",
                ]
            else:
                line += ["-", "-"]
        if set(line[4:]) - {"-"}:
            lines.append(line)
    header = ["problem", "model", "points", "square"]
    for domain in parts:
        header += [domain, "/ square"]
    return markdown(header, lines)


def mean(runs: list[Record], grid: str) -> float:
    return statistics.fmean(run["errors"]["test"][grid] for run in runs)


def studies(experiment: str) -> list[Study]:
    # The model changed between runs; each records its commit.
    found = read_studies(RESULTS, mixed=True) if any(RESULTS.glob("*.json")) else []
    return [study for study in found if study.experiment == experiment]


def rollouts() -> str:
    """A line a model: means over the seeds."""
    lines = [
        [
            group.label,
            f"{group.runs[0].config['history']} to 1",
            *(str(found) if (found := group.metric(m)).values else "diverged" for m in METRICS),
            f"{group.parameters:,}",
            f"{group.seconds.mean:.0f}",
            str(len(group.runs)),
        ]
        for study in studies(FLOW)
        for group in study.groups
        if group.variant in SHOWN
    ]
    header = [
        "model",
        "frames",
        "one step",
        "rollout",
        "last frame",
        "growth over 200 steps",
    ]
    header += ["parameters", "seconds", "seeds"]
    return markdown(header, lines, (0, 1)) if lines else MISSING


def water() -> str:
    """Shallow water: nRMSE, and the change of the volume over a rollout (cRMSE)."""
    rows = [
        [
            group.label,
            str(group.metric("nrmse")),
            str(group.metric("csv")),
            f"{group.parameters:,}",
            f"{group.seconds.mean:.0f}",
            str(len(group.runs)),
        ]
        for study in studies(WATER)
        for group in study.groups
    ]
    header = ["model", "nRMSE", "cRMSE", "parameters", "seconds", "seeds"]
    return markdown(header, rows) if rows else MISSING


def draw() -> None:
    """Error over the frames of a rollout, a line a model."""
    with style.styled():
        figure, axes = style.grid(1, 1, 3.6)
        axis = axes[0, 0]
        (study,) = [study for study in studies(FLOW) if study.scale == "small"]
        shown = [group for group in study.groups if group.variant in SHOWN]
        for at, group in enumerate(shown):
            errors = group.curve(CURVE)
            look = style.look(group)._replace(colour=style.CYCLE[at], line="-")
            style.band(axis, range(1, len(errors) + 1), errors, look, group.label)
        style.logarithmic(axis.yaxis)
        style.finish(figure, axes, x="frames after the given ones", y=["relative L2"])
        style.save(figure, FIGURE)


def lines() -> str:
    """A line a problem and model of the 1-D problems: means over the seeds."""
    if not LINES.exists():
        return MISSING
    runs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in json.loads(LINES.read_text())["results"]:
        runs.setdefault((row["problem"], row["model"]), []).append(row)
    errors = ("one_step", "rollout", "rollout_last")
    rows = [
        [
            problem,
            model,
            f"{found[0]['parameters']:,}",
            f"{statistics.median(row['steps'] for row in found):,.0f}",
            *(str(Statistic.of(row[name] for row in found)) for name in errors),
            str(len(found)),
        ]
        for (problem, model), found in sorted(runs.items(), key=lambda item: item[0][0])
    ]
    header = ["problem", "model", "parameters", "steps", "one step", "rollout", "last frame"]
    return markdown([*header, "seeds"], rows, (0, 1))


def steps(rows: Sequence[Row]) -> str:
    """Milliseconds of a step at each batch size, and over the FNO's."""
    batches = list(dict.fromkeys(row["batch"] for row in rows))
    table = [
        [model, f"{found[0]['parameters']:,}"]
        + [f"{row['forward_ms']:.1f} ({row['forward_ratio']:.2f})" for row in found]
        for model, found in by_model(rows).items()
    ]
    return markdown(["model", "parameters", *(f"batch {batch}" for batch in batches)], table)


METHODS = {
    "uqno": "UQNO",
    "uqno, own rule": "UQNO, its own rule",
    "learned": "`fit_spread`, samples of its own",
    "learned, all samples": "`fit_spread`, training samples",
    "ensemble": "`Ensemble` of two",
    "base, constant": "constant, samples of UQNO's base",
    "member, constant": "constant, all samples",
}
KINDS = {"network": "CHONN network", "fno": "FNO", "unet": "U-Net"}
SOURCES = {"neuralop": "neuraloperator's Darcy files", "darcy": "Darcy flow, 16 x 16"}


def bands(results: Sequence[Row]) -> str:
    """A line a problem, model and method: means over the seeds."""
    lines = []
    for problem, model in dict.fromkeys((row["problem"], row["model"]) for row in results):
        runs = [row for row in results if (row["problem"], row["model"]) == (problem, model)]
        for method, label in METHODS.items():
            found = [run["bands"][method]["test"] for run in runs]
            cells = [
                spread([row[key] for row in found], form)
                for key, form in (
                    ("relative_l2", "{:.4f}"),
                    ("coverage", "{:.3f}"),
                    ("width", "{:.4f}"),
                    ("width_at_level", "{:.4f}"),
                    ("lowest_tenth", "{:.2f}"),
                )
            ]
            lines.append([SOURCES[problem], KINDS[model], label, *cells, str(len(runs))])
    header = ["problem", "model", "bands", "relative L2", "coverage", "width", "width at 90 %"]
    return markdown([*header, "lowest tenth", "seeds"], lines, (0, 1, 2))


def gaps(results: Sequence[Row]) -> str:
    """A line a problem and model, a column an input: error, coverage and width."""
    texts = {
        ("clean", "clean"): "clean",
        ("noise", "noise"): "noisy",
        ("gaps", "gaps"): "half missing",
        ("clean", "noise"): "trained and calibrated clean, tested noisy",
    }
    rows = [
        {"problem": problem, "model": model, "input": label, "found": found}
        for problem, model in dict.fromkeys((row["problem"], row["model"]) for row in results)
        for (trained, tested), label in texts.items()
        if (
            found := [
                row["tests"][tested]
                for row in results
                if (row["problem"], row["model"], row["input"]) == (problem, model, trained)
            ]
        )
    ]

    def cell(row: Row) -> str:
        names = ("relative_l2", "coverage", "width")
        return ", ".join(spread([run[name] for run in row["found"]], "{:.3f}") for name in names)

    def line(row: Row) -> list[str]:
        return [NAMES[row["problem"]], KINDS[row["model"]], str(len(row["found"]))]

    return pivot(rows, ["problem", "model", "seeds"], line, lambda row: row["input"], cell)


def shifted(results: Sequence[Row]) -> str:
    """A line a spread and test: coverage by level, width at 90 %."""
    lines = []
    for row in results:
        for test, found in row.items():
            if not isinstance(found, dict) or "coverage" not in found:
                continue
            cells = [f"{value:.3f}" for value in found["coverage"].values()]
            error = f"{found['relative_l2']:.4f}"
            lines.append([row["spread"], test, error, *cells, f"{found['width']:.4f}"])
    levels = [f"{float(n):.0%}" for n in results[0]["contrast 10"]["coverage"]]
    header = ["spread", "tested at", "relative L2", *levels, "width at 90 %"]
    return markdown(header, lines, (0, 1))


MESHES = {
    "holes": "Darcy flow, a square with two holes",
    "domains": "Darcy flow, another polygon each sample",
    "part": "heat in a part of tetrahedra",
}


def meshes() -> str:
    """A line a problem and model: relative L1 on meshes of training and finer ones, and how many
    times that of the circuits; the equation with the models' inputs; the data's own scheme."""
    lines = []
    for problem, text in MESHES.items():
        record = load(f"meshes_{problem}")
        if not record:
            return MISSING
        runs = [row for row in record["results"] if row["kind"] == "result"]
        ours = 0.0
        for model, found in by_model(runs).items():
            errors, finer = ([row["errors"][k] for row in found] for k in ("test", "test_fine"))
            ours = ours or statistics.fmean(errors)
            lines.append(
                [
                    text,
                    model,
                    f"{found[0]['parameters']:,}",
                    f"{statistics.median(row['steps'] for row in found):,.0f}",
                    spread(errors, "{:.4f}"),
                    f"{statistics.fmean(errors) / ours:.1f}",
                    spread(finer, "{:.4f}"),
                ]
            )
        told, scheme = record["controls"]["equation"], record["controls"]["scheme"]
        cells = f"{told['test']:.4f}", f"{told['test'] / ours:.1f}", f"{told['test_fine']:.4f}"
        lines.append([text, "control: the equation, k at nodes", "-", "-", *cells])
        name = f"control: the data's scheme, {1e3 * scheme['seconds']:.0f} ms a sample"
        lines.append([text, name, "-", "-", f"{scheme['error']:.2g}", "-", "-"])
    header = ["problem", "model", "parameters", "steps", "relative L1", "/ ours", "finer mesh"]
    return markdown(header, lines, (0, 1))


def beyond_solvers(problem: str) -> str:
    """A line a model and control: errors on test data, of each kind too, and milliseconds."""
    record = load(problem)
    if not record:
        return MISSING
    kinds = list(record["controls"][0]["kinds"])
    lines = []
    for model, runs in by_model(
        [row for row in record["results"] if row["kind"] == "result"]
    ).items():
        name = "control: learned coefficients, the equation" if model == "equation" else model
        cells = [
            f"{runs[0]['parameters']:,}",
            f"{statistics.median(r['steps'] for r in runs):,.0f}",
        ]
        for found in (
            [run["relative_l1"] for run in runs],
            [run["nrmse"] for run in runs],
            *([run["kinds"][kind] for run in runs] for kind in kinds),
        ):
            cells.append(spread(found, "{:.4f}"))
        lines.append([name, *cells, f"{statistics.median(r['milliseconds'] for r in runs):.1f}"])
    for row in record["controls"]:
        errors = [row["relative_l1"], row["nrmse"], *row["kinds"].values()]
        cells = [f"{error:.4f}" if error > 5e-5 else f"{error:.0e}" for error in errors]
        lines.append([f"control: {row['control']}", "-", "-", *cells, f"{row['milliseconds']:.1f}"])
    header = ["model", "parameters", "steps", "relative L1", "nRMSE", *kinds, "ms a sample"]
    return markdown(header, lines)


STUDIES: dict[str, Build] = {
    "upscaling": lambda: beyond_solvers("upscaling"),
    "unknown law": lambda: beyond_solvers("unknown_law"),
    "meshes": meshes,
    "bands": block("bands", "results", bands),
    "gaps": block("gaps", "results", gaps),
    "shifted bands": block("shifted_bands", "results", shifted),
    "grids": block("resolution", "", grids),
    "domains": block("resolution", "", domains),
    "rollouts": rollouts,
    "water": water,
    "lines": lines,
    "steps": block("rollouts", "rows", steps),
}
