"""One run: a model trained from one seed, scored, and its numbers in a file."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import datetime
import os
import random
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from filelock import FileLock, Timeout
from torch import nn
from tqdm import tqdm

from chonn_ops._files import clear_remains, own_file, refuse_foreign, seal
from chonn_ops.experiments import provenance
from chonn_ops.experiments.base import Evaluation, processes
from chonn_ops.experiments.jobs import Job
from chonn_ops.experiments.records import Run
from chonn_ops.experiments.training import Diverged, Training
from chonn_ops.models import cost


def execute(
    job: Job, *, progress: bool = False, on_epoch: Callable[[], object] | None = None
) -> Run | None:
    """Train and score, or take up where an interrupted run stopped, or read a finished one.

    Parameters
    ----------
    job : Job
    progress : bool
        A bar of the batches of every epoch.
    on_epoch : callable, optional
        Called at the end of every epoch of this part of the run.

    Returns
    -------
    Run
        Without scores if the training diverged; None in the processes of a distributed run but the
        first.

    Raises
    ------
    ValueError, OSError
        For data, a checkpoint or a result that is damaged, of other settings, data or model code
        or not ours, and while another process trains the same run.
    """
    if (run := job.finished()) is not None:
        return run
    refuse_foreign([job.checkpoint, job.fields])
    with _claimed(job):
        return _execute(job, progress, on_epoch)


def _execute(job: Job, progress: bool, on_epoch: Callable[[], object] | None) -> Run | None:
    provenance.reset_peak_memory()
    data = job.experiment.load(job.config, job.data_folder)
    device = place(job.accelerator)
    # Weights are the first thing drawn, the same in every process.
    seed_everything(job.seed)
    model = job.variant.build(job.config)
    size = cost.measure(model, job.experiment.example(job.config))
    made = provenance.of(job, model, data)
    rank, world = processes()
    if world > 1 and device.type == "cuda":
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    training = Training(job, model.to(device), made)
    if job.checkpoint.exists():
        training.restore()
        for note in training.notes:
            say(f"{job.title}: {note}")
    diverged, evaluation = None, Evaluation(metrics={})
    try:
        training.fit(data.train, data.validation, progress=progress, on_epoch=on_epoch)
    except Diverged as error:
        diverged = str(error)
    if rank > 0:
        return None
    if diverged is None:
        with torch.no_grad():
            evaluation = job.experiment.evaluate(job.config, model.eval(), data)
    if evaluation.fields:
        arrays = {name: field.cpu().numpy() for name, field in evaluation.fields.items()}
        with own_file(job.fields) as staged:
            with open(staged, "wb") as file:
                np.savez_compressed(file, allow_pickle=False, **arrays)
            seal(staged)
    # Last, since it says that the run is finished.
    return Run(
        experiment=job.experiment.name,
        title=job.experiment.title,
        scale=job.scale,
        variant=job.variant.name,
        label=job.variant.label,
        tags=dict(job.variant.tags),
        seed=job.seed,
        config=dataclasses.asdict(job.config),
        precision=job.precision,
        versions=provenance.versions(),
        hardware=provenance.hardware(device),
        changes=sorted(job.variant.changes),
        **made.record(),
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
        peak_memory_mib=provenance.peak_memory_mib(device),
    ).write(job.result)


def seed_everything(seed: int) -> None:
    """Seed the global generators of Python, NumPy and PyTorch."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)


def place(accelerator: str) -> torch.device:
    """The device of this process, which joins the others of its ``torchrun``.

    Raises
    ------
    ValueError
        If a GPU is asked for and there is none.
    """
    device = torch.device("cpu")
    if accelerator != "cpu":
        if torch.cuda.is_available():
            device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
            torch.cuda.set_device(device)
        elif torch.backends.mps.is_available():
            device = torch.device("mps")
        elif accelerator == "gpu":
            raise ValueError("accelerator: expected a GPU, found none")
    if os.environ.get("WORLD_SIZE", "1") != "1" and not dist.is_initialized():
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        atexit.register(dist.destroy_process_group)
    return device


@contextlib.contextmanager
def _claimed(job: Job) -> Iterator[None]:
    """Keep a run's folder to this process, or to the processes of one ``torchrun``."""
    folder = job.folder
    folder.mkdir(parents=True, exist_ok=True)
    if os.environ.get("RANK", "0") != "0":
        yield
        return
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(f"{folder}: another process trains this run") from None
    try:
        clear_remains(job.checkpoint)  # of killed processes
        yield
    finally:
        lock.release()


def say(text: str) -> None:
    """A line on standard output, above any progress bar, from the first process only."""
    if os.environ.get("RANK", "0") == "0":
        tqdm.write(text)


def explain(job: Job, error: Exception) -> str:
    """One line; the traceback of an error that is not the user's goes into a file."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, (ValueError, OSError)):
        return text
    job.folder.mkdir(parents=True, exist_ok=True)
    # A new file each time: nothing of the user's has this name.
    descriptor, name = tempfile.mkstemp(".txt", "error-", job.folder)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.writelines(traceback.format_exception(error))
    path = job.folder / Path(name).name
    return f"{type(error).__name__}: {text[:300]} (traceback in {path})"
