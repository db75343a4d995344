"""Darcy flow of PDEBench, beta = 1: CHONN beside U-Net, FNO and CNO, by the metrics of Fig. 4."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from chonn_ops.experiments._modules import Units
from chonn_ops.experiments._steady import (
    SOURCES,
    SteadyConfig,
    SteadyExperiment,
    pairs,
    splits,
    workers,
)
from chonn_ops.experiments._steady_controls import Physics
from chonn_ops.experiments.base import OPTIMIZER_FIELDS, Data
from chonn_ops.problems import darcy
from chonn_ops.problems._random_fields import TWO_PHASE

BETA = 1.0
OFFICIAL_RESOLUTION = 128
PAPER_SAMPLES = 1000
# Of this problem and Poisson's at the scales that are ours.
SMOKE: Mapping[str, Any] = {
    "n_train": 8,
    "n_validation": 4,
    "n_test": 4,
    "batch_size": 4,
    "baseline_batch_size": 4,
    "epochs": 2,
    "standardize": True,
    "n_layers": 2,
    "n_res": 1,
    "n_res_neck": 1,
    "channel_multiplier": 4,
    "latent": 4,
    "cno_layers": 1,
    "cno_res_neck": 1,
    "d_state": 2,
    "mixer_width": 8,
    "mixer_depth": 2,
    "network_width": 4,
    "network_depth": 1,
    "networks": 2,
    "unet_features": 2,
    "fno_modes": 4,
    "fno_width": 4,
    "sizes": "smoke",
}
SMALL: Mapping[str, Any] = {
    "n_train": 256,
    "n_validation": 32,
    "batch_size": 8,
    "baseline_batch_size": 8,
    "epochs": 15,
    "optimizer": "adamw",
    "learning_rate": 2.5e-3,
    "schedule": "cosine",
    "standardize": True,
    "n_layers": 3,
    "n_res": 1,
    "n_res_neck": 1,
    "channel_multiplier": 8,
    "latent": 4,
    "cno_layers": 3,
    "cno_res_neck": 2,
    "d_state": 8,
    "mixer_width": 50,
    "mixer_depth": 3,
    "cno_learning_rate": 2.5e-3,
    "mixer_learning_rate": 1e-2,
    "unet_features": 3,
    "fno_modes": 12,
    "fno_width": 8,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DarcyConfig(SteadyConfig):
    """Settings; the defaults are the paper's."""

    n_train: int = 800
    n_validation: int = 100
    n_test: int = 100
    batch_size: int = 4
    epochs: int = 1000
    optimizer: str = "adamw"
    learning_rate: float = 1e-3
    weight_decay: float = 1e-3
    schedule: str = "step"
    step_size: int = 10
    gamma: float = 0.98
    resolution: int = OFFICIAL_RESOLUTION
    standardize: bool = False
    n_layers: int = 3
    channel_multiplier: int = 32
    baseline_batch_size: int = 50


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


class Darcy(SteadyExperiment[DarcyConfig]):
    """Two-phase medium to pressure."""

    name = "darcy"
    title = "Darcy flow"
    coefficient: ClassVar[str] = TWO_PHASE
    contrast: ClassVar[float] = darcy.CONTRAST
    coordinates = staticmethod(darcy.cell_centres)
    physics: ClassVar[Physics] = Physics("coefficient", "centres")
    units: ClassVar[Units] = Units(0.5, 0.45, 0.15, 0.12)
    units_of_domains: ClassVar[Mapping[str, Units]] = MappingProxyType(
        {"l-shape": Units(0.5, 0.45, 0.08, 0.07), "holes": Units(0.5, 0.45, 0.035, 0.035)}
    )
    metrics: ClassVar[tuple[str, ...]] = (
        "relative_l1",
        "relative_l1_median",
        "rmse",
        "nrmse",
        "csv",
        "max_error",
        "boundary_rmse",
        "fourier_rmse_low",
        "fourier_rmse_mid",
        "fourier_rmse_high",
    )
    scales = MappingProxyType(
        {
            "smoke": DarcyConfig(**SMOKE, resolution=32),
            "small": DarcyConfig(
                **SMALL, n_test=96, resolution=64, unet_learning_rate=5e-2, fno_learning_rate=2e-2
            ),
            "paper": DarcyConfig(sizes="paper"),
        }
    )
    sources: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            **SOURCES,
            **dict.fromkeys(("n_train", "n_validation", "n_test", "resolution"), _SAMPLES),
            **dict.fromkeys(("epochs", "batch_size", "seed"), _RUN),
            **dict.fromkeys(OPTIMIZER_FIELDS, _OPTIMIZER),
            **dict.fromkeys(("n_layers", "n_res", "n_res_neck", "channel_multiplier"), _WIDTHS),
            "d_state": "Not given here; that of Poisson.",
            "cno_layers": "Ours, the paper compares no CNO here: that of its Poisson benchmark.",
            "baseline_batch_size": '"The baseline batch size is set to 50."',
        }
    )

    def files(self, config: DarcyConfig, folder: Path) -> tuple[Path, ...]:
        finer = (self._finer(config, folder, n) for n in config.test_resolutions)
        return (self._path(config, folder), *finer)

    def prepare(self, config: DarcyConfig, folder: Path, progress: bool = True) -> None:
        def make(path: Path, n_samples: int, resolution: int, **options: Any) -> None:
            if not path.exists():
                folder.mkdir(parents=True, exist_ok=True)
                options |= {"domain": config.domain, "progress": progress}
                options |= {"coefficient": self.coefficient, "contrast": self.contrast}
                options |= {"workers": workers(config)}
                darcy.generate(path, n_samples, resolution, BETA, **options)

        make(self._path(config, folder), config.n_samples, config.resolution)
        first = config.n_train + config.n_validation
        # Walls at the same place as on the grid of the training.
        margin = 0.5 / config.resolution
        for n in config.test_resolutions:
            make(self._finer(config, folder, n), config.n_test, n, first=first, margin=margin)

    def load(self, config: DarcyConfig, folder: Path) -> Data:
        path = self._path(config, folder)
        data = splits(
            config, *darcy.read(path, 0, config.n_samples, config.resolution, config.domain)
        )
        finer = {
            f"at_{n}": pairs(
                *darcy.read(self._finer(config, folder, n), 0, config.n_test, n, config.domain)
            )
            for n in config.test_resolutions
        }
        return dataclasses.replace(data, tests={**data.tests, **finer})

    def _path(self, config: DarcyConfig, folder: Path) -> Path:
        """PDEBench's file at its resolution, else one of ours that says what is in it."""
        name = self._name(config)
        if (
            name == darcy.OFFICIAL_NAME
            and config.resolution == OFFICIAL_RESOLUTION
            and config.n_samples <= PAPER_SAMPLES
        ):
            return folder / name
        grid = f"{config.resolution}x{config.resolution}"
        return folder / f"{Path(name).stem}_{grid}_{config.n_samples}.hdf5"

    def _name(self, config: DarcyConfig) -> str:
        return darcy.default_name(BETA, config.domain, self.coefficient, self.contrast)

    def _finer(self, config: DarcyConfig, folder: Path, resolution: int) -> Path:
        """The test samples on a finer grid, with the walls of the grid of the training."""
        stem = Path(self._name(config)).stem
        first = config.n_train + config.n_validation
        which = f"{first}-{first + config.n_test - 1}_walls{config.resolution}"
        return folder / f"{stem}_{resolution}x{resolution}_{which}.hdf5"


EXPERIMENT = Darcy()
