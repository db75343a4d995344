"""Circuits: the paper's theory, and trained models read as circuits.

- Theory with fixed coefficients, in NumPy and SciPy: cells and cascades (`RCCell`, `Cascade`),
  their transfer functions, resistor networks (`ResistorNetwork`, `grid`, `ladder`).
  docs/theory.md names the function and the test of every equation of the paper's Methods.
- Trained cells: `read_circuits` gives their numbers, `to_netlist` their SPICE text;
  `draw_schematic` draws small circuits.
- Checkpoints: `load_checkpoint`, `read_samples` and `write_page` are the steps of
  ``chonn inspect``.
"""

from chonn_ops.inspect.alternating import RLCNetwork, draw_bode
from chonn_ops.inspect.cells import (
    BranchCurrents,
    Cascade,
    DiscreteCascade,
    DiscreteCell,
    RCCell,
)
from chonn_ops.inspect.checkpoint import TrainedModel, load_checkpoint
from chonn_ops.inspect.netlist import to_netlist
from chonn_ops.inspect.networks import (
    ResistorNetwork,
    attenuation,
    endless_conductance,
    grid,
    ladder,
    ladder_cell,
    length_scale,
)
from chonn_ops.inspect.page import write_page
from chonn_ops.inspect.reading import read_circuits
from chonn_ops.inspect.samples import Samples, read_samples
from chonn_ops.inspect.schematic import draw_schematic
from chonn_ops.inspect.transfer import TransferFunction

__all__ = [
    "BranchCurrents",
    "Cascade",
    "DiscreteCascade",
    "DiscreteCell",
    "RCCell",
    "RLCNetwork",
    "ResistorNetwork",
    "Samples",
    "TrainedModel",
    "TransferFunction",
    "attenuation",
    "draw_bode",
    "draw_schematic",
    "endless_conductance",
    "grid",
    "ladder",
    "ladder_cell",
    "length_scale",
    "load_checkpoint",
    "read_circuits",
    "read_samples",
    "to_netlist",
    "write_page",
]
