"""Forecasting problems: settings, windows of trajectories, recursive prediction."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from chonn_lab.experiments.base import Data, Evaluation, Problem, batches, device_of, relative_l2
from chonn_lab.experiments.modules import Forecaster
from chonn_ops.models import CHONNRollout1d, CHONNRollout2d, CHONNWaves2d

IN_TIME = CHONNRollout1d, CHONNRollout2d, CHONNWaves2d
SCORED_AT_ONCE = 20
PICTURES = 2


def frame_errors(prediction: Tensor, target: Tensor) -> Tensor:
    """Relative L2 error of every frame: (B, T) for fields (B, T, R, R)."""
    return relative_l2(prediction, target, 2)


# Earlier frames to the next one.
Predictor = Callable[[Tensor], Tensor]


@dataclasses.dataclass(kw_only=True)
class Rollout(Problem):
    """A forecasting problem; the problem itself is the subclass's."""

    resolution: int  # points along each axis
    history: int  # frames that a model is given to predict the next one
    # Frames predicted in a training step, each from the ones before, with gradients through all.
    unroll: int
    # Learn the last of the unrolled frames alone, and no gradients through the others, which are a
    # model's own errors as noise (Brandstetter et al. 2022, arXiv 2202.03376).
    pushforward: bool
    increment: bool  # let the models predict the change from the last frame

    given: ClassVar[int]  # frames known before a rollout, of which models see the last `history`
    out_channels: ClassVar[int] = 1
    boundary: ClassVar[str] = "periodic"  # walls of networks in a model
    axes: ClassVar[int] = 2
    relative: ClassVar[bool] = False  # train on the relative L2 error of every frame, not on MSE

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_least(1, "resolution", "history", "unroll")
        for name, most in (("history", self.given), ("unroll", self.frames - self.given)):
            if getattr(self, name) > most:
                raise ValueError(f"{name}: expected at most {most}, got {getattr(self, name)}")

    @property
    @abstractmethod
    def frames(self) -> int:
        """Frames of a trajectory."""

    @property
    def in_channels(self) -> int:
        """Number of frames that a model is given."""
        return self.history

    def wrap(self, model: nn.Module) -> nn.Module:
        # The models in time predict frames.
        increment = self.increment and not isinstance(model, IN_TIME)
        return Forecaster(model, increment)

    def predicted(self, model: Predictor, frames: Tensor) -> tuple[Tensor, Tensor]:
        """Prediction of all frames after the given ones, and the truth."""
        known, target = frames.tensor_split((self.given,), dim=1)
        return rollout(model, known[:, -self.history :], target.shape[1]), target

    def forecast(self, model: Predictor, history: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Prediction in training and its target, frames (B, T, R, R)."""
        if not self.pushforward:
            return rollout(model, history, self.unroll), target
        if self.unroll > 1:
            with torch.no_grad():
                own = rollout(model, history, self.unroll - 1)
            history = torch.cat((history, own), dim=1)[:, -self.history :]
        return rollout(model, history, 1), target[:, -1:]

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        """That of the frames after a random place of each trajectory."""
        stretch = stretches(batch[0], self.history + self.unroll)
        history, target = stretch.split((self.history, self.unroll), dim=1)
        prediction, target = self.forecast(model, history, target)
        if self.relative:
            return frame_errors(prediction, target).mean()
        return (prediction - target).square().mean()

    def errors(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        return frame_errors(*self.predicted(model, batch[0])).mean(dim=1)

    @torch.no_grad()
    def evaluate(self, model: nn.Module, data: Data) -> Evaluation:
        """Errors of rollouts, and of single steps from the true frames, on the test samples."""
        rolled, single, fields = [], [], {}
        for (frames,) in batches(data.tests["test"], SCORED_AT_ONCE, device_of(model)):
            prediction, target = self.predicted(model, frames)
            rolled.append(frame_errors(prediction, target).double())
            steps = single_steps(model, frames, self.history, self.given)
            single.append(frame_errors(*steps).double())
            fields = fields or pictures(frames[:, self.given - 1], target, prediction)
        curve, one_step = (torch.cat(errors).mean(dim=0) for errors in (rolled, single))
        curves = {"rollout_relative_l2": curve, "one_step_relative_l2": one_step}
        scores = {name: float(values.mean()) for name, values in curves.items()}
        scores["rollout_relative_l2_last"] = float(curve[-1])
        found = {name: values.tolist() for name, values in curves.items()}
        return Evaluation({"test": scores}, found, fields)

    def checked(self, path: Path, trajectories: np.ndarray) -> Tensor:
        """The trajectories of a file; ValueError unless they are (N, T, *grid) as the settings."""
        expected = (self.n_samples, self.frames, *[self.resolution] * self.axes)
        if trajectories.shape != expected:
            raise ValueError(f"{path}: expected samples {expected}, got {trajectories.shape}")
        return torch.from_numpy(np.ascontiguousarray(trajectories))

    def example(self) -> tuple[Tensor, ...]:
        return (torch.zeros(1, self.history, *[self.resolution] * self.axes),)


class Windows(TensorDataset):
    """Windows of `length` consecutive frames of trajectories (N, T, R, R), gathered on access.

    One begins at every frame from `first` on that leaves room for it.
    """

    def __init__(self, trajectories: Tensor, length: int, first: int = 0) -> None:
        super().__init__(trajectories)
        self.length, self.first = length, first
        self.starts = trajectories.shape[1] - first - length + 1

    def __len__(self) -> int:
        return len(self.tensors[0]) * self.starts

    def __getitem__(self, index: int | Sequence[int]) -> tuple[Tensor, ...]:
        which = torch.as_tensor(index)
        rows = which.div(self.starts, rounding_mode="floor")
        starts = self.first + which % self.starts
        frames = starts[..., None] + torch.arange(self.length)
        return (self.tensors[0][rows[..., None], frames],)


def rollout(model: Predictor, frames: Tensor, steps: int) -> Tensor:
    """Predict recursively from frames (B, history, R, R): (B, steps, R, R)."""
    predicted = []
    for _ in range(steps):
        predicted.append(model(frames))
        frames = torch.cat((frames[:, 1:], predicted[-1][:, None]), dim=1)
    return torch.stack(predicted, dim=1)


def stretches(frames: Tensor, length: int) -> Tensor:
    """So many frames of each trajectory (B, T, R, R), from a random place on."""
    starts = torch.randint(frames.shape[1] - length + 1, (len(frames), 1))
    return frames[torch.arange(len(frames))[:, None], starts + torch.arange(length)]


def single_steps(
    model: Predictor, frames: Tensor, history: int, first: int
) -> tuple[Tensor, Tensor]:
    """Predictions from the true frames before, of frames from `first` on, and those frames."""
    places = range(first, frames.shape[1])
    found = [model(frames[:, place - history : place]) for place in places]
    return torch.stack(found, dim=1), frames[:, first:]


def pictures(last: Tensor, target: Tensor, prediction: Tensor) -> dict[str, Tensor]:
    """A few samples: the last given frame, the first and the last one of the rollout."""
    ends = [0, target.shape[1] - 1]
    fields = {"input": last, "target": target[:, ends], "prediction": prediction[:, ends]}
    return {name: field[:PICTURES].float().cpu() for name, field in fields.items()}
