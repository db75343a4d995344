"""What a model needs so that its rollouts keep the gain of one step: experiments of `chonn run`.

cd tools && chonn run rollout_ablations:NAVIER_STOKES --set seed=300 --variants fno,ours

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
from torch import Tensor, nn

from chonn_ops import CHONNRollout2d, CHONNWaves2d
from chonn_ops.experiments import _rollout
from chonn_ops.experiments._modules import PLAIN, Forecaster
from chonn_ops.experiments.base import Data, Evaluation, Variant
from chonn_ops.experiments.navier_stokes import GIVEN, NavierStokes, NavierStokesConfig
from chonn_ops.experiments.shallow_water import ShallowWater, ShallowWaterConfig
from chonn_ops.nn import CKBOptions

STEPS = 200


class Filtered(nn.Module):
    """A forecaster whose frames keep the lower two thirds of the wavenumbers."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, frames: Tensor) -> Tensor:
        spectrum = torch.fft.rfft2(self.model(frames))
        n = frames.shape[-1]
        kept = torch.arange(n // 2 + 1, device=frames.device) <= n // 3
        both = torch.cat((kept, kept[1 : n - n // 2].flip(0)))
        return torch.fft.irfft2(spectrum * (both[:, None] & kept), s=frames.shape[-2:])


def fno(config: NavierStokesConfig, ckb: CKBOptions = PLAIN) -> nn.Module:
    return _rollout.fno(dataclasses.replace(config, increment=True), ckb)


def rings(config: NavierStokesConfig) -> nn.Module:
    """FNO whose first pointwise branch is a block of scans along closed rows and columns."""
    ends = {"directions": "axial", "termination": "ring", "norm": "none"}
    return fno(config, CKBOptions(order=2, d_state=config.d_state, **ends))


def networks(config: NavierStokesConfig) -> nn.Module:
    """FNO whose first pointwise branch is a block of networks on the closed grid."""
    return fno(config, CKBOptions(cell="network", networks=4, termination="ring"))


def ours(frames: int = 10, **options: Any) -> Callable[[NavierStokesConfig], nn.Module]:
    """The model; it predicts frames, so that the setting `increment` is without effect."""

    def build(config: NavierStokesConfig) -> nn.Module:  # noqa: ARG001
        model = CHONNRollout2d(1, frames, **options)
        return _rollout.Latest(Forecaster(model, increment=False), frames)

    return build


UNROLL = {"unroll": 2}
PUSHFORWARD = {"unroll": 2, "pushforward": True}
RATE = {"learning_rate": 5e-3}
HIGHER = {"learning_rate": 1e-2}
COSINE = {"schedule": "cosine", "learning_rate": 2e-3}
LONGER = {**COSINE, "epochs": 8}
# The networks' step takes 1.2 to 1.3 times the FNO's, measured in turns.
AS_LONG = {**COSINE, "epochs": 6}
NOISE = {"noise": 0.01}
# Name, what it is, model, changed settings.
MODELS: tuple[tuple[str, str, Callable[[NavierStokesConfig], nn.Module], dict[str, Any]], ...] = (
    ("fno", "FNO, increments", fno, {}),
    ("fno-rate", "FNO, increments, the rate of ours", fno, RATE),
    ("fno-pushforward", "FNO, increments, pushforward", fno, PUSHFORWARD),
    ("fno-unroll", "FNO, increments, two steps with their gradient", fno, UNROLL),
    ("fno-cosine", "FNO, increments, cosine from 2e-3", fno, COSINE),
    ("fno-longer", "FNO, increments, cosine from 2e-3, 8 epochs", fno, LONGER),
    (
        "fno-pushforward-longer",
        "FNO, increments, pushforward, cosine from 2e-3, 8 epochs",
        fno,
        {**LONGER, **PUSHFORWARD},
    ),
    ("rings", "FNO with rings in its first w, increments, cosine from 2e-3", rings, COSINE),
    (
        "rings-pushforward",
        "FNO with rings in its first w, increments, pushforward, cosine from 2e-3",
        rings,
        {**COSINE, **PUSHFORWARD},
    ),
    (
        "networks",
        "FNO with networks in its first w, increments, cosine from 2e-3",
        networks,
        COSINE,
    ),
    (
        "networks-pushforward",
        "FNO with networks in its first w, increments, pushforward, cosine from 2e-3",
        networks,
        {**COSINE, **PUSHFORWARD},
    ),
    (
        "networks-longer",
        "FNO with networks in its first w, increments, cosine from 2e-3, 6 epochs",
        networks,
        AS_LONG,
    ),
    (
        "networks-pushforward-longer",
        "FNO with networks in its first w, increments, pushforward, cosine from 2e-3, 6 epochs",
        networks,
        {**AS_LONG, **PUSHFORWARD},
    ),
    ("fno-filter", "FNO, increments, spectral filter", lambda c: Filtered(fno(c)), {}),
    ("ours", "ours: state carried and damped", ours(), RATE),
    ("ours-increment", "ours, last solve on the increment", ours(damping="increment"), RATE),
    ("ours-undamped", "ours without a last solve", ours(damping="none"), RATE),
    ("ours-uncarried", "ours, state damped, not carried", ours(carried=False), RATE),
    (
        "ours-bare",
        "ours, state neither carried nor damped",
        ours(carried=False, damping="none"),
        RATE,
    ),
    ("ours-linear", "ours, linear interpolation", ours(order=1), RATE),
    ("ours-conservative", "ours, conservative transport", ours(conservative=True), RATE),
    (
        "ours-filter",
        "ours without a last solve, spectral filter",
        lambda c: Filtered(ours(damping="none")(c)),
        RATE,
    ),
    (
        "ours-one",
        "ours, conservative, the last frame alone",
        ours(1, conservative=True, heads=2),
        HIGHER,
    ),
    (
        "ours-two",
        "ours, conservative, the last two frames",
        ours(2, conservative=True, heads=2),
        HIGHER,
    ),
    (
        "ours-two-cosine",
        "ours, conservative, the last two frames, cosine from 1e-2",
        ours(2, conservative=True, heads=2, networks=4),
        {**HIGHER, "schedule": "cosine"},
    ),
    (
        "ours-two-undamped",
        "ours, conservative, the last two frames, cosine from 1e-2, without a last solve",
        ours(2, conservative=True, heads=2, networks=4, damping="none"),
        {**HIGHER, "schedule": "cosine"},
    ),
    (
        "ours-noise",
        "ours, conservative, noise",
        ours(conservative=True, heads=2),
        {**HIGHER, **NOISE},
    ),
    (
        "ours-two-unroll",
        "ours, conservative, the last two frames, two steps with their gradient",
        ours(2, conservative=True, heads=2),
        {**HIGHER, **UNROLL},
    ),
    (
        "ours-unroll3",
        "ours, conservative, three steps with their gradient, cosine",
        ours(conservative=True, heads=2),
        {**RATE, "unroll": 3, "schedule": "cosine"},
    ),
    ("ours-pushforward", "ours, pushforward", ours(), {**RATE, **PUSHFORWARD}),
    ("ours-unroll", "ours, two steps with their gradient", ours(), {**RATE, **UNROLL}),
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
        return tuple(
            Variant(name, label, build, {"family": name.partition("-")[0]}, changes)
            for name, label, build, changes in MODELS
        )

    @torch.no_grad()
    def evaluate(self, config: NavierStokesConfig, model: nn.Module, data: Data) -> Evaluation:
        scored = super().evaluate(config, model, data)
        (frames,) = data.tests["test"].tensors
        device = next(model.parameters()).device
        size = frames.square().mean((2, 3)).sqrt().max()
        starts = [frames[:, stop - config.history : stop] for stop in (GIVEN, frames.shape[1])]
        long = _rollout.rollout(model, torch.cat(starts).to(device), STEPS)
        found = float(long.square().mean((2, 3)).sqrt().max() / size)
        largest = found if math.isfinite(found) else math.inf
        metrics = {"test": {**scored.metrics["test"], "growth_200": largest}}
        return dataclasses.replace(scored, metrics=metrics)


def on_water(config: ShallowWaterConfig, ckb: CKBOptions = PLAIN) -> nn.Module:
    return _rollout.fno(
        dataclasses.replace(config, increment=True),
        ckb,
        padding=config.padding,
        downsample=config.downsample,
    )


def open_lines(config: ShallowWaterConfig, norm: str = "group") -> nn.Module:
    """FNO whose first pointwise branch is a block of scans that the walls continue."""
    return on_water(
        config,
        CKBOptions(d_state=config.d_state, directions="axial", termination="open", norm=norm),
    )


def latest_on_water(frames: int) -> Callable[[ShallowWaterConfig], nn.Module]:
    """FNO that is given the last few frames alone."""
    return lambda config: _rollout.Latest(
        on_water(dataclasses.replace(config, history=frames)), frames
    )


def networks_on_water(config: ShallowWaterConfig) -> nn.Module:
    """FNO whose first pointwise branch is a block of networks between walls."""
    return on_water(config, CKBOptions(cell="network", networks=4, termination="open"))


def moved(frames: int, **options: Any) -> Callable[[ShallowWaterConfig], nn.Module]:
    """The model of flows between walls; it predicts frames."""
    walls = {"ends": "wall", "nodes": "centres", "conservative": True, "coordinates": False}

    def build(config: ShallowWaterConfig) -> nn.Module:  # noqa: ARG001
        model = CHONNRollout2d(1, frames, networks=4, heads=2, **walls, **options)
        return _rollout.Latest(Forecaster(model, increment=False), frames)

    return build


def waves(frames: int = 2, **options: Any) -> Callable[[ShallowWaterConfig], nn.Module]:
    """The model of waves; it predicts frames."""

    def build(config: ShallowWaterConfig) -> nn.Module:  # noqa: ARG001
        model = CHONNWaves2d(1, frames, **options)
        return _rollout.Latest(Forecaster(model, increment=False), frames)

    return build


FASTER = {"schedule": "cosine", "learning_rate": 4e-3}
# The same time: a step of the waves takes 1.3 times the FNO's, with one layer 0.75 times.
TWICE = {**FASTER, "epochs": 50}
TENTH = {"schedule": "cosine", "learning_rate": 1e-2}
WAVES = {**TENTH, "epochs": 36}
WATER: tuple[tuple[str, str, Callable[[ShallowWaterConfig], nn.Module], dict[str, Any]], ...] = (
    ("fno", "FNO", on_water, {}),
    ("fno-cosine", "FNO, cosine from 2e-3", on_water, COSINE),
    ("fno-faster", "FNO, cosine from 4e-3", on_water, FASTER),
    ("fno-longer", "FNO, cosine from 4e-3, 50 epochs", on_water, TWICE),
    (
        "fno-fastest",
        "FNO, cosine from 8e-3, 50 epochs",
        on_water,
        {**TWICE, "learning_rate": 8e-3},
    ),
    (
        "fno-two",
        "FNO, the last two frames, cosine from 4e-3, 50 epochs",
        latest_on_water(2),
        TWICE,
    ),
    (
        "fno-pushforward",
        "FNO, pushforward, cosine from 4e-3, 50 epochs",
        on_water,
        {**TWICE, "pushforward": True},
    ),
    ("open", "FNO with open lines in its first w, cosine from 2e-3", open_lines, COSINE),
    ("open-faster", "FNO with open lines in its first w, cosine from 4e-3", open_lines, FASTER),
    (
        "open-unnormed",
        "FNO with open lines without norm in its first w, cosine from 4e-3",
        lambda c: open_lines(c, "none"),
        FASTER,
    ),
    (
        "networks",
        "FNO with networks in its first w, cosine from 4e-3",
        networks_on_water,
        FASTER,
    ),
    ("moved", "ours, flow: the last two frames, cosine from 1e-2", moved(2), TENTH),
    ("waves", "ours, waves, two layers, cosine from 1e-2, 36 epochs", waves(), WAVES),
    (
        "waves-one",
        "ours, waves, one layer, cosine from 1e-2, 50 epochs",
        waves(depth=1),
        {**TENTH, "epochs": 50},
    ),
    (
        "waves-implicit",
        "ours, waves, two layers, implicit, cosine from 1e-2, 36 epochs",
        waves(implicit=True),
        WAVES,
    ),
)


class Water(ShallowWater):
    """The experiment under schedules that the baseline is better with."""

    name = "shallow_water_rollouts"
    title = "Shallow-water rollouts: recipes"

    def variants(self, config: ShallowWaterConfig) -> tuple[Variant[ShallowWaterConfig], ...]:  # noqa: ARG002
        return tuple(
            Variant(name, label, build, {"family": name.partition("-")[0]}, changes)
            for name, label, build, changes in WATER
        )


NAVIER_STOKES = Rollouts()
SHALLOW_WATER = Water()
