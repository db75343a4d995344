"""What a model needs so that its rollouts keep the gain of one step.

chonn-lab run chonn_lab.studies.rollout_ablations:NAVIER_STOKES --set seed=300 --variants fno,ours

The data, sizes and schedule of the experiment ``navier_stokes``, 10 frames to 1. Beside its scores
every model is rolled out over 200 steps from the first and the last place of every test trajectory:
``growth_200`` is the largest root mean square of any frame over the largest in the data. Shallow
water, ``rollout_ablations:SHALLOW_WATER``, has the scores of its experiment.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from chonn_lab.experiments import rollout
from chonn_lab.experiments.base import Data, Evaluation, Variant
from chonn_lab.experiments.modules import PLAIN, Forecaster
from chonn_lab.experiments.navier_stokes import GIVEN, NavierStokes, NavierStokesConfig
from chonn_lab.experiments.shallow_water import ShallowWater, ShallowWaterConfig
from chonn_ops import CHONNRollout2d, CHONNWaves2d, CKBOptions, Network

STEPS = 200


def fno(config: NavierStokesConfig, ckb: CKBOptions = PLAIN) -> nn.Module:
    return rollout.fno(dataclasses.replace(config, increment=True), ckb)


def networks(config: NavierStokesConfig) -> nn.Module:
    """FNO whose first pointwise branch is a block of networks on the closed grid."""
    return fno(config, CKBOptions(Network(num_networks=4), boundary="periodic"))


# The models whose weights come with the package.
VORTICITY: dict[str, Any] = {
    "history": 2,
    "width": 4,
    "depth": 1,
    "num_networks": 1,
    "heads": 1,
    "substeps": 8,
    "carried": False,
    "coordinates": True,
    "nodes": "left",
}
SHALLOW: dict[str, Any] = {"history": 2, "nodes": "centres"}


def substeps(config: NavierStokesConfig) -> nn.Module:  # noqa: ARG001
    """The model with substeps; it predicts frames, so that the setting `increment` is without
    effect."""
    return rollout.Latest(Forecaster(CHONNRollout2d(**VORTICITY), increment=False), 2)


def cosine(rate: float, epochs: int | None = None) -> dict[str, Any]:
    """Settings of a schedule; of the scale's epochs by default."""
    return {"schedule": "cosine", "learning_rate": rate} | ({"epochs": epochs} if epochs else {})


def variant(
    name: str, what: str, build: Callable[[Any], nn.Module], **changes: Any
) -> Variant[Any]:
    """A model and its settings, which are named in its label."""
    words = [what, *(["pushforward"] if changes.get("pushforward") else [])]
    if changes.get("schedule") == "cosine":
        rate = f"{changes['learning_rate']:.0e}".replace("e-0", "e-")
        words.append(f"cosine from {rate}")
    words += [f"{changes['epochs']} epochs"] if "epochs" in changes else []
    return Variant(name, ", ".join(words), build, {"family": name.partition("-")[0]}, changes)


FNO = "FNO, increments"
NETWORKS = "FNO with networks in its first w, increments"
LONGER = cosine(2e-3, 8)
# The networks' step takes 1.2 to 1.3 times the FNO's, measured in turns.
AS_LONG = cosine(2e-3, 6)
PUSHFORWARD = {"unroll": 2, "pushforward": True}
MODELS = (
    variant("fno-longer", FNO, fno, **LONGER),
    variant("fno-pushforward-longer", FNO, fno, **LONGER, **PUSHFORWARD),
    variant("networks-longer", NETWORKS, networks, **AS_LONG),
    variant("networks-pushforward-longer", NETWORKS, networks, **AS_LONG, **PUSHFORWARD),
    variant("substeps", "ours, eight substeps in the state's flow", substeps, **cosine(5e-3, 4)),
)


class Rollouts(NavierStokes):
    """The experiment with these models, and the largest frame of long rollouts as a score."""

    name = "navier_stokes_rollouts"
    title = "Navier-Stokes rollouts: what keeps them"
    scales = MappingProxyType(
        {
            name: dataclasses.replace(config, history=10, increment=True)
            for name, config in NavierStokes.scales.items()
        }
    )

    def variants(self, config: NavierStokesConfig) -> tuple[Variant[NavierStokesConfig], ...]:  # noqa: ARG002
        return MODELS

    @torch.no_grad()
    def evaluate(self, config: NavierStokesConfig, model: nn.Module, data: Data) -> Evaluation:
        scored = super().evaluate(config, model, data)
        (frames,) = data.tests["test"].tensors
        device = next(model.parameters()).device
        size = frames.square().mean((2, 3)).sqrt().max()
        starts = [frames[:, stop - config.history : stop] for stop in (GIVEN, frames.shape[1])]
        long = rollout.rollout(model, torch.cat(starts).to(device), STEPS)
        found = float(long.square().mean((2, 3)).sqrt().max() / size)
        largest = found if math.isfinite(found) else math.inf
        metrics = {"test": {**scored.metrics["test"], "growth_200": largest}}
        return dataclasses.replace(scored, metrics=metrics)


def on_water(config: ShallowWaterConfig, ckb: CKBOptions = PLAIN) -> nn.Module:
    return rollout.fno(
        dataclasses.replace(config, increment=True),
        ckb,
        padding=config.padding,
        downsample=config.downsample,
    )


def latest_on_water(frames: int) -> Callable[[ShallowWaterConfig], nn.Module]:
    """FNO that is given the last few frames alone."""
    return lambda config: rollout.Latest(
        on_water(dataclasses.replace(config, history=frames)), frames
    )


def networks_on_water(config: ShallowWaterConfig) -> nn.Module:
    """FNO whose first pointwise branch is a block of networks between walls."""
    return on_water(config, CKBOptions(Network(num_networks=4), boundary="neumann"))


def waves(**options: Any) -> Callable[[ShallowWaterConfig], nn.Module]:
    """The model of waves; it predicts frames."""

    def build(config: ShallowWaterConfig) -> nn.Module:  # noqa: ARG001
        model = CHONNWaves2d(**SHALLOW, **options)
        return rollout.Latest(Forecaster(model, increment=False), SHALLOW["history"])

    return build


# The same time: a step of the waves takes 1.3 times the FNO's, with one layer 0.75 times.
TWICE, WAVES = cosine(4e-3, 50), "ours, waves"
WATER = (
    variant("fno-longer", "FNO", on_water, **TWICE),
    variant("fno-fastest", "FNO", on_water, **cosine(8e-3, 50)),
    variant("fno-two", "FNO, the last two frames", latest_on_water(2), **TWICE),
    variant("fno-pushforward", "FNO", on_water, **TWICE, pushforward=True),
    variant("networks", "FNO with networks in its first w", networks_on_water, **cosine(4e-3)),
    variant("waves", f"{WAVES}, two layers", waves(), **cosine(1e-2, 36)),
    variant("waves-one", f"{WAVES}, one layer", waves(depth=1), **cosine(1e-2, 50)),
)


class Water(ShallowWater):
    """The experiment under schedules that the baseline is better with."""

    name = "shallow_water_rollouts"
    title = "Shallow-water rollouts: recipes"

    def variants(self, config: ShallowWaterConfig) -> tuple[Variant[ShallowWaterConfig], ...]:  # noqa: ARG002
        return WATER


NAVIER_STOKES = Rollouts()
SHALLOW_WATER = Water()
