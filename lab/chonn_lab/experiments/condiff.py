"""Diffusion in rough log-normal media with a rough source, after ConDiff.

The data set's card is the docstring of `chonn_lab.problems.condiff`.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from chonn_lab.experiments.base import Data, Makers, consecutive
from chonn_lab.experiments.modules import Units
from chonn_lab.experiments.solvers import OwnScheme, Physics, corner_scheme
from chonn_lab.experiments.steady import Steady
from chonn_lab.problems import condiff

# The standard deviation of u is nearly this over R + 1, at every covariance and variance.
SPREAD = 0.06


@dataclasses.dataclass(kw_only=True)
class ConDiff(Steady):
    """Coefficient and source to solution.

    Models see all cells of the coefficient but the last row and column, as ConDiff's models do. At
    each node they get the four cells around it, the first of which is ConDiff's own input; copies
    stand for the missing ones. With that one alone networks had an error of 0.21 to 0.36 instead of
    0.165, and F-FNO the same 0.34 (cubic, variance 2). ConDiff's models minimise the L2 error
    itself and are compared by the relative one.

    Parameters
    ----------
    covariance, variance
        Of the logarithm of the coefficient, see the card.
    """

    covariance: str
    variance: float

    on_finer_grids: ClassVar[bool] = False
    fields_in: ClassVar[int] = 5
    coordinates = staticmethod(condiff.corners)
    physics: ClassVar[Physics] = Physics("coefficient and source", "centres")

    def __post_init__(self) -> None:
        super().__post_init__()
        condiff.check_medium(self.covariance, self.variance)

    @property
    def about_unit_size(self) -> Units:
        """Mean and deviation of the log-normal law, without the limits on the contrast."""
        mean = math.exp(self.variance / 2)
        deviation = mean * math.sqrt(math.expm1(self.variance))
        spread = SPREAD / (self.resolution + 1)
        return Units((*[mean] * 4, 0.0), (*[deviation] * 4, 1.0), 0.0, spread)

    def own_scheme(self) -> OwnScheme:
        return OwnScheme(corner_scheme)

    def makers(self, folder: Path) -> Makers:
        law: dict[str, Any] = {"covariance": self.covariance, "variance": self.variance}
        stem = Path(condiff.default_name(self.resolution, **law)).stem
        law |= {"n_samples": self.n_samples, "resolution": self.resolution}
        return self.files(folder, condiff.generate, {f"{stem}_{self.n_samples}.hdf5": law})

    def load(self, folder: Path) -> Data:
        (path,) = self.makers(folder)
        k, f, u = condiff.read(path, 0, self.n_samples)
        k = nn.functional.pad(k[:, :-1, :-1], [0, 1, 0, 1], mode="replicate")
        around = k[:, :-1, :-1], k[:, 1:, :-1], k[:, :-1, 1:], k[:, 1:, 1:]
        return consecutive(self, torch.stack((*around, f), dim=1), u[:, None])
