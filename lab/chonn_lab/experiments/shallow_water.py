"""Shallow water of PDEBench, the radial dam break: U-Net, FNO and CHONN (Fig. 5a-c)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar

import torch
from torch import nn

from chonn_lab.experiments.base import (
    OPTIMIZER_FIELDS,
    PDEBENCH_METRICS,
    Data,
    Evaluation,
    Makers,
    Variant,
    batches,
    consecutive,
)
from chonn_lab.experiments.modules import PLAIN, Forecaster
from chonn_lab.experiments.rollout import (
    SCORED_AT_ONCE,
    SIZES,
    RolloutConfig,
    RolloutExperiment,
    checked,
    fno,
    frame_errors,
    pictures,
)
from chonn_lab.problems import shallow_water
from chonn_ops.metrics import MetricAccumulator
from chonn_ops.models import CHONNUNet2d
from chonn_ops.nn import CKBOptions, Scan

OFFICIAL_RESOLUTION, OFFICIAL_SAMPLES = 128, 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShallowWaterConfig(RolloutConfig):
    """Settings; the defaults are the paper's.

    Parameters
    ----------
    stride : int
        Frames of the file from one frame of the models to the next.
    padding : int
        Points of zeros that the FNO, plain and with a block, adds at the end of each axis.
    downsample : int
        Coarsening of the grid inside the block.
    unet_features : int
        Channels of the U-Net's first level.
    """

    n_train: int = 800
    n_validation: int = 100
    n_test: int = 100
    batch_size: int = 5
    epochs: int = 500
    optimizer: str = "adamw"
    learning_rate: float = 1e-3
    # AdamW's default.
    weight_decay: float = 1e-2
    schedule: str = "step"
    step_size: int = 100
    gamma: float = 0.5
    resolution: int = OFFICIAL_RESOLUTION
    unroll: int = 20
    stride: int = 1
    padding: int = 2
    downsample: int = 2
    unet_features: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_least(1, "stride")
        if self.history + self.unroll > self.n_frames:
            raise ValueError(
                f"history + unroll: expected at most the {self.n_frames} frames of a sample at "
                f"stride {self.stride}, got {self.history} + {self.unroll}"
            )

    @property
    def n_frames(self) -> int:
        return shallow_water.N_STEPS // self.stride + 1


_SAMPLE_FIELDS = ("n_train", "n_validation", "n_test", "resolution", "stride")
_SAMPLES = (
    '"The dataset contains 1,000 samples, each discretized on a 128x128 grid with 100 temporal '
    'steps." No split is given: the first 800, then 100 to validate and 100 to test.'
)
_TRAINING = (
    '"For FNO, U-Net and CHONN, we use AdamW with learning rate 1e-3 and StepLR with step size '
    "100 and decay factor gamma=0.5.\" Weight decay is not given: AdamW's default."
)
_EPOCHS = '"These models are trained for 500 epochs with batch size 5 and random seed 0000."'
_BRANCH = (
    '"The CHONN variant inserts a cascaded evolution branch into the FNO-style backbone, with '
    'state dimension d_state=16 and downsampling factor 2."'
)


def _unet(config: ShallowWaterConfig) -> nn.Module:
    model = CHONNUNet2d(config.history, 1, config.unet_features, ckb=PLAIN)
    return Forecaster(model, config.increment)


def _fno(block: CKBOptions) -> Callable[[ShallowWaterConfig], nn.Module]:
    return lambda c: fno(c, block, padding=c.padding, downsample=c.downsample)


class ShallowWater(RolloutExperiment[ShallowWaterConfig]):
    """Depth of the last frames to the next frame, fed back to the end of the sample."""

    name = "shallow_water"
    title = "Shallow water"
    scales: Mapping[str, ShallowWaterConfig] = {
        "smoke": ShallowWaterConfig(
            n_train=4,
            n_validation=2,
            n_test=2,
            batch_size=2,
            epochs=2,
            resolution=16,
            history=2,
            unroll=2,
            stride=20,
            modes=3,
            width=4,
            d_state=2,
            unet_features=2,
        ),
        "small": ShallowWaterConfig(
            n_train=64,
            n_validation=8,
            n_test=24,
            batch_size=4,
            epochs=25,
            step_size=5,
            resolution=48,
            unroll=4,
            stride=4,
            increment=True,
            padding=0,
            d_state=8,
            unet_features=8,
        ),
        "paper": ShallowWaterConfig(),
    }
    sources: ClassVar[Mapping[str, str]] = {
        **SIZES,
        **dict.fromkeys(_SAMPLE_FIELDS, _SAMPLES),
        **dict.fromkeys(OPTIMIZER_FIELDS, _TRAINING),
        **dict.fromkeys(("epochs", "batch_size", "seed"), _EPOCHS),
        **dict.fromkeys(("d_state", "downsample"), _BRANCH),
        "history": '"The model receives T_in=10 historical frames."',
        "unroll": (
            '"... and is trained with an unroll length of 20": 20 frames predicted '
            "recursively, from a random place of every trajectory, gradients through all. "
            "PDEBench's setting `unroll_step: 20` starts at frame 10 and has gradients at the "
            "last 20 of the 91 frames, for the U-Net alone."
        ),
        "padding": (
            "Not given; that of PDEBench's FNO. No wave reaches the walls, so that none is "
            "needed: with 0 all errors are lower."
        ),
        "unet_features": "Not given; PDEBench's default.",
    }

    def variants(self, config: ShallowWaterConfig) -> tuple[Variant[ShallowWaterConfig], ...]:  # noqa: ARG002
        raster = CKBOptions(Scan(directions="raster"), order=2)
        rows = (
            ("unet", "U-Net", _unet, {"family": "unet", "role": "baseline"}, {}, 0.5),
            ("fno", "FNO", _fno(PLAIN), {"family": "fno", "role": "baseline"}, {}, 1.0),
            (
                "chonn",
                "CHONN",
                _fno(raster),
                {"family": "chonn", "order": 2, "role": "paper"},
                {},
                1.3,
            ),
        )
        return tuple(Variant(*row) for row in rows)

    def makers(self, config: ShallowWaterConfig, folder: Path, progress: bool = True) -> Makers:
        """The published file's name if its size fits, otherwise a name with the sizes."""

        def make(path: Path) -> None:
            shallow_water.generate(path, config.n_samples, config.resolution, progress=progress)

        official = shallow_water.OFFICIAL_NAME
        if config.resolution == OFFICIAL_RESOLUTION and config.n_samples <= OFFICIAL_SAMPLES:
            return {folder / official: make}
        grid = f"{config.resolution}x{config.resolution}"
        return {folder / f"{Path(official).stem}_{grid}_{config.n_samples}.h5": make}

    def load(self, config: ShallowWaterConfig, folder: Path) -> Data:
        (path,) = self.files(config, folder)
        frames = shallow_water.read(path, 0, config.n_samples)
        frames = checked(config, path, frames, shallow_water.N_STEPS + 1, config.stride)
        return consecutive(config, frames)

    @torch.no_grad()
    def evaluate(self, config: ShallowWaterConfig, model: nn.Module, data: Data) -> Evaluation:
        device = next(model.parameters()).device
        accumulator, errors, fields = MetricAccumulator(), [], {}
        for (frames,) in batches(data.tests["test"], SCORED_AT_ONCE, device):
            prediction, target = self.predicted(config, model, frames)
            errors.append(frame_errors(prediction, target).double())
            # (B, T, R, R) to the metrics' (batch, *space, time, channels).
            accumulator.update(*(f.movedim(1, -1)[..., None] for f in (prediction, target)))
            fields = fields or pictures(frames[:, config.history - 1], target, prediction)
        scores = accumulator.compute()
        # A grid too coarse for a Fourier band has no score there.
        metrics = {name: value for name in PDEBENCH_METRICS if (value := scores[name]) is not None}
        curve = torch.cat(errors).mean(dim=0).tolist()
        return Evaluation({"test": metrics}, {"rollout_relative_l2": curve}, fields)


EXPERIMENT = ShallowWater()
