"""A launcher for Hydra on a Ray cluster: ``chonn-lab run ... -m hydra/launcher=ray``.

Hydra's own plugin for Ray does not work with current versions of Ray. On one machine
``hydra/launcher=joblib`` does, on a SLURM cluster ``hydra/launcher=submitit_slurm``.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, configure_log, filter_overrides, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict


class RayLauncher(Launcher):
    """Runs every job of a sweep as a task of Ray. Results and data are files that all share.

    Parameters
    ----------
    init : mapping
        Arguments of `ray.init`: ``+hydra.launcher.init.address=auto`` joins a running cluster; by
        default one starts on this machine.
    remote : mapping
        What a run needs and how often it is started again if its worker dies: options of
        `ray.remote`, such as ``num_gpus``. A run that is started again resumes at its checkpoint.
    """

    def __init__(self, init: DictConfig, remote: DictConfig) -> None:
        self.init, self.remote = init, remote

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        self.context, self.task, self.config = hydra_context, task_function, config

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Start all jobs and wait; one that fails does not stop the others."""
        import ray

        setup_globals()
        hydra = self.config.hydra
        configure_log(hydra.hydra_logging, hydra.verbose)
        Path(hydra.sweep.dir).mkdir(parents=True, exist_ok=True)
        jobs = []
        for place, overrides in enumerate(job_overrides):
            config = self.context.config_loader.load_sweep_config(self.config, list(overrides))
            with open_dict(config):
                config.hydra.job.id = f"ray_{initial_job_idx + place}"
                config.hydra.job.num = initial_job_idx + place
            print(f"#{initial_job_idx + place}: {' '.join(filter_overrides(overrides))}")
            jobs.append(config)
        started = not ray.is_initialized()
        if started:
            options: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False}
            ray.init(**{**options, **{str(name): value for name, value in self.init.items()}})
        try:
            work = ray.remote(_job).options(**self.remote)
            state = Singleton.get_state()
            waiting = [work.remote(self.context, config, self.task, state) for config in jobs]
            return ray.get(waiting)
        finally:
            if started:
                ray.shutdown()


def _job(
    context: HydraContext, config: DictConfig, task: TaskFunction, state: dict[Any, Any]
) -> JobReturn:
    """In a worker: run one job as Hydra's other launchers do."""
    setup_globals()
    Singleton.set_state(state)
    HydraConfig.instance().set_config(config)
    return run_job(
        hydra_context=context,
        task_function=task,
        config=config,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
    )


# A mapping, as Hydra loads this module in a way that dataclasses cannot be made in.
ConfigStore.instance().store(
    group="hydra/launcher",
    name="ray",
    node={
        "_target_": "hydra_plugins.chonn_ray.RayLauncher",
        "init": {},
        "remote": {"num_cpus": 1, "max_retries": 3},
    },
)
