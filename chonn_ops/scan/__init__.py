"""The selective Kirchhoff scan of lines and fields, on every backend of `available_backends`."""

from chonn_ops.scan.api import kirchhoff_scan, scan_field
from chonn_ops.scan.arguments import BOUNDARIES
from chonn_ops.scan.operator import available_backends
from chonn_ops.scan.walks import DIRECTIONS

__all__ = ["BOUNDARIES", "DIRECTIONS", "available_backends", "kirchhoff_scan", "scan_field"]
