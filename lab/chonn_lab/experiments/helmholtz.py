"""Helmholtz' equation: in a closed square, where resistors must fail, and in open space.

Networks at a frequency have coils and capacitors, whose admittances have both signs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from torch.utils.data import TensorDataset

from chonn_lab.experiments.base import Data, Makers, Variant, consecutive
from chonn_lab.experiments.darcy import Box, BoxConfig, Darcy, scales_of, sources_of
from chonn_lab.experiments.modules import Units
from chonn_lab.experiments.solvers import Physics, WaveScheme
from chonn_lab.experiments.steady import SteadyExperiment, workers
from chonn_lab.experiments.steady_models import OWN_SCHEME, Variants
from chonn_lab.problems import helmholtz, helmholtz_open
from chonn_lab.problems.domains import cell_centres


@dataclasses.dataclass(frozen=True, kw_only=True)
class WavesConfig(BoxConfig):
    """Settings of waves on the square, whose samples are the same on every grid."""

    def _check_finer(self) -> None:
        """Any grid that `SteadyConfig` takes."""


class Helmholtz(Box):
    """Wave number to wave.

    The inverse of a resistor network's matrix has no negative entry, so a positive source gives a
    solution without negative values. About two thirds of the absolute value of these solutions is
    negative, and no field without negative values has a relative L1 error below that.
    """

    name = "helmholtz"
    title = "Helmholtz equation"
    problem = helmholtz
    physics: ClassVar[Physics] = Physics("wave number", "centres")
    units: ClassVar[Units] = Units(15.0, 3.0, -0.004, 0.018)
    metrics: ClassVar[tuple[str, ...]] = Darcy.metrics
    searched: ClassVar[tuple[str, ...]] = (Darcy.name,)
    scales = scales_of(WavesConfig, smoke={}, small={}, paper={"resolution": 64})

    def variants(self, config: BoxConfig) -> tuple[Variant[BoxConfig], ...]:
        return (*super().variants(config), Variants(self, config).alternating())

    def own_scheme(self, config: BoxConfig) -> WaveScheme:  # noqa: ARG002
        return WaveScheme()

    def makers(self, config: BoxConfig, folder: Path, progress: bool = True) -> Makers:
        """All samples; then the test samples on finer grids."""
        first, drawn_at = config.n_train + config.n_validation, config.resolution

        def maker(n: int) -> Callable[[Path], object]:
            options = {"first": first, "drawn_at": drawn_at, "progress": progress}
            options |= {"workers": workers(config)}
            return lambda path: helmholtz.generate(path, config.n_test, n, **options)

        made = dict(super().makers(config, folder, progress))
        for n in config.test_resolutions:
            stem = Path(helmholtz.default_name(n)).stem
            name = f"{stem}_{first}-{first + config.n_test - 1}_drawn{drawn_at}.hdf5"
            made[folder / name] = maker(n)
        return made


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpenConfig(WavesConfig):
    """Settings of waves in open space.

    Parameters
    ----------
    test_wavenumbers : tuple of float
        Other wave numbers, at which the trained model is evaluated on the test samples. The scores
        at 24 are named "at_wavenumber_24".
    """

    fields_in: ClassVar[int] = 2
    fields_out: ClassVar[int] = 2
    test_wavenumbers: tuple[float, ...] = ()


class HelmholtzOpen(SteadyExperiment[OpenConfig]):
    """Wave number and source to outgoing waves, real and imaginary part."""

    name = "helmholtz_open"
    title = "Helmholtz equation in open space"
    coordinates = staticmethod(cell_centres)
    ladders: ClassVar[bool] = False
    searched: ClassVar[tuple[str, ...]] = (Darcy.name,)
    physics: ClassVar[Physics] = Physics("wave number", "centres")
    units: ClassVar[Units] = Units((20.0, 0.0), (5.0, 10.0), 0.0, 0.06)
    metrics: ClassVar[tuple[str, ...]] = Darcy.metrics
    scales = scales_of(OpenConfig, smoke={"resolution": 48}, small={}, paper={"resolution": 64})
    sources = sources_of(
        OpenConfig,
        resolution="Ours: the generator's own.",
        test_wavenumbers="Ours, as WaveBench's other frequencies.",
    )

    def variants(self, config: OpenConfig) -> tuple[Variant[OpenConfig], ...]:
        """U-Net, both FNOs, UNO, F-FNO, networks with direct and alternating current, and the
        data's scheme."""
        every = super().variants(config)
        kept = ("unet", "fno", "fno-neuralop", "uno", "ffno", "network", "network-constant")
        return (
            *(variant for variant in every if variant.name in (*kept, OWN_SCHEME)),
            # "matched" walls alone reflect oblique waves: 0.075 without the margin (one seed).
            Variants(self, config).alternating(boundary="matched", margin=0.125, epochs=7),
        )

    def own_scheme(self, config: OpenConfig) -> WaveScheme:  # noqa: ARG002
        return WaveScheme(helmholtz_open.LAYER, helmholtz_open.ATTENUATION)

    def makers(self, config: OpenConfig, folder: Path, progress: bool = True) -> Makers:
        """All samples; then the test samples on finer grids, and at other wave numbers."""
        first, size = config.n_train + config.n_validation, config.resolution
        known = helmholtz_open.WAVENUMBER
        wanted = [(config.n_samples, 0, size, known)]
        wanted += [(config.n_test, first, n, known) for n in config.test_resolutions]
        wanted += [(config.n_test, first, size, k) for k in config.test_wavenumbers]

        def maker(n_samples: int, first: int, n: int, k: float) -> Callable[[Path], object]:
            options = {"first": first, "workers": workers(config), "progress": progress}
            return lambda path: helmholtz_open.generate(path, n_samples, n, k, **options)

        made: dict[Path, Callable[[Path], object]] = {}
        for n_samples, start, n, k in wanted:
            stem = Path(helmholtz_open.default_name(n, k)).stem
            made[folder / f"{stem}_{start}-{start + n_samples - 1}.hdf5"] = maker(
                n_samples, start, n, k
            )
        return made

    def load(self, config: OpenConfig, folder: Path) -> Data:
        path, *further = self.files(config, folder)
        data = consecutive(config, *helmholtz_open.read(path, 0, config.n_samples))
        names = [f"at_{n}" for n in config.test_resolutions]
        names += [f"at_wavenumber_{k:g}" for k in config.test_wavenumbers]
        tests = {
            name: TensorDataset(*helmholtz_open.read(file, 0, config.n_test))
            for name, file in zip(names, further, strict=True)
        }
        return dataclasses.replace(data, tests={**data.tests, **tests})


EXPERIMENT, OPEN = Helmholtz(), HelmholtzOpen()
