"""Rewrite the tables of README.md and docs/, from the result files.

python -m chonn_lab.report.docs           # rewrite
python -m chonn_lab.report.docs --check   # exit 1 if a table is out of date
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from chonn_lab.paths import DOCS, ROOT, RUNS
from chonn_lab.report import claims, figures, page, tables
from chonn_lab.report.runs import Study, read_studies
from chonn_lab.report.tables import load, markdown
from chonn_ops.files import write_whole

CHECK = "--check"
# Fewest seeds of both models in a row of the README: as many have the runs of searched settings.
SEEDS = 5
# And the least share of our seconds that the other model has there.
SHARE = 0.9


def rewritten(text: str, blocks: Mapping[str, Callable[[], str]]) -> str:
    """The page with everything between ``<!-- name -->`` and ``<!-- /name -->`` made anew, lines or
    words, by the block of that name; a KeyError for a block that nothing makes."""
    tables.LOADED.clear()
    block = re.compile(r"(<!-- ([^/]+?) -->\n?).*?(<!-- /\2 -->)", flags=re.S)
    return block.sub(lambda found: found[1] + blocks[found[2]]() + found[3], text)


def without_code() -> str:
    """The results files above on a page that lack a record of their code."""
    names = sorted(f"`{name}.json`" for name, file in tables.LOADED.items() if not has_code(file))
    if names:
        what = "These files record a commit at most, and no digest of the code"
        return f"† {what}: {', '.join(names)}.\n"
    return "Every number on this page has a record of its code in `lab/results`.\n"


def has_code(record: Mapping[str, Any]) -> bool:
    """Whether each number of a results file has a digest of its code; published ones have none."""
    shared = {**record, **record.get("shared", {}), **record.get("environment", {})}
    runs = record.get("results", record.get("runs", [{}]))
    return "values" in record or all("code" in {**shared, **run} for run in runs)


def kernel_speed() -> str:
    """Least and largest ratio of the times of PyTorch and of our kernels, over all operators."""
    scan, network = load("scan"), load("network")
    rows = [{"case": str(row["shape"]), **row} for row in scan["rows"]]
    rows += [{"case": at, **row} for at, x in enumerate(network["peers"]) for row in x["rows"]]
    times = pd.DataFrame(rows).pivot(index="case", columns="name", values=["forward_ms", "both_ms"])
    ratios = times.xs("torch", axis=1, level=1) / times.xs("chonn-ops", axis=1, level=1)
    return f"{ratios.min(axis=None):.1f} to {ratios.max(axis=None):.0f}"


def main() -> None:
    """The program."""
    check = CHECK in sys.argv[1:]
    studies = read_studies(RUNS, mixed=True)
    chosen = page.chosen(studies)
    # Those of a search have other models than the paper.
    judged = claims.verdicts([study for study in studies if "+" not in study.scale])
    blocks: dict[str, Callable[[], str]] = {
        "equal wall-clock": lambda: summary(
            [study for study in chosen if page.SEARCHED in study.scale]
        ),
        "kernel speed": kernel_speed,
        "verdicts": lambda: claims.counted(judged),
        "all problems": lambda: problems(chosen),
        "problems": lambda: "\n".join(page.section(study, docs=True) for study in chosen),
        "claims": lambda: page.TEMPLATES.boards(judged, page.link),
        "origin": without_code,
        **{name: functools.partial(tables.build, name) for name in tables.TABLES},
    }
    for path in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]:
        before = path.read_text()
        text = rewritten(before, blocks)
        if check and text != before:
            raise SystemExit(f"{path.relative_to(ROOT)} is out of date: run `make tables`")
        if not check:
            write_whole(path, text)
    if not check:
        draw(chosen)


def problems(studies: Sequence[Study]) -> str:
    """The first table of the page of results."""
    return markdown(page.overview(studies).drop(columns=["seeds", "share"]), (0, 1, 2, 5))


def summary(studies: Sequence[Study]) -> str:
    """The README's part of it: problems whose models have equal budgets and enough seeds."""
    found: Any = page.overview(studies)
    equal = found[(found.seeds >= SEEDS) & (found.share >= SHARE)]
    long = ["samples", "model", "knows the equation, not the scheme", "seeds", "share"]
    return markdown(equal.drop(columns=long).rename(columns={"error": "CHONN network"}), (0, 3))


def draw(studies: Sequence[Study]) -> None:
    """Draw the figures of docs/lab that result files make."""
    for study in studies:
        figures.draw_training(page.hardest(study), DOCS / page.figure_of(study))
    figures.draw_grids(load("resolution"), DOCS / "figures" / "resolution.png")
    path = RUNS / "rollouts" / "navier_stokes_rollouts-small.json"
    (flow,) = read_studies(path, mixed=True)
    where = tables.TABLES["rollouts"]["where"]
    shown = [name for name in flow.table.index if tables.evaluate(where, {"variant": name})]
    figures.draw_rollouts(flow.table.loc[shown], DOCS / "figures" / "rollouts.svg")


if __name__ == "__main__":
    main()
