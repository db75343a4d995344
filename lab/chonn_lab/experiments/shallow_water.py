"""Shallow water of PDEBench, the radial dam break: U-Net, FNO and CHONN (Fig. 5a-c)."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import ClassVar

import torch
from torch import nn

from chonn_lab.experiments.base import (
    PDEBENCH_METRICS,
    Data,
    Evaluation,
    Makers,
    batches,
    consecutive,
    device_of,
)
from chonn_lab.experiments.rollout import SCORED_AT_ONCE, Rollout, frame_errors, pictures
from chonn_lab.problems import shallow_water
from chonn_ops.metrics import MetricAccumulator

OFFICIAL_RESOLUTION, OFFICIAL_SAMPLES = 128, 1000


@dataclasses.dataclass(kw_only=True)
class ShallowWater(Rollout):
    """Depth of the last frames to the next frame, fed back to the end of the sample.

    Parameters
    ----------
    stride : int
        Frames of the file from one frame of the models to the next.
    given : int
        Frames that are known before a rollout.
    """

    stride: int
    given: int  # pyright: ignore[reportIncompatibleVariableOverride]

    boundary: ClassVar[str] = "neumann"

    def __post_init__(self) -> None:
        self._check_least(1, "stride")
        super().__post_init__()

    @property
    def frames(self) -> int:
        return shallow_water.N_STEPS // self.stride + 1

    def makers(self, folder: Path) -> Makers:
        """The published file's name if its size fits, otherwise a name with the sizes."""
        n, size, name = self.n_samples, self.resolution, shallow_water.OFFICIAL_NAME
        if size != OFFICIAL_RESOLUTION or n > OFFICIAL_SAMPLES:
            name = f"{Path(name).stem}_{size}x{size}_{n}.h5"
        return {folder / name: lambda path: shallow_water.generate(path, n, size)}

    def load(self, folder: Path) -> Data:
        (path,) = self.makers(folder)
        frames = shallow_water.read(path, 0, self.n_samples)[:, :: self.stride]
        return consecutive(self, self.checked(path, frames))

    @torch.no_grad()
    def evaluate(self, model: nn.Module, data: Data) -> Evaluation:
        accumulator, errors, fields = MetricAccumulator(), [], {}
        for (frames,) in batches(data.tests["test"], SCORED_AT_ONCE, device_of(model)):
            prediction, target = self.predicted(model, frames)
            errors.append(frame_errors(prediction, target).double())
            # (B, T, R, R) to the metrics' (batch, *space, time, channels).
            accumulator.update(*(f.movedim(1, -1)[..., None] for f in (prediction, target)))
            fields = fields or pictures(frames[:, self.given - 1], target, prediction)
        scores = accumulator.compute()
        # A grid too coarse for a Fourier band has no score there.
        metrics = {name: value for name in PDEBENCH_METRICS if (value := scores[name]) is not None}
        curve = torch.cat(errors).mean(dim=0).tolist()
        return Evaluation({"test": metrics}, {"rollout_relative_l2": curve}, fields)
