"""Rewrite the tables of README.md and docs/ from the results files: nobody types a number.

python examples/readme_tables.py           # rewrite
python examples/readme_tables.py --check   # exit 1 if a table is out of date
"""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import adaptive_order
import learned_conductivity
from benchmark_tables import LOADED, PERFORMANCE, load, markdown
from experiment_tables import EXPERIMENT_TABLES, claims_page, studies, verdicts
from host_tables import NETWORK_MODELS, NEURALOPERATOR, VISION, by_model, spread
from network_tables import NETWORKS
from resolution_tables import EQUAL_TIME, RESOLUTION
from results_file import has_origin, write_whole
from results_page import draw, results_page
from rollout_tables import ROLLOUTS

ROOT = Path(__file__).resolve().parent.parent
CHECK = "--check"
READING: dict[str, Callable[[], str]] = {
    f"{name} conductivity": lambda name=name: (
        learned_conductivity.table(load("learned_conductivity")[name]) + "\n"
    )
    for name in ("darcy", "poisson")
} | {"adaptive order": lambda: adaptive_order.table(load("adaptive_order")["results"]) + "\n"}


def main() -> None:
    pages: dict[str, dict[str, Callable[[], str]]] = {
        "README.md": {"darcy networks": NETWORK_MODELS["darcy networks"]},
        "docs/experiments.md": {**EXPERIMENT_TABLES, "verdicts": verdicts},
        "docs/hosts.md": {"darcy": darcy_table},
        "docs/networks.md": {**NETWORK_MODELS, **EQUAL_TIME},
        "docs/neuraloperator.md": NEURALOPERATOR,
        "docs/performance.md": {**PERFORMANCE, **NETWORKS},
        "docs/reading.md": READING,
        "docs/resolution.md": RESOLUTION,
        "docs/rollouts.md": ROLLOUTS,
        "docs/vision.md": VISION,
    }
    for name, tables in pages.items():
        text = (ROOT / name).read_text()
        update(name, text, rewritten(name, text, tables))
    found = studies()
    whole = {"docs/results.md": results_page(found), "docs/claims.md": claims_page()}
    for name, text in whole.items():
        path = ROOT / name
        update(name, path.read_text() if path.exists() else "", text)
    if CHECK not in sys.argv[1:]:
        draw(found)
    for picture in re.findall(r"!\[[^]]*\]\(([^)]+)\)", whole["docs/results.md"]):
        if not (ROOT / "docs" / picture).is_file():
            raise SystemExit(f"docs/{picture}, which docs/results.md shows, does not exist")


def update(name: str, old: str, new: str) -> None:
    if CHECK not in sys.argv[1:]:
        write_whole(ROOT / name, new)
    elif new != old:
        raise SystemExit(f"{name} is out of date: run `make tables`")


def rewritten(page: str, text: str, tables: dict[str, Callable[[], str]]) -> str:
    """The text with everything between ``<!-- name -->`` and ``<!-- /name -->`` made anew.

    The last block, "origin", is of all the others.
    """
    LOADED.clear()
    for name, build in {**tables, "origin": without_origin}.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
        block = build()
        text, count = re.subn(
            pattern, lambda found, block=block: found[1] + block + found[2], text, flags=re.S
        )
        if count != 1:
            raise SystemExit(f"{page}: expected one block {name!r}, got {count}")
    return text


def without_origin() -> str:
    """The results files of a page that do not say of which data and code they are."""
    names = [f"`{name}.json`" for name, record in LOADED.items() if not has_origin(record)]
    if not names:
        return "All numbers of this page have a record of their data and code.\n"
    return (
        "† Measured before results had a record of their data and code, of which these have at "
        f"most a commit: {', '.join(sorted(names))}.\n"
    )


def darcy_table() -> str:
    rows = []
    named = [{**run, "model": _label(run)} for run in load("darcy_16")["results"]]
    for label, results in by_model(named).items():
        seconds = statistics.median(result["seconds_per_epoch"] for result in results)
        metrics = ("nrmse", "relative_l1", "boundary_rmse")
        rows.append(
            [
                label,
                f"{results[0]['parameters']:,}",
                *(spread([result["metrics"][name] for result in results]) for name in metrics),
                f"{seconds:.2f}",
                str(len(results)),
            ]
        )
    header = ["model", "parameters", "nRMSE", "rel. L1", "boundary RMSE", "s / epoch", "seeds"]
    return markdown(header, rows)


def _label(run: dict) -> str:
    """The name, and what is not its default: the paper's scans."""
    ours = run["model"].startswith("chonn_")
    scans = ours and run.get("options", {}).get("cell", "scan") == "scan"
    return f"`{run['model']}`{', scans' if scans else ''}"


if __name__ == "__main__":
    main()
