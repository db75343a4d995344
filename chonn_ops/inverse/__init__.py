"""Inverse problems: fields recovered from potentials measured at some nodes, with error bars."""

from chonn_ops.inverse.gauss_newton import Reconstruction, reconstruct
from chonn_ops.inverse.priors import Smoothness, TotalVariation

__all__ = ["Reconstruction", "Smoothness", "TotalVariation", "reconstruct"]
