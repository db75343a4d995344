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
    CHONNWaves1d,
    CHONNWaves2d,
    CNOUNet,
    Equalised,
    grid_nodes,
    grid_spacing,
)
from chonn_ops.network import (
    directed_network,
    edge_conductance,
    kirchhoff_network,
    lc_step,
    rc_step,
)
from chonn_ops.nn import (
    CKB,
    CKBOptions,
    FixedGridCKB,
    KirchhoffCell,
    LCNetworkCell,
    NetworkCell,
    RCNetworkCell,
    prune,
)
from chonn_ops.reading import inspect, to_netlist
from chonn_ops.scan import available_backends, kirchhoff_scan, scan_field
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
    "CHONNWaves1d",
    "CHONNWaves2d",
    "CKBOptions",
    "CNOUNet",
    "Equalised",
    "FixedGridCKB",
    "KirchhoffCell",
    "LCNetworkCell",
    "NetworkCell",
    "RCNetworkCell",
    "available_backends",
    "directed_network",
    "edge_conductance",
    "grid_nodes",
    "grid_spacing",
    "inspect",
    "kirchhoff_network",
    "kirchhoff_scan",
    "lc_step",
    "metrics",
    "prune",
    "rc_step",
    "scan_field",
    "to_netlist",
]

# Last: an integration may import any public name.
_autoload.arm()
