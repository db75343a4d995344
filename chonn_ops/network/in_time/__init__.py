"""Networks with a memory: a step of capacitors and resistors (RC), or of capacitors and coils."""

from chonn_ops.network.in_time.coils import LCState, edge_inductance, zero_current
from chonn_ops.network.in_time.lc import lc_energy, lc_step
from chonn_ops.network.in_time.rc import rc_step

__all__ = ["LCState", "edge_inductance", "lc_energy", "lc_step", "rc_step", "zero_current"]
