"""chonn-ops: high-order circuit layers for neural operators and vision backbones."""

__version__ = "0.1.0"
