"""Navier-Stokes vorticity: rollouts of FNOs, plain and with a block, from 3, 5 and 10 frames
(Fig. 5d-f)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from chonn_lab.experiments.base import (
    OPTIMIZER_FIELDS,
    Data,
    Evaluation,
    Makers,
    Variant,
    consecutive,
)
from chonn_lab.experiments.modules import PLAIN
from chonn_lab.experiments.rollout import (
    SIZES,
    RolloutConfig,
    RolloutExperiment,
    Windows,
    checked,
    fno,
    forecast,
    frame_errors,
)
from chonn_lab.problems import navier_stokes
from chonn_ops.nn import CKBOptions, Scan

# Frames known before a rollout: the same for every history, so that all predict the same ones.
GIVEN = 10
OFFICIAL_SAMPLES = 5000
HISTORIES = (10, 5, 3)

# The paper's block: the flattened field, scanned in one direction.
_RASTER = CKBOptions(Scan(directions="raster"), order=2)
# Name, label, block, relative cost, role; for every history.
_MODELS = (
    ("fno", "FNO", PLAIN, 1.0, "baseline"),
    ("chonn", "CHONN", _RASTER, 1.6, "paper"),
)


def _fno(block: CKBOptions) -> Callable[[RolloutConfig], nn.Module]:
    return lambda config: fno(config, block)


def _variants() -> Iterator[Variant[Any]]:
    for history in HISTORIES:
        for name, label, block, cost, role in _MODELS:
            tags = {"family": name, "role": role, "recipe": "paper", "history": history}
            tags |= {"order": block.order} if block.order else {}
            yield Variant(f"{name}-{history}", label, _fno(block), tags, {"history": history}, cost)


VARIANTS = tuple(_variants())


@dataclasses.dataclass(frozen=True, kw_only=True)
class NavierStokesConfig(RolloutConfig):
    """Settings; the defaults are the paper's.

    Parameters
    ----------
    horizon : int
        Frames of a rollout.
    solver_resolution : int
        Points along each axis of the reference solution.
    solver_step : float
        Its longest time step.
    """

    n_train: int = 1000
    n_validation: int = 100
    n_test: int = 100
    batch_size: int = 20
    epochs: int = 500
    optimizer: str = "adam"
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    schedule: str = "step"
    step_size: int = 100
    gamma: float = 0.5
    resolution: int = navier_stokes.RESOLUTION
    horizon: int = 40
    solver_resolution: int = navier_stokes.SOLVER_RESOLUTION
    solver_step: float = navier_stokes.STEP

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.horizon < self.unroll:
            raise ValueError(
                f"horizon: expected at least the unroll of {self.unroll}, got {self.horizon}"
            )
        if self.history > GIVEN:
            raise ValueError(f"history: expected at most {GIVEN}, got {self.history}")


_SAMPLES = (
    '"The dataset contains 1,000 training samples and 200 validation/test samples." Which are '
    "which is not said: the first 1000, then 100 to validate and 100 to test."
)
_TRAINING = (
    '"Both FNO and CHONN are trained using Adam with learning rate 1e-3 and weight decay 1e-4. A '
    'StepLR schedule is used with step size 100 and decay factor gamma=0.5."'
)
_EPOCHS = (
    '"Models are trained for 500 epochs with batch size 20 and random seed 0000." A sample of an '
    "epoch is one history with its next frame, 40 of every trajectory (ours: see unroll)."
)
_SOLVER = (
    '"Simulations are generated on a 256x256 grid and downsampled to 64x64 [...] The '
    'data-generation time step is 1e-4"; the data set card shows that 2.5e-3 is the same.'
)


class NavierStokes(RolloutExperiment[NavierStokesConfig]):
    """Vorticity of the last frames to the next frame, fed back over the horizon."""

    name = "navier_stokes"
    title = "Navier-Stokes rollouts"
    scales: Mapping[str, NavierStokesConfig] = {
        "smoke": NavierStokesConfig(
            n_train=4,
            n_validation=2,
            n_test=2,
            batch_size=4,
            epochs=2,
            resolution=16,
            horizon=4,
            modes=3,
            width=4,
            d_state=2,
            solver_resolution=16,
            solver_step=5e-2,
        ),
        "small": NavierStokesConfig(
            n_train=64,
            n_validation=8,
            n_test=24,
            batch_size=10,
            epochs=4,
            step_size=1,
            resolution=32,
            modes=8,
            d_state=8,
            solver_resolution=64,
            solver_step=2e-2,
        ),
        "paper": NavierStokesConfig(),
    }
    sources: ClassVar[Mapping[str, str]] = {
        **SIZES,
        **dict.fromkeys(("n_train", "n_validation", "n_test"), _SAMPLES),
        **dict.fromkeys(OPTIMIZER_FIELDS, _TRAINING),
        **dict.fromkeys(("epochs", "batch_size", "seed"), _EPOCHS),
        **dict.fromkeys(("resolution", "solver_resolution", "solver_step"), _SOLVER),
        "increment": (
            "Ours: the paper's models predict the frame. The variants set it, as they set the "
            "history."
        ),
        "history": '"We additionally evaluate 3->1, 5->1 and 10->1 settings"; one a variant.',
        "unroll": (
            '"The model receives the previous m vorticity frames and predicts the next frame. '
            'During evaluation, the one-step predictor is recursively applied": trained on '
            "single steps. (The settings are those of FNO's published script, which trains on "
            "40 steps, each from the predictions before.)"
        ),
        "horizon": '"... recursively applied to generate a 40-step rollout"; frames 11 to 50.',
        "d_state": (
            '"replaces the w_0 convolutional branch with the proposed cascaded state-space '
            'evolution operator using d_state=16"'
        ),
    }

    def variants(self, config: NavierStokesConfig) -> tuple[Variant[NavierStokesConfig], ...]:  # noqa: ARG002
        return VARIANTS

    def given(self, config: NavierStokesConfig) -> int:  # noqa: ARG002
        return GIVEN

    def makers(self, config: NavierStokesConfig, folder: Path, progress: bool = True) -> Makers:
        """The published file if it exists and its size fits, otherwise a name with the sizes."""

        def make(path: Path) -> None:
            navier_stokes.generate(
                path,
                config.n_samples,
                GIVEN + config.horizon,
                config.resolution,
                config.solver_resolution,
                config.solver_step,
                # Small arrays are faster on a CPU: the allocator keeps their memory.
                batch_size=4 if config.solver_resolution <= 64 else 20,
                progress=progress,
            )

        official = folder / navier_stokes.OFFICIAL_NAME
        at_scale = config.resolution == navier_stokes.RESOLUTION and config.horizon == 40
        if at_scale and config.n_samples <= OFFICIAL_SAMPLES and official.exists():
            return {official: make}
        ours = navier_stokes.default_name(config.n_samples, GIVEN + config.horizon)
        grid = f"{config.resolution}of{config.solver_resolution}"
        return {folder / f"{Path(ours).stem}_{grid}_step{config.solver_step:g}.mat": make}

    def load(self, config: NavierStokesConfig, folder: Path) -> Data:
        (path,) = self.files(config, folder)
        frames = navier_stokes.read(path, 0, config.n_samples)
        data = consecutive(config, checked(config, path, frames, GIVEN + config.horizon))
        (train,) = data.train.tensors
        windows = Windows(train, config.history + config.unroll, GIVEN - config.history)
        return dataclasses.replace(data, train=windows)

    def loss(
        self, config: NavierStokesConfig, model: nn.Module, batch: tuple[Tensor, ...]
    ) -> Tensor:
        history, target = batch[0].split((config.history, config.unroll), dim=1)
        return frame_errors(*forecast(config, model, history, target)).mean()

    @torch.no_grad()
    def evaluate(self, config: NavierStokesConfig, model: nn.Module, data: Data) -> Evaluation:
        curve, one_step, fields = self.by_frame(config, model, data, frame_errors)
        scores = {
            "rollout_relative_l2": float(curve.mean()),
            "rollout_relative_l2_last": float(curve[-1]),
            "one_step_relative_l2": float(one_step.mean()),
        }
        curves = {"rollout_relative_l2": curve.tolist(), "one_step_relative_l2": one_step.tolist()}
        return Evaluation({"test": scores}, curves, fields)


EXPERIMENT = NavierStokes()
