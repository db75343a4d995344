"""Navier-Stokes vorticity: rollouts of FNOs, plain and with a block, from 3, 5 and 10 frames
(Fig. 5d-f)."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from chonn_lab.experiments.base import Data, Evaluation, Makers, consecutive, device_of
from chonn_lab.experiments.rollout import Rollout, Windows, rollout
from chonn_lab.problems import navier_stokes

OFFICIAL_SAMPLES = 5000


@dataclasses.dataclass(kw_only=True)
class NavierStokes(Rollout):
    """Vorticity of the last frames to the next frame, fed back over the horizon.

    Parameters
    ----------
    horizon : int
        Frames of a rollout.
    solver_resolution : int
        Points along each axis of the reference solution.
    solver_step : float
        Its longest time step.
    long : int
        Frames of further rollouts, from the first and the last place of every test trajectory: the
        score ``growth_<long>`` is the largest root mean square of a frame over that of the data.
    """

    horizon: int
    solver_resolution: int
    solver_step: float
    long: int

    # The same for every history, so that all predict the same ones.
    given: ClassVar[int] = 10
    relative: ClassVar[bool] = True

    @property
    def frames(self) -> int:
        return self.given + self.horizon

    def makers(self, folder: Path) -> Makers:
        """The published file if it exists and its size fits, otherwise a name with the sizes."""
        # Small arrays are faster on a CPU: the allocator keeps their memory.
        batch_size = 4 if self.solver_resolution <= 64 else 20
        solver = self.solver_resolution, self.solver_step

        def make(path: Path) -> None:
            sizes = self.n_samples, self.frames, self.resolution
            navier_stokes.generate(path, *sizes, *solver, batch_size=batch_size)

        official = folder / navier_stokes.OFFICIAL_NAME
        at_scale = self.resolution == navier_stokes.RESOLUTION and self.horizon == 40
        if at_scale and self.n_samples <= OFFICIAL_SAMPLES and official.exists():
            return {official: make}
        stem = Path(navier_stokes.default_name(self.n_samples, self.frames)).stem
        return {folder / f"{stem}_{self.resolution}of{solver[0]}_step{solver[1]:g}.mat": make}

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
