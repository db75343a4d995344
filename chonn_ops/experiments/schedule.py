"""Many runs: which ones, in how many processes, and what became of them."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from tqdm import tqdm

from chonn_ops.experiments import get, overrides, pool, provenance
from chonn_ops.experiments.jobs import Job
from chonn_ops.experiments.records import Run
from chonn_ops.experiments.runs import execute, explain, say
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
            experiment_name=experiment,
            scale=overrides.folder_name(scale, base, values, precision),
            base=config,
            variant_name=name,
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


def _distributed() -> bool:
    return os.environ.get("WORLD_SIZE", "1") != "1"


@dataclasses.dataclass
class Finished:
    """Jobs that have ended: their runs, and why others have none."""

    runs: list[Run] = dataclasses.field(default_factory=list)
    failures: dict[Job, str] = dataclasses.field(default_factory=dict)

    def add(self, job: Job, run: Run, note: str = "") -> None:
        self.runs.append(run)
        if run.diverged:
            text = f"diverged: {run.diverged}"
        else:
            scores = run.metrics.get("test", {}).items()
            texts = (f"{name} {'-' if v is None else format(v, '.4g')}" for name, v in scores)
            text = f"{', '.join(texts)}; {run.seconds:.0f} s of training"
        say(f"{job.title}: {note}{text}")

    def fail(self, job: Job, reason: str) -> None:
        self.failures[job] = reason
        say(f"{job.title}: failed")


def run_all(jobs: Sequence[Job], workers: int) -> Finished:
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
    finished = Finished()
    waiting: list[Job] = []
    for job in jobs:
        if (run := job.finished()) is None:
            job.refuse_foreign()
            waiting.append(job)
        else:
            made = run.provenance
            note = made.note(provenance.here(job) if made.known else made)
            finished.add(job, run, f"finished before{f' ({note})' if note else ''}, ")
    for job in {job.variant_name: job for job in waiting}.values():
        job.prepare()
    if workers == 1:
        _run_here(waiting, finished)
    elif waiting:
        pool.run_in_workers(waiting, workers, finished)
    places = {(job.variant_name, job.seed): place for place, job in enumerate(jobs)}
    finished.runs.sort(key=lambda run: places[run.variant, run.seed])
    return finished


def _run_here(jobs: Sequence[Job], finished: Finished) -> None:
    costs = [job.variant.cost for job in jobs]
    started = time.monotonic()
    for index, job in enumerate(jobs):
        left = ""
        if done := sum(costs[:index]):
            seconds = (time.monotonic() - started) * sum(costs[index:]) / done
            left = f", about {tqdm.format_interval(seconds)} left"
        say(f"run {index + 1} of {len(jobs)}: {job.title}{left}")
        try:
            run = execute(job, progress=sys.stderr.isatty())
        except Exception as error:
            # The other processes of a distributed run would wait for this one.
            if _distributed():
                raise
            finished.fail(job, explain(job, error))
        else:
            if run is not None:
                finished.add(job, run)
