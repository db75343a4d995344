"""The selective Kirchhoff scan of lines and fields, on every backend of `available_backends`."""

from chonn_ops.scan._checks import TERMINATIONS
from chonn_ops.scan._field import scan_field
from chonn_ops.scan._op import available_backends
from chonn_ops.scan._scan import kirchhoff_scan
from chonn_ops.scan._walks import DIRECTIONS

__all__ = ["DIRECTIONS", "TERMINATIONS", "available_backends", "kirchhoff_scan", "scan_field"]
