"""Models of the steady problems, for fields (B, 1, R, R), with their sizes and learning rates.

`variants` lists the models of a problem. `chonn_lab.studies.search` chose the sizes
and learning rates of `SEARCHED` on validation data; they are in chosen.json, beside this file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import io
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import nn

from chonn_lab.baselines.ffno import FFNO
from chonn_lab.baselines.fields import count_parameters
from chonn_lab.baselines.galerkin import GalerkinTransformer
from chonn_lab.baselines.mgno import MgNO
from chonn_lab.baselines.transolver import Transolver
from chonn_lab.experiments.base import Variant
from chonn_lab.experiments.modules import (
    PLAIN,
    Extended,
    GridFNO,
    Neuralop,
    OnDomain,
    Padded,
    Standardized,
)
from chonn_lab.experiments.solvers import DirectSolve, NoCell, SolveThenConvolve
from chonn_lab.problems.domains import SQUARE
from chonn_ops.models import (
    CHONNFNO2d,
    CHONNNetwork2d,
    CHONNUNet2d,
)
from chonn_ops.models.cno import CNOUNet
from chonn_ops.nn import CKB, CKBOptions, Network, NetworkCell, Scan

if TYPE_CHECKING:
    from chonn_lab.experiments.steady import SteadyConfig, SteadyExperiment

# Sizes by hand; those of a search in which all models had the same seconds of training.
BY_HAND = ("smoke", "small", "paper")
SEARCHED = "seconds"
ORDERS = range(5)
# Without it the initial outputs of orders above 2 overflow.
SELECTIVE_NORM = True
SOLVED = ("coefficient", "source")
# Baselines that halve the grid, the U-Net four times: it needs multiples of 16.
HALVING, MULTIPLE = ("unet", "cno"), 16
# Models whose learning rate is a field of the config.
RATES = ("network", "cno", "unet", "fno")
OWN_SCHEME = "own-scheme"
_NETWORK, _CONSTANT = "CHONN network", "CHONN network of constant conductances"
_ALTERNATING = "CHONN network, alternating current"
_SOLVER_RATE, _CORRECTION_RATE = 1e-2, 5e-3
_ALTERNATING_SIZES = {
    "network_depth": 1,
    "batch_size": 2,
    "gradient_clip": 1.0,
    "learning_rate": 2e-3,
}


# Fields of the config that are sizes of baselines; each model uses those that it has.
FAMILY_SIZES = (
    *("width", "depth", "heads", "slices", "modes", "levels"),
    *("coarsening", "padding", "shared_weights"),
)
CHOSEN = Path(__file__).with_name("chosen.json")


def in_channels(config: SteadyConfig) -> int:
    """Number of input channels: the fields and, on a part of the square, the mask."""
    return config.fields_in + (config.domain != SQUARE)


def unet(config: SteadyConfig) -> nn.Module:
    """PDEBench's plain U-Net."""
    sizes = (in_channels(config), config.fields_out, config.unet_features)
    return CHONNUNet2d(*sizes, ckb=PLAIN)


def fno(config: SteadyConfig) -> nn.Module:
    """PDEBench's plain FNO."""
    # Input channels are passed as frames, since PDEBench's FNO returns as many channels as it gets.
    fields, modes = config.fields_out, config.fno_modes
    frames = in_channels(config) // fields
    return GridFNO(
        CHONNFNO2d(fields, modes, modes, config.fno_width, initial_step=frames, ckb=PLAIN)
    )


def neuralop_fno(config: SteadyConfig) -> nn.Module:
    """neuraloperator's FNO, which adds the coordinates."""
    from neuralop.models import FNO

    return Neuralop(
        FNO(
            (config.modes,) * 2,
            in_channels(config),
            config.fields_out,
            config.width,
            n_layers=config.depth,
            domain_padding=config.padding,
        )
    )


def uno(config: SteadyConfig) -> nn.Module:
    """neuraloperator's UNO with the shape of its Darcy example: the three middle layers have half
    the grid and twice the channels."""
    from neuralop.models import UNO

    width, wide = config.width, 2 * config.width
    with contextlib.redirect_stdout(io.StringIO()):  # it prints what skips it has
        model = UNO(
            in_channels(config),
            config.fields_out,
            width,
            lifting_channels=2 * wide,
            projection_channels=2 * wide,
            n_layers=5,
            uno_out_channels=[width, wide, wide, wide, width],
            uno_n_modes=[[config.modes] * 2] * 5,
            uno_scalings=[[scale, scale] for scale in (1, 0.5, 1, 2, 1)],
            channel_mlp_skip="linear",
            domain_padding=config.padding,
        )
    return Neuralop(model)


def _own(kind: type[nn.Module]) -> Callable[[SteadyConfig], nn.Module]:
    """A function that builds one of our implementations of a published model."""
    sizes = [name for name in FAMILY_SIZES if name in inspect.signature(kind).parameters]
    return lambda config: kind(
        in_channels(config), config.fields_out, **{n: getattr(config, n) for n in sizes}
    )


def network(
    config: SteadyConfig,
    nodes: str,
    *,
    width: int | None = None,
    boundary: str | None = None,
    margin: float = 0.0,
    **options: bool,
) -> nn.Module:
    """The network model: networks on every point are the only coupling between points.
    `margin` is that of `Extended`, `options` are those of `chonn_ops.Network`."""
    cell = Network(num_networks=config.num_networks, nodes=nodes, **options)
    model = CHONNNetwork2d(
        config.fields_in,
        config.fields_out,
        width=config.network_width if width is None else width,
        depth=config.network_depth,
        lengths=1 + 2 * margin,
        ckb=CKBOptions(cell, boundary=boundary),
    )
    return Extended(model, margin) if margin else model


def without_cells(config: SteadyConfig, nodes: str) -> nn.Module:
    """The network model without its solves, widened until it has as many parameters."""

    def build(width: int) -> nn.Module:
        model = network(config, nodes, width=width)
        for block in model.modules():
            if isinstance(block, CKB):
                for place, cell in enumerate(block.cells):
                    cell = cast("NetworkCell", cell)
                    block.cells[place] = NoCell(cell.dim, cell.options.num_networks)
        return model

    return _of_equal_size(build, config, nodes)


def constant_conductances(config: SteadyConfig, nodes: str) -> nn.Module:
    """The network model with conductances and leaks that do not depend on the input, widened until
    it has as many parameters."""
    return _of_equal_size(
        lambda width: network(config, nodes, width=width, selective=False), config, nodes
    )


def _of_equal_size(
    build: Callable[[int], nn.Module], config: SteadyConfig, nodes: str
) -> nn.Module:
    """The model whose number of parameters is nearest to the network's, by its width."""
    first = config.network_width
    with torch.device("meta"):
        wanted = count_parameters(network(config, nodes))
        sizes = {
            width: abs(count_parameters(build(width)) - wanted)
            for width in range(first, first + 2 + first // 4)
        }
    return build(min(sizes, key=lambda width: sizes[width]))


def backbone(config: SteadyConfig, n_layers: int, n_res_neck: int, order: int) -> nn.Module:
    """The paper's CHONN: a CNO with CKBs in its deepest stages."""
    return CNOUNet(
        in_channels(config),
        n_layers=n_layers,
        n_res=config.n_res,
        n_res_neck=n_res_neck,
        channel_multiplier=config.channel_multiplier,
        latent=config.latent,
        ckb=_block(config, order),
    )


def _block(config: SteadyConfig, order: int) -> CKBOptions:
    cell = Scan(d_state=config.d_state, selective_norm=SELECTIVE_NORM)
    return CKBOptions(cell, order=order)


class Family(NamedTuple):
    """A kind of baseline.

    Attributes
    ----------
    label : str
    build : callable
    cost : float
        Seconds of a run relative to the other variants'.
    """

    label: str
    build: Callable[[SteadyConfig], nn.Module]
    cost: float


BASELINES: Mapping[str, Family] = {
    "unet": Family("U-Net", unet, 0.2),
    "fno": Family("FNO", fno, 0.45),
    "cno": Family("CNO", lambda c: backbone(c, c.cno_layers, c.cno_res_neck, 0), 0.95),
    "fno-neuralop": Family("FNO (neuraloperator)", neuralop_fno, 0.5),
    "uno": Family("UNO (neuraloperator)", uno, 0.5),
    "ffno": Family("F-FNO", _own(FFNO), 0.5),
    "transolver": Family("Transolver", _own(Transolver), 1.7),
    "galerkin": Family("Galerkin Transformer", _own(GalerkinTransformer), 1.1),
    "mgno": Family("MgNO", _own(MgNO), 0.3),
}
_FAST, _SLOW = {"learning_rate": 1e-2}, {"learning_rate": 5e-3}
# Fields of the config by hand, by model. At "small", 67,000 to 75,000
# parameters; at "paper", the sizes that the papers or the libraries' examples have for Darcy flow.
SIZES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "fno-neuralop": {
        "smoke": {"width": 4, "depth": 2, "modes": 4, "padding": 0.125},
        "small": {"width": 11, "depth": 4, "modes": 16, "padding": 0.125, **_FAST},
        "paper": {"width": 64, "depth": 4, "modes": 32, "padding": 0.125},
    },
    "uno": {
        "smoke": {"width": 2, "modes": 4},
        "small": {"width": 8, "modes": 10, **_FAST},
        "paper": {"width": 32, "modes": 16},
    },
    "ffno": {
        "smoke": {"width": 4, "depth": 2, "modes": 4, "padding": 0.125},
        "small": {"width": 25, "depth": 4, "modes": 12, "padding": 0.125, **_FAST},
        "paper": {"width": 64, "depth": 24, "modes": 16, "padding": 0.125},
    },
    "transolver": {
        "smoke": {"width": 4, "depth": 1, "heads": 2, "slices": 4},
        "small": {"width": 32, "depth": 3, "heads": 4, "slices": 32, **_SLOW},
        "paper": {"width": 128, "depth": 8, "heads": 8, "slices": 64},
    },
    "galerkin": {
        "smoke": {"width": 4, "depth": 1, "heads": 2, "modes": 4, "coarsening": 2},
        "small": {"width": 20, "depth": 3, "heads": 4, "modes": 6, "coarsening": 1, **_SLOW},
        "paper": {"width": 128, "depth": 6, "heads": 4, "modes": 12, "coarsening": 3},
    },
    "mgno": {
        "smoke": {"width": 2, "depth": 2, "levels": 3},
        "small": {"width": 13, "depth": 3, "levels": 5, **_SLOW},
        "paper": {"width": 24, "depth": 5, "levels": 6},
    },
}


def chosen(config: SteadyConfig, *experiments: str) -> Mapping[str, Mapping[str, Any]]:
    """Fields of the config by model, as the search chose them.

    Parameters
    ----------
    config : SteadyConfig
    *experiments : str
        Problems whose search may be used; the first one that has a search of this data is.

    Raises
    ------
    ValueError
        Without a search for this number of samples and this resolution; names the command.
    """
    found = json.loads(CHOSEN.read_text(encoding="utf-8"))
    data = {"n_train": config.n_train, "resolution": config.resolution}
    for experiment in experiments:
        for entry in found.get(experiment, {}).get(config.sizes, []):
            if entry["data"] == data:
                return entry["models"]
    raise ValueError(
        f"sizes: expected a search for {' or '.join(experiments)} with {data} for "
        f"{config.sizes!r}, got none; run chonn_lab.studies.search"
    )


def variants(experiment: SteadyExperiment[Any], config: SteadyConfig) -> tuple[Variant[Any], ...]:
    """All models; at a budget of the search, those with searched sizes and the data's scheme."""
    made = Variants(experiment, config)
    tags = {"role": "network", "order": 1, "depth": config.network_depth}
    trained = (
        *map(made.baseline, BASELINES),
        made.network("network", _NETWORK, network, 0.9, **tags),
        *(map(made.backbone, ORDERS) if experiment.ladders else ()),
        *made.controls(),
    )
    if config.sizes not in BY_HAND:
        settings = chosen(config, experiment.name, *experiment.searched)
        trained = (
            dataclasses.replace(variant, changes={**variant.changes, **settings[variant.name]})
            for variant in trained
            if variant.name in settings
        )
    return (*trained, *made.own_scheme())


@dataclasses.dataclass(frozen=True)
class Variants:
    """The variants of a problem at a config."""

    experiment: SteadyExperiment[Any]
    config: SteadyConfig

    def baseline(self, name: str) -> Variant[Any]:
        family = BASELINES[name]
        changes = {"batch_size": self.config.baseline_batch_size}
        changes |= self._rate(name) if name in RATES else {}
        sizes = SIZES.get(name, {})
        changes |= sizes.get(self.config.sizes, {})
        tags = {"family": name, "role": "baseline"}
        return self.variant(name, family.label, family.build, family.cost, changes, tags)

    def network(
        self, name: str, label: str, build: Callable[..., nn.Module], cost: float, **tags: Any
    ) -> Variant[Any]:
        changes = {**self._rate("network"), "batch_size": self.config.network_batch_size}
        built = functools.partial(build, nodes=self.experiment.physics.nodes)
        return self.variant(name, label, built, cost, changes, {"family": "chonn", **tags})

    def alternating(
        self, boundary: str | None = None, margin: float = 0.0, epochs: int = 11
    ) -> Variant[Any]:
        """Networks at a frequency. On 32 x 32 points one layer beat two, and without the clip on
        gradients, which resonances make large, training stalled. At twice this rate it lost what
        it had learned. Batches of 4 were slower to learn, 0.052 on Helmholtz' equation instead of
        0.036 to 0.047; single samples gave 0.024 to 0.030 with most seeds and 0.10 with one.
        `epochs` are those of a search's sizes."""
        build = functools.partial(network, boundary=boundary, margin=margin, ac=True)
        made = self.network("network-ac", _ALTERNATING, build, 1.0, role="network", depth=1)
        changes = {**made.changes, **_ALTERNATING_SIZES}
        if self.config.sizes == SEARCHED:
            changes["epochs"] = epochs
        return dataclasses.replace(made, changes=changes)

    def controls(self) -> Iterator[Variant[Any]]:
        """Direct solves, and the network model without its cells or with constant conductances."""
        for name, label, build in (
            ("network-no-cell", f"{_NETWORK} without cells", without_cells),
            ("network-constant", _CONSTANT, constant_conductances),
        ):
            yield self.network(name, label, build, 0.6, role="control")
        # On other domains a solver needs the walls; other equations are not solved by networks.
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

    def own_scheme(self) -> Iterator[Variant[Any]]:
        """The control that is given the equation and the data's scheme, where there is one."""
        if self.config.domain == SQUARE and self.experiment.own_scheme(self.config):
            tags = {"family": "direct", "role": "control"}
            build = cast("Callable[[Any], nn.Module]", self.experiment.own_scheme)
            yield Variant(OWN_SCHEME, "The data's own scheme", build, tags, cost=0.02)

    def _rate(self, family: str) -> dict[str, Any]:
        return {"learning_rate": getattr(self.config, f"{family}_learning_rate")}

    def backbone(self, order: int) -> Variant[Any]:
        rate = {"learning_rate": self.config.learning_rate} if order else self._rate("cno")
        return self.variant(
            f"chonn{order}",
            f"CHONN, order {order}",
            lambda c: backbone(c, c.n_layers, c.n_res_neck, order),
            0.9 + 0.06 * order,
            rate,
            {"family": "chonn", "role": "ablation", "order": order},
        )

    def solver(self, name: str, label: str, cost: float, fitted: bool = False) -> Variant[Any]:
        """A direct solve, in the units of the data."""
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
        """A trained model: it gets the mask of the domain and fields of about unit size."""
        experiment = self.experiment

        def scaled(config: SteadyConfig) -> nn.Module:
            model, units = build(config), experiment.units_of(config)
            is_network = isinstance(model, CHONNNetwork2d)
            # With a source beside it, the mean of a coefficient would be a source, too, whose
            # potentials hide the other's: 3 to 11 epochs of 13 were lost on ConDiff.
            if is_network and experiment.physics.input == "coefficient":
                units = units.unshifted()
            if name in HALVING and config.resolution % MULTIPLE:
                model = Padded(model, MULTIPLE)
            if config.domain != SQUARE:
                model = OnDomain(model, lambda n: experiment.mask(config, n), not is_network)
            return Standardized(model, units) if config.standardize else model

        return Variant(name, label, scaled, tags, changes, cost)
