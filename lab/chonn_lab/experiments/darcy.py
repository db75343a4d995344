"""Darcy flow: PDEBench's with beta = 1 (Fig. 4), in harder media, and FNO's.

The card of each data set is the docstring of its generator in `chonn_lab.problems`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, cast

from torch import Tensor

from chonn_lab.experiments.base import (
    OPTIMIZER_FIELDS,
    PDEBENCH_METRICS,
    Data,
    Makers,
    Variant,
    relative_l2,
)
from chonn_lab.experiments.modules import Units
from chonn_lab.experiments.solvers import CellScheme, Physics
from chonn_lab.experiments.steady import (
    SOURCES,
    SteadyConfig,
    SteadyExperiment,
    SteadyT,
    pairs,
    with_finer,
    workers,
)
from chonn_lab.problems import darcy, fno_darcy, origin
from chonn_lab.problems.domains import SQUARE, cell_centres, nodes
from chonn_lab.problems.random_fields import LOG_NORMAL, LOG_UNIFORM, TWO_PHASE

BETA = 1.0
OFFICIAL_RESOLUTION = 128
PAPER_SAMPLES = 1000
_SAMPLES = (
    '"Each sample is represented on a 128x128 uniform grid. We use 800 samples for training, 100 '
    'samples for validation and 100 samples for testing." Which ones is not said: the first 1000, '
    "in this order."
)
_RUN = '"We train for 1000 epochs with batch size 4 and random seed 0000."'
_OPTIMIZER = (
    '"CHONN is trained using AdamW with learning rate 1e-3, weight decay 1e-3, and a StepLR '
    'schedule with step size 10 and decay factor gamma=0.98."'
)
_WIDTHS = (
    '"The CHONN model uses N_layers=3, N_res=4, N_res_neck=4, channel multiplier 32, convolution '
    'kernel size 3 and filter size 6."'
)

_RECIPE = (
    "The published numbers (Wu et al. 2024) come from trainings of 500 epochs in batches of 4."
)


class Darcy(SteadyExperiment[SteadyConfig]):
    """Two-phase medium to pressure."""

    name = "darcy"
    title = "Darcy flow"
    coefficient: ClassVar[str] = TWO_PHASE
    contrast: ClassVar[float] = darcy.CONTRAST
    coordinates = staticmethod(cell_centres)
    physics: ClassVar[Physics] = Physics("coefficient", "centres")
    units: ClassVar[Units] = Units(0.5, 0.45, 0.15, 0.12)
    units_of_domains: ClassVar[Mapping[str, Units]] = {
        "l-shape": Units(0.5, 0.45, 0.08, 0.07),
        "holes": Units(0.5, 0.45, 0.035, 0.035),
    }
    metrics: ClassVar[tuple[str, ...]] = ("relative_l1", "relative_l1_median", *PDEBENCH_METRICS)
    scales: Mapping[str, SteadyConfig] = {
        "smoke": SteadyConfig(
            n_train=8,
            n_validation=4,
            n_test=4,
            batch_size=4,
            baseline_batch_size=4,
            epochs=2,
            resolution=32,
            standardize=True,
            n_layers=2,
            n_res=1,
            n_res_neck=1,
            channel_multiplier=4,
            latent=4,
            cno_layers=1,
            cno_res_neck=1,
            d_state=2,
            network_width=4,
            network_depth=1,
            num_networks=2,
            unet_features=2,
            fno_modes=4,
            fno_width=4,
            sizes="smoke",
        ),
        "small": SteadyConfig(
            n_train=256,
            n_validation=32,
            n_test=96,
            batch_size=8,
            baseline_batch_size=8,
            epochs=15,
            resolution=64,
            learning_rate=2.5e-3,
            schedule="cosine",
            standardize=True,
            n_res=1,
            n_res_neck=1,
            channel_multiplier=8,
            latent=4,
            cno_res_neck=2,
            d_state=8,
            cno_learning_rate=2.5e-3,
            unet_features=3,
            unet_learning_rate=5e-2,
            fno_width=8,
            fno_learning_rate=2e-2,
        ),
        "paper": SteadyConfig(sizes="paper"),
    }
    sources: ClassVar[Mapping[str, str]] = {
        **SOURCES,
        **dict.fromkeys(("n_train", "n_validation", "n_test", "resolution"), _SAMPLES),
        **dict.fromkeys(("epochs", "batch_size", "seed"), _RUN),
        **dict.fromkeys(OPTIMIZER_FIELDS, _OPTIMIZER),
        **dict.fromkeys(("n_layers", "n_res", "n_res_neck", "channel_multiplier"), _WIDTHS),
        "d_state": "Not given here; that of Poisson.",
        "cno_layers": "Ours, the paper compares no CNO here: that of its Poisson benchmark.",
        "baseline_batch_size": '"The baseline batch size is set to 50."',
    }

    def contrast_of(self, config: SteadyConfig) -> float:  # noqa: ARG002 - a subclass's setting
        """Conductivity of one phase over the other's."""
        return self.contrast

    def own_scheme(self, config: SteadyConfig) -> CellScheme:
        return CellScheme(config.resolution)

    def makers(self, config: SteadyConfig, folder: Path, progress: bool = True) -> Makers:
        """PDEBench's file at its resolution, otherwise a name with the sizes; then the test samples
        on finer grids, with the walls of the training grid."""
        size, first = config.resolution, config.n_train + config.n_validation
        contrast = self.contrast_of(config)
        official = darcy.default_name(BETA, config.domain, self.coefficient, contrast)
        stem, name = Path(official).stem, official
        fits = size == OFFICIAL_RESOLUTION and config.n_samples <= PAPER_SAMPLES
        if not fits or official != darcy.OFFICIAL_NAME:
            name = f"{stem}_{size}x{size}_{config.n_samples}.hdf5"

        def maker(n_samples: int, resolution: int, **options: Any) -> Callable[[Path], object]:
            options |= {"domain": config.domain, "progress": progress, "workers": workers(config)}
            options |= {"coefficient": self.coefficient, "contrast": contrast}
            return lambda path: darcy.generate(path, n_samples, resolution, BETA, **options)

        made = {folder / name: maker(config.n_samples, size)}
        for n in config.test_resolutions:
            which = f"{first}-{first + config.n_test - 1}_walls{size}"
            path = folder / f"{stem}_{n}x{n}_{which}.hdf5"
            made[path] = maker(config.n_test, n, first=first, margin=0.5 / size)
        return made

    def load(self, config: SteadyConfig, folder: Path) -> Data:
        def read(path: Path, n_samples: int, resolution: int) -> Any:
            return darcy.read(path, 0, n_samples, resolution, config.domain)

        return with_finer(config, self.files(config, folder), read)


def scales_of(kind: type[SteadyT], **changes: Mapping[str, Any]) -> dict[str, SteadyT]:
    """Darcy flow's settings by scale with changes; models always get fields of about unit size."""
    return {
        scale: kind(**{**dataclasses.asdict(Darcy.scales[scale]), "standardize": True, **changed})
        for scale, changed in changes.items()
    }


def sources_of(kind: type[SteadyConfig], **own: str) -> Mapping[str, str]:
    """Sources of the settings: Darcy flow's, except for those of the problem's own."""
    names = [field.name for field in dataclasses.fields(kind)]
    return {**dict.fromkeys(names, "Ours, no paper's: that of Darcy flow."), **own}


class HardDarcy(Darcy):
    """Darcy flow in other media, with the sizes and rates of Darcy flow's search."""

    units_of_domains: ClassVar[Mapping[str, Units]] = {}
    ladders: ClassVar[bool] = False
    searched: ClassVar[tuple[str, ...]] = (Darcy.name,)
    scales = scales_of(SteadyConfig, smoke={}, small={}, paper={})
    sources: ClassVar[Mapping[str, str]] = sources_of(SteadyConfig)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ContrastConfig(SteadyConfig):
    """Settings of Darcy flow at any contrast.

    Parameters
    ----------
    contrast : float
        Conductivity of one phase over the other's.
    """

    contrast: float = 1000.0


class DarcyContrast(HardDarcy):
    """Darcy flow whose phases differ by a factor of 1,000, or by any other.

    Pressures differ by factors of a hundred between samples, with the size of the regions that
    hardly conduct; they grow with the contrast.
    """

    name = "darcy_contrast"
    title = "Darcy flow, high contrast"
    scales = scales_of(ContrastConfig, smoke={}, small={}, paper={})
    sources: ClassVar[Mapping[str, str]] = sources_of(
        ContrastConfig, contrast="Ours: a hundred times PDEBench's."
    )

    def title_of(self, config: SteadyConfig) -> str:
        return f"Darcy flow, contrast {self.contrast_of(config):,.10g}"

    def contrast_of(self, config: SteadyConfig) -> float:
        return cast("ContrastConfig", config).contrast

    def units_of(self, config: SteadyConfig) -> Units:
        per_contrast = Units(0.5, 0.5, 0.007, 0.012)
        centre, spread = (self.contrast_of(config) * number for number in per_contrast[2:])
        return per_contrast._replace(output_centre=centre, output_spread=spread)


class DarcyLognormal(HardDarcy):
    """Darcy flow in log-normal media: 100 between two deviations above and below the median."""

    name = "darcy_lognormal"
    title = "Darcy flow, log-normal"
    coefficient: ClassVar[str] = LOG_NORMAL
    contrast: ClassVar[float] = 100.0
    units: ClassVar[Units] = Units(2.0, 4.0, 0.04, 0.035)


class DarcyLoguniform(HardDarcy):
    """Darcy flow in media whose conductivity takes all values of four decades alike."""

    name = "darcy_loguniform"
    title = "Darcy flow, log-uniform"
    coefficient: ClassVar[str] = LOG_UNIFORM
    contrast: ClassVar[float] = 1e4
    units: ClassVar[Units] = Units(11.0, 22.0, 0.09, 0.18)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoxConfig(SteadyConfig):
    """Settings of problems that are defined on the square alone."""

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


class Box(SteadyExperiment[BoxConfig]):
    """A problem of `chonn_lab.problems` with one file of all samples, its name that of theirs.

    Attributes
    ----------
    problem : module
        With `default_name`, `generate` and `read`.
    """

    problem: ClassVar[Any]
    coordinates = staticmethod(cell_centres)
    ladders: ClassVar[bool] = False
    sources: ClassVar[Mapping[str, str]] = sources_of(
        BoxConfig, resolution="Ours: the generator's own."
    )

    def makers(self, config: BoxConfig, folder: Path, progress: bool = True) -> Makers:
        def make(path: Path) -> None:
            options = {"workers": workers(config), "progress": progress}
            self.problem.generate(path, config.n_samples, config.resolution, **options)

        stem = Path(self.problem.default_name(config.resolution)).stem
        return {folder / f"{stem}_{config.n_samples}.hdf5": make}

    def load(self, config: BoxConfig, folder: Path) -> Data:
        def read(path: Path, n_samples: int, resolution: int) -> Any:  # noqa: ARG001
            return self.problem.read(path, 0, n_samples)

        return with_finer(config, self.files(config, folder), read)


# Epochs of each model on FNO's Darcy flow, sizes "small", 85 x 85 nodes: as many as fit into the
# time of 500 epochs of the network, by measured steps on one thread. Solvers, with few numbers to
# learn, have fewer.
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
        At the scale "paper" with the sizes "small", each model trains for the epochs that were
        measured to fit into so many hours of one core. Other scales and sizes set epochs.
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
    coordinates = staticmethod(nodes)
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
        """Both published files if the one for training exists, otherwise generated ones."""
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
    """Whether a file has a published name and was not generated here."""
    named = path.name in fno_darcy.OFFICIAL_NAMES and path.exists()
    return named and origin.read(path).generator is None


EXPERIMENT = Darcy()
CONTRAST = DarcyContrast()
LOGNORMAL = DarcyLognormal()
LOGUNIFORM = DarcyLoguniform()
FNO = FNODarcy()
