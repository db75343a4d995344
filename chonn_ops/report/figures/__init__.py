"""The paper's panels from result files: `draw` writes those that the results allow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

from chonn_ops import _files
from chonn_ops.report.figures import _bars, _curves, _fields, _order1d, _style
from chonn_ops.report.results import Study, read_study


class Panel(NamedTuple):
    """A figure: its file name, caption, and the function that makes it or None without data."""

    name: str
    caption: str
    build: Callable[[Study], Figure | None]


_METRICS = Panel(
    "metrics.svg",
    "Error of every model in every metric on the test split, mean and standard deviation over the "
    "seeds. Lower is better.",
    _bars.metrics,
)
_GAINS = Panel(
    "gains.svg",
    "Error of CHONN over that of the better of U-Net and FNO, one metric at a time; bars to the "
    "left: CHONN's error is lower. Whiskers: standard error over the seeds.",
    _bars.gains,
)
_FIELDS = Panel(
    "fields.png",
    "First test sample, first seed, of at most six models: predictions above, absolute errors "
    "below, on one scale each.",
    _fields.maps,
)
_LEARNING = Panel(
    "learning.svg",
    "Training loss and validation error by epoch, and validation error by training time, of the "
    "baselines and the models that stand for the others. Bands: standard deviation over the seeds.",
    _curves.curves,
)
_ORDERS = Panel(
    "orders.svg",
    "Error by the order of the blocks, all else equal (0: the backbone without blocks), with the "
    "baselines as lines; paper's Fig. 4g.",
    _bars.orders,
)
_STEPS = Panel(
    "steps.svg",
    "Relative L2 error of every predicted frame, of recursive predictions (paper's Fig. 5f for "
    "Navier-Stokes) and, where there, of single ones. Bands: standard deviation over the seeds.",
    _curves.steps,
)
PANELS: dict[str, tuple[Panel, ...]] = {
    "order1d": (
        Panel(
            "order.svg",
            "Error on targets of order 1 to 4 (columns) by the order n of one block, and by the "
            "number n of stacked first-order blocks; paper's Fig. 3a.",
            _order1d.by_order,
        ),
        Panel(
            "reduction.svg",
            "How far the derivative error of a block of order n is below that of n first-order "
            "blocks; below zero it is above. Whiskers: standard error; paper's Fig. 3b.",
            _order1d.derivative_reduction,
        ),
        Panel(
            "parameters.svg",
            "Error against parameters: D1 to D5 are stacks of first-order blocks, 2x2 is two "
            "blocks of order 2, and so on; paper's Fig. 3c.",
            _order1d.parameters,
        ),
        Panel(
            "fields.svg",
            "First test sample, first seed: predictions and absolute errors.",
            _fields.maps,
        ),
        Panel(
            "learning.svg",
            "Validation error of the block whose order is the target's, beside as many "
            "first-order blocks, by epoch and by training time.",
            _curves.matched_orders,
        ),
    ),
    "darcy": (_METRICS, _GAINS, _ORDERS, _FIELDS, _LEARNING),
    "poisson": (
        _ORDERS,
        _METRICS,
        _FIELDS,
        _LEARNING,
    ),
    "shallow_water": (_METRICS, _GAINS, _STEPS, _FIELDS, _LEARNING),
    "navier_stokes": (
        Panel(
            "rollout.svg",
            "Relative L2 error averaged over the rollout, by the number of frames given; paper's "
            "Fig. 5e.",
            _curves.averages,
        ),
        _STEPS,
        _FIELDS,
        Panel(
            "learning.svg",
            "Validation error, that of whole rollouts, by epoch and by training time. Bands: "
            "standard deviation over the seeds.",
            _curves.histories,
        ),
    ),
}
# Of experiments of your own.
OTHER = (
    _METRICS,
    _FIELDS,
    _LEARNING._replace(
        caption="Training loss and validation error by epoch, and validation error by training "
        "time. Bands: standard deviation over the seeds."
    ),
)


def panels(experiment: str) -> tuple[Panel, ...]:
    """The panels of an experiment."""
    return PANELS.get(experiment, OTHER)


def refuse_foreign(experiment: str, output: Path) -> None:
    """Fail before any work if other programs' files are where the panels would be written.

    Raises
    ------
    FileExistsError
        Names the first of them.
    """
    _files.refuse_foreign(output / panel.name for panel in panels(experiment))


def draw(experiment: str, results: Path, output: Path, mixed: bool = False) -> list[Path]:
    """Draw an experiment's panels.

    Parameters
    ----------
    experiment : str
        Its name.
    results : Path
        A scale's folder with result files, or a file of several.
    output : Path
        Folder of the pictures, made if needed.
    mixed : bool
        As for `read_study`.

    Returns
    -------
    list of Path
        The files, in the order of the paper; panels without data are left out.

    Raises
    ------
    FileNotFoundError, ValueError
        If there are no results, they are damaged, mixed, or another experiment's.
    FileExistsError
        If a picture would replace another program's file.
    """
    study = read_study(results, mixed)
    if study.experiment != experiment:
        raise ValueError(f"{results}: expected runs of {experiment}, got {study.experiment}")
    return [path for _, path in draw_study(study, output)]


def draw_study(study: Study, output: Path) -> list[tuple[Panel, Path]]:
    """Draw the panels of a study and say which file is which."""
    output.mkdir(parents=True, exist_ok=True)
    drawn = []
    with _style.styled():
        for panel in panels(study.experiment):
            figure = panel.build(study)
            if figure is not None:
                drawn.append((panel, _style.save(figure, output / panel.name)))
    return drawn
