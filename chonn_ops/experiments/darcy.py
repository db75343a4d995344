"""Darcy flow of PDEBench, beta = 1: CHONN beside U-Net, FNO and CNO, by the metrics of Fig. 4.

And the same in media that are harder, which the paper has not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from chonn_ops.experiments._modules import Units
from chonn_ops.experiments._steady import (
    SOURCES,
    SteadyConfig,
    SteadyExperiment,
    SteadyT,
    pairs,
    splits,
    workers,
)
from chonn_ops.experiments._steady_controls import Physics
from chonn_ops.experiments.base import OPTIMIZER_FIELDS, PDEBENCH_METRICS, Data, Makers
from chonn_ops.problems import darcy
from chonn_ops.problems._random_fields import LOG_NORMAL, TWO_PHASE

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


class Darcy(SteadyExperiment[SteadyConfig]):
    """Two-phase medium to pressure."""

    name = "darcy"
    title = "Darcy flow"
    coefficient: ClassVar[str] = TWO_PHASE
    contrast: ClassVar[float] = darcy.CONTRAST
    coordinates = staticmethod(darcy.cell_centres)
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
            mixer_width=8,
            mixer_depth=2,
            network_width=4,
            network_depth=1,
            networks=2,
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
            mixer_width=50,
            mixer_depth=3,
            cno_learning_rate=2.5e-3,
            mixer_learning_rate=1e-2,
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

    def makers(self, config: SteadyConfig, folder: Path, progress: bool = True) -> Makers:
        """PDEBench's file at its resolution, else one of ours that says what is in it; then the
        test samples on finer grids, with the walls of the grid of the training."""
        size, first = config.resolution, config.n_train + config.n_validation
        official = darcy.default_name(BETA, config.domain, self.coefficient, self.contrast)
        stem, name = Path(official).stem, official
        fits = size == OFFICIAL_RESOLUTION and config.n_samples <= PAPER_SAMPLES
        if not fits or official != darcy.OFFICIAL_NAME:
            name = f"{stem}_{size}x{size}_{config.n_samples}.hdf5"

        def maker(n_samples: int, resolution: int, **options: Any) -> Callable[[Path], object]:
            options |= {"domain": config.domain, "progress": progress, "workers": workers(config)}
            options |= {"coefficient": self.coefficient, "contrast": self.contrast}
            return lambda path: darcy.generate(path, n_samples, resolution, BETA, **options)

        made = {folder / name: maker(config.n_samples, size)}
        for n in config.test_resolutions:
            which = f"{first}-{first + config.n_test - 1}_walls{size}"
            path = folder / f"{stem}_{n}x{n}_{which}.hdf5"
            made[path] = maker(config.n_test, n, first=first, margin=0.5 / size)
        return made

    def load(self, config: SteadyConfig, folder: Path) -> Data:
        path, *finer = self.files(config, folder)
        data = splits(
            config, *darcy.read(path, 0, config.n_samples, config.resolution, config.domain)
        )
        tests = {
            f"at_{n}": pairs(*darcy.read(file, 0, config.n_test, n, config.domain))
            for n, file in zip(config.test_resolutions, finer, strict=True)
        }
        return dataclasses.replace(data, tests={**data.tests, **tests})


def scales_of(kind: type[SteadyT], **changes: Mapping[str, Any]) -> dict[str, SteadyT]:
    """Darcy flow's, as named, with changes; all of them show models fields of about unit size."""
    return {
        scale: kind(**{**dataclasses.asdict(Darcy.scales[scale]), "standardize": True, **changed})
        for scale, changed in changes.items()
    }


def sources_of(kind: type[SteadyConfig], **own: str) -> Mapping[str, str]:
    """Where settings come from: Darcy flow's, but for those of the problem's own."""
    names = [field.name for field in dataclasses.fields(kind)]
    return {**dict.fromkeys(names, "Ours, no paper's: that of Darcy flow."), **own}


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


EXPERIMENT = Darcy()
