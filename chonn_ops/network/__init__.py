"""Kirchhoff networks: grids of nodes solved by nodal analysis, on every backend of
`available_backends`."""

from chonn_ops.network._checks import ENDS
from chonn_ops.network._coils import LCState, edge_inductance, zero_current
from chonn_ops.network._conductance import edge_conductance, wall_leak
from chonn_ops.network._directed import directed_network
from chonn_ops.network._lc import lc_energy, lc_step
from chonn_ops.network._network import NetworkInfo, kirchhoff_network
from chonn_ops.network._op import available_backends
from chonn_ops.network._rc import rc_step
from chonn_ops.network._upwind import advection_step, upwind_conductance

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
