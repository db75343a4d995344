"""chonn-ops: high-order circuit layers for neural operators and vision backbones.

A hidden feature is a potential in an RC circuit. `kirchhoff_scan` solves one selective first-order
update exactly under zero-order hold, `KirchhoffCell` adds the projections, `CKB` puts N cells in
series inside one gated residual block, and the backbones carry such blocks where the paper puts
them. `kirchhoff_network` solves grids of nodes under Kirchhoff's current law, with the
conductances that `edge_conductance` makes of a conductivity.
"""

from chonn_ops import metrics
from chonn_ops.models import (
    CHONNFNO1d,
    CHONNFNO2d,
    CHONNFNO3d,
    CHONNNetwork1d,
    CHONNNetwork2d,
    CHONNNetwork3d,
    CHONNRollout1d,
    CHONNRollout2d,
    CHONNUNet1d,
    CHONNUNet2d,
    CHONNUNet3d,
    CNOUNet,
    Equalised,
    grid_nodes,
    grid_spacing,
)
from chonn_ops.network import edge_conductance, kirchhoff_network
from chonn_ops.nn import CKB, CKBOptions, FixedGridCKB, KirchhoffCell, NetworkCell
from chonn_ops.reading import inspect, to_netlist
from chonn_ops.scan import kirchhoff_scan
from chonn_plugins import autoload as _autoload

__version__ = "0.1.0"

__all__ = [
    "CKB",
    "CHONNFNO1d",
    "CHONNFNO2d",
    "CHONNFNO3d",
    "CHONNNetwork1d",
    "CHONNNetwork2d",
    "CHONNNetwork3d",
    "CHONNRollout1d",
    "CHONNRollout2d",
    "CHONNUNet1d",
    "CHONNUNet2d",
    "CHONNUNet3d",
    "CKBOptions",
    "CNOUNet",
    "Equalised",
    "FixedGridCKB",
    "KirchhoffCell",
    "NetworkCell",
    "edge_conductance",
    "grid_nodes",
    "grid_spacing",
    "inspect",
    "kirchhoff_network",
    "kirchhoff_scan",
    "metrics",
    "to_netlist",
]

# Last: an integration may import any public name.
_autoload.arm()
