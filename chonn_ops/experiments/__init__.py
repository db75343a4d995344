"""The paper's experiments and further ones: what they compare, how a run becomes a file of results.

`get` finds an experiment. A run goes this way: `base` says what an experiment is, `schedule` plans
`jobs` of what is set and shares them out, `runs` carries one out (`training`), `records` are its
files with its `provenance` (`fingerprint`: of the model's code).
What the files show is for `chonn_ops.report`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chonn_ops.experiments.base import Experiment

PAPERS = ("order1d", "darcy", "poisson", "shallow_water", "navier_stokes")
# In `chonn_ops.experiments.elliptic`.
FURTHER = ("fno_darcy", "darcy_contrast", "darcy_lognormal", "helmholtz", "darcy3d")
EXPERIMENTS = PAPERS + FURTHER


def get(name: str) -> Experiment[Any]:
    """An experiment by its name, or your own `Experiment` object as ``"module:attribute"``.

    Raises
    ------
    ValueError
        If there is none of this name; states the known ones.
    """
    from chonn_ops.experiments.base import Experiment

    if name not in EXPERIMENTS and ":" not in name:
        known = ", ".join(EXPERIMENTS)
        raise ValueError(f"experiment: expected one of {known}, or module:attribute, got {name!r}")
    module, _, attribute = name.partition(":")
    if not attribute:
        if name in FURTHER:
            return importlib.import_module(f"{__name__}.elliptic").EXPERIMENTS[name]
        module, attribute = f"{__name__}.{name}", "EXPERIMENT"
    experiment = getattr(importlib.import_module(module), attribute, None)
    if not isinstance(experiment, Experiment):
        raise ValueError(f"experiment: expected {name!r} to be an Experiment, got {experiment!r}")
    return experiment
