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
from collections.abc import Iterable, Iterator, Mapping
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
from chonn_ops.experiments.records import Run
from chonn_ops.models import CHONNNetwork2d, CKBStack1d
from chonn_ops.nn import CKBOptions, StageGates, prune
from chonn_ops.report.comparison import Statistic
from chonn_ops.report.results import read_study

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


class OneLayer:
    """The mixer of one layer, whose fixed orders are layer1 to layer4."""

    def variants(self: Any, config: Any) -> tuple[Variant[Any], ...]:  # noqa: ARG002
        rate = self.scales["small"].mixer_learning_rate
        return tuple(
            Variant(
                f"layer-adaptive{suffix}",
                f"CHONN mixer of one layer, adaptive, sparsity {sparsity:g}",
                functools.partial(self.model, sparsity),
                changes={"learning_rate": rate},
            )
            for suffix, sparsity in SPARSITIES.items()
        )

    def model(self: Any, sparsity: float, config: Any) -> nn.Module:
        order: Any = "adaptive"
        return Standardized(
            steady.mixer(config, 1, order, sparsity=sparsity), self.units_of(config)
        )


class Darcy(OneLayer, darcy.Darcy):
    name = "adaptive-darcy"


class Poisson(OneLayer, poisson.Poisson):
    name = "adaptive-poisson"


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
    folder = args.runs / experiment.name / "small"
    if not folder.is_dir():
        return
    study = read_study(folder)
    ladder = read_study(args.fixed / f"{name}-small.json") if name else study
    by_name = {group.variant: group.runs for group in ladder.groups}

    def errors(runs: Iterable[Run]) -> list[float | None]:
        return [run.metrics["test"][metric] for run in runs]

    for group in sorted(study.groups, key=lambda group: f"{group.variant}-seed"):
        if "adaptive" not in group.variant:
            continue
        target, termination, sparsity = parts(group.variant)
        seeds = [run.seed for run in group.runs]
        beside = {
            order: by_name[pattern.format(order=order, target=target[1:], termination=termination)]
            for order in range(1, MAX_ORDER + 1)
        }
        fixed = {
            str(order): errors(run for run in runs if run.seed in seeds)
            for order, runs in beside.items()
        }
        mine = Statistic.of(errors(group.runs)).mean
        pruned = [pruned_outputs(experiment, run, folder) for run in group.runs]
        yield {
            "problem": name or experiment.name,
            "variant": group.variant,
            "metric": metric,
            "sparsity": sparsity,
            "seeds": seeds,
            "errors": errors(group.runs),
            "fixed": fixed,
            "over_best_fixed": mine / min(Statistic.of(values).mean for values in fixed.values()),
            "orders": [entry["orders"] for entry in pruned],
            "gates": [entry["gates"] for entry in pruned],
            "largest_difference_pruned": max(entry["difference"] for entry in pruned),
            "origin": [{key: getattr(run, key) for key in ("seed", *KEPT)} for run in group.runs],
            "data": group.runs[0].data,
            "code": sorted({run.model for run in group.runs if run.model}),
            "fixed_commits": sorted({run.commit for runs in beside.values() for run in runs}),
        }


@torch.no_grad()
def pruned_outputs(experiment: Experiment[Any], run: Run, folder: Path) -> dict[str, Any]:
    """Orders that a trained model has chosen, and how far its pruned outputs are off."""
    config = type(experiment.scales["small"])(
        **{k: tuple(v) if isinstance(v, list) else v for k, v in run.config.items()}
    )
    (variant,) = (v for v in experiment.variants(config) if v.name == run.variant)
    model = variant.build(config).eval()
    path = folder / f"{run.variant}-seed{run.seed}" / "last.ckpt"
    state = torch.load(path, map_location="cpu", weights_only=True)["state_dict"]
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
