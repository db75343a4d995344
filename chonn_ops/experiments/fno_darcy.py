"""The Darcy flow of the FNO paper, 421 x 421 nodes of which 85 x 85 are seen.

Its data set's card is the docstring of `chonn_ops.problems.fno_darcy`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar

from torch import Tensor

from chonn_ops.experiments._modules import Units
from chonn_ops.experiments._steady import SteadyExperiment, pairs, workers
from chonn_ops.experiments._steady_controls import Physics
from chonn_ops.experiments.base import Data, Variant, relative_l2
from chonn_ops.experiments.darcy import Darcy
from chonn_ops.experiments.elliptic import BoxConfig, scales_of, sources_of
from chonn_ops.problems import fno_darcy, origin

_RECIPE = (
    "Of the trainings behind the published numbers (Wu et al. 2024): 500 epochs, batches of 4."
)


# Of the sizes "small" on 85 x 85 nodes: epochs in the time of the network's 500 on one thread, by
# measured steps; fewer of solvers, with few numbers to learn.
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

    def files(self, config: FNODarcyConfig, folder: Path) -> tuple[Path, ...]:
        """Ours, or both published ones if the published one to train on is there."""
        n, resolution = config.n_train + config.n_validation, config.solver_resolution
        train = folder / fno_darcy.file_name("train", n, resolution)
        if _is_published(train):
            return train, folder / fno_darcy.OFFICIAL_NAMES[1]
        return train, folder / fno_darcy.file_name("test", config.n_test, resolution)

    def prepare(self, config: FNODarcyConfig, folder: Path, progress: bool = True) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        train, test = self.files(config, folder)
        if _is_published(train) and not test.exists():
            raise FileNotFoundError(f"{test}: expected beside the published {train.name}")
        fno_darcy.generate(
            folder,
            n_train=config.n_train + config.n_validation,
            n_test=config.n_test,
            resolution=config.solver_resolution,
            workers=workers(config),
            progress=progress,
        )

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


EXPERIMENT = FNODarcy()
