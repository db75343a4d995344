"""Advection and Burgers' equation on a line, of PDEBench, without discretisation in time."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import ClassVar

from chonn_lab.experiments.base import Data, Makers, consecutive
from chonn_lab.experiments.rollout import Rollout
from chonn_lab.problems import advection, burgers


@dataclasses.dataclass(kw_only=True)
class Line(Rollout):
    """The last frames of a wave to the next frame, fed back over the horizon.

    Parameters
    ----------
    horizon : int
        Frames of a rollout; the file has `given` more, from t = 0 to 2.
    beta, nu : float
        Speed of advection; PDEBench's viscosity, or 0 for advection.
    """

    horizon: int
    beta: float
    nu: float

    given: ClassVar[int] = 10
    axes: ClassVar[int] = 1
    relative: ClassVar[bool] = True

    @property
    def frames(self) -> int:
        return self.given + self.horizon

    def makers(self, folder: Path) -> Makers:
        value = {"nu": self.nu} if self.nu else {"beta": self.beta}
        law = {"n_samples": self.n_samples, "resolution": self.resolution, "n_frames": self.frames}
        name = "_".join(f"{x:g}" for x in (*value.values(), *law.values()))
        make = (burgers if self.nu else advection).generate
        return {folder / f"{self.name}_{name}.hdf5": functools.partial(make, **law, **value)}

    def load(self, folder: Path) -> Data:
        (path,) = self.makers(folder)
        return consecutive(self, self.checked(path, advection.read(path, 0, self.n_samples)))
