"""Reading trained circuits: their netlists, schematics and numbers."""

from chonn_ops.reading._netlist import to_netlist

__all__ = ["to_netlist"]
