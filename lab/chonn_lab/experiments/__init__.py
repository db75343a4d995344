"""The paper's experiments and further ones: what they compare, and how a run becomes a result file.

`get` finds an experiment. `base` defines what an experiment is; `schedule` plans `jobs` and gives
them to worker processes; `training` carries one out; `records` is its result file, with the
`provenance` of data and code. `chonn_lab.report` reads the files.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chonn_lab.experiments.base import Experiment

_PLACES = {
    "order1d": "order1d:EXPERIMENT",
    "darcy": "darcy:EXPERIMENT",
    "poisson": "poisson:EXPERIMENT",
    "shallow_water": "shallow_water:EXPERIMENT",
    "navier_stokes": "navier_stokes:EXPERIMENT",
    "fno_darcy": "darcy:FNO",
    "darcy_contrast": "darcy:CONTRAST",
    "darcy_lognormal": "darcy:LOGNORMAL",
    "darcy_loguniform": "darcy:LOGUNIFORM",
    "condiff": "condiff:EXPERIMENT",
    "helmholtz": "helmholtz:EXPERIMENT",
    "helmholtz_open": "helmholtz:OPEN",
    "maze": "maze:EXPERIMENT",
}
EXPERIMENTS = tuple(_PLACES)
FURTHER = EXPERIMENTS[5:]  # those that are not the paper's
FURTHER_STEADY = FURTHER[:-1]  # those without time


def get(name: str) -> Experiment[Any]:
    """An experiment by its name, or your own `Experiment` object as ``"module:attribute"``.

    Raises
    ------
    ValueError
        If there is none of this name; states the known ones.
    """
    from chonn_lab.experiments.base import Experiment

    if name not in _PLACES and ":" not in name:
        known = ", ".join(EXPERIMENTS)
        raise ValueError(f"experiment: expected one of {known}, or module:attribute, got {name!r}")
    place = f"{__name__}.{_PLACES[name]}" if name in _PLACES else name
    module, _, attribute = place.partition(":")
    experiment = getattr(importlib.import_module(module), attribute, None)
    if not isinstance(experiment, Experiment):
        raise ValueError(f"experiment: expected {name!r} to be an Experiment, got {experiment!r}")
    return experiment
