"""Many runs: which ones, and in how many processes."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from chonn_ops.experiments import get, overrides, provenance
from chonn_ops.experiments._pool import run_in_workers
from chonn_ops.experiments.jobs import Job
from chonn_ops.experiments.outcome import Outcome, explain, say
from chonn_ops.problems._workers import usable_cores


def plan(
    experiment: str,
    scale: str,
    *,
    output: Path,
    data: Path,
    seeds: int = 1,
    variants: Sequence[str] = (),
    assignments: Iterable[str] = (),
    accelerator: str = "auto",
    precision: str = "32-true",
    mixed: bool = False,
) -> list[Job]:
    """Jobs of a comparison: every variant, or those named, from so many seeds.

    Raises
    ------
    ValueError
        For an unknown experiment, scale, variant or field; states the known ones.
    """
    found = get(experiment)
    if scale not in found.scales:
        raise ValueError(f"scale: expected one of {', '.join(found.scales)}, got {scale!r}")
    base = found.scales[scale]
    values = overrides.parse(base, assignments)
    config = dataclasses.replace(base, **values)
    known = [variant.name for variant in found.variants(config)]
    for name in variants:
        if name not in known:
            raise ValueError(f"variant: expected one of {', '.join(known)}, got {name!r}")
    return [
        Job(
            experiment=experiment,
            scale=overrides.folder_name(scale, base, values, precision),
            config=config,
            variant=name,
            seed=config.seed + index,
            output=output,
            data=data,
            overrides=values,
            accelerator=accelerator,
            precision=precision,
            mixed=mixed,
        )
        for index in range(seeds)
        for name in known
        if not variants or name in variants
    ]


def default_workers(accelerator: str) -> int:
    """A process for each core on CPUs; one on GPUs, and in a distributed run."""
    gpu = accelerator == "gpu" or (accelerator == "auto" and torch.cuda.is_available())
    if gpu or _distributed():
        return 1
    return usable_cores()


def run_all(jobs: Sequence[Job], workers: int) -> Outcome:
    """Run what has not run yet; one failure does not stop the others.

    Parameters
    ----------
    jobs : sequence of Job
    workers : int
        Processes, of one thread each; with 1 everything happens in this one.

    Raises
    ------
    ValueError, FileExistsError
        Before anything runs, if a result of other settings, data or model code or a file that is
        not ours is in the way; for several workers in a distributed run.
    """
    if workers > 1 and _distributed():
        raise ValueError(f"jobs: expected 1 in a distributed run, got {workers}")
    outcome = Outcome()
    waiting: list[Job] = []
    for job in jobs:
        record = job.resolve().finished()
        if record is None:
            job.resolve().refuse_foreign()
            waiting.append(job)
        else:
            outcome.add(job, record, f"finished before{_noted(job, record)}, ")
    for job in {job.variant: job for job in waiting}.values():
        job.resolve().prepare()
    if workers == 1:
        _run_here(waiting, outcome)
    elif waiting:
        run_in_workers(waiting, workers, outcome)
    places = {(job.variant, job.seed): place for place, job in enumerate(jobs)}
    outcome.records.sort(key=lambda record: places[record["variant"], record["seed"]])
    return outcome


def _noted(job: Job, record: dict[str, Any]) -> str:
    """In words, if a finished run was not of what is here now."""
    now = provenance.here(job.resolve()) if provenance.known(record) else {}
    note = provenance.note(record, now)
    return f" ({note})" if note else ""


def _distributed() -> bool:
    return os.environ.get("WORLD_SIZE", "1") != "1"


def _run_here(jobs: Sequence[Job], outcome: Outcome) -> None:
    from chonn_ops.experiments.runs import execute

    costs = [job.resolve().variant.cost for job in jobs]
    started = time.monotonic()
    for index, job in enumerate(jobs):
        left = ""
        if done := sum(costs[:index]):
            seconds = (time.monotonic() - started) * sum(costs[index:]) / done
            left = f", about {tqdm.format_interval(seconds)} left"
        say(f"run {index + 1} of {len(jobs)}: {job.title}{left}")
        try:
            record = execute(job, progress=sys.stderr.isatty())
        except Exception as error:
            # The other processes of a distributed run would wait for this one.
            if _distributed():
                raise
            outcome.fail(job, explain(job, error))
        else:
            if record is not None:
                outcome.add(job, record)
