"""Advection and Burgers on a line: rollouts of FNO and ours, trained for the same time.

python -m chonn_lab.studies.line_rollouts      # lab/results/runs/lines/line_rollouts.json

PDEBench's problems, exact, on 128 cells with frames 0.05 apart: 10 frames are given, 31 are rolled
out. Every model trains on single steps for the same seconds of one core; the learning rate falls to
0 as a cosine of the time. What has finished is not run again.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from chonn_lab.baselines.fields import count_parameters
from chonn_lab.experiments import rollout
from chonn_lab.experiments.modules import PLAIN, Forecaster, GridFNO
from chonn_lab.paths import RUNS
from chonn_lab.problems import advection, burgers, origin
from chonn_lab.results_file import read_record, run_missing
from chonn_lab.studies import equal_seconds
from chonn_ops import CHONNFNO1d, CHONNRollout1d

HISTORY, RESOLUTION, FRAMES = 10, 128, 41
TRAIN, TEST = 256, 64  # trajectories
PROBLEMS: dict[str, tuple[Any, float]] = {
    "advection": (advection, 0.4),
    "burgers": (burgers, 0.01),
}


class Latest(nn.Module):
    """A model that sees only the last few frames: (B, history, *grid) to (B, *grid)."""

    def __init__(self, model: nn.Module, frames: int) -> None:
        super().__init__()
        self.model, self.frames = model, frames

    def forward(self, frames: Tensor) -> Tensor:
        return self.model(frames[:, -self.frames :])


def fno(history: int = HISTORY) -> nn.Module:
    """PDEBench's, without padding, of increments, given the last frames."""
    model = CHONNFNO1d(1, 12, 20, history, ckb=PLAIN, padding=0)
    return Latest(Forecaster(GridFNO(model), increment=True), history)


def ours(frames: int, **options: Any) -> nn.Module:
    """It predicts frames, from the last few."""
    fixed: dict[str, Any] = {"num_networks": 8, "heads": 4, "nodes": "left", "conservative": True}
    model = CHONNRollout1d(1, frames, **fixed, **options)
    return Latest(Forecaster(model, increment=False), frames)


# Name: model, learning rate. Those of one and two frames were chosen on 64 of the samples to train,
# left out there, at the seed 299, out of FNOs of 1, 2 and 10 frames with and without coordinates,
# rates 5e-3 and 1e-2, and ours of 1, 2, 3 and 10.
MODELS: dict[str, tuple[Callable[[], nn.Module], float]] = {
    "FNO, increments": (fno, 1e-3),
    "FNO, increments, rate 5e-3": (fno, 5e-3),
    "FNO, increments, one frame, rate 5e-3": (lambda: fno(1), 5e-3),
    "ours": (lambda: ours(HISTORY, coordinates=True), 5e-3),
    # Without coordinates: both equations are the same everywhere.
    "ours, two frames, rate 1e-2": (lambda: ours(2), 1e-2),
    "ours, two frames, rate 1e-2, without a last solve": (lambda: ours(2, damped=False), 1e-2),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="of training, each")
    parser.add_argument("--seeds", type=int, nargs="+", default=[300])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--output", type=Path, default=RUNS / "lines" / "line_rollouts.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    config = {"seconds": args.seconds, "train": TRAIN, "test": TEST}
    record = read_record(args.output, "line_rollouts", config, ("torch", "numpy"), 1, {})
    read = {problem: data(problem, args.data) for problem in PROBLEMS}

    def trained(problem: str, model: str, seed: int) -> dict[str, Any]:
        frames, known = read[problem]
        return {"data": known, **run(model, seed, frames, args.seconds)}

    wanted = [(p, model, seed) for p in PROBLEMS for seed in args.seeds for model in args.models]
    run_missing(args.output, record, wanted, trained, ("problem", "model", "seed"))


def data(problem: str, folder: Path) -> tuple[Tensor, dict[str, Any]]:
    """All trajectories, (N, T, R), and what is known of the file."""
    module, value = PROBLEMS[problem]
    path = folder / f"{problem}_{value:g}_{RESOLUTION}_{FRAMES}_{TRAIN + TEST}.hdf5"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        module.generate(path, TRAIN + TEST, RESOLUTION, value, FRAMES, progress=False)
    return torch.from_numpy(module.read(path)), origin.identify(path).record()


def run(name: str, seed: int, frames: Tensor, seconds: float) -> dict[str, Any]:
    """Train for the seconds and score on the last samples."""
    torch.manual_seed(seed)
    build, rate = MODELS[name]
    model = build()
    train, test = frames[:TRAIN], frames[TRAIN:]

    def loss() -> Tensor:
        drawn = train[torch.randint(len(train), (32,))]
        given, target = rollout.stretches(drawn, HISTORY + 1).split((HISTORY, 1), dim=1)
        return rollout.frame_errors(model(given)[:, None], target).mean()

    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    steps = equal_seconds.train(optimizer, loss, seconds, clip=math.inf)
    model.eval()
    with torch.no_grad():
        known, target = test.split((HISTORY, FRAMES - HISTORY), dim=1)
        single = rollout.frame_errors(*rollout.single_steps(model, test, HISTORY, HISTORY))
        rolled = rollout.rollout(model, known, FRAMES - HISTORY)
    curve = rollout.frame_errors(rolled, target).mean(0)
    return {
        "one_step": float(single.mean()),
        "rollout": float(curve.mean()),
        "rollout_last": float(curve[-1]),
        "parameters": count_parameters(model),
        "steps": steps,
    }


if __name__ == "__main__":
    main()
