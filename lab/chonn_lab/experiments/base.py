"""What a problem is: settings, data, losses, scores. Values of the settings are in conf/problem."""

from __future__ import annotations

import dataclasses
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from chonn_ops.checks import check_bool, check_integer

# PDEBench's metrics that the paper shows for Darcy flow and for shallow water.
PDEBENCH_METRICS = (
    *("rmse", "nrmse", "csv", "max_error", "boundary_rmse"),
    *("fourier_rmse_low", "fourier_rmse_mid", "fourier_rmse_high"),
)

Makers = Mapping[Path, Callable[[Path], object]]


@dataclasses.dataclass(frozen=True)
class Data:
    """Splits of a problem, ready for the model: a batch is the tuple of their tensors. `tests` are
    "test", and further ones such as "out_of_distribution"."""

    train: TensorDataset
    validation: TensorDataset
    tests: Mapping[str, TensorDataset]


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Scores of a trained model.

    `metrics` are numbers by name, lower is better, for each of `Data.tests`; `curves` scores along
    an axis, such as the error of every frame of a rollout; `fields` a few samples for pictures,
    "input", "target", "prediction" and the like; `milliseconds` the processor time of the
    prediction of a test sample by itself.
    """

    metrics: Mapping[str, Mapping[str, float]]
    curves: Mapping[str, list[float]] = dataclasses.field(default_factory=dict)
    fields: Mapping[str, Tensor] = dataclasses.field(default_factory=dict)
    milliseconds: float | None = None


class Untrained(nn.Module):
    """A model that no optimiser trains; it may take numbers from the training split."""

    def fit(self, train: TensorDataset) -> None:
        """Take these numbers: by default none."""


@dataclasses.dataclass(kw_only=True)
class Problem(ABC):
    """A problem and its settings; subclasses add fields of their own, and raise a ValueError for
    values out of range.

    `name` and `title` are for files and for people, the others samples of each split. `loss` may
    draw random numbers from torch's global generator, which is seeded at the start of every epoch.
    """

    name: str
    title: str
    n_train: int
    n_validation: int
    n_test: int

    def __post_init__(self) -> None:
        # YAML has lists.
        for field in dataclasses.fields(self):
            if isinstance(value := getattr(self, field.name), list):
                setattr(self, field.name, tuple(value))
            # Hydra reads "no" and "off" as texts, which Python takes for true.
            if field.type in (bool, "bool"):
                check_bool(**{field.name: value})
        check_integer(1, **self.sizes)

    def _check_least(self, least: int, *names: str) -> None:
        check_integer(least, **{name: getattr(self, name) for name in names})

    @property
    def sizes(self) -> dict[str, int]:
        """Samples of each split, by the name of the setting."""
        return {name: getattr(self, name) for name in ("n_train", "n_validation", "n_test")}

    @property
    def n_samples(self) -> int:
        """Number of samples of the three splits together."""
        return sum(self.sizes.values())

    def wrap(self, model: nn.Module) -> nn.Module:
        """A model of `chonn_lab.experiments.models` with the interface of this problem."""
        return model

    def makers(self, folder: Path) -> Makers:  # noqa: ARG002
        """Data files that `load` reads, each with a function that makes it."""
        return {}

    def prepare(self, folder: Path) -> None:
        """Make the data files that `load` reads and that are missing, one process at a time.

        Nothing is written to the folder if all are there.
        """
        if all(path.exists() for path in self.makers(folder)):
            return
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            # A function that makes several files is called once.
            missing = {
                make: path for path, make in self.makers(folder).items() if not path.exists()
            }
            for make, path in missing.items():
                try:
                    make(path)
                except FileExistsError as error:
                    raise ValueError(
                        f"{path}: missing, and made together with a file that is there, but is not "
                        f"the one that would be made: move that away, or add {path.name}"
                    ) from error

    @abstractmethod
    def load(self, folder: Path) -> Data:
        """Read the splits; FileNotFoundError or ValueError for missing or damaged files."""

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        """Training loss of a batch, a mean over its samples; by default that of `errors`."""
        return self.errors(model, batch).mean()

    @abstractmethod
    def errors(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        """Validation error of every sample of a batch, shape (B,)."""

    @abstractmethod
    def evaluate(self, model: nn.Module, data: Data) -> Evaluation:
        """Final scores, without gradients; the model is in evaluation mode on some device."""

    @abstractmethod
    def example(self) -> tuple[Tensor, ...]:
        """Arguments of the model for one sample, to count its operations and test that it runs."""


def file_of(
    folder: Path, generate: Callable[..., object], law: Mapping[str, Any], **options: Any
) -> Makers:
    """The file of a generator, named after it and the settings of its data."""
    settings = ",".join(f"{name}={value}" for name, value in law.items())
    path = folder / f"{generate.__module__.rpartition('.')[2]}_{settings}.hdf5"
    return {path: functools.partial(generate, **law, **options)}


def or_published(made: Makers, published: Path, fits: bool) -> Makers:
    """These files, but the published one instead of the first if its size fits and it is there."""
    if not (fits and published.exists()):
        return made
    (_, make), *further = made.items()
    return {published: make, **dict(further)}


def relative_l1(prediction: Tensor, target: Tensor) -> Tensor:
    """Relative L1 error of every sample, shape (B,)."""
    error = (prediction - target).abs().flatten(1).sum(dim=1)
    return error / target.abs().flatten(1).sum(dim=1)


def relative_l2(prediction: Tensor, target: Tensor, first: int = 1) -> Tensor:
    """Relative L2 error over the axes from `first` on.

    The shape is (B,), one error a sample; for frames (B, T, R, R) and ``first=2`` it is (B, T).
    """
    error = (prediction - target).flatten(first).norm(dim=first)
    return error / target.flatten(first).norm(dim=first)


def consecutive(problem: Problem, *fields: Tensor) -> Data:
    """Training, validation and test samples, which follow each other in all fields, (N, ...)."""
    parts = zip(*(field.split([*problem.sizes.values()]) for field in fields), strict=True)
    train, validation, test = (TensorDataset(*part) for part in parts)
    return Data(train, validation, {"test": test})


def batches(
    dataset: TensorDataset, size: int, device: torch.device
) -> Iterator[tuple[Tensor, ...]]:
    """Batches of a data set in order, on a device."""
    for start in range(0, len(dataset), size):
        yield tuple(tensor[start : start + size].to(device) for tensor in dataset.tensors)


def device_of(model: nn.Module) -> torch.device:
    """Where the parameters of a model are; the CPU for a model without any."""
    return next((weights.device for weights in model.parameters()), torch.device("cpu"))


def sample_fields(model: nn.Module, samples: TensorDataset, n: int) -> dict[str, Tensor]:
    """The first `n` samples of fields (B, 1, \\*grid) with the predictions of a model."""
    source, target = next(batches(samples, n, device_of(model)))
    shown = {"input": source, "target": target, "prediction": model(source)}
    return {name: field[:, 0].float().cpu() for name, field in shown.items()}
