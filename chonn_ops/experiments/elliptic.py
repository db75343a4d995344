"""Elliptic problems beyond the paper's: Helmholtz, three dimensions, FNO's Darcy flow.

They have the models, controls and scores of Darcy flow, and so have the hard media of `darcy`.
Each data set's card is the docstring of its generator in `chonn_ops.problems`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from chonn_ops.experiments._modules import Units
from chonn_ops.experiments._steady import SteadyConfig, SteadyExperiment, pairs, splits, workers
from chonn_ops.experiments._steady_controls import Physics
from chonn_ops.experiments._steady_variants import variants3d
from chonn_ops.experiments.base import Data, Evaluation, Makers, Variant, relative_l2
from chonn_ops.experiments.darcy import (
    Darcy,
    DarcyContrast,
    DarcyLognormal,
    scales_of,
    sources_of,
)
from chonn_ops.problems import darcy3d, fno_darcy, helmholtz, origin
from chonn_ops.problems.domains import SQUARE, cell_centres

_SMALLER = "Ours: at the small scale, of about as many parameters as in two dimensions."
_RECIPE = (
    "Of the trainings behind the published numbers (Wu et al. 2024): 500 epochs, batches of 4."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoxConfig(SteadyConfig):
    """Settings of problems that are defined on the square or the cube alone."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.domain != SQUARE:
            raise ValueError(f"domain: expected {SQUARE!r} for this problem, got {self.domain!r}")
        self._check_finer()

    def _check_finer(self) -> None:
        if self.test_resolutions:
            raise ValueError(
                "test_resolutions: expected none, as samples differ from grid to grid, got "
                f"{self.test_resolutions}"
            )


class CubeConfig(BoxConfig):
    """Settings of problems in three dimensions."""

    axes: ClassVar[int] = 3


class Box(SteadyExperiment[BoxConfig]):
    """A problem of `chonn_ops.problems` with one file of all samples, its name that of theirs.

    Attributes
    ----------
    problem : module
        With `default_name`, `generate` and `read`.
    """

    problem: ClassVar[Any]
    coordinates = staticmethod(cell_centres)
    ladders: ClassVar[bool] = False
    sources: ClassVar[Mapping[str, str]] = sources_of(
        BoxConfig,
        resolution="Ours: the generator's own; in three dimensions half of it at the small scale.",
        **dict.fromkeys(("unet_features", "fno_modes", "fno_width"), _SMALLER),
    )

    def makers(self, config: BoxConfig, folder: Path, progress: bool = True) -> Makers:
        def make(path: Path) -> None:
            options = {"workers": workers(config), "progress": progress}
            self.problem.generate(path, config.n_samples, config.resolution, **options)

        stem = Path(self.problem.default_name(config.resolution)).stem
        return {folder / f"{stem}_{config.n_samples}.hdf5": make}

    def load(self, config: BoxConfig, folder: Path) -> Data:
        (path,) = self.files(config, folder)
        return splits(config, *self.problem.read(path, 0, config.n_samples))


class Helmholtz(Box):
    """Wave number to wave, an indefinite problem: here an M-matrix must fail.

    With a positive source its solutions are nowhere negative, and about two thirds of these
    solutions' absolute value is: no field without negative values has a relative L1 error below
    that. Networks can only be right by what is around them, and no control solves this equation.
    """

    name = "helmholtz"
    title = "Helmholtz equation"
    problem = helmholtz
    physics: ClassVar[Physics] = Physics("wave number", "centres")
    units: ClassVar[Units] = Units(15.0, 3.0, -0.004, 0.018)
    metrics: ClassVar[tuple[str, ...]] = Darcy.metrics
    searched: ClassVar[tuple[str, ...]] = (Darcy.name,)
    scales = scales_of(BoxConfig, smoke={}, small={}, paper={"resolution": 64})


class Darcy3d(Box):
    """Two-phase medium to pressure in the unit cube; pictures are of its middle."""

    name = "darcy3d"
    title = "Darcy flow in three dimensions"
    problem = darcy3d
    physics: ClassVar[Physics] = Physics("coefficient", "centres")
    units: ClassVar[Units] = Units(0.55, 0.45, 0.058, 0.048)
    metrics: ClassVar[tuple[str, ...]] = (
        *("relative_l1", "relative_l1_median", "relative_l2"),
        *("rmse", "nrmse", "max_error", "boundary_rmse"),
    )
    scales = scales_of(
        CubeConfig,
        smoke={"resolution": 16, "fno_modes": 2},
        small={"resolution": 16, "fno_modes": 4, "fno_width": 8, "unet_features": 2},
        paper={"resolution": 32, "fno_modes": 8, "fno_width": 20},
    )

    def variants(self, config: BoxConfig) -> tuple[Variant[BoxConfig], ...]:
        return variants3d(self, config)

    def evaluate(self, config: BoxConfig, model: Any, data: Data) -> Evaluation:
        found = super().evaluate(config, model, data)
        middle = {name: f[..., f.shape[-1] // 2] for name, f in found.fields.items()}
        return dataclasses.replace(found, fields=middle)


# Of FNO's Darcy flow with the sizes "small" on 85 x 85 nodes: epochs in the time of the network's
# 500 on one thread, by measured steps; fewer of solvers, with few numbers to learn.
NIGHT_HOURS = 4.5
NIGHT: Mapping[str, int] = {
    "unet": 1170,
    "fno": 430,
    "cno": 270,
    "fno-neuralop": 355,
    "uno": 420,
    "ffno": 235,
    "transolver": 105,
    "galerkin": 205,
    "mgno": 695,
    "solve-cnn": 855,
    "network": 500,
    "network-no-cell": 765,
    "network-constant": 510,
    "direct": 500,
    "direct-fitted": 500,
}
_HAND = {
    "unet": ("unet_features",),
    "fno": ("fno_modes", "fno_width"),
    "cno": ("cno_layers", "cno_res_neck", "channel_multiplier", "n_res", "latent"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FNODarcyConfig(BoxConfig):
    """Settings of FNO's Darcy flow.

    Parameters
    ----------
    solver_resolution : int
        Nodes along each axis where it is solved; `resolution` and `test_resolutions` are every so
        many of them.
    hours : float
        Of a training of any model on one core, at the scale "paper" with the sizes "small", and as
        many epochs as were measured to fit; other scales and sizes have epochs of their own.
    """

    solver_resolution: int = fno_darcy.RESOLUTION
    hours: float = NIGHT_HOURS
    multiple: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.hours < math.inf:
            raise ValueError(f"hours: expected above 0, got {self.hours}")

    def _check_finer(self) -> None:
        steps = self.solver_resolution - 1
        for n in (self.resolution, *self.test_resolutions):
            if n < 2 or steps % (n - 1):
                raise ValueError(
                    f"resolution, test_resolutions: expected 1 + divisors of {steps} "
                    f"(solver_resolution - 1), got {n}"
                )


class FNODarcy(SteadyExperiment[FNODarcyConfig]):
    """The Darcy flow of the FNO paper, solved on 421 x 421 nodes, every fifth of them seen.

    Training loss, validation error and the first score are the relative L2 error of the published
    tables. The published file to train on has 1,024 samples: the last 24 of them validate.
    """

    name = "fno_darcy"
    title = "FNO's Darcy flow"
    coordinates = staticmethod(fno_darcy.nodes)
    physics: ClassVar[Physics] = Physics("coefficient", "corners")
    units: ClassVar[Units] = Units(7.5, 4.5, 0.0055, 0.0038)
    error: Callable[[Tensor, Tensor], Tensor] = staticmethod(relative_l2)
    ladders: ClassVar[bool] = False
    metrics: ClassVar[tuple[str, ...]] = ("relative_l2", *Darcy.metrics)
    scales = scales_of(
        FNODarcyConfig,
        smoke={"resolution": 22, "solver_resolution": 43},
        small={"resolution": 43, "solver_resolution": 127},
        paper={
            "n_train": 1000,
            "n_validation": 24,
            "n_test": 200,
            "resolution": 85,
            "epochs": 500,
            "batch_size": 4,
            "baseline_batch_size": 4,
            "weight_decay": 1e-5,
            "schedule": "cosine",
        },
    )
    sources: ClassVar[Mapping[str, str]] = sources_of(
        FNODarcyConfig,
        **dict.fromkeys(
            ("n_train", "n_test", "resolution", "solver_resolution"),
            "Li et al. 2021: 1,000 samples to train and 200 to test on 421 x 421, of which the "
            "published tables take 85 x 85.",
        ),
        n_validation="Ours: what the published file to train on has beyond 1,000.",
        **dict.fromkeys(("epochs", "batch_size", "baseline_batch_size"), _RECIPE),
        hours="Ours: a night on two cores, two models side by side.",
        **dict.fromkeys(("weight_decay", "schedule"), "Ours: a cosine, as at the small scale."),
    )

    def variants(self, config: FNODarcyConfig) -> tuple[Variant[FNODarcyConfig], ...]:
        """At the scale "paper" with the sizes "small", models train for the same time, see `NIGHT`;
        those with sizes of their own have the small scale's."""
        found = super().variants(config)
        if (config.sizes, config.epochs) != ("small", NIGHT["network"]):
            return found
        small, changed = self.scales["small"], []
        for variant in found:
            epochs = max(1, round(NIGHT[variant.name] * config.hours / NIGHT_HOURS))
            changes = {**variant.changes, "epochs": epochs}
            if variant.name in _HAND:
                changes |= {name: getattr(small, name) for name in _HAND[variant.name]}
                changes["learning_rate"] = getattr(small, f"{variant.name}_learning_rate")
            changed.append(dataclasses.replace(variant, changes=changes))
        return tuple(changed)

    def makers(self, config: FNODarcyConfig, folder: Path, progress: bool = True) -> Makers:
        """Ours, or both published ones if the published one to train on is there."""
        n, resolution = config.n_train + config.n_validation, config.solver_resolution
        train = folder / fno_darcy.file_name("train", n, resolution)
        test = folder / fno_darcy.file_name("test", config.n_test, resolution)
        if published := _is_published(train):
            test = folder / fno_darcy.OFFICIAL_NAMES[1]

        def make_both(_: Path) -> None:
            if published:
                raise FileNotFoundError(f"{test}: expected beside the published {train.name}")
            options = {"workers": workers(config), "progress": progress}
            fno_darcy.generate(folder, n, config.n_test, resolution, **options)

        return {train: make_both, test: make_both}

    def load(self, config: FNODarcyConfig, folder: Path) -> Data:
        train, test = self.files(config, folder)
        start, stop = config.n_train, config.n_train + config.n_validation
        grids = {"test": config.resolution, **{f"at_{n}": n for n in config.test_resolutions}}
        return Data(
            pairs(*fno_darcy.read(train, config.resolution, 0, start)),
            pairs(*fno_darcy.read(train, config.resolution, start, stop)),
            {name: pairs(*fno_darcy.read(test, n, 0, config.n_test)) for name, n in grids.items()},
        )


def _is_published(path: Path) -> bool:
    """Whether this is a file under a published name that nobody here generated."""
    named = path.name in fno_darcy.OFFICIAL_NAMES and path.exists()
    return named and origin.read(path).generator is None


EXPERIMENTS: Mapping[str, SteadyExperiment[Any]] = {
    experiment.name: experiment
    for experiment in (FNODarcy(), DarcyContrast(), DarcyLognormal(), Helmholtz(), Darcy3d())
}
