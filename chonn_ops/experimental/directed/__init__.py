"""Directed networks, whose edges have a conductance for each direction, and advection steps."""

from chonn_ops.experimental.directed.api import directed_network
from chonn_ops.experimental.directed.upwind import advection_step, upwind_conductance

__all__ = ["advection_step", "directed_network", "upwind_conductance"]
