"""Circuits that no model uses: directed networks, for advection, and cells with a state.

Names and results may change in any release.
"""

from chonn_ops.experimental.cells import LCNetworkCell, RCNetworkCell
from chonn_ops.experimental.directed import (
    advection_step,
    directed_network,
    upwind_conductance,
)

__all__ = [
    "LCNetworkCell",
    "RCNetworkCell",
    "advection_step",
    "directed_network",
    "upwind_conductance",
]
