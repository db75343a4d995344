"""chonn-ops: neural operator layers that solve a circuit.

The input sets the conductances; the layer returns the node voltages. `Circuit` is a resistor
network on a grid or graph, `kirchhoff_scan` solves an RC circuit along a line. `NetworkCell` and
`KirchhoffCell` compute the circuits from features, and `CKB` puts N cells in series inside one
gated residual block. The output of `CHONNNetwork2d` is the potential of one circuit, whose elements
it predicts from the input.
"""

from chonn_ops import inverse, metrics, models, network, uncertainty
from chonn_ops._decompositions import decompositions
from chonn_ops.boundary import Dirichlet, Matched, Neumann, Periodic, Robin
from chonn_ops.inspect import read_circuits, to_netlist
from chonn_ops.models import *  # noqa: F403 - `__all__` of these two is a part of ours
from chonn_ops.network import *  # noqa: F403
from chonn_ops.nn import CKB, CKBOptions, KirchhoffCell, Network, NetworkCell, Scan
from chonn_ops.scan import kirchhoff_scan, scan_field

__version__ = "0.1.0"

__all__ = [
    "CKB",
    "CKBOptions",
    "Dirichlet",
    "KirchhoffCell",
    "Matched",
    "Network",
    "NetworkCell",
    "Neumann",
    "Periodic",
    "Robin",
    "Scan",
    "decompositions",
    "inverse",
    "kirchhoff_scan",
    "metrics",
    "read_circuits",
    "scan_field",
    "to_netlist",
    "uncertainty",
]
__all__ += models.__all__
__all__ += network.__all__
