"""Weights and card of a trained network, from the folder of its runs, into the package.

    chonn-lab run problem=darcy model=chonn_network seed=0,1,2 -m
    python -m chonn_lab.studies.pretrained runs/darcy/small darcy-small --finer 128
    python -m chonn_lab.studies.pretrained runs/helmholtz/small helmholtz-small --model network-ac
    python -m chonn_lab.studies.pretrained runs/FOLDER vorticity-small --model substeps

The seed with the lowest validation error is taken. The unit of a steady problem's outputs in
training goes into the readout, so that the model gives fields in the data's own units, and takes
them in these units unless its card says more; its scores are measured with the weights as they are
stored. What a card says of input and output is that of the earlier one. Models
in time are trained in the data's units: weights and scores are the run's.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from chonn_lab.experiments.configuration import TEXTS, build_problem
from chonn_lab.experiments.modules import Standardized, Units
from chonn_lab.experiments.runner import STATE, load_checkpoint
from chonn_ops import CHONNNetwork2d, CHONNRollout2d, CHONNWaves2d, CKBOptions
from chonn_ops.files import write_whole
from chonn_ops.models import pretrained
from chonn_ops.models.network import OFFSET_GAIN

TRAINED = "lift.weight"
# Models in time; the others are steady problems' networks.
FORECASTS = {"navier_stokes": CHONNRollout2d, "shallow_water": CHONNWaves2d}
KEPT = ("experiment", "scale", "seed", "seconds", "commit", "versions", "hardware")
RECIPE = ("epochs", "batch_size", "learning_rate", "schedule")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("study", type=Path, help="folder of the runs")
    parser.add_argument("name", help="under which `from_pretrained` finds them")
    parser.add_argument("--like", help="a card whose input and output this one has [NAME]")
    parser.add_argument("--model", default="network", help="name of the runs")
    parser.add_argument("--data", type=Path, default=Path("data"), help="data files")
    parser.add_argument("--finer", type=int, nargs="*", default=[], help="further grids to score")
    args = parser.parse_args()
    files = f"{args.model}*-seed*.json"
    runs = [json.loads(path.read_text()) for path in args.study.glob(files)]
    if not runs:
        raise SystemExit(f"{args.study}: expected {files}, found none")
    best = min(runs, key=lambda run: run["curve"]["validation_error"][-1])
    described = pretrained.card(args.like or args.name)
    content = load_checkpoint(args.study / f"{best['variant']}-seed{best['seed']}" / "last.ckpt")
    found, state = content[STATE]["settings"], content["state_dict"]
    (prefix,) = [key.removesuffix(TRAINED) for key in state if key.endswith(TRAINED)]
    weights = {key.removeprefix(prefix): value.contiguous() for key, value in state.items()}
    sizes = {k: v for k, v in found["model"].items() if k not in (*TEXTS, "_target_")}
    kind: Any = FORECASTS.get(best["experiment"], CHONNNetwork2d)
    if best["experiment"] in FORECASTS:
        options = {"history": found["problem"]["history"], **sizes}
        options.setdefault("nodes", "centres")
        kind(**options).load_state_dict(weights)  # refuses what does not fit
    else:
        options = fold(weights, found, sizes)
        best["metrics"] = scores(found, weights, options, args.finer, args.data)
    fields = {"model": kind.__name__, "options": options}
    fields |= {name: described[name] for name in ("input", "output")}
    target = pretrained.FOLDER / f"{args.name}.safetensors"
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(save(weights))
    text = json.dumps(card(runs, best, fields), indent=1)
    write_whole(target.with_suffix(".json"), text + "\n")
    print(f"wrote {target}, {target.stat().st_size} bytes, seed {best['seed']}")


def fold(
    weights: dict[str, Tensor], found: dict[str, Any], sizes: dict[str, Any]
) -> dict[str, Any]:
    """Changes a network's weights to those for fields in the data's own units; its options."""
    problem: Any = build_problem(found)
    if problem.standardize:
        units = units_of(problem)
        for name in ("head.weight", "head.bias", "offset"):
            weights[name] *= units.output_spread
        weights["offset"] += units.output_centre / OFFSET_GAIN
    cell = {k: v for k, v in sizes.items() if k not in ("width", "depth")}
    ckb = {"cell": "network", "nodes": problem.physics.nodes, **cell}
    return {"width": sizes["width"], "depth": sizes["depth"], "ckb": ckb}


def units_of(problem: Any) -> Units:
    """The units that the network had in training."""
    units = problem.about_unit_size
    return units.unshifted() if problem.physics.input == "coefficient" else units


def scores(
    found: dict[str, Any],
    weights: dict[str, Tensor],
    options: dict[str, Any],
    finer: list[int],
    folder: Path,
) -> dict[str, dict[str, float]]:
    """Scores of the weights on the test samples, on the grid of training and on finer ones."""
    model = CHONNNetwork2d(**{**options, "ckb": CKBOptions.from_mapping(options["ckb"])})
    model.load_state_dict(weights)  # refuses what does not fit
    problem = build_problem({**found, "problem": {**found["problem"], "test_resolutions": finer}})
    problem.prepare(folder / problem.name)
    trained = units_of(problem)
    given = Standardized(model.eval(), trained._replace(output_centre=0.0, output_spread=1.0))
    with torch.no_grad():
        scored = problem.evaluate(given, problem.load(folder / problem.name))
    return {split: dict(metrics) for split, metrics in scored.metrics.items()}


def card(runs: list[dict[str, Any]], best: dict[str, Any], fields: dict[str, Any]) -> dict:
    """What `fields` say of the model, with its data, training and scores."""
    config = best["config"]
    error = config.get("error") or next(iter(best["metrics"]["test"]))
    return {
        **fields,
        "parameters": best["parameters"],
        "data": {
            "generator": f"chonn-lab data generate {best['experiment']}",
            "samples": config["n_train"],
            "resolution": config["resolution"],
            "official": False,
        },
        "training": {key: best[key] for key in KEPT} | {key: config[key] for key in RECIPE},
        "scores": best["metrics"],
        f"{error}_of_seeds": {
            str(run["seed"]): run["metrics"]["test"][error]
            for run in sorted(runs, key=lambda run: run["seed"])
        },
        "chosen": "lowest validation error of the seeds",
        "licence": "MIT",
    }


if __name__ == "__main__":
    main()
