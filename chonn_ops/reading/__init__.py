"""Reading trained circuits: their numbers, their netlists and schematics."""

from chonn_ops.reading._inspect import inspect
from chonn_ops.reading._netlist import to_netlist
from chonn_ops.reading._schematic import schematic

__all__ = ["inspect", "schematic", "to_netlist"]
