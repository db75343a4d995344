"""Trained models read as circuits, and the paper's theory of a cell.

- Trained cells: `read_circuits` returns their numbers, `conductivity_law` the law of a medium that
  a model has learned, `to_netlist` the SPICE text of cells and of any circuit.
- Checkpoints: `load_checkpoint`, `read_samples` and `write_page` are the steps of
  ``chonn inspect``.
- Cells with fixed coefficients as systems of `scipy.signal`: `rc_cell`, `zero_order_hold`,
  `cascade`, `aggregate`, `transfer_function`. docs/lab/theory.md names the function and the test of
  every equation of the paper's Methods.
"""

from chonn_ops.inspect.checkpoint import TrainedModel, load_checkpoint
from chonn_ops.inspect.netlist import to_netlist
from chonn_ops.inspect.page import write_page
from chonn_ops.inspect.reading import conductivity_law, read_circuits
from chonn_ops.inspect.samples import Samples, read_samples
from chonn_ops.inspect.theory import (
    aggregate,
    cascade,
    rc_cell,
    transfer_function,
    zero_order_hold,
)

__all__ = [
    "Samples",
    "TrainedModel",
    "aggregate",
    "cascade",
    "conductivity_law",
    "load_checkpoint",
    "rc_cell",
    "read_circuits",
    "read_samples",
    "to_netlist",
    "transfer_function",
    "write_page",
    "zero_order_hold",
]
