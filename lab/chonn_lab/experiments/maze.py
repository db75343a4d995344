"""Acoustic scattering in a maze, after The Well: the next pressure, in a medium that is given.

The data set's card is the docstring of `chonn_lab.problems.maze`.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from chonn_lab.experiments.base import Data, Makers, consecutive
from chonn_lab.experiments.rollout import Predictor, Rollout, single_steps
from chonn_lab.problems import maze
from chonn_ops.models import CHONNWaves2d

# About the root mean square of the pressure.
PRESSURE = 0.5
# Every so many frames, one is predicted for the validation error.
VALIDATED = 5
# The Well's, in the denominator of VRMSE.
EPSILON = 1e-7


class InMedium(nn.Module):
    """Earlier frames (B, T, R, R) and the medium (B, 1, R, R) to the next frame (B, R, R), by a
    model of the last frames and the medium behind them as channels."""

    def __init__(self, model: nn.Module, history: int, increment: bool) -> None:
        super().__init__()
        self.model, self.frames, self.increment = model, history, increment

    def forward(self, frames: Tensor, medium: Tensor) -> Tensor:
        frames = frames[:, -self.frames :]
        predicted = self.model(torch.cat((frames, medium), 1))[:, 0]
        return frames[:, -1] + predicted if self.increment else predicted


def vrmse(prediction: Tensor, target: Tensor) -> Tensor:
    """The Well's score of every frame, (B, T) for fields (B, T, R, R): the root mean square error
    over the target's standard deviation."""
    error = (prediction - target).square().mean((2, 3))
    return (error / (target.var((2, 3), correction=0) + EPSILON)).sqrt()


@dataclasses.dataclass(kw_only=True)
class Maze(Rollout):
    """Density and pressure of the last frames to the pressure of the next frame, fed back."""

    # As The Well has it; models see the last `history`.
    given: ClassVar[int] = 4
    score: ClassVar[str] = "vrmse"
    frame_error = staticmethod(vrmse)

    @property
    def frames(self) -> int:
        return maze.N_STEPS + 1

    @property
    def in_channels(self) -> int:
        # The medium is passed as one more frame.
        return self.history + 1

    def wrap(self, model: nn.Module) -> nn.Module:
        increment = self.increment and not isinstance(model, CHONNWaves2d)
        return InMedium(model, self.history, increment)

    def makers(self, folder: Path) -> Makers:
        stem = Path(maze.default_name(self.resolution)).stem
        path = folder / f"{stem}_{self.n_samples}.hdf5"
        return {path: lambda p: maze.generate(p, self.n_samples, self.resolution)}

    def load(self, folder: Path) -> Data:
        (path,) = self.makers(folder)
        density, pressure = maze.read(path, 0, self.n_samples)
        walls = (torch.from_numpy(density) > maze.PATH_DENSITY).float()[:, None]
        return consecutive(self, self.checked(path, pressure / PRESSURE), walls)

    def told(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Predictor:
        return partial(model, medium=batch[1])

    def errors(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        """VRMSE of one step, at some of the frames."""
        told = self.told(model, batch)
        return vrmse(*single_steps(told, batch[0], self.history, self.given, VALIDATED)).mean(dim=1)

    def example(self) -> tuple[Tensor, ...]:
        (frames,) = super().example()
        return frames, frames[:, :1]
