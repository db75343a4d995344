"""The Hydra callback that prepares each job of PDEBench's runner.

Hydra copies a job's config before ``on_job_start``, so the model's name is rewritten earlier: in
``on_run_start``, or when a sweep composes the config of each job. ``args.registered_model`` keeps
the name that the user gave. At the start of the job the config is checked, and PDEBench's modules
are patched until its trainer returns.
"""

from __future__ import annotations

import importlib
import os
import random
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobRuntime
from hydra.errors import CompactHydraException
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from chonn_plugins.pdebench import arguments, processes, registry
from chonn_plugins.pdebench.contract import JobError
from chonn_plugins.pdebench.job import HOST_NAME, TAG, Job, resolve

if TYPE_CHECKING:
    from chonn_plugins.pdebench.patches import WholeSave
    from chonn_plugins.pdebench.training import Watch

RUNNER = "train_models_forward"


class PDEBenchCallback(Callback):
    """Resolve, check and patch each job of PDEBench's forward runner."""

    def __init__(self) -> None:
        self._undo: Callable[[], None] | None = None

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        """Rewrite the config of a single run."""
        _rewrite(config)

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:  # noqa: ARG002
        """Rewrite the config of every job that this application's sweep composes."""
        loader = GlobalHydra.instance().config_loader()
        compose = loader.load_sweep_config

        def load_sweep_config(*args: Any, **kwargs: Any) -> DictConfig:
            config = compose(*args, **kwargs)
            _rewrite(config)
            return config

        loader.load_sweep_config = load_sweep_config

    def on_job_start(
        self, config: DictConfig, *, task_function: Callable[..., Any] | None = None, **_: Any
    ) -> None:
        """Check the job and patch PDEBench; a job that cannot run ends the program with a message.

        Hydra ignores every `Exception` of a callback and would go on to train PDEBench's own model
        under the name of the registered one, hence SystemExit.
        """
        if not _is_runner(config):
            return
        self._restore()
        try:
            self._undo = start(config, task_function)
        except JobError as error:
            raise SystemExit(f"chonn-ops: {error}") from None
        except Exception:
            traceback.print_exc()
            raise SystemExit("chonn-ops: cannot prepare this job, see above") from None

    def on_job_end(self, config: DictConfig, job_return: Any, **_: Any) -> None:  # noqa: ARG002
        """Restore PDEBench's modules, also if its trainer was never called."""
        self._restore()

    def _restore(self) -> None:
        if self._undo is not None:
            self._undo()
            self._undo = None


def _is_runner(config: DictConfig) -> bool:
    named = JobRuntime.instance().get("name") == RUNNER
    return "args" in config and (named or os.environ.get("CHONN_PDEBENCH") == "always")


def _rewrite(config: DictConfig) -> None:
    if not _is_runner(config):
        return
    with read_write(config), open_dict(config):
        args = config.args
        if "data_path" not in args and "base_path" in args:
            args.data_path = args.base_path
        name = args.get("model_name")
        if not registry.is_registered(name):
            return
        try:
            family = registry.load(name).family
        except JobError:
            return  # `on_job_start` reports the error.
        args[TAG] = name
        args.model_name = HOST_NAME[family]


def start(config: DictConfig, runner: Callable[..., Any] | None = None) -> Callable[[], None]:
    """Check the job of this config and patch PDEBench for it; returns a function that undoes this.

    ``runner`` is the function of PDEBench that gets the config.
    """
    args = OmegaConf.to_container(config.args, resolve=True)
    assert isinstance(args, dict)
    job = resolve({str(k): v for k, v in args.items()})
    outside = [str(key) for key in config if key not in ("args", "hydra")]
    overrides = [str(override) for override in config.hydra.overrides.task]
    for line in arguments.check(job, outside, runner, overrides):
        _note(line)
    processes.join(job, sweep=config.hydra.get("mode") is RunMode.MULTIRUN)
    if job.family == "pinn":
        _announce(job, "PDEBench")
        return lambda: None
    return _patch(job, overrides)


def _patch(job: Job, overrides: list[str]) -> Callable[[], None]:
    from chonn_plugins.pdebench import patches, preflight, results
    from chonn_plugins.pdebench.training import Watch

    host = results.Host(
        train=importlib.import_module(f"pdebench.models.{job.family}.train"),
        metrics=importlib.import_module("pdebench.models.metrics"),
    )
    layout = preflight.check(job)
    _announce(job, host.name)
    if layout.walls_note:
        _note(layout.walls_note)

    undo = patches.Patches()
    train = host.train
    path = job.checkpoint(layout.frames)
    settings = job.settings(layout.space)
    save = patches.WholeSave(settings, replace=job.replaces)
    watch = Watch()
    try:
        patches.numpy_infty(undo, train)
        patches.grouped_reader(undo, train, job)
        patches.torch_functions(undo, train, save, watch)
        patches.loss_function(undo, train, watch)
        patches.model_builders(undo, train, job, layout, watch, save)
        if job.family == "fno":
            patches.rollouts(undo, train, job, layout, watch)
        results.collect(undo, host, job, layout, overrides)
        patches.training_call(undo, train, job, watch, _run(job, watch, save, path))
    except BaseException:
        undo.close()
        raise

    def restore() -> None:
        undo.close()
        processes.leave()

    return restore


@contextmanager
def _run(job: Job, watch: Watch, save: WholeSave, path: Path) -> Iterator[None]:
    """Context of PDEBench's trainer: an error becomes one line, and the program fails."""
    from chonn_plugins.pdebench.training import finite

    def saved() -> str:
        return f"{path} {'holds the best epoch before' if save.count else 'was not written'}"

    _seed(processes.agreed(job.seed))
    try:
        with finite(job, watch, saved), _quiet_unless_first():
            yield
    except JobError as error:
        message = f"chonn-ops: {error}"
        if HydraConfig.get().mode is not RunMode.MULTIRUN:
            raise SystemExit(message) from None
        # Hydra continues with the other jobs of a sweep and fails at its end.
        print(message, file=sys.stderr, flush=True)
        raise CompactHydraException(message) from None
    if job.training and not save.count:
        # PDEBench saves only when the validation loss improves, and does not report if it never
        # does.
        _note(
            f"{path} was not written: no epoch was left to train, or the validation loss did not "
            f"fall below that of the checkpoint that the training continued"
        )


@contextmanager
def _quiet_unless_first() -> Iterator[None]:
    first = processes.is_first()
    with open(os.devnull, "w") as nowhere, redirect_stdout(sys.stdout if first else nowhere):
        yield


def _note(line: str) -> None:
    if processes.is_first():
        print(f"chonn-ops: note: {line}", file=sys.stderr, flush=True)


def _announce(job: Job, host: str) -> None:
    import chonn_ops

    verb = "training" if job.training else "evaluating"
    with _quiet_unless_first():
        print(f"chonn-ops {chonn_ops.__version__}: {verb} {job.label} through {host}", flush=True)


def _seed(seed: int | None) -> None:
    if seed is None:
        return
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - PDEBench's dependencies use this generator
    torch.manual_seed(seed)
