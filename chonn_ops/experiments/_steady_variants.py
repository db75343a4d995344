"""The models of a steady problem as variants: baselines, networks, ladders of orders, controls."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torch import nn

from chonn_ops.experiments import _steady_models as models
from chonn_ops.experiments._modules import OnDomain, Padded, Standardized
from chonn_ops.experiments._steady_controls import DirectSolve, SolveThenConvolve
from chonn_ops.experiments.base import Variant
from chonn_ops.models import CHONNNetwork2d
from chonn_ops.problems.domains import SQUARE

if TYPE_CHECKING:
    from chonn_ops.experiments._steady import SteadyConfig, SteadyExperiment

ORDERS = range(5)
SOLVED = ("coefficient", "source")
# Baselines that halve the grid; the U-Net four times.
HALVING, MULTIPLE = ("unet", "cno"), 16
# Whose learning rate is a field of the config.
RATES = ("network", "cno", "mixer", "unet", "fno")
ONE_LAYER = "CHONN mixer of one layer"
# What the one layer does without its axial lines, silent outside, and its missing norm.
PROBES = (
    ("short", "odd walls", {"termination": "short"}),
    ("open", "even walls", {"termination": "open"}),
    ("cross", "lines through all rows", {"directions": "cross"}),
    ("group", "norm", {"norm": "group"}),
)
PROBED_ORDERS = (1, 2, 4)
_NETWORK, _CONSTANT = "CHONN network", "CHONN network of constant conductances"
_SOLVER_RATE, _CORRECTION_RATE = 1e-2, 5e-3


def variants(experiment: SteadyExperiment[Any], config: SteadyConfig) -> tuple[Variant[Any], ...]:
    """All models; at a budget of the search, those that it has searched."""
    made = Variants(experiment, config)
    tags = {"role": "network", "order": 1, "depth": config.network_depth}
    everything = (
        *map(made.baseline, models.BASELINES),
        made.network("network", _NETWORK, models.network, 0.9, **tags),
        *(made.ladders() if experiment.ladders else ()),
        *made.controls(),
    )
    if config.sizes in models.BY_HAND:
        return everything
    settings = models.chosen(config, experiment.name, *experiment.searched)
    return tuple(
        dataclasses.replace(variant, changes={**variant.changes, **settings[variant.name]})
        for variant in everything
        if variant.name in settings
    )


def variants3d(experiment: SteadyExperiment[Any], config: SteadyConfig) -> tuple[Variant[Any], ...]:
    """U-Net, both FNOs, networks, networks of constant conductances, and the direct solve.

    Raises
    ------
    ValueError
        For the sizes of a search, which there is not in three dimensions.
    """
    if config.sizes not in models.BY_HAND:
        raise ValueError(f"sizes: expected one of {models.BY_HAND}, got {config.sizes!r}")
    made = Variants(experiment, config)
    constant = functools.partial(models.network, selective=False)
    return (
        *(made.baseline(name, 0.6) for name in ("unet", "fno", "fno-neuralop")),
        made.network("network", _NETWORK, models.network, 1.0, role="network"),
        made.network("network-constant", _CONSTANT, constant, 1.0, role="control"),
        made.solver("direct", "Direct solve", 0.5),
    )


@dataclasses.dataclass(frozen=True)
class Variants:
    """Those of a problem at a config."""

    experiment: SteadyExperiment[Any]
    config: SteadyConfig

    def baseline(self, name: str, cost: float | None = None) -> Variant[Any]:
        family = models.BASELINES[name]
        changes = {"batch_size": self.config.baseline_batch_size}
        changes |= self._rate(name) if name in RATES else {}
        sizes = models.SIZES.get((name, self.config.axes), {})
        changes |= sizes.get(self.config.sizes, {})
        cost = family.cost if cost is None else cost
        tags = {"family": name, "role": "baseline"}
        return self.variant(name, family.label, family.build, cost, changes, tags)

    def network(
        self, name: str, label: str, build: Callable[..., nn.Module], cost: float, **tags: Any
    ) -> Variant[Any]:
        changes = {**self._rate("network"), "batch_size": self.config.network_batch_size}
        built = functools.partial(build, nodes=self.experiment.physics.nodes)
        return self.variant(name, label, built, cost, changes, {"family": "chonn", **tags})

    def ladders(self) -> Iterator[Variant[Any]]:
        """Blocks that differ in their order only, and probes of a single layer."""
        yield from map(self._backbone, ORDERS)
        depth, role = self.config.mixer_depth, "mixer"
        for order in ORDERS[1:]:
            best = order == self.config.best_order
            yield self._mixer(
                f"mixer{order}", "CHONN mixer", depth, order, "best" if best else role
            )
        for order in ORDERS[1:]:
            yield self._mixer(f"layer{order}", ONE_LAYER, 1, order, "layer")
        for kind, label, block in PROBES:
            for order in PROBED_ORDERS:
                name = f"probe-{kind}-{order}"
                yield self._mixer(name, f"{ONE_LAYER}, {label}", 1, order, "probe", **block)

    def controls(self) -> Iterator[Variant[Any]]:
        """What is due to a solver that knows the equation, and what to the cells."""
        for name, label, build in (
            ("network-no-cell", f"{_NETWORK} without cells", models.without_cells),
            ("network-constant", _CONSTANT, models.constant_conductances),
        ):
            yield self.network(name, label, build, 0.6, role="control")
        # Elsewhere a solver would have to be told the walls, or is not one of networks.
        if self.config.domain != SQUARE or self.experiment.physics.input not in SOLVED:
            return
        yield self.solver("direct", "Direct solve", 0.3)
        yield self.solver("direct-fitted", "Direct solve, walls and faces fitted", 0.4, fitted=True)
        solve = self.solver("solve-cnn", "Direct solve and convolutions", 0.5)
        sizes = {"width": 4 if self.config.sizes == "smoke" else 20, "depth": 4}
        changes = {**solve.changes, "learning_rate": _CORRECTION_RATE, **sizes}

        def corrected(config: SteadyConfig) -> nn.Module:
            units = self.experiment.units_of(config)
            direct = DirectSolve(self.experiment.physics, units)
            return SolveThenConvolve(direct, units, config.width, config.depth)

        yield dataclasses.replace(solve, build=corrected, changes=changes)

    def _rate(self, family: str) -> dict[str, Any]:
        return {"learning_rate": getattr(self.config, f"{family}_learning_rate")}

    def _backbone(self, order: int) -> Variant[Any]:
        rate = {"learning_rate": self.config.learning_rate} if order else self._rate("cno")
        return self.variant(
            f"chonn{order}",
            f"CHONN, order {order}",
            lambda c: models.backbone(c, c.n_layers, c.n_res_neck, order),
            0.9 + 0.06 * order,
            rate,
            {"family": "chonn", "role": "ablation", "backbone": "cno", "order": order},
        )

    def _mixer(
        self, name: str, label: str, depth: int, order: int, role: str, **block: Any
    ) -> Variant[Any]:
        tags = {"family": "chonn", "role": role, "backbone": "mixer", "order": order}
        return self.variant(
            name,
            f"{label}, order {order}",
            lambda c: models.mixer(c, depth, order, **block),
            depth * (0.05 + 0.03 * order),
            self._rate("mixer"),
            {**tags, "depth": depth, **block},
        )

    def solver(self, name: str, label: str, cost: float, fitted: bool = False) -> Variant[Any]:
        """The direct solve, which is in the data's own units."""
        experiment = self.experiment
        changes = {"batch_size": self.config.baseline_batch_size, "learning_rate": _SOLVER_RATE}
        return Variant(
            name,
            label,
            lambda c: DirectSolve(experiment.physics, experiment.units_of(c), fitted),
            {"family": "direct", "role": "control"},
            changes,
            cost,
        )

    def variant(
        self,
        name: str,
        label: str,
        build: Callable[[Any], nn.Module],
        cost: float,
        changes: Mapping[str, Any],
        tags: Mapping[str, Any],
    ) -> Variant[Any]:
        """A network, which is told the domain and sees fields of about unit size."""
        experiment = self.experiment

        def scaled(config: SteadyConfig) -> nn.Module:
            model = build(config)
            if name in HALVING and config.resolution % MULTIPLE:
                model = Padded(model, MULTIPLE)
            if config.domain != SQUARE:
                channel = not isinstance(model, CHONNNetwork2d)
                model = OnDomain(model, lambda n: experiment.mask(config, n), channel)
            units = experiment.units_of(config)
            return Standardized(model, units) if config.standardize else model

        return Variant(name, label, scaled, tags, changes, cost)
