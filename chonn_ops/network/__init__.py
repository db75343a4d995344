"""Kirchhoff networks: grids of nodes solved by nodal analysis, on every backend of
`available_backends`."""

from chonn_ops.network import laws
from chonn_ops.network.circuit import Circuit
from chonn_ops.network.circuit import Currents as Currents
from chonn_ops.network.circuit import NetworkInfo as NetworkInfo
from chonn_ops.network.discretise.diffusion import diffusion
from chonn_ops.network.discretise.helmholtz import absorbing_layer, helmholtz
from chonn_ops.network.discretise.mesh import Mesh
from chonn_ops.network.discretise.raster import raster
from chonn_ops.network.discretise.steps import LCState, lc_energy, lc_step, rc_step
from chonn_ops.network.discretise.volumes import FiniteVolumes
from chonn_ops.network.factorization import Factorization as Factorization
from chonn_ops.network.layout import Grid
from chonn_ops.network.layout.graph import Graph
from chonn_ops.network.nonlinear import NonlinearCircuit
from chonn_ops.network.solve.methods import Auto, Direct, Iterative
from chonn_ops.network.solve.operator import available_backends as available_backends

__all__ = [
    "Auto",
    "Circuit",
    "Direct",
    "FiniteVolumes",
    "Graph",
    "Grid",
    "Iterative",
    "LCState",
    "Mesh",
    "NonlinearCircuit",
    "absorbing_layer",
    "diffusion",
    "helmholtz",
    "laws",
    "lc_energy",
    "lc_step",
    "raster",
    "rc_step",
]
