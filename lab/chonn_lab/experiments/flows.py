"""The problems in time: the settings of their data, and their scores.

The card of each data set is the docstring of its generator in `chonn_lab.problems`.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from chonn_lab.experiments.base import (
    PDEBENCH_METRICS,
    Data,
    Evaluation,
    Makers,
    batches,
    consecutive,
    device_of,
    file_of,
    or_published,
)
from chonn_lab.experiments.rollout import (
    SCORED_AT_ONCE,
    Rollout,
    Windows,
    frame_errors,
    pictures,
    rollout,
)
from chonn_lab.problems import advection, burgers, navier_stokes, shallow_water
from chonn_ops.metrics import MetricAccumulator


@dataclasses.dataclass(kw_only=True)
class Line(Rollout):
    """The last frames of a wave on a line to the next frame, fed back over the horizon: advection
    and Burgers' equation, of PDEBench, without discretisation in time."""

    horizon: int  # frames of a rollout; the file has `given` more, from t = 0 to 2
    beta: float  # speed of advection
    nu: float  # PDEBench's viscosity, or 0 for advection

    given: ClassVar[int] = 10
    axes: ClassVar[int] = 1
    relative: ClassVar[bool] = True

    @property
    def frames(self) -> int:
        return self.given + self.horizon

    def makers(self, folder: Path) -> Makers:
        value = {"nu": self.nu} if self.nu else {"beta": self.beta}
        law = {"n_samples": self.n_samples, "resolution": self.resolution, "n_frames": self.frames}
        generator = burgers if self.nu else advection
        return file_of(folder, generator.generate, {**law, **value})

    def load(self, folder: Path) -> Data:
        (path,) = self.makers(folder)
        return consecutive(self, self.checked(path, advection.read(path, 0, self.n_samples)))


@dataclasses.dataclass(kw_only=True)
class NavierStokes(Rollout):
    """Navier-Stokes vorticity of the last frames to the next one, fed back over the horizon:
    rollouts of FNOs, plain and with a block, from 3, 5 and 10 frames (Fig. 5d-f)."""

    horizon: int  # frames of a rollout
    # Points along each axis of the reference solution, and its longest time step.
    solver_resolution: int
    solver_step: float
    # Frames of further rollouts, from the first and the last place of every test trajectory: the
    # score ``growth_<long>`` is the largest root mean square of a frame over that of the data.
    long: int

    # The same for every history, so that all predict the same ones.
    given: ClassVar[int] = 10
    relative: ClassVar[bool] = True

    @property
    def frames(self) -> int:
        return self.given + self.horizon

    def makers(self, folder: Path) -> Makers:
        law = {"n_samples": self.n_samples, "n_frames": self.frames, "resolution": self.resolution}
        law |= {"solver_resolution": self.solver_resolution, "step": self.solver_step}
        # Small arrays are faster on a CPU: the allocator keeps their memory.
        batch_size = 4 if self.solver_resolution <= 64 else 20
        made = file_of(folder, navier_stokes.generate, law, batch_size=batch_size)
        fits = self.resolution == navier_stokes.RESOLUTION and self.horizon == 40
        fits = fits and self.n_samples <= 5000
        return or_published(made, folder / navier_stokes.OFFICIAL_NAME, fits)

    def load(self, folder: Path) -> Data:
        (path,) = self.makers(folder)
        frames = navier_stokes.read(path, 0, self.n_samples)
        data = consecutive(self, self.checked(path, frames))
        (train,) = data.train.tensors
        windows = Windows(train, self.history + self.unroll, self.given - self.history)
        return dataclasses.replace(data, train=windows)

    @torch.no_grad()
    def evaluate(self, model: nn.Module, data: Data) -> Evaluation:
        found = super().evaluate(model, data)
        if not self.long:
            return found
        growth = self._growth(model, data.tests["test"].tensors[0])
        scores = {**found.metrics["test"], f"growth_{self.long}": growth}
        return dataclasses.replace(found, metrics={"test": scores})

    def _growth(self, model: nn.Module, frames: Tensor) -> float:
        starts = [frames[:, stop - self.history : stop] for stop in (self.given, frames.shape[1])]
        predicted = rollout(model, torch.cat(starts).to(device_of(model)), self.long)
        largest = float(predicted.square().mean((2, 3)).sqrt().max())
        known = float(frames.square().mean((2, 3)).sqrt().max())
        return largest / known if math.isfinite(largest) else math.inf


@dataclasses.dataclass(kw_only=True)
class ShallowWater(Rollout):
    """Depth of the last frames to the next frame, fed back to the end of the sample: the radial dam
    break of PDEBench (Fig. 5a-c)."""

    stride: int  # frames of the file from one frame of the models to the next
    given: int  # pyright: ignore[reportIncompatibleVariableOverride]

    boundary: ClassVar[str] = "neumann"

    def __post_init__(self) -> None:
        self._check_least(1, "stride")
        super().__post_init__()

    @property
    def frames(self) -> int:
        return shallow_water.N_STEPS // self.stride + 1

    def makers(self, folder: Path) -> Makers:
        law = {"n_samples": self.n_samples, "resolution": self.resolution}
        fits = self.resolution == 128 and self.n_samples <= 1000
        made = file_of(folder, shallow_water.generate, law)
        return or_published(made, folder / shallow_water.OFFICIAL_NAME, fits)

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
