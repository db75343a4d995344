"""Observe the epochs and losses of PDEBench's trainers, and stop them when they diverge.

PDEBench's trainers continue with a loss of NaN, save nothing and end without an error. They take
their losses and data loaders from ``torch``, and the watch observes those.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from chonn_plugins.pdebench import processes
from chonn_plugins.pdebench.contract import JobError
from chonn_plugins.pdebench.job import Job

# Points of all samples that a model is calibrated by: 48 of 64 x 64. Every second point is taken of
# larger ones, and so on; of volumes, whose circuits take far longer, of those above 16 x 16 x 16:
# 48 of these with 5 inputs and outputs take 23 s of one core, 48 of 64 x 64 with one 3 s.
CALIBRATION, LARGEST_3D = 48 * 64**2, 16**3


class Diverged(JobError):
    """A training whose loss is not finite."""


class Watch:
    """The losses of one training, by batch and epoch."""

    def __init__(self) -> None:
        self.epoch = -1
        # Whether a validation loss was finite; None before the first validation.
        self.is_finite: bool | None = None
        # Whether the validation that begins is one that an uninterrupted training does not have.
        self.is_extra = False
        # Whether the optimiser decays the model's weights as the trainer says.
        self.decays = True
        # What a training begins with, unless it goes on from a checkpoint.
        self.start: Callable[[Any, torch.device], None] | None = None
        self.losses: list[torch.Tensor] = []  # of the frames of a batch so far
        self._batches = 0
        self._validation: float | None = None

    def loss(self, *args: Any, **kwargs: Any) -> nn.Module:
        """An ``nn.MSELoss`` whose values are recorded."""
        function = nn.MSELoss(*args, **kwargs)
        function.register_forward_hook(lambda *call: self.losses.append(call[-1].detach()))
        return function

    def resumed(self, checkpoint: Mapping[str, Any]) -> None:
        """Continue with the epoch that the checkpoint states."""
        self.epoch = int(checkpoint.get("epoch", 0)) - 1
        self.start = None

    def begin_epoch(self) -> None:
        self.end_epoch()
        self.epoch += 1

    def end_batch(self, *, training: bool) -> None:
        """Record the losses of one batch: one for each step in time, then the total. `Diverged` if
        a training loss is not finite."""
        if not self.losses:
            return
        # One transfer per batch; PDEBench itself transfers every loss.
        losses = torch.stack(self.losses)
        losses = (processes.mean(losses) if training else losses).tolist()
        self.losses.clear()
        if not training:
            self._validation = (self._validation or 0.0) + losses[-1]
            return
        self._batches += 1
        for value in losses:
            if not math.isfinite(value):
                raise Diverged(f"the loss of batch {self._batches} is {value:g}")

    def end_epoch(self) -> None:
        """Record the current epoch, if there is one."""
        if not self._batches:
            return
        if self._validation is not None:
            self.is_finite = bool(self.is_finite) or math.isfinite(self._validation)
        self._batches = 0
        self._validation = None


class WatchedLoader:
    """A data loader that moves batches to the device and reports epochs and batches to a watch."""

    def __init__(self, loader: Any, device: torch.device, watch: Watch, *, training: bool) -> None:
        self.loader, self.device = loader, device
        self.watch, self.training = watch, training

    def __iter__(self) -> Iterator[list[torch.Tensor]]:
        if self.training:
            if self.watch.start is not None:
                self.watch.start(self.loader.dataset, self.device)
                self.watch.start = None
            self.watch.begin_epoch()
        state = torch.get_rng_state()
        for batch in self.loader:
            yield [field.to(self.device) for field in batch]
            self.watch.end_batch(training=self.training)
        # A loader draws a number whenever it begins, by which the next epoch's order would change.
        if self.watch.is_extra and not self.training:
            torch.set_rng_state(state)

    def __len__(self) -> int:
        return len(self.loader)


def calibrate(model: Any, job: Job, samples: Any, device: torch.device) -> None:
    """Let a model that has `calibrate` look at the first training samples, and print what it found.

    It gets inputs and targets as PDEBench's trainer of its family has them, of the first step; a
    model of `series` gets the frames that are predicted and the two before, the last one as target:
    with all frames diffusion-sorption got a wrong equation, and an error of 0.029.
    """
    # A model with `ckb` in place of a circuit head has nothing to calibrate.
    if not hasattr(model, "calibrate") or getattr(model, "network", model) is None:
        return
    start, last = job.args["initial_step"], samples[0][1].shape[-2]
    single = job.family == "fno" and job.args["training_type"] == "single"
    series = getattr(model, "series", False) and not single
    frame = min(job.args["t_train"], last) - 1 if single or series else start
    first = max(0, start - 2) if series else 0
    grid, every = samples[0][0].shape[:-2], 1
    while math.prod(n // every for n in grid) > (CALIBRATION if len(grid) < 3 else LARGEST_3D):
        every *= 2  # U-Nets halve their grid
    count = min(len(samples), max(1, CALIBRATION // math.prod(-(-n // every) for n in grid)))
    kept = (slice(None, None, every),) * len(grid)
    seen = [
        (
            (y[..., first:frame, :] if series else x)[kept].flatten(-2),
            y[(*kept, ..., frame, slice(None))],
            *(c[kept] for c in coordinates),
        )
        for x, y, *coordinates in map(samples.__getitem__, range(count))
    ]
    x, y, *coordinates = (torch.stack(fields).to(device) for fields in zip(*seen, strict=True))
    if job.family == "fno":
        residuals = model.calibrate(x, y.unsqueeze(-2), *coordinates)
    else:
        residuals = model.calibrate(x.movedim(-1, 1), y.movedim(-1, 1))
    if residuals is not None:
        shown = ", ".join(f"{residual:.3g}" for residual in residuals.tolist())
        what = "change from frame to frame" if series else "deviation"
        print(f"chonn-ops: calibrated by {count} samples, {shown} of the {what} left", flush=True)


@contextmanager
def finite(job: Job, watch: Watch, saved: Callable[[], str]) -> Iterator[None]:
    """Context of a training that raises a JobError, which states the epoch and the value that was
    not finite, if the training diverges. `saved` returns the state of the checkpoint, for the
    message."""
    try:
        yield
        watch.end_epoch()
    except Diverged as error:
        reason = f"in epoch {watch.epoch} (the first is 0): {error}"
    else:
        if watch.is_finite is not False:
            return
        reason = f"by epoch {watch.epoch} (the first is 0): no validation loss was finite"
    raise JobError(
        f"the training of {job.label} diverged {reason}; {saved()}. "
        f"args.learning_rate is {job.args.get('learning_rate')}."
    ) from None
