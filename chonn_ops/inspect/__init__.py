"""Trained models read as circuits.

- Trained cells: `read_circuits` returns their numbers, `conductivity_law` the law of a medium that
  a model has learned, `law_curve` a law of elements over the drops that it has seen, `to_netlist`
  the SPICE text of cells and of any circuit.
- Checkpoints: `load_checkpoint`, `read_samples` and `write_page` are the steps of
  ``chonn inspect``.
"""

from chonn_ops.inspect.checkpoint import TrainedModel, load_checkpoint
from chonn_ops.inspect.netlist import to_netlist
from chonn_ops.inspect.page import write_page
from chonn_ops.inspect.reading import conductivity_law, law_curve, read_circuits
from chonn_ops.inspect.samples import Samples, read_samples

__all__ = [
    "Samples",
    "TrainedModel",
    "conductivity_law",
    "law_curve",
    "load_checkpoint",
    "read_circuits",
    "read_samples",
    "to_netlist",
    "write_page",
]
