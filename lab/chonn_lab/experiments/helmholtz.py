"""Helmholtz' equation, an indefinite problem: here a model of networks must fail."""

from __future__ import annotations

from typing import ClassVar

from chonn_lab.experiments.darcy import Box, BoxConfig, Darcy, scales_of
from chonn_lab.experiments.modules import Units
from chonn_lab.experiments.solvers import Physics
from chonn_lab.problems import helmholtz


class Helmholtz(Box):
    """Wave number to wave.

    The inverse of a network's matrix has no negative entry, so a positive source gives a solution
    without negative values. About two thirds of the absolute value of these solutions is negative,
    and no field without negative values has a relative L1 error below that.
    """

    name = "helmholtz"
    title = "Helmholtz equation"
    problem = helmholtz
    physics: ClassVar[Physics] = Physics("wave number", "centres")
    units: ClassVar[Units] = Units(15.0, 3.0, -0.004, 0.018)
    metrics: ClassVar[tuple[str, ...]] = Darcy.metrics
    searched: ClassVar[tuple[str, ...]] = (Darcy.name,)
    scales = scales_of(BoxConfig, smoke={}, small={}, paper={"resolution": 64})


EXPERIMENT = Helmholtz()
