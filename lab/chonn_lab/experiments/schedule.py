"""Many runs: the jobs of a comparison, and worker processes that carry them out."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import multiprocessing
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path

import torch
from tqdm import tqdm

from chonn_lab.experiments import get, provenance
from chonn_lab.experiments.jobs import Job, folder_name, parse_settings
from chonn_lab.experiments.records import Run
from chonn_lab.experiments.training import execute, explain
from chonn_lab.problems.workers import end_with_parent, usable_cores, worker_environment


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
    mixed: bool = False,
) -> list[Job]:
    """Jobs of a comparison: every variant, or the named ones, for each seed.

    Raises
    ------
    ValueError
        For an unknown experiment, scale, variant or field; states the known ones.
    """
    found = get(experiment)
    if scale not in found.scales:
        raise ValueError(f"scale: expected one of {', '.join(found.scales)}, got {scale!r}")
    base = found.scales[scale]
    values = parse_settings(base, assignments)
    config = dataclasses.replace(base, **values)
    known = [variant.name for variant in found.variants(config)]
    for name in variants:
        if name not in known:
            raise ValueError(f"variant: expected one of {', '.join(known)}, got {name!r}")
    return [
        Job(
            experiment_name=experiment,
            scale=folder_name(scale, base, values),
            base=config,
            variant_name=name,
            seed=config.seed + index,
            output=output,
            data=data,
            overrides=values,
            accelerator=accelerator,
            mixed=mixed,
        )
        for index in range(seeds)
        for name in known
        if not variants or name in variants
    ]


def default_workers(accelerator: str) -> int:
    """One process for each core on CPUs, one alone on a GPU."""
    gpu = accelerator == "gpu" or (accelerator == "auto" and torch.cuda.is_available())
    return 1 if gpu else usable_cores()


@dataclasses.dataclass
class Finished:
    """Jobs that have ended: the runs of some, the errors of others."""

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
        tqdm.write(f"{job.title}: {note}{text}")

    def fail(self, job: Job, reason: str) -> None:
        self.failures[job] = reason
        tqdm.write(f"{job.title}: failed")


def run_all(jobs: Sequence[Job], workers: int) -> Finished:
    """Run the jobs that have not finished; one failure does not stop the others.

    Parameters
    ----------
    jobs : sequence of Job
    workers : int
        Processes, of one thread each; with 1 everything happens in this one.

    Raises
    ------
    ValueError
        Before anything runs, if a result of other settings or data is in the way.
    """
    finished = Finished()
    waiting: list[Job] = []
    for job in jobs:
        if (run := job.finished()) is None:
            waiting.append(job)
        else:
            note = run.provenance.note(provenance.of(job))
            finished.add(job, run, f"finished before{f' ({note})' if note else ''}, ")
    for job in {(job.variant_name, job.scale): job for job in waiting}.values():
        job.prepare()
    if workers == 1:
        _run_here(waiting, finished)
    elif waiting:
        _Pool(waiting, finished).run(min(workers, len(waiting)))
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
        tqdm.write(f"run {index + 1} of {len(jobs)}: {job.title}{left}")
        try:
            finished.add(job, execute(job, progress=sys.stderr.isatty()))
        except Exception as error:
            finished.fail(job, explain(job, error))


class _Worker:
    """A process and its job."""

    def __init__(self) -> None:
        # Spawned, not forked: torch's threads are running in the parent.
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=_work, args=(other,), daemon=True)
        with worker_environment():
            self.process.start()
        # Only the worker keeps this end open, so that its death ends `receive`.
        other.close()

    def give(self, job: Job) -> None:
        self.job = job
        # If the process is dead already, the next `receive` says so.
        with contextlib.suppress(OSError):
            self.connection.send(job)

    def receive(self) -> Run | str | None:
        """A result, the reason of a failure, or None at the end of an epoch."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode or 0
            cause = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
            hint = ", perhaps for lack of memory" if cause == "SIGKILL" else ""
            return f"its process was ended by {cause}{hint}"

    def close(self) -> None:
        self.connection.close()
        self.process.join()


class _Pool:
    """Worker processes of one thread each, with one progress bar; the longest jobs start first.

    A worker that dies loses one run and is replaced. No worker outlives `run`.
    """

    def __init__(self, jobs: Sequence[Job], finished: Finished) -> None:
        # Remaining cost of every run that has not ended.
        self._left = {job: job.variant.cost for job in jobs}
        self._waiting = sorted(jobs, key=self._left.__getitem__, reverse=True)
        self._finished = finished
        self._workers: dict[Connection, _Worker] = {}
        self._total = len(jobs)
        self._bar = tqdm(
            desc=f"0 of {len(jobs)} runs   0%",
            total=math.fsum(self._left.values()),
            bar_format="{desc}|{bar}| {elapsed}<{remaining}",
            mininterval=0.1 if sys.stderr.isatty() else 60,
        )

    def run(self, count: int) -> None:
        try:
            with self._bar:
                for _ in range(count):
                    self._start()
                while self._workers:
                    for connection in wait(list(self._workers)):
                        self._receive(self._workers[connection])  # pyright: ignore
        finally:
            # A run that is killed resumes at its last whole epoch.
            for worker in self._workers.values():
                worker.process.kill()
            for worker in self._workers.values():
                worker.close()

    def _start(self) -> None:
        worker = _Worker()
        self._workers[worker.connection] = worker
        worker.give(self._waiting.pop(0))

    def _receive(self, worker: _Worker) -> None:
        message, job = worker.receive(), worker.job
        if message is None:
            # The scores at the end take about as long as an epoch.
            step = min(self._left[job], job.variant.cost / (job.config.epochs + 1))
            self._left[job] -= step
            self._describe(step)
            self._bar.update(step)
            return
        self._end(job)
        if isinstance(message, str):
            self._finished.fail(job, message)
        else:
            self._finished.add(job, message)
        if self._waiting and worker.process.is_alive():
            worker.give(self._waiting.pop(0))
        else:
            del self._workers[worker.connection]
            worker.close()
            if self._waiting:
                self._start()

    def _end(self, job: Job) -> None:
        # Epochs of an earlier session, or after a failure, took no time in this one.
        del self._left[job]
        total = self._bar.n + math.fsum(self._left.values())
        if self._left:
            self._bar.total = total
        else:
            # Complete even if nothing had to be trained.
            self._bar.n = self._bar.total = total or 1
        self._describe()
        self._bar.refresh()

    def _describe(self, step: float = 0.0) -> None:
        """Show the runs that have ended and the percentage of the work, 100 only at the end."""
        done = self._total - len(self._left)
        percent = math.floor(100 * (self._bar.n + step) / self._bar.total)
        percent = 100 if not self._left else min(percent, 99)
        self._bar.set_description_str(f"{done} of {self._total} runs {percent:3d}%", refresh=False)


def _work(connection: Connection) -> None:
    """Run jobs until the parent closes the connection."""
    # An orphan would hold the lock of a run that the next command resumes.
    end_with_parent()
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        try:
            answer = execute(job, on_epoch=lambda: connection.send(None))
        except Exception as error:
            answer = explain(job, error)
        connection.send(answer)
