"""Rewrite the tables of README.md and docs/ from the results files: nobody types a number.

python tools/tables.py           # rewrite
python tools/tables.py --check   # exit 1 if a table is out of date
"""

from __future__ import annotations

import re
import sys

from pages import claims, results, rollouts
from pages.blocks import ROOT, Build, rewritten
from pages.experiments import EXPERIMENTS_PAGE, kept, studies
from pages.hosts import HOSTS, INSTALLATION, NETWORK_MODELS, NEURALOPERATOR, VISION
from pages.networks import NETWORKS
from pages.performance import PERFORMANCE
from pages.reading import READING
from pages.resolution import EQUAL_TIME, RESOLUTION

from chonn_ops._files import write_whole

CHECK = "--check"


def main() -> None:
    pages: dict[str, dict[str, Build]] = {
        "README.md": {"equal wall-clock": lambda: results.equal_wall_clock(kept())},
        "docs/experiments.md": {**EXPERIMENTS_PAGE, "verdicts": claims.verdicts},
        "docs/hosts.md": HOSTS,
        "docs/installation.md": INSTALLATION,
        "docs/networks.md": {**NETWORK_MODELS, **EQUAL_TIME},
        "docs/neuraloperator.md": NEURALOPERATOR,
        "docs/performance.md": {**PERFORMANCE, **NETWORKS},
        "docs/reading.md": READING,
        "docs/resolution.md": RESOLUTION,
        "docs/rollouts.md": rollouts.ROLLOUTS,
        "docs/vision.md": VISION,
    }
    for name, tables in pages.items():
        text = (ROOT / name).read_text()
        update(name, text, rewritten(name, text, tables))
    found = studies()
    whole = {"docs/results.md": results.results_page(found), "docs/claims.md": claims.claims_page()}
    for name, text in whole.items():
        path = ROOT / name
        update(name, path.read_text() if path.exists() else "", text)
    if CHECK not in sys.argv[1:]:
        results.draw(found)
        rollouts.draw()
    for picture in re.findall(r"!\[[^]]*\]\(([^)]+)\)", whole["docs/results.md"]):
        if not (ROOT / "docs" / picture).is_file():
            raise SystemExit(f"docs/{picture}, which docs/results.md shows, does not exist")


def update(name: str, old: str, new: str) -> None:
    if CHECK not in sys.argv[1:]:
        write_whole(ROOT / name, new)
    elif new != old:
        raise SystemExit(f"{name} is out of date: run `make tables`")


if __name__ == "__main__":
    main()
