"""Steady problems: one field in, one field out, relative L1 as the loss."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from chonn_lab.experiments.base import (
    Config,
    Data,
    Evaluation,
    Experiment,
    Variant,
    batches,
    consecutive,
    device_of,
    sample_fields,
)
from chonn_lab.experiments.modules import Units
from chonn_lab.experiments.solvers import OwnScheme, Physics
from chonn_lab.experiments.steady_models import (
    BY_HAND,
    FAMILY_SIZES,
    MULTIPLE,
    RATES,
    SEARCHED,
    variants,
)
from chonn_lab.problems.domains import SQUARE, check_domain, domain_mask
from chonn_lab.problems.workers import usable_cores
from chonn_ops.checks import check_choice
from chonn_ops.metrics import MetricAccumulator

SCORED_AT_ONCE = 32
PICTURES = 2
# Test samples whose predictions are timed.
TIMED = 8
FEW_SAMPLES = 64
# Metrics that need whole grids.
GRID_METRICS = ("boundary_rmse", "fourier_rmse_low", "fourier_rmse_mid", "fourier_rmse_high")
_OWN = (
    *("network_width", "network_depth", "num_networks"),
    *("network_learning_rate", "network_batch_size"),
)
_SIZE = "Ours: each model that has such a size has its own, see `sizes`."
_RATE = (
    "Not given; CHONN's. At the small scale, as for CHONN, the one of 1e-3 times 1, 2.5, 5, 10, 20 "
    "and 50 with about the lowest validation error at seed 100 (CHONN on Poisson: 100 and 101), "
    "which no result has."
)
SOURCES = {
    "domain": "The square, as in the paper; the others are ours.",
    "test_resolutions": "Ours: the paper evaluates no model on another grid.",
    "standardize": "Ours; off: the paper mentions no other normalisation than the data's.",
    "latent": "Not given; the default of CNO's code.",
    **dict.fromkeys(_OWN, "Ours: the paper has no such model."),
    **dict.fromkeys((f"{name}_learning_rate" for name in RATES if name != "network"), _RATE),
    "sizes": "Ours: the sizes of models that the paper has not, see `SteadyConfig`.",
    **dict.fromkeys(FAMILY_SIZES, _SIZE),
    "cno_res_neck": "Not given; the backbone's.",
    **dict.fromkeys(("unet_features", "fno_modes", "fno_width"), "Not given; PDEBench's default."),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SteadyConfig(Config):
    """Settings of a steady problem and of the models that learn it; the defaults are the paper's of
    Darcy flow.

    Parameters
    ----------
    resolution : int
        Points along each axis.
    domain : {"square", "l-shape", "holes"}
        Part of the unit square that exists, see `chonn_lab.problems.domains`. On others than the
        square, models see the mask in a second channel; losses and scores are those of the nodes
        that exist, without the metrics of the grid's edge and of Fourier modes.
    test_resolutions : tuple of int
        Finer grids, on which the trained model is evaluated without retraining, for the same
        samples. The scores on 128 x 128 are named "at_128".
    standardize : bool
        Let the models see and predict fields of about unit size around zero. Loss and scores stay
        in the data's own units.
    n_layers, n_res, n_res_neck, channel_multiplier, latent : int
        CHONN in the paper's place: the backbone, see `chonn_ops.models.cno.CNOUNet`.
    d_state : int
        States of all blocks of scans.
    network_width, network_depth, num_networks : int
        Channels, layers, and networks a layer, see `chonn_ops.CHONNNetwork2d`.
    network_learning_rate : float
    network_batch_size : int
    cno_learning_rate, unet_learning_rate, fno_learning_rate : float
        Learning rates of the CNO and the backbone without blocks, and of the other baselines;
        `learning_rate` is that of the backbone with blocks.
    baseline_batch_size : int
        Samples of one optimiser step of the baselines.
    cno_layers, cno_res_neck, unet_features, fno_modes, fno_width : int
        Sizes of the baselines; a CNO has the backbone's other sizes.
    sizes : {"smoke", "small", "paper", "seconds"}
        Source of the sizes and learning rates of the other baselines and of the controls: by hand,
        or for all models ("seconds") a search of equal training time, see
        `chonn_lab.experiments.steady_models`.
    width, depth, heads, slices, modes, levels, coarsening, padding, shared_weights
        Sizes of these, see `chonn_lab.baselines.ffno.FFNO`, `Transolver`, `GalerkinTransformer` and
        `MgNO` there; the models set those that they have, and the others are 0.
    """

    n_train: int = 800
    n_validation: int = 100
    n_test: int = 100
    batch_size: int = 4
    epochs: int = 1000
    weight_decay: float = 1e-3
    step_size: int = 10
    gamma: float = 0.98
    resolution: int = 128
    multiple: ClassVar[int] = MULTIPLE
    fields_in: ClassVar[int] = 1
    fields_out: ClassVar[int] = 1
    domain: str = SQUARE
    test_resolutions: tuple[int, ...] = ()
    standardize: bool = False
    n_layers: int = 3
    n_res: int = 4
    n_res_neck: int = 4
    channel_multiplier: int = 32
    latent: int = 64
    d_state: int = 16
    network_width: int = 24
    network_depth: int = 2
    num_networks: int = 8
    network_learning_rate: float = 1e-2
    network_batch_size: int = 4
    cno_learning_rate: float = 1e-3
    unet_learning_rate: float = 1e-3
    fno_learning_rate: float = 1e-3
    baseline_batch_size: int = 50
    cno_layers: int = 3
    cno_res_neck: int = 4
    unet_features: int = 32
    fno_modes: int = 12
    fno_width: int = 20
    sizes: str = "small"
    width: int = 0
    depth: int = 0
    heads: int = 0
    slices: int = 0
    modes: int = 0
    levels: int = 0
    coarsening: int = 0
    padding: float = 0.0
    shared_weights: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        # The models check their own sizes.
        self._check_least(1, "resolution", "baseline_batch_size", "network_batch_size")
        self._check_least(0, *(f"{name}_learning_rate" for name in RATES))
        check_choice("sizes", self.sizes, (*BY_HAND, SEARCHED))
        check_domain(self.domain, self.resolution)
        finer = self.test_resolutions
        if len(set(finer)) < len(finer) or any(
            n % self.multiple or n <= self.resolution for n in finer
        ):
            raise ValueError(
                f"test_resolutions: expected different multiples of {self.multiple} above the "
                f"resolution {self.resolution}, got {finer}"
            )


SteadyT = TypeVar("SteadyT", bound=SteadyConfig)


def relative_l1(prediction: Tensor, target: Tensor) -> Tensor:
    """Relative L1 error of every sample, shape (B,)."""
    error = (prediction - target).abs().flatten(1).sum(dim=1)
    return error / target.abs().flatten(1).sum(dim=1)


def pairs(source: np.ndarray | Tensor, target: np.ndarray | Tensor) -> TensorDataset:
    """Arrays (N, *grid) as tensors (N, 1, *grid)."""
    return TensorDataset(*(torch.as_tensor(field)[:, None] for field in (source, target)))


def with_finer(
    config: SteadyConfig, files: Sequence[Path], read: Callable[[Path, int, int], Any]
) -> Data:
    """The splits of a first file, and the test samples on finer grids from one file a grid.

    Parameters
    ----------
    config : SteadyConfig
    files : sequence of Path
        That of all samples, then one for each of `test_resolutions`.
    read : callable
        (path, number of samples, resolution) to inputs and solutions, each (N, R, R).
    """
    path, *finer = files
    data = consecutive(config, *pairs(*read(path, config.n_samples, config.resolution)).tensors)
    tests = {
        f"at_{n}": pairs(*read(file, config.n_test, n))
        for n, file in zip(config.test_resolutions, finer, strict=True)
    }
    return dataclasses.replace(data, tests={**data.tests, **tests})


def _milliseconds(model: nn.Module, test: TensorDataset) -> float | None:
    """Processor time of a prediction, all threads together, after a first one; None on a GPU."""
    inputs = test.tensors[0][:TIMED].split(1)
    if device_of(model).type != "cpu":
        return None
    model(inputs[0])
    started = time.process_time()
    for x in inputs:
        model(x)
    return 1e3 * (time.process_time() - started) / len(inputs)


def workers(config: SteadyConfig) -> int:
    """Processes that make the data: one for a few samples, which take less than its start."""
    return usable_cores() if config.n_samples > FEW_SAMPLES else 1


class SteadyExperiment(Experiment[SteadyT]):
    """Models, losses and scores of a steady problem; the problem itself is the subclass's.

    Attributes
    ----------
    units : Units
        For `SteadyConfig.standardize`, of the square.
    units_of_domains : mapping of str to Units
        Units of the domains whose fields differ much from the square's.
    metrics : tuple of str
        Keys of `MetricAccumulator.compute`, and "relative_l1_median".
    coordinates : callable
        Positions of the nodes along an axis, by their number.
    physics : Physics
        What a solver knows of the problem, and which nodes these are.
    error : callable
        Error of every sample, the training loss and the validation error: `relative_l1`.
    ladders : bool
        Whether the paper's CHONN, of orders 0 to 4, is among the models.
    searched : tuple of str
        Other problems of equally large fields, whose searched sizes and rates serve where there is
        no search of this one.
    """

    units: ClassVar[Units]
    units_of_domains: ClassVar[Mapping[str, Units]] = {}
    metrics: ClassVar[tuple[str, ...]]
    coordinates: Callable[[int], np.ndarray]
    physics: ClassVar[Physics]
    error: Callable[[Tensor, Tensor], Tensor] = staticmethod(relative_l1)
    ladders: ClassVar[bool] = True
    searched: ClassVar[tuple[str, ...]] = ()

    def variants(self, config: SteadyT) -> tuple[Variant[SteadyT], ...]:
        return variants(self, config)

    def own_scheme(self, config: SteadyT) -> OwnScheme | None:  # noqa: ARG002
        """The control that is given the equation and the scheme that made the data of the square;
        None where the inputs of the models do not suffice for it."""
        return None

    def errors(self, config: SteadyT, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        source, target = batch
        return self.error(*self._existing(config, model(source), target))

    def units_of(self, config: SteadyT) -> Units:
        """Units of the fields of a config's domain."""
        return self.units_of_domains.get(config.domain, self.units)

    def mask(self, config: SteadyT, resolution: int) -> Tensor:
        """Which nodes of a grid exist, (R, R) bool."""
        return torch.from_numpy(domain_mask(config.domain, self.coordinates(resolution)))

    @torch.no_grad()
    def evaluate(self, config: SteadyT, model: nn.Module, data: Data) -> Evaluation:
        scores = {name: self._scores(config, model, test) for name, test in data.tests.items()}
        fields = sample_fields(model, data.tests["test"], PICTURES)
        if config.domain != SQUARE:
            # Where there is nothing to predict, pictures show no error.
            exists = self.mask(config, config.resolution)
            fields["prediction"] = torch.where(exists, fields["prediction"], fields["target"])
        return Evaluation(
            scores, fields=fields, milliseconds=_milliseconds(model, data.tests["test"])
        )

    def example(self, config: SteadyT) -> tuple[Tensor, ...]:
        # Not of zeros, which are no medium.
        return (torch.ones(1, config.fields_in, config.resolution, config.resolution),)

    def _scores(self, config: SteadyT, model: nn.Module, test: TensorDataset) -> dict[str, float]:
        accumulator, errors = MetricAccumulator(), []
        device = device_of(model)
        # As many points at once on finer grids.
        points = test.tensors[0][0].numel()
        size = max(1, SCORED_AT_ONCE * config.resolution**2 // points)
        for source, target in batches(test, size, device):
            fields = self._existing(config, model(source).float(), target)
            errors.append(relative_l1(*fields).double())
            # (B, 1, *space) to the metrics' (batch, *space, time, channels).
            accumulator.update(*(field.movedim(1, -1)[..., None] for field in fields))
        scores = accumulator.compute()
        scores["relative_l1_median"] = float(torch.cat(errors).quantile(0.5))
        names = self.metrics
        if config.domain != SQUARE:
            names = [name for name in names if name not in GRID_METRICS]
        # A grid too coarse for a Fourier band has no score there.
        return {name: value for name in names if (value := scores[name]) is not None}

    def _existing(
        self, config: SteadyT, prediction: Tensor, target: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Fields (B, 1, R, R) as they are, or (B, 1, N) at the nodes that exist."""
        if config.domain == SQUARE:
            return prediction, target
        exists = self.mask(config, target.shape[-1]).to(target.device)
        return prediction[..., exists], target[..., exists]
