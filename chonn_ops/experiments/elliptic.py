"""Elliptic problems beyond the paper's: hard media, Helmholtz, three dimensions.

They have the models, controls and scores of Darcy flow. Each data set's card is the docstring of
its generator in `chonn_ops.problems`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from chonn_ops.experiments._modules import Units
from chonn_ops.experiments._steady import (
    SteadyConfig,
    SteadyExperiment,
    splits,
    workers,
)
from chonn_ops.experiments._steady_controls import Physics
from chonn_ops.experiments._steady_variants import variants3d
from chonn_ops.experiments.base import Data, Evaluation, Makers, Variant
from chonn_ops.experiments.darcy import Darcy
from chonn_ops.problems import darcy3d, helmholtz
from chonn_ops.problems._random_fields import LOG_NORMAL
from chonn_ops.problems.domains import SQUARE, cell_centres

_OURS = "Ours, no paper's: that of Darcy flow."
_SMALLER = "Ours: at the small scale, of about as many parameters as in two dimensions."
_Kind = TypeVar("_Kind", bound=SteadyConfig)


def scales_of(kind: type[_Kind], **changes: Mapping[str, Any]) -> Mapping[str, _Kind]:
    """Darcy flow's, with changes by scale; all of them show models fields of about unit size."""
    return {
        scale: kind(**{**dataclasses.asdict(base), "standardize": True, **changes[scale]})
        for scale, base in Darcy.scales.items()
    }


def sources_of(kind: type[SteadyConfig], **own: str) -> Mapping[str, str]:
    names = [field.name for field in dataclasses.fields(kind)]
    return {**dict.fromkeys(names, _OURS), **own}


class HardDarcy(Darcy):
    """Darcy flow in other media, with the sizes and rates of Darcy flow's search."""

    units_of_domains: ClassVar[Mapping[str, Units]] = {}
    ladders: ClassVar[bool] = False
    searched: ClassVar[tuple[str, ...]] = (Darcy.name,)
    scales = scales_of(SteadyConfig, smoke={}, small={}, paper={})
    sources: ClassVar[Mapping[str, str]] = sources_of(SteadyConfig)


class DarcyContrast(HardDarcy):
    """Darcy flow whose phases differ by a factor of 1,000.

    Pressures differ by factors of a hundred between samples, with the size of the regions that
    hardly conduct.
    """

    name = "darcy_contrast"
    title = "Darcy flow, contrast 1,000"
    contrast: ClassVar[float] = 1000.0
    units: ClassVar[Units] = Units(0.5, 0.5, 7.0, 12.0)


class DarcyLognormal(HardDarcy):
    """Darcy flow in log-normal media: 100 between two deviations above and below the median."""

    name = "darcy_lognormal"
    title = "Darcy flow, log-normal"
    coefficient: ClassVar[str] = LOG_NORMAL
    contrast: ClassVar[float] = 100.0
    units: ClassVar[Units] = Units(2.0, 4.0, 0.04, 0.035)


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


PROBLEMS: Mapping[str, SteadyExperiment[Any]] = {
    experiment.name: experiment
    for experiment in (DarcyContrast(), DarcyLognormal(), Helmholtz(), Darcy3d())
}
