"""Networks whose edges conduct each way by itself, and the advection that they make."""

from chonn_ops.network.directed.api import directed_network
from chonn_ops.network.directed.upwind import advection_step, upwind_conductance

__all__ = ["advection_step", "directed_network", "upwind_conductance"]
