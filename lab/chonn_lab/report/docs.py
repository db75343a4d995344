"""Rewrite the tables of README.md and docs/, from the result files: ``make tables``."""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from chonn_lab.paths import DOCS, ROOT, RUNS
from chonn_lab.report import claims, figures, page, tables
from chonn_lab.report.runs import Study, read_studies
from chonn_lab.report.tables import load
from chonn_ops.files import write_whole

# The studies whose other models were searched.
SEARCHED = ("darcy-small+train.seconds=40", "poisson-small+train.seconds=40")


def rewritten(text: str, blocks: Mapping[str, Callable[[], str]]) -> str:
    """The page with everything between ``<!-- name -->`` and ``<!-- /name -->`` made anew, lines or
    words, by the block of that name; a KeyError for a block that nothing makes."""
    tables.LOADED.clear()
    block = re.compile(r"(<!-- ([^/]+?) -->\n?).*?(<!-- /\2 -->)", flags=re.S)
    return block.sub(lambda match: match[1] + blocks[match[2]]() + match[3], text)


def without_code() -> str:
    """The results files above on a page whose code no commit has for certain."""
    names = sorted(f"`{name}.json`" for name, file in tables.LOADED.items() if not has_code(file))
    if names:
        what = "These files record no digest of their code, or sources that were not committed"
        return f"† {what}: {', '.join(names)}.\n"
    return "Every number on this page has a record of its code in `lab/results`.\n"


def has_code(record: Mapping[str, Any]) -> bool:
    """Whether each number of a results file has a digest of its code, which is that of a commit;
    published ones have none."""
    shared = {**record, **record.get("shared", {}), **record.get("environment", {})}
    runs = record.get("results", record.get("runs", [{}]))
    known = all("code" in {**shared, **run} for run in runs) and not shared.get("changed")
    return "values" in record or known


def kernel_speed() -> str:
    """Least and largest ratio of the times of PyTorch and of our kernels, over all operators."""
    scan, network = load("scan"), load("network")
    rows = [{"case": str(row["shape"]), **row} for row in scan["rows"]]
    rows += [{"case": at, **row} for at, x in enumerate(network["peers"]) for row in x["rows"]]
    times = pd.DataFrame(rows).pivot(index="case", columns="name", values=["forward_ms", "both_ms"])
    ratios = times.xs("torch", axis=1, level=1) / times.xs("chonn-ops", axis=1, level=1)
    return f"{ratios.min(axis=None):.1f} to {ratios.max(axis=None):.0f}"


def solves(rows: Sequence[Mapping[str, Any]]) -> str:
    """How many solves by the data's scheme take as long as our training on Darcy flow."""
    (row,) = (row for row in rows if row["study"].name == SEARCHED[0])
    cell = tables.TABLES["costs"]["columns"]["solves in the time of training"]
    return str(tables.evaluate(cell, row))


def told(studies: Sequence[Study]) -> list[Study]:
    """The studies that have a section."""
    return [study for study in studies if page.WORDS["studies"].get(study.name)]


def pages() -> dict[Path, str]:
    """README.md and the pages of docs/ as the result files make them."""
    studies = read_studies(RUNS)
    chosen = [study for study in studies if study.name in page.WORDS["studies"]]
    # Studies of a search have other models than the paper.
    rows = page.overview(chosen)
    judged = claims.verdicts([study for study in studies if "+" not in study.scale])
    blocks: dict[str, Callable[[], str]] = {
        "kernel speed": kernel_speed,
        "solves": lambda: solves(rows),
        "verdicts": lambda: claims.counted(judged),
        "problems": lambda: "\n".join(page.section(study, docs=True) for study in told(chosen)),
        "by model": lambda: page.by_model(chosen),
        "claims": lambda: page.TEMPLATES.boards(judged, page.link),
        "origin": without_code,
        **{name: functools.partial(tables.build, name) for name in tables.TABLES},
        **{
            name: functools.partial(tables.tabulate, tables.TABLES[name], rows)
            for name in ("all problems", "equal wall-clock", "costs")
        },
    }
    paths = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    return {path: rewritten(path.read_text(), blocks) for path in paths}


def draw() -> None:
    """Draw the figures of docs/lab that result files make."""
    folder, studies = DOCS / "figures", read_studies(RUNS)
    for study in told(studies):
        page.draw(study, DOCS)
    searched = [study for study in studies if study.name in SEARCHED]
    figures.draw_grids(searched, folder / "resolution.png")
    laws, fluxes, budgets = (
        [study for study in studies if f"runs/{study.name}" in tables.TABLES[name]["file"]]
        for name in ("law", "flux", "curves")
    )
    figures.draw_laws(laws, folder / "laws.svg", "input", "conductivity, up to a factor")
    figures.draw_laws(fluxes, folder / "flux_laws.svg", "|grad u|", "flux over k")
    figures.draw_budgets(budgets, folder / "curves.svg")
    table = tables.TABLES["rollouts"]
    # The file of another history has the labels of the first one.
    files = [RUNS.parent / f"{name}.json" for name in table["file"] if "history=3" not in name]
    models = pd.concat([study.table for file in files for study in read_studies(file)])
    rows = [name for name in models.index if tables.evaluate(table["where"], {"variant": name})]
    path = folder / "rollouts.svg"
    figures.draw_curves(models.loc[rows], path, "rollout_relative_l2", "relative L2", False)


if __name__ == "__main__":
    for path, text in pages().items():
        write_whole(path, text)
    draw()
