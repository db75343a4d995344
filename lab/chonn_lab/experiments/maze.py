"""Acoustic scattering in a maze, after The Well: the next pressure, in a medium that is given.

The data set's card is the docstring of `chonn_lab.problems.maze`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from chonn_lab.baselines.cnext_unet import CNextUNet
from chonn_lab.experiments.base import (
    OPTIMIZER_FIELDS,
    Data,
    Evaluation,
    Makers,
    Variant,
    consecutive,
)
from chonn_lab.experiments.modules import PLAIN, GridFNO
from chonn_lab.experiments.rollout import (
    Predictor,
    RolloutConfig,
    RolloutExperiment,
    checked,
    single_steps,
)
from chonn_lab.problems import maze
from chonn_ops.models import CHONNFNO2d, CHONNUNet2d, CHONNWaves2d

# Frames known before a rollout, as The Well has it; models see the last `history`.
GIVEN = 4
# About the root mean square of the pressure.
PRESSURE = 0.5
# What differs from the config, for as many seconds on one core at the scale "small".
CHANGES: Mapping[str, Mapping[str, Any]] = {
    "waves": {"history": 2, "width": 8, "learning_rate": 2e-2, "epochs": 150},
    "cnext-unet": {"width": 8, "levels": 3, "learning_rate": 5e-3, "epochs": 20},
    "unet": {"width": 8, "learning_rate": 4e-3, "epochs": 45},
    "fno": {"width": 20, "learning_rate": 4e-3, "epochs": 25},
}
# Every so many frames, one is predicted for the validation error.
VALIDATED = 5
# The Well's, in the denominator of VRMSE.
EPSILON = 1e-7


@dataclasses.dataclass(frozen=True, kw_only=True)
class MazeConfig(RolloutConfig):
    """Settings.

    Parameters
    ----------
    levels : int
        How often CNextU-Net halves the grid.
    substeps : int
        Steps of the LC network from one frame to the next.
    """

    levels: int = 4
    substeps: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_least(1, "levels", "substeps")
        if self.history > GIVEN:
            raise ValueError(f"history: expected at most {GIVEN}, got {self.history}")
        if self.history + self.unroll > maze.N_STEPS + 1:
            raise ValueError(
                f"history + unroll: expected at most the {maze.N_STEPS + 1} frames of a sample, "
                f"got {self.history} + {self.unroll}"
            )


class InMedium(nn.Module):
    """Earlier frames (B, T, R, R) and the medium (B, 1, R, R) to the next frame (B, R, R), by a
    model of the last frames and the medium behind them as channels."""

    def __init__(self, model: nn.Module, config: MazeConfig, increment: bool) -> None:
        super().__init__()
        self.model, self.frames, self.increment = model, config.history, increment

    def forward(self, frames: Tensor, medium: Tensor) -> Tensor:
        frames = frames[:, -self.frames :]
        predicted = self.model(torch.cat((frames, medium), 1))[:, 0]
        return frames[:, -1] + predicted if self.increment else predicted


def vrmse(prediction: Tensor, target: Tensor) -> Tensor:
    """The Well's score of every frame, (B, T) for fields (B, T, R, R): the root mean square error
    over the target's standard deviation."""
    error = (prediction - target).square().mean((2, 3))
    return (error / (target.var((2, 3), correction=0) + EPSILON)).sqrt()


def _waves(config: MazeConfig, **options: Any) -> nn.Module:
    given: dict[str, Any] = {
        "depth": 0,
        "width": config.width,
        "conservative": False,
        "media": 1,
        **options,
    }
    model = CHONNWaves2d(1, config.history, nodes="centres", substeps=config.substeps, **given)
    return InMedium(model, config, increment=False)


def _fno(config: MazeConfig) -> nn.Module:
    # The medium is passed as one more frame.
    sizes = (config.modes, config.modes, config.width, config.history + 1)
    return InMedium(GridFNO(CHONNFNO2d(1, *sizes, ckb=PLAIN)), config, config.increment)


def _unet(config: MazeConfig) -> nn.Module:
    model = CHONNUNet2d(config.history + 1, 1, config.width, ckb=PLAIN)
    return InMedium(model, config, config.increment)


def _cnext(config: MazeConfig) -> nn.Module:
    model = CNextUNet(config.history + 1, 1, config.width, levels=config.levels)
    return InMedium(model, config, config.increment)


class Maze(RolloutExperiment[MazeConfig]):
    """Density and pressure of the last frames to the pressure of the next frame, fed back."""

    name = "maze"
    title = "Acoustic maze"
    scales: Mapping[str, MazeConfig] = {
        "smoke": MazeConfig(
            n_train=4,
            n_validation=2,
            n_test=2,
            batch_size=2,
            epochs=2,
            resolution=16,
            history=2,
            modes=3,
            width=4,
            levels=2,
        ),
        "small": MazeConfig(
            n_train=144,
            n_validation=16,
            n_test=16,
            batch_size=4,
            epochs=12,
            schedule="cosine",
            gradient_clip=1.0,
            resolution=maze.RESOLUTION,
            history=GIVEN,
            width=8,
        ),
        "paper": MazeConfig(
            n_train=1600,
            n_validation=200,
            n_test=200,
            batch_size=16,
            epochs=100,
            schedule="cosine",
            resolution=maze.PUBLISHED_RESOLUTION,
            history=GIVEN,
            modes=16,
            width=42,
        ),
    }
    sources: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            ("n_train", "n_validation", "n_test", "resolution", "history", "modes", "width"),
            "The Well: 2,000 trajectories of 256 x 256, four fifths to train, four frames given, "
            "16 modes, CNextU-Net of width 42.",
        ),
        "levels": "The Well: CNextU-Net halves the grid 4 times.",
        **dict.fromkeys(
            (*OPTIMIZER_FIELDS, "batch_size", "epochs", "seed"),
            "Ours: The Well trains for 12 hours of an H100 with the largest batch that fits, and "
            "the best of five learning rates.",
        ),
        **dict.fromkeys(
            ("unroll", "pushforward", "increment"), "The Well: one step, which is the next frame."
        ),
        "d_state": "Without effect: no model has scans.",
        "substeps": "Ours: waves travel three cells a frame, and less than 0.7 a step.",
    }

    def given(self, config: MazeConfig) -> int:  # noqa: ARG002
        return GIVEN

    def variants(self, config: MazeConfig) -> tuple[Variant[MazeConfig], ...]:
        small = config.resolution == maze.RESOLUTION
        rows = (
            ("waves", "chonn", "CHONN waves", _waves, "network"),
            ("cnext-unet", "cnext-unet", "CNextU-Net", _cnext, "baseline"),
            ("unet", "unet", "U-Net", _unet, "baseline"),
            ("fno", "fno", "FNO", _fno, "baseline"),
        )
        return tuple(
            Variant(
                name, label, build, {"family": family, "role": role}, CHANGES[name] if small else {}
            )
            for name, family, label, build, role in rows
        )

    def makers(self, config: MazeConfig, folder: Path, progress: bool = True) -> Makers:
        def make(path: Path) -> None:
            maze.generate(path, config.n_samples, config.resolution, progress=progress)

        name = Path(maze.default_name(config.resolution))
        return {folder / f"{name.stem}_{config.n_samples}{name.suffix}": make}

    def load(self, config: MazeConfig, folder: Path) -> Data:
        (path,) = self.files(config, folder)
        density, pressure = maze.read(path, 0, config.n_samples)
        frames = checked(config, path, pressure / PRESSURE, maze.N_STEPS + 1)
        walls = (torch.from_numpy(density) > maze.PATH_DENSITY).float()[:, None]
        return consecutive(config, frames, walls)

    def told(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Predictor:
        return partial(model, medium=batch[1])

    def errors(self, config: MazeConfig, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        """VRMSE of one step, at some of the frames."""
        told = self.told(model, batch)
        return vrmse(*single_steps(told, batch[0], config.history, GIVEN, VALIDATED)).mean(dim=1)

    @torch.no_grad()
    def evaluate(self, config: MazeConfig, model: nn.Module, data: Data) -> Evaluation:
        curve, one_step, fields = self.by_frame(config, model, data, vrmse)
        metrics = {
            "one_step_vrmse": float(one_step.mean()),
            "rollout_vrmse": float(curve.mean()),
            "rollout_vrmse_last": float(curve[-1]),
        }
        curves = {"rollout_vrmse": curve.tolist(), "one_step_vrmse": one_step.tolist()}
        return Evaluation({"test": metrics}, curves, fields)

    def example(self, config: MazeConfig) -> tuple[Tensor, ...]:
        grid = (config.resolution, config.resolution)
        return torch.zeros(1, config.history, *grid), torch.zeros(1, 1, *grid)


EXPERIMENT = Maze()
