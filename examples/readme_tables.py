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

from benchmark_tables import PERFORMANCE, load, markdown
from experiment_tables import EXPERIMENT_TABLES, results_page, verdicts
from host_tables import NETWORK_MODELS, NEURALOPERATOR, VISION, by_model, spread
from network_tables import NETWORKS
from resolution_tables import EQUAL_TIME, RESOLUTION
from results_file import write_whole

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    pages: dict[str, dict[str, Callable[[], str]]] = {
        "README.md": {"darcy networks": NETWORK_MODELS["darcy networks"]},
        "docs/experiments.md": {**EXPERIMENT_TABLES, "verdicts": verdicts},
        "docs/hosts.md": {"darcy": darcy_table},
        "docs/networks.md": {**NETWORK_MODELS, **EQUAL_TIME},
        "docs/neuraloperator.md": NEURALOPERATOR,
        "docs/performance.md": {**PERFORMANCE, **NETWORKS},
        "docs/resolution.md": RESOLUTION,
        "docs/vision.md": VISION,
    }
    for name, tables in pages.items():
        text = (ROOT / name).read_text()
        update(name, text, rewritten(name, text, tables))
    name = "docs/results.md"
    path = ROOT / name
    update(name, path.read_text() if path.exists() else "", results_page())


def update(name: str, old: str, new: str) -> None:
    if "--check" not in sys.argv[1:]:
        write_whole(ROOT / name, new)
    elif new != old:
        raise SystemExit(f"{name} is out of date: run `make tables`")


def rewritten(page: str, text: str, tables: dict[str, Callable[[], str]]) -> str:
    """The text with everything between ``<!-- name -->`` and ``<!-- /name -->`` made anew."""
    for name, build in tables.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
        block = build()
        text, count = re.subn(
            pattern, lambda found, block=block: found[1] + block + found[2], text, flags=re.S
        )
        if count != 1:
            raise SystemExit(f"{page}: expected one block {name!r}, got {count}")
    return text


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
