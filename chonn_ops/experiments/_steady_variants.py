"""The models of a steady problem as variants: baselines, networks, ladders of orders, controls."""

from __future__ import annotations

import dataclasses
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
_SOLVER_RATE, _CORRECTION_RATE = 1e-2, 5e-3


def variants(experiment: SteadyExperiment[Any], config: SteadyConfig) -> tuple[Variant[Any], ...]:
    """All models; at a budget of the search, those that it has searched."""
    made = Variants(experiment, config)
    ladders = made.ladders() if experiment.ladders else ()
    everything = (
        *map(made.baseline, models.BASELINES),
        made.network(
            "network",
            "CHONN network",
            models.network,
            0.9,
            role="network",
            order=1,
            depth=config.network_depth,
        ),
        *ladders,
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
    return (
        *(made.baseline(name, models.SIZES_3D, 0.6) for name in ("unet", "fno", "fno-neuralop")),
        made.network("network", "CHONN network", models.network, 1.0, role="network"),
        made.network(
            "network-constant",
            "CHONN network of constant conductances",
            lambda c, nodes: models.network(c, nodes, selective=False),
            1.0,
            role="control",
        ),
        made.solver("direct", "Direct solve", 0.5, _SOLVER_RATE, lambda solve, _: solve),
    )


@dataclasses.dataclass(frozen=True)
class Variants:
    """Those of a problem at a config."""

    experiment: SteadyExperiment[Any]
    config: SteadyConfig

    def baseline(
        self,
        name: str,
        sizes: Mapping[str, Mapping[str, Mapping[str, Any]]] = models.SIZES,
        cost: float | None = None,
    ) -> Variant[Any]:
        family = models.BASELINES[name]
        settings = sizes.get(name, {}).get(self.config.sizes, {})
        if name in RATES:
            settings = {"learning_rate": getattr(self.config, f"{name}_learning_rate")}
        return self.variant(
            name,
            family.label,
            family.build,
            family.cost if cost is None else cost,
            {"batch_size": self.config.baseline_batch_size, **settings},
            family=name,
            role="baseline",
        )

    def network(
        self,
        name: str,
        label: str,
        build: Callable[[Any, str], nn.Module],
        cost: float,
        **tags: Any,
    ) -> Variant[Any]:
        nodes, config = self.experiment.physics.nodes, self.config
        changes = {
            "learning_rate": config.network_learning_rate,
            "batch_size": config.network_batch_size,
        }
        return self.variant(
            name, label, lambda c: build(c, nodes), cost, changes, family="chonn", **tags
        )

    def ladders(self) -> Iterator[Variant[Any]]:
        """Blocks that differ in their order only, and probes of a single layer."""
        yield from (self._backbone(order) for order in ORDERS)
        for order in ORDERS[1:]:
            yield self._mixer("mixer", "CHONN mixer", self.config.mixer_depth, order)
        yield from (self._mixer("layer", ONE_LAYER, 1, order) for order in ORDERS[1:])
        for kind, label, block in PROBES:
            for order in PROBED_ORDERS:
                yield self._mixer(f"probe-{kind}-", f"{ONE_LAYER}, {label}", 1, order, **block)

    def controls(self) -> Iterator[Variant[Any]]:
        """What is due to a solver that knows the equation, and what to the cells."""
        for name, label, build in (
            ("no-cell", "without cells", models.without_cells),
            ("constant", "of constant conductances", models.constant_conductances),
        ):
            yield self.network(
                f"network-{name}", f"CHONN network {label}", build, 0.6, role="control"
            )
        # Elsewhere a solver would have to be told the walls, or is not one of networks.
        if self.config.domain != SQUARE or self.experiment.physics.input not in SOLVED:
            return
        yield self.solver("direct", "Direct solve", 0.3, _SOLVER_RATE, lambda solve, _: solve)
        yield self.solver(
            "direct-fitted",
            "Direct solve, walls and faces fitted",
            0.4,
            _SOLVER_RATE,
            lambda solve, _: solve,
            fitted=True,
        )
        yield self.solver(
            "solve-cnn",
            "Direct solve and convolutions",
            0.5,
            _CORRECTION_RATE,
            lambda solve, c: SolveThenConvolve(solve, solve.units, c.width, c.depth),
            {"width": 4 if self.config.sizes == "smoke" else 20, "depth": 4},
        )

    def _backbone(self, order: int) -> Variant[Any]:
        config = self.config
        rate = config.learning_rate if order else config.cno_learning_rate
        return self.variant(
            f"chonn{order}",
            f"CHONN, order {order}",
            lambda c: models.backbone(c, c.n_layers, c.n_res_neck, order),
            0.9 + 0.06 * order,
            {"learning_rate": rate},
            family="chonn",
            role="ablation",
            backbone="cno",
            order=order,
        )

    def _mixer(self, kind: str, label: str, depth: int, order: int, **block: Any) -> Variant[Any]:
        best = (kind, order) == ("mixer", self.config.best_order)
        return self.variant(
            f"{kind}{order}",
            f"{label}, order {order}",
            lambda c: models.mixer(c, depth, order, **block),
            depth * (0.05 + 0.03 * order),
            {"learning_rate": self.config.mixer_learning_rate},
            family="chonn",
            role="best" if best else kind.partition("-")[0],
            backbone="mixer",
            order=order,
            depth=depth,
            **block,
        )

    def solver(
        self,
        name: str,
        label: str,
        cost: float,
        rate: float,
        use: Callable[[DirectSolve, Any], nn.Module],
        sizes: Mapping[str, Any] | None = None,
        fitted: bool = False,
    ) -> Variant[Any]:
        """A model around the direct solve, which is in the data's own units."""
        experiment = self.experiment

        def build(config: SteadyConfig) -> nn.Module:
            return use(
                DirectSolve(experiment.physics, experiment.units_of(config), fitted),
                config,
            )

        batch = {"batch_size": self.config.baseline_batch_size, "learning_rate": rate}
        changes = {**batch, **(sizes or {})}
        return Variant(name, label, build, {"family": "direct", "role": "control"}, changes, cost)

    def variant(
        self,
        name: str,
        label: str,
        build: Callable[[Any], nn.Module],
        cost: float,
        changes: Mapping[str, Any],
        **tags: Any,
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
