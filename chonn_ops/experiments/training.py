"""The training of one run, by a plain loop that resumes.

A run stopped anywhere resumes at its last whole epoch and ends at the same numbers, to the last bit
on a CPU: an epoch depends on the checkpoint before it and on (seed, epoch) alone.
"""

from __future__ import annotations

import contextlib
import io
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset
from tqdm import tqdm

from chonn_ops._files import whole_file
from chonn_ops.experiments import records
from chonn_ops.experiments.base import Config, processes
from chonn_ops.experiments.jobs import Job
from chonn_ops.experiments.provenance import Provenance
from chonn_ops.experiments.records import HISTORY

Batch = tuple[Tensor, ...]


class Diverged(Exception):
    """Training has left the finite numbers; the last checkpoint is of the epoch before."""

    def __init__(self, epoch: int) -> None:
        super().__init__(f"training loss or weights not finite in epoch {epoch}")


class Training:
    """A model of a job in training, with the history of its epochs.

    Parameters
    ----------
    job : Job
    model : nn.Module
        On the device of the training.
    provenance : Provenance
        Kept in the checkpoints.

    Attributes
    ----------
    history : dict of str to list of float
        Training loss and validation error of every epoch.
    seconds : float
        Of all epochs, those before an interruption included.
    notes : list of str
        What to say of earlier parts of the run, if these were of another commit, say.
    """

    def __init__(self, job: Job, model: nn.Module, provenance: Provenance) -> None:
        self.job, self.model, self.provenance = job, model, provenance
        self.notes: list[str] = []
        self.history: dict[str, list[float]] = {name: [] for name in HISTORY}
        self.seconds = 0.0
        config = job.config
        kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[config.optimizer]
        self.optimizer = kind(
            model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )
        schedules = torch.optim.lr_scheduler
        self.schedule: torch.optim.lr_scheduler.LRScheduler = (
            schedules.StepLR(self.optimizer, config.step_size, config.gamma)
            if config.schedule == "step"
            else schedules.CosineAnnealingLR(self.optimizer, config.epochs)
        )
        self._device = next(model.parameters()).device
        # The CPU has no float16 products worth the name.
        half = job.precision == "16-mixed" and self._device.type != "cpu"
        self._scaler = torch.amp.GradScaler(self._device.type, enabled=half)
        self._autocast = torch.autocast(
            self._device.type,
            torch.float16 if half else torch.bfloat16,
            enabled=job.precision != "32-true",
            cache_enabled=False,
        )

    @property
    def epochs(self) -> int:
        """Epochs that are done."""
        return len(self.history["train_loss"])

    def fit(
        self,
        train: TensorDataset,
        validation: TensorDataset,
        *,
        progress: bool = False,
        on_epoch: Callable[[], object] | None = None,
    ) -> None:
        """Train all epochs that are left, with a checkpoint and a line of the logs after each.

        Raises
        ------
        Diverged
        ValueError
            If the batches do not fit the data or the processes.
        """
        rank, world = processes()
        check_batches(self.job.config, train, world)
        step: nn.Module = _Loss(self.job, self.model)
        if world > 1:
            step = DistributedDataParallel(step)
        total = self.job.config.epochs
        steps = len(train) // self.job.config.batch_size
        with records.log(self.job.folder) if rank == 0 else contextlib.nullcontext() as log:
            for epoch in range(self.epochs, total):
                with tqdm(
                    desc=f"Epoch {epoch + 1}/{total}",
                    total=steps,
                    leave=epoch + 1 == total,
                    disable=not progress or rank > 0,
                ) as bar:
                    rate = float(self.schedule.get_last_lr()[0])
                    self._epoch(step, train, validation, bar)
                    last = {name: values[-1] for name, values in self.history.items()}
                    bar.set_postfix({name: f"{value:.3g}" for name, value in last.items()})
                if log:
                    self.save()
                    log(epoch, (epoch + 1) * steps - 1, {"learning_rate": rate, **last})
                if on_epoch is not None:
                    on_epoch()

    def _epoch(
        self, step: nn.Module, train: TensorDataset, validation: TensorDataset, bar: tqdm[Any]
    ) -> None:
        started = time.perf_counter()
        config, seed = self.job.config, self.job.seed
        torch.manual_seed(int(np.random.SeedSequence((seed, self.epochs)).generate_state(1)[0]))
        # Sums of the losses and of the errors, each with its number of samples.
        sums = torch.zeros(4, device=self._device)
        self.model.train()
        for batch in self._moved(training_batches(config, train, seed, self.epochs, *processes())):
            with self._watched(), self._autocast:
                loss = step(batch)
            self.optimizer.zero_grad()
            self._scaler.scale(loss).backward()
            self._scaler.step(self.optimizer)
            self._scaler.update()
            samples = len(batch[0])
            sums[0] += loss.detach().to(sums.dtype) * samples
            sums[1] += samples
            bar.update()
        self.schedule.step()
        self.model.eval()
        for batch in self._moved(validation_batches(config, validation, *processes())):
            with self._watched(), self._autocast, torch.no_grad():
                errors = self.job.experiment.errors(config, self.model, batch)
            sums[2] += errors.to(sums.dtype).sum()
            sums[3] += len(errors)
        if processes()[1] > 1:
            dist.all_reduce(sums)
        means = (sums[::2] / sums[1::2]).tolist()
        if not math.isfinite(means[0]):
            raise Diverged(self.epochs + 1)
        for values, mean in zip(self.history.values(), means, strict=True):
            values.append(mean)
        self.seconds += time.perf_counter() - started

    def _moved(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        for batch in batches:
            yield tuple(tensor.to(self._device) for tensor in batch)

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """A model that refuses its own weights, as scans do, has diverged if these are not finite.

        The weights are looked at after a refusal only. They are the same in every process of a
        distributed run, so all of them stop.
        """
        try:
            yield
        except ValueError as error:
            if all(bool(weights.isfinite().all()) for weights in self.model.parameters()):
                raise
            raise Diverged(self.epochs + 1) from error

    def save(self) -> None:
        """Write the checkpoint, whole or not at all."""
        content = {
            # Names as in the checkpoints of earlier versions, which were Lightning's.
            "state_dict": {f"model.{name}": v for name, v in self.model.state_dict().items()},
            "optimizer_states": [self.optimizer.state_dict()],
            "lr_schedulers": [self.schedule.state_dict()],
            "MixedPrecision": self._scaler.state_dict(),
            records.STATE: {
                "settings": self.job.settings,
                "history": self.history,
                "seconds": self.seconds,
                "origin": self.provenance.record(),
                "notes": self.notes,
            },
        }
        # The errors of a file that torch writes do not say what the system said.
        buffer = io.BytesIO()
        torch.save(content, buffer)
        with whole_file(self.job.checkpoint, force=True) as staged:
            staged.write_bytes(buffer.getbuffer())

    def restore(self) -> None:
        """Go on from the job's checkpoint, with a note if it is of another commit, say.

        Raises
        ------
        ValueError
            If the file is damaged, refused, of another run or, unless the job takes them, of other
            data or model code; says why and what to remove.
        """
        found = records.read_checkpoint(self.job, self.provenance)
        state = found[records.STATE]
        try:
            self.model.load_state_dict(
                {name.removeprefix("model."): v for name, v in found["state_dict"].items()}
            )
            self.optimizer.load_state_dict(found["optimizer_states"][0])
            self.schedule.load_state_dict(found["lr_schedulers"][0])
            if scaler := found.get("MixedPrecision"):
                self._scaler.load_state_dict(scaler)
        # What is of another kind fails in other ways than what does not fit.
        except Exception as error:
            raise records.refusal(self.job.checkpoint, "checkpoint of another model") from error
        self.history = {name: list(state["history"][name]) for name in HISTORY}
        self.seconds = state["seconds"]
        self.notes = list(state.get("notes", []))
        if note := Provenance.parse(state.get("origin", {})).note(self.provenance):
            self.notes.append(f"resumed after epoch {self.epochs}: {note}")


class _Loss(nn.Module):
    """The loss of a batch as one forward pass, however often it calls the model."""

    def __init__(self, job: Job, model: nn.Module) -> None:
        super().__init__()
        self.job, self.model = job, model

    def forward(self, batch: Batch) -> Tensor:
        return self.job.experiment.loss(self.job.config, self.model, batch)


def check_batches(config: Config, train: TensorDataset, world: int) -> None:
    """ValueError if batches do not split over the processes, or exceed the training split."""
    if config.batch_size % world:
        raise ValueError(
            f"batch_size: expected a multiple of {world} processes, got {config.batch_size}"
        )
    if len(train) < config.batch_size:
        raise ValueError(
            f"batch_size: expected at most the {len(train)} training samples, "
            f"got {config.batch_size}"
        )


def training_batches(
    config: Config, train: TensorDataset, seed: int, epoch: int, rank: int, world: int
) -> Iterator[Batch]:
    """Of one process: its share of global batches that are the same for any number of them."""
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed + epoch))
    for chosen in order.split(config.batch_size)[: len(train) // config.batch_size]:
        yield train[chosen[rank::world]]


def validation_batches(
    config: Config, validation: TensorDataset, rank: int, world: int
) -> Iterator[Batch]:
    """Of one process; no sample is repeated to fill up."""
    for chosen in torch.arange(rank, len(validation), world).split(config.batch_size // world):
        yield validation[chosen]
