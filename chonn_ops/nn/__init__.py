"""Cells (scans of lines, networks on grids), the block they make, and how fields are scanned."""

from chonn_ops.nn.block import CKB
from chonn_ops.nn.cell import KirchhoffCell
from chonn_ops.nn.fixed_grid import FixedGridCKB
from chonn_ops.nn.gates import StageGates, prune
from chonn_ops.nn.lc_cell import LCNetworkCell
from chonn_ops.nn.network_cell import NetworkCell
from chonn_ops.nn.options import CKBOptions
from chonn_ops.nn.rc_cell import RCNetworkCell
from chonn_ops.scan import DIRECTIONS, scan_field

__all__ = [
    "CKB",
    "DIRECTIONS",
    "CKBOptions",
    "FixedGridCKB",
    "KirchhoffCell",
    "LCNetworkCell",
    "NetworkCell",
    "RCNetworkCell",
    "StageGates",
    "prune",
    "scan_field",
]
