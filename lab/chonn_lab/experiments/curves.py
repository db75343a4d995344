"""Trainings of one model on more and more samples, and for more and more seconds."""

from collections.abc import Iterator
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from chonn_lab.experiments.records import Run
from chonn_lab.experiments.runner import run


def curves(config: DictConfig, folder: Path) -> Iterator[Run]:
    """Train and score, or read what is finished; each result is in a file of `folder`.

    `config` is what conf/curves.yaml composes. The shortest trainings are the first. Errors are
    those of `chonn_lab.experiments.runner.run`.
    """
    every, settings = config.problem.n_train, config.curves
    points = {(n, settings.at) for n in settings.samples} | {(every, s) for s in settings.seconds}
    for samples, seconds in sorted(points, key=lambda point: point[::-1]):
        changed = config.copy()
        OmegaConf.update(changed, "train", {"samples": samples, "seconds": seconds})
        name = f"{config.model.name}-n{samples}-s{seconds:g}-seed{config.seed}"
        yield run(changed, folder / name)
