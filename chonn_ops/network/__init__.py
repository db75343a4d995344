"""Kirchhoff networks: grids of nodes solved by nodal analysis, on every backend of
`available_backends`."""

from chonn_ops.network._checks import ENDS
from chonn_ops.network._conductance import edge_conductance, wall_leak
from chonn_ops.network.api import NetworkInfo, kirchhoff_network
from chonn_ops.network.directed import advection_step, directed_network, upwind_conductance
from chonn_ops.network.in_time import (
    LCState,
    edge_inductance,
    lc_energy,
    lc_step,
    rc_step,
    zero_current,
)
from chonn_ops.network.operator import available_backends

__all__ = [
    "ENDS",
    "LCState",
    "NetworkInfo",
    "advection_step",
    "available_backends",
    "directed_network",
    "edge_conductance",
    "edge_inductance",
    "kirchhoff_network",
    "lc_energy",
    "lc_step",
    "rc_step",
    "upwind_conductance",
    "wall_leak",
    "zero_current",
]
