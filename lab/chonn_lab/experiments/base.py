"""What an experiment is: settings, models to compare, data, losses, scores."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from chonn_ops.checks import check_choice, check_least

OPTIMIZERS = ("adam", "adamw")
SCHEDULES = ("step", "cosine")
OPTIMIZER_FIELDS = (
    "optimizer",
    "learning_rate",
    "weight_decay",
    "schedule",
    "step_size",
    "gamma",
    "gradient_clip",
)

# PDEBench's metrics that the paper shows for Darcy flow and for shallow water.
PDEBENCH_METRICS = (
    *("rmse", "nrmse", "csv", "max_error", "boundary_rmse"),
    *("fourier_rmse_low", "fourier_rmse_mid", "fourier_rmse_high"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Settings that every experiment has; subclasses add their own fields.

    Parameters
    ----------
    n_train, n_validation, n_test : int
        Samples of each split.
    batch_size : int
        Samples of one optimiser step.
    epochs : int
        Passes over the training split; a last incomplete batch is left out.
    optimizer : {"adam", "adamw"}
    learning_rate, weight_decay : float
    schedule : {"step", "cosine"}
        Schedule of the learning rate: times `gamma` every `step_size` epochs, or a cosine to 0.
    step_size : int
    gamma : float
    gradient_clip : float
        Largest norm of the gradient of all parameters; 0 for no limit.
    seed : int
        Seed of the first run; further runs take the next ones.

    Raises
    ------
    ValueError
        For values out of range; states expected and actual.
    """

    n_train: int
    n_validation: int
    n_test: int
    batch_size: int
    epochs: int
    optimizer: str = "adamw"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    schedule: str = "step"
    step_size: int = 100
    gamma: float = 0.5
    gradient_clip: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        self._check_least(
            1, "n_train", "n_validation", "n_test", "batch_size", "epochs", "step_size"
        )
        self._check_least(0, "learning_rate", "weight_decay", "gamma", "gradient_clip", "seed")
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        check_choice("schedule", self.schedule, SCHEDULES)

    def _check_least(self, least: int, *names: str) -> None:
        check_least(least, **{name: getattr(self, name) for name in names})

    @property
    def n_samples(self) -> int:
        """Number of samples of the three splits together."""
        return self.n_train + self.n_validation + self.n_test


ConfigT = TypeVar("ConfigT", bound=Config)
Makers = Mapping[Path, Callable[[Path], object]]


@dataclasses.dataclass(frozen=True)
class Variant(Generic[ConfigT]):
    """One model of a comparison.

    Parameters
    ----------
    name : str
        Unique in the experiment; a file name: letters, digits, "-", "_" and ".".
    label : str
        For figures and tables.
    build : callable
        Builds the model for a config, with the random state as the run left it.
    tags : mapping
        Properties that figures group by, such as ``{"family": "chonn", "order": 2}``; JSON values,
        those of
        `chonn_lab.report.roles.Tags` and any others.
    changes : mapping
        Fields of the config that differ for this model (the paper trains baselines with other
        batch sizes).
    cost : float
        Seconds of a run relative to the other variants', for the estimate of the time left.
    """

    name: str
    label: str
    build: Callable[[ConfigT], nn.Module]
    tags: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    cost: float = 1.0


@dataclasses.dataclass(frozen=True)
class Data:
    """Splits of an experiment, ready for the model.

    Parameters
    ----------
    train, validation : TensorDataset
        A batch is the tuple of its tensors.
    tests : mapping of str to TensorDataset
        "test", and further ones such as "out_of_distribution".
    """

    train: TensorDataset
    validation: TensorDataset
    tests: Mapping[str, TensorDataset]


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Scores of a trained model.

    Parameters
    ----------
    metrics : mapping of str to mapping of str to float
        For each of `Data.tests`, numbers by metric name, lower is better.
    curves : mapping of str to list of float
        Scores along an axis, such as the error of every frame of a rollout.
    fields : mapping of str to Tensor
        A few samples for pictures: "input", "target", "prediction" and the like.
    milliseconds : float, optional
        Processor time of the prediction of a test sample by itself.
    """

    metrics: Mapping[str, Mapping[str, float]]
    curves: Mapping[str, list[float]] = dataclasses.field(default_factory=dict)
    fields: Mapping[str, Tensor] = dataclasses.field(default_factory=dict)
    milliseconds: float | None = None


class Untrained(nn.Module):
    """A model that no optimiser trains; it may take numbers from the training split."""

    def fit(self, train: TensorDataset) -> None:
        """Take these numbers: by default none."""


class Experiment(ABC, Generic[ConfigT]):
    """One benchmark of the paper.

    Methods must not keep state: several runs share an experiment. `loss` may draw random numbers
    from torch's global generator, which is seeded at the start of every epoch.

    Attributes
    ----------
    name, title : str
        For the command line and for people.
    scales : mapping
        Config for "smoke", "small" and "paper", which has the Methods section's settings.
    sources : mapping
        For every field of the config, the paper's sentence behind the "paper" value, or why it is
        ours.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    scales: Mapping[str, ConfigT]
    sources: ClassVar[Mapping[str, str]]

    def title_of(self, config: ConfigT) -> str:  # noqa: ARG002
        """What result files and pages call the problem: `title`, or what a setting makes of it."""
        return self.title

    @abstractmethod
    def variants(self, config: ConfigT) -> tuple[Variant[ConfigT], ...]:
        """Models to compare, in the order of the tables."""

    def makers(self, config: ConfigT, folder: Path, progress: bool = True) -> Makers:  # noqa: ARG002
        """Data files that `load` reads, each with a function that makes it."""
        return {}

    def files(self, config: ConfigT, folder: Path) -> Sequence[Path]:
        """Data files that `load` reads, by default those of `makers`.

        If all of them exist, `prepare` is not called and nothing is written to the folder. If the
        list is empty, `prepare` is called before every study.
        """
        return tuple(self.makers(config, folder))

    def prepare(self, config: ConfigT, folder: Path, progress: bool = True) -> None:
        """Make the data files that `load` reads and that are missing in the folder."""
        makers = self.makers(config, folder, progress)
        # A function that makes several files is called once.
        missing = {make: path for path, make in makers.items() if not path.exists()}
        for make, path in missing.items():
            folder.mkdir(parents=True, exist_ok=True)
            make(path)

    @abstractmethod
    def load(self, config: ConfigT, folder: Path) -> Data:
        """Read the splits; FileNotFoundError or ValueError for missing or damaged files."""

    def loss(self, config: ConfigT, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        """Training loss of a batch, a mean over its samples; by default that of `errors`."""
        return self.errors(config, model, batch).mean()

    @abstractmethod
    def errors(self, config: ConfigT, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        """Validation error of every sample of a batch, shape (B,)."""

    @abstractmethod
    def evaluate(self, config: ConfigT, model: nn.Module, data: Data) -> Evaluation:
        """Final scores, without gradients; the model is in evaluation mode on some device."""

    @abstractmethod
    def example(self, config: ConfigT) -> tuple[Tensor, ...]:
        """Arguments of the model for one sample, to count its operations and test that it runs."""


def relative_l2(prediction: Tensor, target: Tensor, first: int = 1) -> Tensor:
    """Relative L2 error over the axes from `first` on.

    The shape is (B,), one error a sample; for frames (B, T, R, R) and ``first=2`` it is (B, T).
    """
    error = (prediction - target).flatten(first).norm(dim=first)
    return error / target.flatten(first).norm(dim=first)


def consecutive(config: Config, *fields: Tensor) -> Data:
    """Training, validation and test samples, which follow each other in all fields, (N, ...)."""
    sizes = [config.n_train, config.n_validation, config.n_test]
    parts = zip(*(field.split(sizes) for field in fields), strict=True)
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
