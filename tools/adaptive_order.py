"""Blocks that choose their order, and networks their depth, beside fixed ones.

    chonn run adaptive_order:ORDER1D --scale small --seeds 3
    chonn run adaptive_order:DARCY --scale small --seeds 3
    chonn run adaptive_order:POISSON --scale small --seeds 3
    chonn run adaptive_order:DEPTH --scale small --seeds 3
    python adaptive_order.py runs ../docs/results ../benchmarks/results/adaptive_order.json

In this folder. The last line sets them beside the fixed orders, prunes every trained model and
compares outputs.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from pages.reading import adaptive_orders
from torch import nn

from chonn_ops._files import write_json
from chonn_ops.experiments import _steady_models as steady
from chonn_ops.experiments import darcy, order1d, poisson
from chonn_ops.experiments._modules import Standardized
from chonn_ops.experiments.base import Experiment, Variant
from chonn_ops.experiments.provenance import commit
from chonn_ops.models import CHONNNetwork2d, CKBStack1d
from chonn_ops.nn import CKBOptions, StageGates, prune

MAX_ORDER = 4
SPARSITIES = {"": 0.02, "-0.005": 0.005}
KEPT = ("scale", "versions", "hardware", "commit", "dirty", "model", "precision")


class Order1d(order1d.Order1d):
    name = "adaptive-order1d"
    title = "Order-defined benchmark, orders that choose themselves"

    def variants(self, config: Any) -> tuple[Variant[Any], ...]:  # noqa: ARG002
        return tuple(
            Variant(
                f"t{target}-adaptive-{termination}{suffix}",
                f"T{target}, adaptive, sparsity {sparsity:g}, {words}",
                functools.partial(self.model, termination, sparsity),
                changes={"target": target},
            )
            for suffix, sparsity in SPARSITIES.items()
            for termination, words in order1d.TERMINATIONS.items()
            for target in order1d.TARGETS
        )

    @staticmethod
    def model(termination: str, sparsity: float, config: Any) -> nn.Module:
        block = dataclasses.replace(
            config.block(1, termination), order="adaptive", sparsity=sparsity
        )
        return CKBStack1d(config.width, ckb=block)


def of_one_layer(experiment: Any) -> tuple[Variant[Any], ...]:
    """The mixer of one layer, whose fixed orders are layer1 to layer4."""

    def build(sparsity: float, config: Any) -> nn.Module:
        order: Any = "adaptive"
        model = steady.mixer(config, 1, order, sparsity=sparsity)
        return Standardized(model, experiment.units_of(config))

    rate = experiment.scales["small"].mixer_learning_rate
    return tuple(
        Variant(
            f"layer-adaptive{suffix}",
            f"CHONN mixer of one layer, adaptive, sparsity {sparsity:g}",
            functools.partial(build, sparsity),
            changes={"learning_rate": rate},
        )
        for suffix, sparsity in SPARSITIES.items()
    )


class Darcy(darcy.Darcy):
    name = "adaptive-darcy"

    def variants(self, config: Any) -> tuple[Variant[Any], ...]:  # noqa: ARG002
        return of_one_layer(self)


class Poisson(poisson.Poisson):
    name = "adaptive-poisson"

    def variants(self, config: Any) -> tuple[Variant[Any], ...]:  # noqa: ARG002
        return of_one_layer(self)


class Depth(darcy.Darcy):
    """Networks of one to four layers, and those that choose."""

    name = "adaptive-depth"

    def variants(self, config: Any) -> tuple[Variant[Any], ...]:  # noqa: ARG002
        depths: dict[str, int | str] = {f"depth{n}": n for n in range(1, MAX_ORDER + 1)}
        fixed = [self.variant(name, depth, 0.0) for name, depth in depths.items()]
        return (
            *fixed,
            *(self.variant(f"depth-adaptive{s}", "adaptive", p) for s, p in SPARSITIES.items()),
        )

    def variant(self, name: str, depth: int | str, sparsity: float) -> Variant[Any]:
        def build(config: Any) -> nn.Module:
            ckb = CKBOptions(
                cell="network",
                networks=config.networks,
                nodes=self.physics.nodes,
                sparsity=sparsity,
            )
            model = CHONNNetwork2d(
                width=config.network_width, depth=depth, max_depth=MAX_ORDER, ckb=ckb
            )
            return Standardized(model, self.units_of(config))

        small = self.scales["small"]
        changes = {
            "learning_rate": small.network_learning_rate,
            "batch_size": small.network_batch_size,
        }
        return Variant(name, f"CHONN network, depth {depth}", build, changes=changes)


ORDER1D, DARCY, POISSON, DEPTH = Order1d(), Darcy(), Poisson(), Depth()
# Beside which fixed orders: file, names, metric. Those of the depth are of the same study.
FIXED: Mapping[str, tuple[str, str, str]] = {
    ORDER1D.name: ("order1d", "t{target}-order{order}-{termination}", "point"),
    DARCY.name: ("darcy", "layer{order}", "relative_l1"),
    POISSON.name: ("poisson", "layer{order}", "relative_l1"),
    DEPTH.name: ("", "depth{order}", "relative_l1"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", type=Path, help="of chonn run")
    parser.add_argument("fixed", type=Path, help="results of the fixed orders")
    parser.add_argument("output", type=Path, help="JSON file")
    args = parser.parse_args()
    found = [
        row for experiment in (ORDER1D, DARCY, POISSON, DEPTH) for row in rows(experiment, args)
    ]
    if not found:
        raise SystemExit(f"{args.runs}: expected runs of this study, found none")
    record = {"generator": "tools/adaptive_order.py", "commit": commit()[0], "results": found}
    write_json(args.output, record)
    print(adaptive_orders(found))


def rows(experiment: Experiment[Any], args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A problem each: errors of all seeds, those of the fixed orders, and what was chosen."""
    name, pattern, metric = FIXED[experiment.name]
    runs = ladder = [
        json.loads(path.read_text())
        for path in sorted((args.runs / experiment.name / "small").glob("*-seed*.json"))
    ]
    if name:
        fixed = json.loads((args.fixed / f"{name}-small.json").read_text())
        ladder = [{**fixed["shared"], **run} for run in fixed["runs"]]
    else:
        runs = [run for run in runs if "adaptive" in run["variant"]]
    for variant in dict.fromkeys(run["variant"] for run in runs):
        target, termination, sparsity = parts(variant)
        names = {
            order: pattern.format(order=order, target=target[1:], termination=termination)
            for order in range(1, MAX_ORDER + 1)
        }
        mine = [run for run in runs if run["variant"] == variant]
        orders = {
            order: [
                r["metrics"]["test"][metric]
                for r in ladder
                if r["variant"] == named and r["seed"] in [run["seed"] for run in mine]
            ]
            for order, named in names.items()
        }
        best = min(statistics.fmean(errors) for errors in orders.values())
        pruned = [pruned_outputs(experiment, run, args.runs) for run in mine]
        errors = [run["metrics"]["test"][metric] for run in mine]
        yield {
            "problem": name or experiment.name,
            "variant": variant,
            "metric": metric,
            "sparsity": sparsity,
            "seeds": [run["seed"] for run in mine],
            "errors": errors,
            "fixed": {str(order): values for order, values in orders.items()},
            "over_best_fixed": statistics.fmean(errors) / best,
            "orders": [entry["orders"] for entry in pruned],
            "gates": [entry["gates"] for entry in pruned],
            "largest_difference_pruned": max(entry["difference"] for entry in pruned),
            "origin": [{key: run.get(key) for key in ("seed", *KEPT)} for run in mine],
            "data": mine[0]["data"],
            "code": sorted({run["model"] for run in mine if "model" in run}),
            "fixed_commits": sorted(
                {r["commit"] for r in ladder if r["variant"] in names.values()}
            ),
        }


@torch.no_grad()
def pruned_outputs(experiment: Experiment[Any], run: Mapping[str, Any], folder: Path) -> dict:
    """Orders that a trained model has chosen, and how far its pruned outputs are off."""
    config = type(experiment.scales["small"])(
        **{k: tuple(v) if isinstance(v, list) else v for k, v in run["config"].items()}
    )
    (variant,) = (v for v in experiment.variants(config) if v.name == run["variant"])
    model = variant.build(config).eval()
    place = folder / experiment.name / "small" / f"{variant.name}-seed{run['seed']}"
    state = torch.load(place / "last.ckpt", map_location="cpu", weights_only=True)["state_dict"]
    model.load_state_dict({key.removeprefix("model."): value for key, value in state.items()})
    small = prune(model)
    (x,) = experiment.example(config)
    x = torch.rand((4, *x.shape[1:]), generator=torch.Generator().manual_seed(0))
    return {
        "orders": [gates.open_stages() for gates in gates_of(small)],
        "gates": [gates.values().tolist() for gates in gates_of(model)],
        "difference": (small(x) - model(x)).abs().max().item(),
    }


def parts(variant: str) -> tuple[str, str, float]:
    """Target ("t1", or "layer"), termination and sparsity of a variant's name."""
    target, _, rest = variant.partition("-adaptive")
    suffix = next((s for s in SPARSITIES if s and rest.endswith(s)), "")
    return target, rest.removesuffix(suffix).removeprefix("-"), SPARSITIES[suffix]


def gates_of(model: nn.Module) -> list[StageGates]:
    return [module for module in model.modules() if isinstance(module, StageGates)]


if __name__ == "__main__":
    main()
