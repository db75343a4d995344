"""The problems in time: the settings of their data, recursive prediction, losses and scores.

The card of each data set is the docstring of its generator in `chonn_lab.problems`.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from chonn_lab.experiments.base import (
    CALIBRATED,
    PDEBENCH_METRICS,
    Data,
    Problem,
    Scores,
    Untrained,
    batches,
    device_of,
    relative_l2,
)
from chonn_lab.problems import navier_stokes, pdebench_series, shallow_water
from chonn_ops.checks import check_choice, check_integer
from chonn_ops.metrics import MetricAccumulator
from chonn_ops.models import CHONNStep1d, CHONNStep2d

IN_TIME = CHONNStep1d, CHONNStep2d

# Earlier frames to the next one.
Predictor = Callable[[Tensor], Tensor]


def frame_errors(prediction: Tensor, target: Tensor) -> Tensor:
    """Relative L2 error of every frame, the mean of its channels: (B, T) for fields (B, T, C,
    \\*grid). PDEBench's nRMSE is its mean."""
    return relative_l2(prediction, target, 3).mean(2)


def rollout(model: Predictor, frames: Tensor, steps: int) -> Tensor:
    """Predict recursively from frames (B, history, C, \\*grid): (B, steps, C, \\*grid)."""
    predicted = []
    for _ in range(steps):
        predicted.append(model(frames))
        frames = torch.cat((frames[:, 1:], predicted[-1][:, None]), dim=1)
    return torch.stack(predicted, dim=1)


class Forecaster(nn.Module):
    """Earlier frames (B, history, C, \\*grid) to the next one (B, C, \\*grid), by a model of fields
    whose channels are all of them: the frame, or with `increment` the change from the last one."""

    centre: Tensor
    spread: Tensor
    unit: Tensor

    def __init__(self, model: nn.Module, increment: bool, channels: int = 1, axes: int = 2) -> None:
        super().__init__()
        self.model, self.increment = model, increment
        zeros = torch.zeros(channels, *[1] * axes)
        for name, value in (("centre", zeros), ("spread", zeros + 1), ("unit", zeros + 1)):
            self.register_buffer(name, value)

    def standardize(self, frames: Tensor) -> None:
        """Let the model see and predict numbers of unit size, as these (S, T, C, \\*grid) are."""
        over = [0, 1, *range(3, frames.dim())]
        deviations = [x.std(over) for x in (frames, frames.diff(dim=1))]
        self.centre.copy_(frames.mean(over).view_as(self.centre))
        self.spread.copy_(deviations[0].view_as(self.spread))
        self.unit.copy_(deviations[self.increment].view_as(self.unit))

    def forward(self, frames: Tensor) -> Tensor:
        x = ((frames - self.centre) / self.spread).flatten(1, 2)
        rest = frames[:, -1] if self.increment else self.centre
        return rest + self.unit * self.model(x)


@dataclasses.dataclass(kw_only=True)
class Rollout(Problem):
    """A forecasting problem; the problem itself is the subclass's."""

    resolution: int  # pyright: ignore[reportIncompatibleVariableOverride]
    history: int  # frames that a model is given to predict the next one
    # Frames predicted in a training step, each from the ones before, with gradients through all.
    unroll: int
    # Learn the last of the unrolled frames alone, and no gradients through the others, which are a
    # model's own errors as noise (Brandstetter et al. 2022, arXiv 2202.03376).
    pushforward: bool
    increment: bool  # let the models predict the change from the last frame

    given: ClassVar[int]  # frames known before a rollout, of which models see the last `history`
    horizon: ClassVar[int]  # frames of a rollout
    scheme: ClassVar[Predictor | None] = None
    stride: ClassVar[int] = 1  # frames of the file from one frame of the models to the next
    relative: ClassVar[bool] = False  # train on the relative L2 error of every frame, not on MSE
    # Train on all frames after the given ones, not on a stretch of each trajectory.
    windows: ClassVar[bool] = False
    standardized: ClassVar[bool] = False  # models see numbers of unit size
    scored_at_once: ClassVar[int] = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        names = "resolution", "history", "unroll", "stride"
        check_integer(1, **{name: getattr(self, name) for name in names})
        for name, most in (("history", self.given), ("unroll", self.frames - self.given)):
            if getattr(self, name) > most:
                raise ValueError(f"{name}: expected at most {most}, got {getattr(self, name)}")

    @property
    def frames(self) -> int:
        """Frames of a trajectory."""
        return self.given + self.horizon

    @property
    def in_channels(self) -> int:
        """Channels of the frames that a model is given."""
        return self.history * self.out_channels

    @property
    def out_channels(self) -> int:
        """Channels of a frame."""
        return 1

    def read(self, path: Path, n_samples: int) -> tuple[Tensor, ...]:
        frames = self.generator.read(path, 0, n_samples)[:, :: self.stride]
        frames = frames if frames.ndim == self.axes + 3 else frames[:, :, None]
        return (torch.from_numpy(np.ascontiguousarray(frames)),)

    def load(self, folder: Path) -> Data:
        data = super().load(folder)
        (train,), first = data.train.tensors, self.given - self.history
        windows = Windows(train, self.history + self.unroll, first)
        rest = windows if self.windows else TensorDataset(train[:, first:])
        return dataclasses.replace(data, train=rest)

    def wrap(self, model: nn.Module) -> nn.Module:
        if isinstance(model, Untrained):
            return model
        # The models in time predict frames.
        increment = self.increment and not isinstance(model, IN_TIME)
        return Forecaster(model, increment, self.out_channels, self.axes)

    def calibrate(self, model: nn.Module, train: TensorDataset) -> None:
        (frames,) = train[torch.arange(0, len(train), max(1, len(train) // CALIBRATED))]
        frames = frames.to(device_of(model))
        if hasattr(model.model, "calibrate"):
            cast("Any", model.model).calibrate(frames)
        elif self.standardized and not isinstance(model.model, IN_TIME):
            cast("Any", model).standardize(frames)

    def predicted(self, model: Predictor, frames: Tensor) -> tuple[Tensor, Tensor]:
        """Prediction of all frames after the given ones, and the truth."""
        known, target = frames.tensor_split((self.given,), dim=1)
        return rollout(model, known[:, -self.history :], target.shape[1]), target

    def forecast(self, model: Predictor, history: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Prediction in training and its target, frames (B, T, C, \\*grid)."""
        if not self.pushforward:
            return rollout(model, history, self.unroll), target
        if self.unroll > 1:
            with torch.no_grad():
                predicted = rollout(model, history, self.unroll - 1)
            history = torch.cat((history, predicted), dim=1)[:, -self.history :]
        return rollout(model, history, 1), target[:, -1:]

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        """The loss of the frames after a random place of each trajectory."""
        (frames,), length = batch, self.history + self.unroll
        starts = torch.randint(frames.shape[1] - length + 1, (len(frames), 1))
        stretch = frames[torch.arange(len(frames))[:, None], starts + torch.arange(length)]
        history, target = stretch.split((self.history, self.unroll), dim=1)
        prediction, target = self.forecast(model, history, target)
        if self.relative:
            return frame_errors(prediction, target).mean()
        return (prediction - target).square().mean()

    def errors(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        return frame_errors(*self.predicted(model, batch[0])).mean(dim=1)

    def scores(self, model: nn.Module, test: TensorDataset) -> Scores:
        """PDEBench's metrics of the rollouts."""
        accumulator, errors = MetricAccumulator(), []
        for (frames,) in batches(test, self.scored_at_once, device_of(model)):
            prediction, target = self.predicted(model, frames)
            errors.append(frame_errors(prediction, target).double())
            # (B, T, C, *grid) to the metrics' (batch, *space, time, channels).
            accumulator.update(*(f.movedim((1, 2), (-2, -1)) for f in (prediction, target)))
        scores = accumulator.compute()
        # A grid too coarse for a Fourier band has no score there.
        metrics = {name: value for name in PDEBENCH_METRICS if (value := scores[name]) is not None}
        return metrics, {"rollout_relative_l2": torch.cat(errors).mean(dim=0).tolist()}


class Windows(TensorDataset):
    """Windows of `length` frames of trajectories (N, T, C, \\*grid), gathered on access.

    One begins at every frame from `first` on that leaves room for it.
    """

    def __init__(self, trajectories: Tensor, length: int, first: int = 0) -> None:
        super().__init__(trajectories[:, first:].unfold(1, length, 1))
        self.trajectories = trajectories

    def __len__(self) -> int:
        return math.prod(self.tensors[0].shape[:2])

    def __getitem__(self, index: int | Sequence[int]) -> tuple[Tensor, ...]:
        (windows,) = self.tensors
        places = torch.unravel_index(torch.as_tensor(index), windows.shape[:2])
        return (windows[places].movedim(-1, 2 - windows.dim()).contiguous(),)


@dataclasses.dataclass(kw_only=True)
class NavierStokes(Rollout):
    """Navier-Stokes vorticity of the last frames to the next one, fed back over the horizon:
    rollouts of FNOs, plain and with a block, from 3, 5 and 10 frames (Fig. 5d-f)."""

    horizon: int  # pyright: ignore[reportIncompatibleVariableOverride]
    # Points along each axis of the reference solution, and its longest time step.
    solver_resolution: int
    solver_step: float
    # Frames of further rollouts, from the first and the last place of every test trajectory: the
    # score ``growth_<long>`` is the largest root mean square of a frame over that of the data.
    long: int

    # The same for every history, so that all predict the same ones.
    given: ClassVar[int] = 10
    relative: ClassVar[bool] = True
    windows: ClassVar[bool] = True
    generator: ClassVar[Any] = navier_stokes

    @property
    def law(self) -> dict[str, Any]:
        solver = {"solver_resolution": self.solver_resolution, "step": self.solver_step}
        return {"n_frames": self.frames, **solver}

    @property
    def options(self) -> dict[str, Any]:  # pyright: ignore[reportIncompatibleVariableOverride]
        # Small arrays are faster on a CPU: the allocator keeps their memory.
        return {"batch_size": 4 if self.solver_resolution <= 64 else 20}

    @property
    def published(self) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        fits = self.resolution == navier_stokes.RESOLUTION and self.horizon == 40
        return navier_stokes.OFFICIAL_NAME if fits and self.n_samples <= 5000 else None

    def scores(self, model: nn.Module, test: TensorDataset) -> Scores:
        """Errors of rollouts, and of single steps from the true frames."""
        rolled, single = [], []
        for (frames,) in batches(test, self.scored_at_once, device_of(model)):
            rolled.append(frame_errors(*self.predicted(model, frames)).double())
            places = range(self.given, frames.shape[1])
            steps = [model(frames[:, place - self.history : place]) for place in places]
            true = frames[:, self.given :]
            single.append(frame_errors(torch.stack(steps, dim=1), true).double())
        curve, one_step = (torch.cat(errors).mean(dim=0) for errors in (rolled, single))
        curves = {"rollout_relative_l2": curve, "one_step_relative_l2": one_step}
        scores = {name: float(values.mean()) for name, values in curves.items()}
        scores["rollout_relative_l2_last"] = float(curve[-1])
        if self.long:
            (frames,) = test.tensors
            ends = self.given, frames.shape[1]
            starts = torch.cat([frames[:, end - self.history : end] for end in ends])
            predicted = rollout(model, starts.to(device_of(model)), self.long)
            largest, known = (
                float(f.square().mean((2, 3, 4)).sqrt().max()) for f in (predicted, frames)
            )
            scores[f"growth_{self.long}"] = largest / known if math.isfinite(largest) else math.inf
        return scores, {name: values.tolist() for name, values in curves.items()}


@dataclasses.dataclass(kw_only=True)
class ShallowWater(Rollout):
    """Depth of the last frames to the next frame, fed back to the end of the sample: the radial dam
    break of PDEBench (Fig. 5a-c)."""

    stride: int  # pyright: ignore[reportIncompatibleVariableOverride]
    given: int  # pyright: ignore[reportIncompatibleVariableOverride]

    generator: ClassVar[Any] = shallow_water

    @property
    def frames(self) -> int:
        return shallow_water.N_STEPS // self.stride + 1

    @property
    def published(self) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        fits = self.resolution == 128 and self.n_samples <= 1000
        return shallow_water.OFFICIAL_NAME if fits else None


@dataclasses.dataclass(kw_only=True)
class PDEBenchSeries(Rollout):
    """A family of `pdebench_series.FAMILIES`: the frames after the first ten, which are given, as
    PDEBench does it. Models train on its nRMSE, and those that know no units see unit sizes."""

    family: str
    resolution: Any  # pyright: ignore[reportIncompatibleVariableOverride]

    given: ClassVar[int] = 10
    relative: ClassVar[bool] = True
    windows: ClassVar[bool] = True
    standardized: ClassVar[bool] = True
    generator: ClassVar[Any] = pdebench_series

    def __post_init__(self) -> None:
        check_choice("family", self.family, pdebench_series.FAMILIES)
        self.entry = pdebench_series.FAMILIES[self.family]
        self.title, self.resolution = self.entry.title, self.resolution or self.entry.resolution
        super().__post_init__()

    @property
    def axes(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.entry.axes

    @property
    def frames(self) -> int:
        return self.entry.frames

    @property
    def out_channels(self) -> int:
        return self.entry.channels

    @property
    def law(self) -> dict[str, Any]:
        return {"family": self.family}

    @property
    def scheme(self) -> Predictor | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The generator's own, from the last frame, where this process has it."""
        if self.family not in ("diffusion_sorption", "diffusion_reaction"):
            return None
        return lambda frames: pdebench_series.advanced(self.family, frames[:, -1])

    def calibrate(self, model: nn.Module, train: TensorDataset) -> None:
        if isinstance(train, Windows) and hasattr(model.model, "calibrate"):
            # An equation is found best from the first frames on, which have the smallest scales.
            train = TensorDataset(train.trajectories)
        super().calibrate(model, train)
