"""Kirchhoff networks: grids of nodes solved by nodal analysis, on every backend of
`available_backends`."""

from chonn_ops.network import laws
from chonn_ops.network.circuit import Circuit, Currents, NetworkInfo
from chonn_ops.network.discretise.diffusion import diffusion
from chonn_ops.network.discretise.helmholtz import absorbing_layer, helmholtz
from chonn_ops.network.discretise.mesh import Mesh
from chonn_ops.network.discretise.raster import raster
from chonn_ops.network.discretise.steps import LCState, lc_energy, lc_step, rc_step
from chonn_ops.network.discretise.volumes import FiniteVolumes
from chonn_ops.network.factorization import Factorization
from chonn_ops.network.layout import Grid
from chonn_ops.network.layout.graph import Graph
from chonn_ops.network.nonlinear import NonlinearCircuit
from chonn_ops.network.solve.methods import Auto, Direct, Iterative
from chonn_ops.network.solve.operator import available_backends

__all__ = [
    "Auto",
    "Circuit",
    "Currents",
    "Direct",
    "Factorization",
    "FiniteVolumes",
    "Graph",
    "Grid",
    "Iterative",
    "LCState",
    "Mesh",
    "NetworkInfo",
    "NonlinearCircuit",
    "absorbing_layer",
    "available_backends",
    "diffusion",
    "helmholtz",
    "laws",
    "lc_energy",
    "lc_step",
    "raster",
    "rc_step",
]
