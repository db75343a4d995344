"""A step of a rollout by the clock: the next frame from ten, without autograd, on smooth fields.

Sizes are those of `chonn-lab run problem=navier_stokes | shallow_water`, on 64 x 64 points.

Columns
    forward_ms     the median
    forward_ratio  over the FNO's at the same batch size
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_lab.baselines.fields import count_parameters
from chonn_lab.benchmarks.harness import Row, Run, inference, main_of
from chonn_lab.experiments.modules import GridFNO
from chonn_ops import CHONNFNO2d, CHONNRollout2d, CHONNWaves2d, CKBOptions, Network

BATCHES, HISTORY, FRAMES = (1, 4, 20), 10, 2
RING = CKBOptions(Network(num_networks=4), boundary="periodic")


def fno(ckb: CKBOptions) -> nn.Module:
    return GridFNO(CHONNFNO2d(1, 12, 12, 20, HISTORY, ckb=ckb, padding=0))


# Name: the model, and the last frames that it is given.
MODELS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "FNO": (lambda: fno(CKBOptions(order=0)), HISTORY),
    "FNO with networks in its first w": (lambda: fno(RING), HISTORY),
    "waves, one layer": (lambda: CHONNWaves2d(1, FRAMES, depth=1), FRAMES),
    "waves, two layers": (lambda: CHONNWaves2d(1, FRAMES), FRAMES),
    "flow, two layers": (lambda: CHONNRollout2d(1, FRAMES, coordinates=True), FRAMES),
}


def smooth(batch: int, points: int) -> Tensor:
    """Frames (B, 10, R, R), periodic averages of noise."""
    noise = torch.randn(batch, HISTORY, points, points)
    return 1 + F.avg_pool2d(F.pad(noise, (4, 4, 4, 4), mode="circular"), 9, 1)


def steps(run: Run) -> list[Row]:
    rows: list[Row] = []
    for batch in BATCHES:
        torch.manual_seed(0)
        frames = smooth(batch, 32 if run.smoke else 64)

        def make(name: str) -> Row:
            build, seen = MODELS[name]
            model = build()
            call = inference(model, (frames[:, -seen:],))  # noqa: B023
            about = {"model": name, "batch": batch, "parameters": count_parameters(model)}  # noqa: B023
            return {**about, "calls": {"forward": call}}

        rows += run.compare({name: functools.partial(make, name) for name in MODELS}, "FNO")
    return rows


main = main_of(__doc__, "rollouts", {"rows": steps})

if __name__ == "__main__":
    main()
