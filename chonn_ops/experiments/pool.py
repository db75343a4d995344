"""Runs in worker processes of one thread each, with one progress bar for all."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import signal
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from chonn_ops.experiments.jobs import Job
from chonn_ops.experiments.records import Run
from chonn_ops.experiments.runs import execute, explain
from chonn_ops.problems._workers import end_with_parent, worker_environment

if TYPE_CHECKING:
    from chonn_ops.experiments.schedule import Finished

# Spawned, not forked: torch's threads are running in the parent.
_CONTEXT = multiprocessing.get_context("spawn")


def run_in_workers(jobs: Sequence[Job], workers: int, finished: Finished) -> None:
    """Run jobs, the longest first; no process outlives the call.

    A worker that dies takes one run with it, and another one takes its place.
    """
    _Pool(jobs, finished).run(min(workers, len(jobs)))


class _Worker:
    """A process and its job."""

    def __init__(self) -> None:
        self.connection, other = _CONTEXT.Pipe()
        self.process = _CONTEXT.Process(target=_work, args=(other,), daemon=True)
        with worker_environment():
            self.process.start()
        # Now only the worker has this end: when it dies, reading from ours fails.
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
            return f"its process was ended by {_cause(self.process.exitcode or 0)}"

    def close(self) -> None:
        self.connection.close()
        self.process.join()


def _cause(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    name = signal.Signals(-code).name
    return f"{name}, perhaps for lack of memory" if name == "SIGKILL" else name


class _Pool:
    def __init__(self, jobs: Sequence[Job], finished: Finished) -> None:
        # Of every run that has not ended, what is left of it.
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
        self._give(worker)

    def _give(self, worker: _Worker) -> None:
        worker.give(self._waiting.pop(0))

    def _receive(self, worker: _Worker) -> None:
        message = worker.receive()
        if message is None:
            job, left = worker.job, self._left[worker.job]
            # The scores at the end take about as long as an epoch.
            step = min(left, job.variant.cost / (job.config.epochs + 1))
            self._left[job] = left - step
            self._describe(step)
            self._bar.update(step)
            return
        self._end(worker.job)
        if isinstance(message, str):
            self._finished.fail(worker.job, message)
        else:
            self._finished.add(worker.job, message)
        if self._waiting and worker.process.is_alive():
            self._give(worker)
            return
        del self._workers[worker.connection]
        worker.close()
        if self._waiting:
            self._start()

    def _end(self, job: Job) -> None:
        # Epochs of an earlier part of the run, or that a failure left out, took no time now.
        del self._left[job]
        total = self._bar.n + math.fsum(self._left.values())
        if self._left:
            self._bar.total = total
        else:
            # Complete, also where nothing had to be trained.
            self._bar.n = self._bar.total = total or 1
        self._describe()
        self._bar.refresh()

    def _describe(self, step: float = 0.0) -> None:
        """Runs that have ended, and per cent of the work: not 100 before all of it is done."""
        done = self._total - len(self._left)
        percent = math.floor(100 * (self._bar.n + step) / self._bar.total)
        percent = 100 if not self._left else min(percent, 99)
        text = f"{done} of {self._total} runs {percent:3d}%"
        self._bar.set_description_str(text, refresh=False)


def _work(connection: Any) -> None:
    """Run jobs until the parent closes the connection."""
    # Before it is started again and trains the same run.
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
