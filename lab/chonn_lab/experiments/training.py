"""One run: a model trained from one seed by a plain loop that resumes, and its scores in a file.

An interrupted run resumes after its last complete epoch and ends at the same numbers, on a CPU to
the last bit: an epoch depends on the checkpoint before it and on (seed, epoch) alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import io
import math
import pickle
import random
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout
from torch import Tensor, nn
from torch.utils.data import TensorDataset
from tqdm import tqdm

from chonn_lab import cost
from chonn_lab.experiments import provenance
from chonn_lab.experiments.base import Config, Evaluation, Untrained, device_of
from chonn_lab.experiments.jobs import Job
from chonn_lab.experiments.provenance import ANYWAY, Provenance
from chonn_lab.experiments.records import HISTORY, Run
from chonn_ops.files import clear_remains, whole_file

Batch = tuple[Tensor, ...]
# Entry of a checkpoint with everything that is not torch's.
STATE = "chonn_ops"


def execute(
    job: Job, *, progress: bool = False, on_epoch: Callable[[], object] | None = None
) -> Run:
    """Train and score a model; resume an interrupted run, or read a finished one.

    Parameters
    ----------
    job : Job
    progress : bool
        Show a progress bar for every epoch.
    on_epoch : callable, optional
        Called at the end of every epoch that is trained now.

    Returns
    -------
    Run
        Without scores if the training diverged.

    Raises
    ------
    ValueError, OSError
        For data, a checkpoint or a result that is damaged or was made with other settings or data,
        and while another process trains the same run.
    """
    if (run := job.finished()) is not None:
        return run
    with _claimed(job):
        return _execute(job, progress, on_epoch)


def _execute(job: Job, progress: bool, on_epoch: Callable[[], object] | None) -> Run:
    provenance.reset_peak_memory()
    data = job.experiment.load(job.config, job.data_folder)
    device = select_device(job.accelerator)
    # The weights are the first numbers drawn.
    seed_everything(job.seed)
    model = job.variant.build(job.config)
    size = cost.measure(model, job.experiment.example(job.config))
    made = provenance.of(job, data)
    training = Training(job, model.to(device), made)
    if job.checkpoint.exists():
        training.restore()
        for note in training.notes:
            tqdm.write(f"{job.title}: {note}")
    diverged, evaluation = None, Evaluation(metrics={})
    try:
        training.fit(data.train, data.validation, progress=progress, on_epoch=on_epoch)
    except Diverged as error:
        diverged = str(error)
    else:
        with torch.no_grad():
            evaluation = job.experiment.evaluate(job.config, model.eval(), data)
    if evaluation.fields:
        arrays = {name: field.cpu().numpy() for name, field in evaluation.fields.items()}
        with whole_file(job.fields, force=True) as staged, open(staged, "wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
    # Last, because this file marks the run as finished.
    return Run(
        experiment=job.experiment.name,
        title=job.experiment.title_of(job.config),
        scale=job.scale,
        variant=job.variant.name,
        label=job.variant.label,
        tags=dict(job.variant.tags),
        seed=job.seed,
        config=dataclasses.asdict(job.config),
        versions=provenance.versions(),
        hardware=provenance.hardware(device),
        changes=sorted(job.variant.changes),
        **dataclasses.asdict(made),
        notes=training.notes,
        date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        parameters=size.parameters,
        multiply_adds=size.multiply_adds,
        curve={"epoch": list(range(1, training.epochs + 1)), **training.history},
        diverged=diverged,
        metrics={
            split: {name: float(value) for name, value in scores.items()}
            for split, scores in evaluation.metrics.items()
        },
        curves={name: list(map(float, values)) for name, values in evaluation.curves.items()},
        seconds=training.seconds,
        milliseconds=evaluation.milliseconds,
        peak_memory_mib=provenance.peak_memory_mib(device),
    ).write(job.result)


def seed_everything(seed: int) -> None:
    """Seed the global generators of Python, NumPy and PyTorch."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)


def select_device(accelerator: str) -> torch.device:
    """The device for "cpu", "gpu" or "auto"; a ValueError if there is no GPU for "gpu"."""
    if accelerator != "cpu":
        if torch.cuda.is_available():
            return torch.device("cuda")
        if torch.backends.mps.is_available():
            return torch.device("mps")
        if accelerator == "gpu":
            raise ValueError("accelerator: expected a GPU, found none")
    return torch.device("cpu")


@contextlib.contextmanager
def _claimed(job: Job) -> Iterator[None]:
    """Reserve a run's folder for this process."""
    job.folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(job.folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(f"{job.folder}: another process trains this run") from None
    try:
        clear_remains(job.checkpoint)  # of killed processes
        yield
    finally:
        lock.release()


def explain(job: Job, error: Exception) -> str:
    """One line about an error; the traceback of an unexpected one goes into a file."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, (ValueError, OSError)):
        return text
    job.folder.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(".txt", "error-", job.folder)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.writelines(traceback.format_exception(error))
    path = job.folder / Path(name).name
    return f"{type(error).__name__}: {text[:300]} (traceback in {path})"


class Diverged(Exception):
    """The loss or the weights are not finite; the last checkpoint is of the epoch before."""

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
        Stored in the checkpoints.

    Attributes
    ----------
    history : dict of str to list of float
        Training loss and validation error of every epoch.
    seconds : float
        Time of all epochs, those before an interruption included.
    notes : list of str
        Remarks for the result, such as a resumption at another commit.
    """

    def __init__(self, job: Job, model: nn.Module, provenance: Provenance) -> None:
        self.job, self.model, self.provenance = job, model, provenance
        self.notes: list[str] = []
        self.history: dict[str, list[float]] = {name: [] for name in HISTORY}
        self.seconds = 0.0
        config = job.config
        kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[config.optimizer]
        # An optimiser refuses a model without parameters, which it has nothing to do with.
        weights = list(model.parameters()) or [torch.zeros(())]
        self.optimizer = kind(weights, lr=config.learning_rate, weight_decay=config.weight_decay)
        schedules = torch.optim.lr_scheduler
        self.schedule: torch.optim.lr_scheduler.LRScheduler = (
            schedules.StepLR(self.optimizer, config.step_size, config.gamma)
            if config.schedule == "step"
            else schedules.CosineAnnealingLR(self.optimizer, config.epochs)
        )
        self._device = device_of(model)

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
        """Train the remaining epochs, with a checkpoint after each; none of an `Untrained` model.

        Raises
        ------
        Diverged
        ValueError
            If a batch exceeds the training split.
        """
        if isinstance(self.model, Untrained):
            self.model.fit(train)
            return
        config = self.job.config
        if len(train) < config.batch_size:
            raise ValueError(
                f"batch_size: expected at most the {len(train)} training samples, "
                f"got {config.batch_size}"
            )
        for epoch in range(self.epochs, config.epochs):
            with tqdm(
                desc=f"Epoch {epoch + 1}/{config.epochs}",
                total=len(train) // config.batch_size,
                leave=epoch + 1 == config.epochs,
                disable=not progress,
            ) as bar:
                self._epoch(train, validation, bar)
                bar.set_postfix({name: f"{v[-1]:.3g}" for name, v in self.history.items()})
            self.save()
            if on_epoch is not None:
                on_epoch()

    def _epoch(self, train: TensorDataset, validation: TensorDataset, bar: tqdm[Any]) -> None:
        started = time.perf_counter()
        job = self.job
        torch.manual_seed(int(np.random.SeedSequence((job.seed, self.epochs)).generate_state(1)[0]))
        # Sums of the losses and of the errors, each with its number of samples.
        sums = torch.zeros(4, device=self._device)
        self.model.train()
        for batch in training_batches(job.config, train, job.seed, self.epochs):
            with self._watched():
                loss = job.experiment.loss(job.config, self.model, self._moved(batch))
            self.optimizer.zero_grad()
            loss.backward()
            if clip := job.config.gradient_clip:
                nn.utils.clip_grad_norm_(self.model.parameters(), clip)
            self.optimizer.step()
            sums[0] += loss.detach().to(sums.dtype) * len(batch[0])
            sums[1] += len(batch[0])
            bar.update()
        self.schedule.step()
        self.model.eval()
        for chosen in torch.arange(len(validation)).split(job.config.batch_size):
            with self._watched(), torch.no_grad():
                batch = self._moved(validation[chosen])
                errors = job.experiment.errors(job.config, self.model, batch)
            sums[2] += errors.to(sums.dtype).sum()
            sums[3] += len(errors)
        means = (sums[::2] / sums[1::2]).tolist()
        if not math.isfinite(means[0]):
            raise Diverged(self.epochs + 1)
        for values, mean in zip(self.history.values(), means, strict=True):
            values.append(mean)
        self.seconds += time.perf_counter() - started

    def _moved(self, batch: Batch) -> Batch:
        return tuple(tensor.to(self._device) for tensor in batch)

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """A ValueError from a model whose weights are not finite is a divergence.

        Scans refuse such weights. They are checked after an error only.
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
            "state_dict": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            STATE: {
                "settings": self.job.settings,
                "history": self.history,
                "seconds": self.seconds,
                "provenance": dataclasses.asdict(self.provenance),
                "notes": self.notes,
            },
        }
        # torch.save hides what the system says of a failed write.
        buffer = io.BytesIO()
        torch.save(content, buffer)
        with whole_file(self.job.checkpoint, force=True) as staged:
            staged.write_bytes(buffer.getbuffer())

    def restore(self) -> None:
        """Continue from the job's checkpoint.

        Raises
        ------
        ValueError
            If the file is damaged, no checkpoint of such a run, of other settings or, unless the
            job accepts them, other data; says why and which file to remove.
        """
        path = self.job.checkpoint
        found = load_checkpoint(path)
        try:
            state = found[STATE]
            there = Provenance.parse(state["provenance"])
            if differing := self.job.differences(state["settings"]):
                raise _refusal(path, f"checkpoint of other settings ({differing})")
            if not self.job.mixed and (differing := there.differences(self.provenance)):
                raise _refusal(
                    path,
                    f"checkpoint of other data ({differing})",
                    f", or continue from it with {ANYWAY}",
                )
            self.model.load_state_dict(found["state_dict"])
            self.optimizer.load_state_dict(found["optimizer"])
            self.schedule.load_state_dict(found["schedule"])
            self.history = {name: list(map(float, state["history"][name])) for name in HISTORY}
            self.seconds = float(state["seconds"])
            self.notes = list(state["notes"])
        except ValueError:
            raise
        # Content of another kind fails in many ways.
        except Exception as error:
            raise _refusal(path, f"checkpoint of another model ({_line(error)})") from error
        if note := there.note(self.provenance):
            self.notes.append(f"resumed after epoch {self.epochs}: {note}")


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Content of a checkpoint of `Training`; nothing in it is executed.

    Raises
    ------
    ValueError
        If the file is damaged or holds anything but tensors and plain values.
    """
    # The errors of zipfile and torch.load for a damaged file vary with the damage.
    try:
        with zipfile.ZipFile(path) as archive:
            if part := archive.testzip():
                raise ValueError(f"wrong checksum of its part {part}")
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise _refusal(path, f"damaged or foreign checkpoint ({_line(error)})") from error


def _refusal(path: Path, reason: str, more: str = "") -> ValueError:
    return ValueError(f"{path}: {reason}; remove {path} to start this run afresh{more}")


def _line(error: Exception) -> str:
    if isinstance(error, pickle.UnpicklingError):
        # Torch's message advises to load the file all the same, which would run its code.
        return "it holds more than tensors and plain values"
    text = str(error).partition("\n")[0]
    return text if " " in text else f"{type(error).__name__} {text}".rstrip()


def training_batches(
    config: Config, train: TensorDataset, seed: int, epoch: int
) -> Iterator[Batch]:
    """Batches of an epoch in random order; a last incomplete one is left out."""
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed + epoch))
    for chosen in order.split(config.batch_size)[: len(train) // config.batch_size]:
        yield train[chosen]
