"""``chonn-lab run`` and ``chonn-lab search``, which Hydra carries out."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

log = logging.getLogger(__name__)


@contextlib.contextmanager
def _denormals_flushed() -> Iterator[None]:
    """Numbers below 1e-38 are zeros in this thread. A saturated SiLU gives many, with which
    products of matrices take ten times as long."""
    import torch

    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def _run(config: DictConfig) -> None:
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    from chonn_lab.experiments import runner

    folder = Path(HydraConfig.get().runtime.output_dir)
    try:
        with _denormals_flushed():
            found = runner.run(config, folder)
    except Exception as error:
        # Of several runs that fail, Hydra raises only the first one's error.
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            log.error("%s: %s", folder, " ".join(str(error).split()))
        raise
    if found.diverged:
        text = f"diverged: {found.diverged}"
    else:
        scores = found.metrics["test"].items()
        texts = (f"{name} {'-' if v is None else format(v, '.4g')}" for name, v in scores)
        text = f"{', '.join(texts)}; {found.seconds:.0f} s of training"
    print(f"{found.experiment}, {found.variant} seed {found.seed}: {text}")


def _search(config: DictConfig) -> None:
    from chonn_lab.experiments.search import search

    with _denormals_flushed():
        path = search(config)
    print(f"wrote {path}")


TASKS = {"run": _run, "search": _search}


def run_hydra(name: str, arguments: Sequence[str]) -> None:
    """The command of this name: train and score one model, or many with ``-m``, or choose the
    settings of one; the arguments are Hydra's."""
    import hydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from chonn_lab.experiments.configuration import CONF

    # Problems and models of your own are found beside your conf/, as `python -m` finds them.
    sys.path.insert(0, str(Path.cwd()))
    # Hydra's parser takes overrides on one side of -m only.
    given = sorted(arguments, key=lambda text: text not in ("-m", "--multirun"))
    # As ``--cfg job`` prints them, settings are values, not what chooses them.
    if "job" in given:
        given.append("--resolve")
    sys.argv = [f"chonn-lab {name}", *given]
    main: Any = hydra.main(version_base="1.3", config_path=f"pkg://{CONF}", config_name=name)(
        TASKS[name]
    )
    # Errors are raised, which the command prints in a line, not printed with a part of their trace.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        main()
    except (HydraException, OmegaConfBaseException) as error:
        raise ValueError(str(error)) from error
