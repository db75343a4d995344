"""The selective Kirchhoff scan of lines and fields, on every backend of `available_backends`."""

from chonn_ops.scan._checks import TERMINATIONS
from chonn_ops.scan._walks import DIRECTIONS
from chonn_ops.scan.api import kirchhoff_scan, scan_field
from chonn_ops.scan.operator import available_backends

__all__ = ["DIRECTIONS", "TERMINATIONS", "available_backends", "kirchhoff_scan", "scan_field"]
