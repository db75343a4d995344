"""The cascaded Kirchhoff block and its cells: networks on grids and scans of lines."""

from chonn_ops.nn.block import CKB, CKBBranch
from chonn_ops.nn.circuit_head import CircuitHead
from chonn_ops.nn.kirchhoff_cell import KirchhoffCell, Scan
from chonn_ops.nn.network_cell import Network, NetworkCell
from chonn_ops.nn.options import CKBOptions

__all__ = [
    "CKB",
    "CKBBranch",
    "CKBOptions",
    "CircuitHead",
    "KirchhoffCell",
    "Network",
    "NetworkCell",
    "Scan",
]
