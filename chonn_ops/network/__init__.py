"""Kirchhoff networks: grids of nodes solved by nodal analysis, on every backend of
`available_backends`."""

from chonn_ops.network._checks import ENDS
from chonn_ops.network._conductance import edge_conductance, wall_leak
from chonn_ops.network._network import NetworkInfo, kirchhoff_network
from chonn_ops.network._op import available_backends
from chonn_ops.network._rc import rc_step

__all__ = [
    "ENDS",
    "NetworkInfo",
    "available_backends",
    "edge_conductance",
    "kirchhoff_network",
    "rc_step",
    "wall_leak",
]
