"""One run: a model trained from one seed, scored, and its numbers in a file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import lightning.pytorch as lightning
import torch
from filelock import FileLock, Timeout

from chonn_ops.experiments import _environment, _record, cost, provenance
from chonn_ops.experiments._ours import remove_staged
from chonn_ops.experiments._stopping import StopBetweenBatches
from chonn_ops.experiments._trainer import trainer
from chonn_ops.experiments.base import Evaluation
from chonn_ops.experiments.jobs import Job, Run
from chonn_ops.experiments.outcome import say
from chonn_ops.experiments.training import Diverged, Training, loaders


def execute(
    job: Job, *, progress: bool = False, on_epoch: Callable[[], object] | None = None
) -> dict[str, Any] | None:
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
    dict
        Content of the result file, without scores if the training diverged; None in the processes
        of a distributed run but the first.

    Raises
    ------
    ValueError, OSError
        For data, a checkpoint or a result that is damaged, of other settings, data or model code
        or not ours, and while another process trains the same run.
    """
    run = job.resolve()
    if (record := run.finished()) is not None:
        return record
    run.refuse_foreign()
    with _claimed(run):
        return _execute(run, progress, on_epoch)


def _execute(
    run: Run, progress: bool, on_epoch: Callable[[], object] | None
) -> dict[str, Any] | None:
    config, seed = run.config, run.job.seed
    _environment.reset_peak_memory()
    data = run.experiment.load(config, run.data)
    # Weights are the first thing drawn, the same in every process.
    lightning.seed_everything(seed, verbose=False)
    model = run.variant.build(config)
    size = cost.measure(model, run.experiment.example(config))

    origin = provenance.of(run, model, data)
    training = Training(run.experiment, config, model, seed, run.settings, origin)
    resumed = run.checkpoint.exists()
    if resumed:
        training.restore(run.checkpoint, run.job.mixed)
        for note in training.notes:
            say(f"{run.job.title}: {note}")
    stopping = StopBetweenBatches()
    fitter = trainer(
        config,
        run.folder,
        accelerator=run.job.accelerator,
        precision=run.job.precision,
        progress=progress,
        on_epoch=on_epoch,
        callbacks=[stopping],
    )
    batches = loaders(
        config, data.train, data.validation, seed, fitter.global_rank, fitter.world_size
    )
    diverged = None
    try:
        with stopping.watching():
            fitter.fit(
                training,
                *batches,
                ckpt_path=run.checkpoint if resumed else None,
                weights_only=True,
            )
    except Diverged as error:
        diverged = str(error)
    if not fitter.is_global_zero:
        return None
    device = fitter.strategy.root_device
    evaluation = Evaluation(metrics={})
    if diverged is None:
        with torch.no_grad():
            evaluation = run.experiment.evaluate(config, model.to(device).eval(), data)
    return _record.write(run, training, size, evaluation, device, diverged)


@contextlib.contextmanager
def _claimed(run: Run) -> Iterator[None]:
    """Keep a run's folder to this process, or to the processes of one ``torchrun``."""
    folder = run.folder
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
        remove_staged(folder, [run.checkpoint.name])
        remove_staged(folder.parent, [run.fields.name, run.result.name])
        yield
    finally:
        lock.release()
