"""What a problem is: settings, data, losses, scores. Values of the settings are in conf/problem."""

import dataclasses
import functools
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
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
Scores = tuple[dict[str, float], dict[str, list[float]]]
# Test samples whose predictions are timed.
TIMED = 8
# Training samples that models take their units and first parameters from.
CALIBRATED = 48


@dataclasses.dataclass(frozen=True)
class Data:
    """Splits of a problem, ready for the model: a batch is the tuple of their tensors. `tests` are
    "test", and further ones such as "out_of_distribution"."""

    train: TensorDataset
    validation: TensorDataset
    tests: Mapping[str, TensorDataset]


class Units(NamedTuple):
    """Typical mean and standard deviation of the fields, constants for every split; those of an
    input with several channels one a channel, or of its logarithm."""

    input_centre: float | Sequence[float]
    input_spread: float | Sequence[float]
    output_centre: float
    output_spread: float
    logarithm: bool = False

    def scaled(self, x: Tensor) -> Tensor:
        """An input (B, C, \\*grid) of about unit size around zero."""
        centre, spread = (
            x.new_tensor(numbers).reshape(-1, *[1] * (x.dim() - 2))
            for numbers in (self.input_centre, self.input_spread)
        )
        return ((x.log() if self.logarithm else x) - centre) / spread


class Standardized(nn.Module):
    """Scales the fields of a model to about unit size; input and output have the data's units."""

    def __init__(self, model: nn.Module, units: Units) -> None:
        super().__init__()
        self.model, self.units = model, units

    def forward(self, x: Tensor) -> Tensor:
        units = self.units
        y = self.model(units.scaled(x))
        return units.output_centre + units.output_spread * y


class Untrained(nn.Module):
    """A model that no optimiser trains; it may take numbers from the training split."""

    def fit(self, train: TensorDataset) -> None:
        """Take these numbers: by default none."""


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


ERRORS = {"relative_l1": relative_l1, "relative_l2": relative_l2}


@dataclasses.dataclass(kw_only=True)
class Problem:
    """A problem and its settings; subclasses add fields of their own, and raise a ValueError for
    values out of range.

    `name` and `title` are for files and for people, the others samples of each split. `loss` may
    draw random numbers from torch's global generator, which is seeded at the start of every epoch.

    A problem has a `generator`, from which `makers` and `load` take its files by its `laws`, or its
    own `load`, with its own `makers` if it has files. By default a batch is inputs and targets.
    """

    name: str
    title: str
    n_train: int
    n_validation: int
    n_test: int

    error: ClassVar[str] = "relative_l2"  # a key of `ERRORS`
    scored_at_once: ClassVar[int] = 32
    resolution: ClassVar[int]  # points along each axis of the grid
    axes: ClassVar[int] = 2
    generator: ClassVar[Any] = None  # a module of `chonn_lab.problems`, with `generate` and `read`
    options: ClassVar[Mapping[str, Any]] = {}  # of `generate`, that the data do not depend on
    # Name of a published file that has the samples of the settings: read where it exists.
    published: ClassVar[str | None] = None

    def __post_init__(self) -> None:
        # YAML has lists.
        for field in dataclasses.fields(self):
            if isinstance(value := getattr(self, field.name), list):
                setattr(self, field.name, tuple(value))
            # Hydra reads "no" and "off" as texts, which Python takes for true.
            if field.type in (bool, "bool"):
                check_bool(**{field.name: value})
        check_integer(1, **self.sizes)

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

    @property
    def law(self) -> dict[str, Any]:
        """Settings of the generator that are the same in all files, but for the resolution."""
        return {}

    def further(self) -> dict[str, dict[str, Any]]:
        """Further test splits by name: the test samples again, with other settings."""
        return {}

    def laws(self) -> dict[str, dict[str, Any]]:
        """Settings of the generator's files: all samples, ``""``, and those of `further`."""
        every = {"n_samples": self.n_samples, "resolution": self.resolution, **self.law}
        test = {**every, "n_samples": self.n_test, "first": self.n_train + self.n_validation}
        return {"": every, **{name: {**test, **law} for name, law in self.further().items()}}

    def makers(self, folder: Path) -> Makers:
        """Data files that `load` reads, each with a function that makes it; those of the generator
        are named after it and the settings of their data."""
        makers: dict[Path, Callable[[Path], object]] = {}
        for law in self.laws().values() if self.generator else ():
            kind = self.generator.__name__.rpartition(".")[2]
            settings = ",".join(f"{name}={value}" for name, value in law.items())
            path = folder / f"{kind}_{settings}.hdf5"
            if not makers and self.published and (folder / self.published).exists():
                path = folder / self.published
            makers[path] = functools.partial(self.generator.generate, **law, **self.options)
        return makers

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
                make(path)

    def read(self, path: Path, n_samples: int) -> tuple[Tensor, ...]:
        """The first samples (N, C, \\*grid) of a file of the generator: inputs and targets."""
        return pairs(*self.generator.read(path, 0, n_samples)).tensors

    def load(self, folder: Path) -> Data:
        """Read the splits; FileNotFoundError or ValueError for missing or damaged files."""
        splits = {}
        for path, (name, law) in zip(self.makers(folder), self.laws().items(), strict=True):
            splits[name] = TensorDataset(*self.read(path, law["n_samples"]))
        data = consecutive(self, *splits.pop("").tensors)
        return dataclasses.replace(data, tests={**data.tests, **splits})

    def calibrate(self, model: nn.Module, train: TensorDataset) -> None:
        """Let a model that can do so take units and first parameters from some samples."""
        if hasattr(model, "calibrate"):
            device: Any = device_of(model)
            cast("Any", model).calibrate(*(x.to(device) for x in train[:CALIBRATED]))

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        """Training loss of a batch, a mean over its samples; by default that of `errors`."""
        return self.errors(model, batch).mean()

    def errors(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        """Validation error of every sample of a batch, shape (B,)."""
        source, target = batch
        return ERRORS[self.error](model(source), target)

    @torch.no_grad()
    def evaluate(self, model: nn.Module, data: Data) -> dict[str, Any]:
        """Final scores as a `chonn_lab.experiments.records.Run` has them, without gradients; the
        model is in evaluation mode on some device."""
        evaluated = {name: self.scores(model, test) for name, test in data.tests.items()}
        metrics = {name: scores for name, (scores, _) in evaluated.items()}
        took = self.milliseconds(model, data.tests["test"])
        return {"metrics": metrics, "curves": evaluated["test"][1], "milliseconds": took}

    def scores(self, model: nn.Module, test: TensorDataset) -> Scores:
        """Metrics and curves of a test split, for `evaluate`; by default the mean of `errors`."""
        loaded = batches(test, self.scored_at_once, device_of(model))
        return {self.error: float(torch.cat([self.errors(model, b) for b in loaded]).mean())}, {}

    def milliseconds(self, model: nn.Module, test: TensorDataset) -> float | None:
        """Processor time of a sample, all threads together, after a first one; None on a GPU."""
        device = device_of(model)
        if device.type != "cpu":
            return None
        samples = [*itertools.islice(batches(test, 1, device), TIMED)]
        self.errors(model, samples[0])
        started = time.process_time()
        for sample in samples:
            self.errors(model, sample)
        return 1e3 * (time.process_time() - started) / len(samples)


def pairs(*fields: np.ndarray | Tensor) -> TensorDataset:
    """Arrays (N, *grid) as tensors (N, 1, *grid)."""
    return TensorDataset(*(torch.as_tensor(field)[:, None] for field in fields))


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
