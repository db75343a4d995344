"""A step of a rollout by the clock: the next frame from ten, without autograd, on smooth fields.

Sizes are those of `chonn-lab run problem=navier_stokes | shallow_water`, on 64 x 64 points.

Columns
    forward_ms     the median
    forward_ratio  over the FNO's at the same batch size
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_lab.baselines.fields import count_parameters
from chonn_lab.benchmarks.harness import (
    Call,
    Turns,
    add_ratios,
    arguments,
    environment,
    fill,
    show,
    start,
    write_result,
)
from chonn_lab.benchmarks.training import inference
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


def main(given: list[str] | None = None) -> None:
    options = start(arguments(__doc__, "rollouts"), given)
    turns = Turns(options.rounds, options.visit_ms)
    points = 32 if options.smoke else 64
    rows: list[dict[str, Any]] = []
    for batch in BATCHES:
        torch.manual_seed(0)
        frames = smooth(batch, points)
        found: dict[str, dict[str, Any]] = {}
        calls: dict[tuple[str, str], Call] = {}
        for name, (build, seen) in MODELS.items():
            model = build()
            found[name] = {"model": name, "batch": batch, "parameters": count_parameters(model)}
            calls[name, "forward"] = inference(model, (frames[:, -seen:],))
        fill(found, turns.times(calls))
        add_ratios(found, "FNO", ("forward",))
        rows += found.values()
    show(rows, "model", "batch", "parameters", "forward_ms", "forward_ratio")
    write_result(options.output, {"environment": environment(options, []), "rows": rows})


if __name__ == "__main__":
    main()
