"""Many runs: which ones, of which settings, in how many processes, and what became of them."""

from __future__ import annotations

import dataclasses
import math
import os
import re
import sys
import time
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from chonn_ops.experiments import get, pool, provenance
from chonn_ops.experiments.base import Config
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
    values = parse_settings(base, assignments)
    config = dataclasses.replace(base, **values)
    known = [variant.name for variant in found.variants(config)]
    for name in variants:
        if name not in known:
            raise ValueError(f"variant: expected one of {', '.join(known)}, got {name!r}")
    return [
        Job(
            experiment_name=experiment,
            scale=folder_name(scale, base, values, precision),
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


def parse_settings(config: Config, assignments: Iterable[str]) -> dict[str, Any]:
    """Values by field from texts ``field=value``; tuples as ``10,5,3``.

    Raises
    ------
    ValueError
        For an unknown field, a value of another type, or one that the config refuses.
    """
    types = typing.get_type_hints(type(config))
    known = [field.name for field in dataclasses.fields(config)]
    values: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise ValueError(f"expected field=value, got {assignment!r}")
        if name not in known:
            raise ValueError(f"{name}: no such field, expected one of {', '.join(known)}")
        values[name] = _value(name, types[name], text)
    dataclasses.replace(config, **values)
    return values


def settings_texts(values: Mapping[str, Any]) -> list[str]:
    """What `parse_settings` reads as these values of numbers, texts and switches."""
    plain = {name: str(v).lower() if isinstance(v, bool) else v for name, v in values.items()}
    return [f"{name}={value}" for name, value in plain.items()]


def _value(name: str, kind: Any, text: str) -> Any:
    if typing.get_origin(kind) is tuple:
        item, *rest = typing.get_args(kind)
        if rest == [...] and item in _PARSERS:
            return tuple(_value(name, item, part) for part in text.split(","))
    if kind not in _PARSERS:
        raise ValueError(f"{name}: cannot be set from text")
    expected, parser = _PARSERS[kind]
    try:
        return parser(text)
    except (ValueError, KeyError):
        raise ValueError(f"{name}: expected {expected}, got {text!r}") from None


def _finite(text: str) -> float:
    # NaN passes every comparison with a bound, and is not equal to itself in a result file.
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


_PARSERS: dict[Any, tuple[str, Callable[[str], Any]]] = {
    int: ("an integer", int),
    float: ("a finite number", _finite),
    str: ("text", str),
    bool: ("true or false", lambda text: {"true": True, "false": False}[text.lower()]),
}


def folder_name(scale: str, config: Config, values: Mapping[str, Any], precision: str) -> str:
    """Name such as ``small+epochs=1,n_train=4``: results of different settings stay apart.

    Values that the scale has anyway leave no mark, nor does the seed, which names the runs.
    """
    marks = {
        name: value
        for name, value in values.items()
        if value != getattr(config, name) and name != "seed"
    }
    if precision != "32-true":
        marks["precision"] = precision
    text = ",".join(f"{name}={_plain(value)}" for name, value in sorted(marks.items()))
    return f"{scale}+{text}" if text else scale


def _plain(value: Any) -> str:
    items = value if isinstance(value, tuple) else (value,)
    return "-".join(re.sub(r"[^\w.+-]", "_", str(item)) for item in items)


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
    for job in {(job.variant_name, job.scale): job for job in waiting}.values():
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
