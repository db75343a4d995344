"""What networks learn to be conductivity, over test sets: a table, a figure and a JSON file.

    chonn data generate darcy --n 128 --resolution 64 --seed 7 --output darcy_test.hdf5
    chonn inspect chonn_ops/models/weights/darcy-small.safetensors --data darcy_test.hdf5 \\
        --output inspected/darcy
    chonn run poisson --scale small --variants network --seeds 1 --output runs --data data
    chonn inspect runs/poisson/small/network-seed0/last.ckpt --start 1152 --samples 256 \\
        --data data/poisson/PoissonData_64x64_IN.h5 --output inspected/poisson
    python tools/learned_conductivity.py inspected/darcy inspected/poisson

Samples 1152 to 1407 of the Poisson file are its test split.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from pages.blocks import RESULTS, ROOT
from pages.reading import conductivity

from chonn_ops._files import write_json
from chonn_ops.experiments.provenance import commit
from chonn_ops.inspection._pictures import learned_picture

KEPT = ("title", "data", "samples", "options", "reference", "learned_conductivity", "generator")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+", help="of chonn inspect")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the numbers")
    parser.add_argument("--figures", type=Path, default=ROOT / "docs" / "figures")
    args = parser.parse_args()
    record: dict[str, Any] = {"generator": "tools/learned_conductivity.py", "commit": commit()[0]}
    for folder in args.folders:
        numbers = json.loads((folder / "inspection.json").read_text())
        found = {key: numbers[key] for key in KEPT}
        record[folder.name] = {**found, "data": Path(numbers["data"]).name}
        picture = learned_picture(numbers["learned_conductivity"], numbers["reference"])
        path = args.figures / f"learned_conductivity_{folder.name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture)
        print(f"{folder.name}, {numbers['title']}\n\n{conductivity(numbers)}")
    write_json(args.results / "learned_conductivity.json", record)


if __name__ == "__main__":
    main()
