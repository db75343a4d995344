"""Steady problems: one field in, one field out."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from joblib import cpu_count
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from chonn_lab.experiments.base import (
    PDEBENCH_METRICS,
    Data,
    Evaluation,
    Problem,
    batches,
    device_of,
    relative_l1,
    relative_l2,
    sample_fields,
)
from chonn_lab.experiments.modules import Standardized, Units
from chonn_lab.experiments.solvers import OwnScheme, Physics
from chonn_ops.checks import check_choice
from chonn_ops.metrics import MetricAccumulator
from chonn_ops.models import CHONNNetwork2d

SCORED_AT_ONCE = 32
PICTURES = 2
# Test samples whose predictions are timed.
TIMED = 8
FEW_SAMPLES = 64
# The U-Net and the CNO halve the grid, the U-Net four times.
MULTIPLE = 16
# Metrics that need whole grids.
GRID_METRICS = ("boundary_rmse", "fourier_rmse_low", "fourier_rmse_mid", "fourier_rmse_high")
ERRORS = {"relative_l1": relative_l1, "relative_l2": relative_l2}


@dataclasses.dataclass(kw_only=True)
class Steady(Problem):
    """Settings, losses and scores of a steady problem; the problem itself is the subclass's."""

    resolution: int  # points along each axis
    # Finer grids, on which the trained model is evaluated without retraining, for the same samples.
    # The scores on 128 x 128 are named "at_128".
    test_resolutions: tuple[int, ...]
    # Let the models see and predict fields of about unit size around zero, by the numbers of
    # `Units` of "square". Loss and scores stay in the data's own units.
    standardize: bool
    units: Mapping[str, Sequence[Any]]
    error: str  # a key of `ERRORS`: the training loss, the validation error and the first score

    on_finer_grids: ClassVar[bool] = True  # the same samples on every grid
    axes: ClassVar[int] = 2
    fields_in: ClassVar[int] = 1
    fields_out: ClassVar[int] = 1
    physics: ClassVar[Physics]
    # Keys of `MetricAccumulator.compute`, and "relative_l1_median".
    metrics: ClassVar[tuple[str, ...]] = ("relative_l1", "relative_l1_median", *PDEBENCH_METRICS)
    coordinates: ClassVar[Callable[[int], np.ndarray]]  # of nodes along an axis, by their number
    # Of networks at a frequency: their walls, and the margin of `Extended`.
    boundary: ClassVar[str | None] = None
    margin: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_least(1, "resolution")
        check_choice("error", self.error, tuple(ERRORS))
        self.check_finer()

    def check_finer(self) -> None:
        """ValueError for grids without the test samples, or that models cannot have."""
        finer = self.test_resolutions
        if finer and not self.on_finer_grids:
            raise ValueError(
                f"test_resolutions: expected none, as samples differ from grid to grid, got {finer}"
            )
        if len(set(finer)) < len(finer) or any(n % MULTIPLE or n <= self.resolution for n in finer):
            raise ValueError(
                f"test_resolutions: expected different multiples of {MULTIPLE} above the "
                f"resolution {self.resolution}, got {finer}"
            )

    @property
    def in_channels(self) -> int:
        """Number of input channels."""
        return self.fields_in

    @property
    def out_channels(self) -> int:
        return self.fields_out

    @property
    def about_unit_size(self) -> Units:
        """Units of the fields."""
        centre, spread, *output = self.units["square"]
        both = [tuple(part) if isinstance(part, Sequence) else part for part in (centre, spread)]
        return Units(both[0], both[1], *output)

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model gets fields of about unit size."""
        if getattr(model, "in_data_units", False):
            return model
        units = self.about_unit_size
        is_network = isinstance(model, CHONNNetwork2d)
        # With a source beside it, the mean of a coefficient would be a source, too, whose
        # potentials hide the other's: 3 to 11 epochs of 13 were lost on ConDiff.
        if is_network and (units.logarithm or self.physics.input == "coefficient"):
            units = units.unshifted()
        return Standardized(model, units) if self.standardize else model

    def own_scheme(self) -> OwnScheme | None:
        """The control that is given the equation and the scheme that made the data of the square;
        None where the inputs of the models do not suffice for it."""
        return None

    @property
    def workers(self) -> int:
        """Processes that make the data: one for a few samples, which take less than its start."""
        return cpu_count() if self.n_samples > FEW_SAMPLES else 1

    def errors(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        source, target = batch
        return ERRORS[self.error](model(source), target)

    @torch.no_grad()
    def evaluate(self, model: nn.Module, data: Data) -> Evaluation:
        scores = {name: self._scores(model, test) for name, test in data.tests.items()}
        fields = sample_fields(model, data.tests["test"], PICTURES)
        took = milliseconds(model, data.tests["test"].tensors[0][:TIMED].split(1))
        return Evaluation(scores, fields=fields, milliseconds=took)

    def example(self) -> tuple[Tensor, ...]:
        # A medium, and a porosity, that there is.
        return (0.5 * torch.ones(1, self.fields_in, self.resolution, self.resolution),)

    def _scores(self, model: nn.Module, test: TensorDataset) -> dict[str, float]:
        accumulator, errors = MetricAccumulator(), []
        # As many points at once on finer grids.
        size = max(1, SCORED_AT_ONCE * self.resolution**2 // test.tensors[0][0].numel())
        for source, target in batches(test, size, device_of(model)):
            fields = model(source).float(), target
            errors.append(relative_l1(*fields).double())
            # (B, 1, *space) to the metrics' (batch, *space, time, channels).
            accumulator.update(*(field.movedim(1, -1)[..., None] for field in fields))
        scores = accumulator.compute()
        scores["relative_l1_median"] = float(torch.cat(errors).quantile(0.5))
        names = dict.fromkeys((self.error, *self.metrics))
        # A grid too coarse for a Fourier band has no score there.
        return {name: value for name in names if (value := scores[name]) is not None}


def pairs(source: np.ndarray | Tensor, target: np.ndarray | Tensor) -> TensorDataset:
    """Arrays (N, *grid) as tensors (N, 1, *grid)."""
    return TensorDataset(*(torch.as_tensor(field)[:, None] for field in (source, target)))


def milliseconds(model: nn.Module, inputs: Sequence[Any]) -> float | None:
    """Processor time of a prediction, all threads together, after a first one; None on a GPU."""
    if device_of(model).type != "cpu":
        return None
    model(inputs[0])
    started = time.process_time()
    for x in inputs:
        model(x)
    return 1e3 * (time.process_time() - started) / len(inputs)
