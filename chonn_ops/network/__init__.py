"""Kirchhoff networks: grids of nodes solved by nodal analysis, on every backend of
`available_backends`."""

from chonn_ops.network.api import NetworkInfo, kirchhoff_network
from chonn_ops.network.circuit import Circuit, Currents
from chonn_ops.network.diffusion import diffusion
from chonn_ops.network.factorization import Factorization, factorize
from chonn_ops.network.graph import Graph
from chonn_ops.network.helmholtz import absorbing_layer, helmholtz
from chonn_ops.network.lc import LCState, lc_energy, lc_step
from chonn_ops.network.mesh import Mesh
from chonn_ops.network.operator import available_backends
from chonn_ops.network.raster import raster
from chonn_ops.network.rc import rc_step
from chonn_ops.network.volumes import FiniteVolumes

__all__ = [
    "Circuit",
    "Currents",
    "Factorization",
    "FiniteVolumes",
    "Graph",
    "LCState",
    "Mesh",
    "NetworkInfo",
    "absorbing_layer",
    "available_backends",
    "diffusion",
    "factorize",
    "helmholtz",
    "kirchhoff_network",
    "lc_energy",
    "lc_step",
    "raster",
    "rc_step",
]
