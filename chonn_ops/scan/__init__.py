"""The selective Kirchhoff scan: `kirchhoff_scan`, on every backend of `available_backends`."""

from chonn_ops.scan._checks import TERMINATIONS
from chonn_ops.scan._op import available_backends
from chonn_ops.scan._scan import kirchhoff_scan

__all__ = ["TERMINATIONS", "available_backends", "kirchhoff_scan"]
