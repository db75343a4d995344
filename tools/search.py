"""Search the sizes and learning rates of all families of a steady problem, at equal cost.

What is searched, and how it is scored, is in `_search.py`. A stopped search goes on where it was.
At its end the settings with the lowest validation error are in the file that
``chonn run darcy --set sizes=seconds`` reads, likewise for the other budgets.

    python tools/search.py darcy                          # equal seconds
    python tools/search.py darcy --budgets parameters multiply_adds seconds
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from _search import Search
from _search_space import LIMITS, SPACE

from chonn_ops._files import finite, write_json
from chonn_ops.experiments import FURTHER
from chonn_ops.experiments._steady_models import BUDGETS, CHOSEN
from chonn_ops.experiments.schedule import default_workers

OPTIONS = {field.name: field.default for field in dataclasses.fields(Search)}
STEADY = ("darcy", "poisson", *(name for name in FURTHER if not name.endswith("3d")))


def main() -> None:
    args = parse_arguments()
    torch.set_num_threads(1)  # as the workers have
    for budget in args.budgets:
        limit = getattr(args, budget) if budget in LIMITS else 0
        given = {name: getattr(args, name) for name in OPTIONS if hasattr(args, name)}
        families = tuple(args.families)
        search = Search(**{**given, "budget": budget, "limit": limit, "families": families})
        hours = (args.trials + args.finalists) * args.seconds * len(args.families) / 3600
        print(f"{budget}: about {hours / args.jobs:.1f} hours on {args.jobs} cores")
        record = search.run(args.jobs)
        choose(record, args.chosen)
        for name, family in record["families"].items():
            print(f"{name}: {family['chosen']} ({family['seconds']:.0f} s)")
        print(f"wrote {search.record} and {args.chosen}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("experiment", choices=STEADY)
    parser.add_argument("--budgets", nargs="+", choices=BUDGETS, default=["seconds"])
    parser.add_argument("--scale", choices=("smoke", "small", "paper"), default="small")
    parser.add_argument("--seconds", type=float, default=OPTIONS["seconds"], help="of a training")
    parser.add_argument("--trials", type=int, default=OPTIONS["trials"], help="of each family")
    parser.add_argument(
        "--finalists", type=int, default=OPTIONS["finalists"], help="of them at two seeds"
    )
    for budget, limit in LIMITS.items():
        name = budget.replace("_", "-")
        parser.add_argument(f"--{name}", type=int, default=limit, help="most of them a model")
    parser.add_argument("--families", nargs="+", choices=SPACE, default=list(SPACE))
    parser.add_argument("--output", type=Path, default=OPTIONS["output"], help="results of trials")
    parser.add_argument("--data", type=Path, default=OPTIONS["data"], help="data files")
    parser.add_argument("--chosen", type=Path, default=CHOSEN, help="where the choice is written")
    parser.add_argument("--jobs", type=int, default=default_workers("cpu"), help="processes")
    return parser.parse_args()


def choose(record: Mapping[str, Any], path: Path) -> None:
    """Put what a search chose into the file that studies read, beside what is there."""
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    search = record["search"]
    entries = found.setdefault(search["experiment"], {}).setdefault(search["budget"], [])
    models = {name: family["chosen"] for name, family in record["families"].items()}
    for entry in entries:
        if entry["data"] == record["data"]:
            entry["models"].update(models)
            break
    else:
        entries.append({"data": record["data"], "models": models})
    write_json(path, finite(found))


if __name__ == "__main__":
    main()
