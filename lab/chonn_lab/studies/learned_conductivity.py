"""What networks learn to be conductivity, over test sets: a table, a figure and a JSON file.

    chonn-lab data generate darcy --n-samples 128 --resolution 64 --seed 7 --output darcy_test.hdf5
    chonn inspect chonn_ops/models/weights/darcy-small.safetensors --data darcy_test.hdf5 \\
        --output inspected/darcy
    chonn-lab run poisson --scale small --variants network --seeds 1 --output runs --data data
    chonn inspect runs/poisson/small/network-seed0/last.ckpt --start 1152 --samples 256 \\
        --data data/poisson/PoissonData_64x64_IN.h5 --output inspected/poisson
    python -m chonn_lab.studies.learned_conductivity inspected/darcy inspected/poisson

Samples 1152 to 1407 of the Poisson file are its test split.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from chonn_lab.experiments.provenance import commit
from chonn_lab.pages.studies import conductivity
from chonn_lab.paths import DOCS, RESULTS
from chonn_ops.circuit.pictures import draw_conductivity
from chonn_ops.files import write_json

KEPT = ("title", "data", "samples", "options", "reference", "learned_conductivity", "generator")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+", help="of chonn inspect")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the numbers")
    parser.add_argument("--figures", type=Path, default=DOCS / "figures")
    args = parser.parse_args()
    record: dict[str, Any] = {
        "generator": "chonn_lab.studies.learned_conductivity",
        "commit": commit()[0],
    }
    for folder in args.folders:
        numbers = json.loads((folder / "inspection.json").read_text())
        found = {key: numbers[key] for key in KEPT}
        record[folder.name] = {**found, "data": Path(numbers["data"]).name}
        picture = draw_conductivity(numbers["learned_conductivity"], numbers["reference"])
        path = args.figures / f"learned_conductivity_{folder.name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture)
        print(f"{folder.name}, {numbers['title']}\n\n{conductivity(numbers)}")
    write_json(args.results / "learned_conductivity.json", record)


if __name__ == "__main__":
    main()
