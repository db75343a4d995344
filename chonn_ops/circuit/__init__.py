"""Circuit theory of the paper's cells and of networks, with fixed coefficients, in NumPy and SciPy.

docs/theory.md names the function and the test of every equation of the paper's Methods.
"""

from chonn_ops.circuit._cascade import Cascade, DiscreteCascade
from chonn_ops.circuit._cell import BranchCurrents, DiscreteCell, RCCell
from chonn_ops.circuit._lattice import (
    attenuation,
    endless_conductance,
    grid,
    ladder,
    ladder_cell,
    length_scale,
)
from chonn_ops.circuit._network import ResistorNetwork
from chonn_ops.circuit._rational import TransferFunction

__all__ = [
    "BranchCurrents",
    "Cascade",
    "DiscreteCascade",
    "DiscreteCell",
    "RCCell",
    "ResistorNetwork",
    "TransferFunction",
    "attenuation",
    "endless_conductance",
    "grid",
    "ladder",
    "ladder_cell",
    "length_scale",
]
