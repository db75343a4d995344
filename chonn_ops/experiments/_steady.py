"""What the steady problems share: one field in, one field out, relative L1 as the loss."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from chonn_ops.experiments import _steady_models as models
from chonn_ops.experiments._steady_models import Standardized, Units
from chonn_ops.experiments.base import Config, Data, Evaluation, Experiment, Variant, batches
from chonn_ops.metrics import MetricAccumulator

ORDERS = range(5)
SCORED_AT_ONCE = 32
PICTURES = 2
_MIXER = "Ours: the paper has no such model."
SOURCES = MappingProxyType(
    {
        "standardize": "Ours; off: the paper mentions no other normalisation than the data's.",
        "latent": "Not given; the default of CNO's code.",
        "selective_norm": "Ours: without it the initial outputs of orders above 2 overflow.",
        "mixer_width": _MIXER,
        "mixer_depth": _MIXER,
        "mixer_patch": _MIXER,
        "best_order": _MIXER,
        "unet_features": "Not given; PDEBench's default.",
        "fno_modes": "Not given; PDEBench's default.",
        "fno_width": "Not given; PDEBench's default.",
    }
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SteadyConfig(Config):
    """Settings of a steady problem and of the models that learn it.

    Parameters
    ----------
    resolution : int
        Points along each axis.
    standardize : bool
        Let the models see and predict fields of about unit size around zero. Loss and scores stay
        in the data's own units.
    n_layers, n_res, n_res_neck, channel_multiplier, latent : int
        CHONN in the paper's place: the backbone, see `chonn_ops.models.cno.CNOUNet`.
    d_state : int
        States of a Kirchhoff cell.
    selective_norm : bool
        See `chonn_ops.nn.CKBOptions`.
    mixer_width, mixer_depth, mixer_patch : int
        CHONN as we would build it, see `chonn_ops.models.mixer.CHONNMixer2d`.
    best_order : int
        Order of the mixer that stands for it against the baselines, 1 to 4.
    baseline_batch_size : int
        Samples of one optimiser step of the baselines.
    cno_layers, unet_features, fno_modes, fno_width : int
        Sizes of the baselines; a CNO has the backbone's other sizes.
    """

    resolution: int
    standardize: bool
    n_layers: int
    n_res: int = 4
    n_res_neck: int = 4
    channel_multiplier: int
    latent: int = 64
    d_state: int = 16
    selective_norm: bool = True
    mixer_width: int = 64
    mixer_depth: int = 4
    mixer_patch: int = 4
    best_order: int = 2
    baseline_batch_size: int
    cno_layers: int = 3
    unet_features: int = 32
    fno_modes: int = 12
    fno_width: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        # The models check their own sizes.
        self._check_least(1, "resolution", "baseline_batch_size")
        if self.best_order not in ORDERS[1:]:
            raise ValueError(f"best_order: expected 1 to {ORDERS[-1]}, got {self.best_order}")


ConfigT = TypeVar("ConfigT", bound=SteadyConfig)


def relative_l1(prediction: Tensor, target: Tensor) -> Tensor:
    """Relative L1 error of every sample, shape (B,)."""
    error = (prediction - target).abs().flatten(1).sum(dim=1)
    return error / target.abs().flatten(1).sum(dim=1)


def pairs(source: np.ndarray, target: np.ndarray) -> TensorDataset:
    """Arrays (N, R, R) as tensors (N, 1, R, R)."""
    return TensorDataset(*(torch.from_numpy(field)[:, None] for field in (source, target)))


class SteadyExperiment(Experiment[ConfigT]):
    """Models, losses and scores of a steady problem; the problem itself is the subclass's.

    Attributes
    ----------
    units : Units
        For `SteadyConfig.standardize`.
    metrics : tuple of str
        Keys of `MetricAccumulator.compute`, and "relative_l1_median".
    """

    units: ClassVar[Units]
    metrics: ClassVar[tuple[str, ...]]

    def variants(self, config: ConfigT) -> tuple[Variant[ConfigT], ...]:
        def variant(
            name: str,
            label: str,
            build: Callable[[ConfigT], nn.Module],
            cost: float = 1.0,
            **tags: Any,
        ) -> Variant[ConfigT]:
            baseline = tags["role"] == "baseline"
            changes = {"batch_size": config.baseline_batch_size} if baseline else {}

            def scaled(config: ConfigT) -> nn.Module:
                model = build(config)
                return Standardized(model, self.units) if config.standardize else model

            return Variant(name, label, scaled, tags, changes, cost)

        found = [
            variant("unet", "U-Net", models.unet, 0.45, family="unet", role="baseline"),
            variant("fno", "FNO", models.fno, 0.55, family="fno", role="baseline"),
            variant(
                "cno",
                "CNO",
                lambda c: models.backbone(c, c.cno_layers, 0),
                family="cno",
                cost=0.9,
                role="baseline",
            ),
        ]
        found += [
            variant(
                f"chonn{order}",
                f"CHONN, order {order}",
                lambda c, order=order: models.backbone(c, c.n_layers, order),
                family="chonn",
                role="ablation",
                backbone="cno",
                order=order,
                cost=0.95 + 0.06 * order,
            )
            for order in ORDERS
        ]
        for name, depth, label in (
            ("mixer", config.mixer_depth, "CHONN mixer"),
            ("layer", 1, "CHONN mixer of one layer"),
        ):
            found += [
                variant(
                    f"{name}{order}",
                    f"{label}, order {order}",
                    lambda c, order=order, depth=depth: models.mixer(c, depth, order),
                    family="chonn",
                    role="best" if (name, order) == ("mixer", config.best_order) else name,
                    backbone="mixer",
                    order=order,
                    depth=depth,
                    cost=depth * (0.07 + 0.035 * order),
                )
                for order in ORDERS[1:]
            ]
        return tuple(found)

    def loss(self, config: ConfigT, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        return self.errors(config, model, batch).mean()

    def errors(
        self,
        config: ConfigT,  # noqa: ARG002
        model: nn.Module,
        batch: tuple[Tensor, ...],
    ) -> Tensor:
        source, target = batch
        return relative_l1(model(source), target)

    @torch.no_grad()
    def evaluate(
        self,
        config: ConfigT,  # noqa: ARG002
        model: nn.Module,
        data: Data,
    ) -> Evaluation:
        device = next(model.parameters()).device
        scores = {name: self._scores(model, test, device) for name, test in data.tests.items()}
        source, target = next(batches(data.tests["test"], PICTURES, device))
        pictures = {"input": source, "target": target, "prediction": model(source)}
        fields = {name: field[:, 0].float().cpu() for name, field in pictures.items()}
        return Evaluation(scores, fields=fields)

    def example(self, config: ConfigT) -> tuple[Tensor, ...]:
        return (torch.zeros(1, 1, config.resolution, config.resolution),)

    def _scores(
        self, model: nn.Module, test: TensorDataset, device: torch.device
    ) -> dict[str, float]:
        accumulator, errors = MetricAccumulator(), []
        for source, target in batches(test, SCORED_AT_ONCE, device):
            prediction = model(source).float()
            errors.append(relative_l1(prediction, target).double())
            # (B, 1, R, R) to the metrics' (batch, *space, time, channels).
            accumulator.update(*(field.movedim(1, -1)[..., None] for field in (prediction, target)))
        scores = accumulator.compute()
        scores["relative_l1_median"] = float(torch.cat(errors).quantile(0.5))
        # A grid too coarse for a Fourier band has no score there.
        return {name: value for name in self.metrics if (value := scores[name]) is not None}
