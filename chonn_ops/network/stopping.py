r"""When iterations stop: one rule for the kernels in C and in PyTorch.

Conjugate gradients from zero add one term an iteration, :math:`v = \sum_j \alpha_j p_j`, so the
error after iteration k is the sum of the terms to come [1]_. Its norm is estimated from terms in
[2]_, in the energy norm. Here the terms are read in the maximum norm: in the energy norm, as in the
residual, one node with a large leak or source outweighs all others. With
:math:`d_k = \max |\alpha_k p_k|` and q the larger of the last two ratios :math:`d_k / d_{k-1}`,
between `LEAST` and `MOST`, the terms to come are taken for a geometric series:

.. math:: e_k = d_k \, q / (1 - q)

A network has converged where

.. math:: |r|_2 \le tol \, |s|_2 \quad\text{and}\quad e_k \le \text{ALLOWED} \, tol \, \max |v|

A solver returns the larger of :math:`|r|_2 / |s|_2` and
:math:`e_k / (\text{ALLOWED} \, \max |v|)`, its `deviation`, which is at most `tol` in exactly these
networks. It is 0 where r is 0.

The estimate is no bound. On networks of two and three axes (smooth, two-phase, noise of contrasts
up to 10,000, nodes held by leaks of 1e6 and 1e9, layers of metal, capacitors over twelve decades)
and `tol` of 1e-3 to 1e-8, errors of potentials and of all gradients were at most 10 `tol` of the
largest, where the residual alone stopped at up to 5e6 `tol`. With four times as large an `ALLOWED`
gradients of edges were up to 18 `tol` off. Smooth networks take one iteration more than by the
residual alone: 3 or 4 at a `tol` of 1e-3 and 5 or 6 at 1e-5. Noise of contrast 10,000 takes 13 to
15 for 10 to 14, and 19 to 22 for 17 to 22.

References
----------
.. [1] M. R. Hestenes, E. Stiefel, "Methods of conjugate gradients for solving linear systems",
   J. Res. Nat. Bur. Standards 49 (1952) 409, section 6.
.. [2] Z. Strakos, P. Tichy, "On error estimation in the conjugate gradient method and why it works
   in finite precision computations", Electronic Transactions on Numerical Analysis 13 (2002) 56.
"""

from __future__ import annotations

import torch
from torch import Tensor

from chonn_ops._library import CONSTANTS

LEAST, MOST = CONSTANTS["NETWORK_RATIO_LEAST"], CONSTANTS["NETWORK_RATIO_MOST"]
ALLOWED = CONSTANTS["NETWORK_ERROR_ALLOWED"]


class Progress:
    """The last terms of M networks, and what they say of the error."""

    def __init__(self, norm: Tensor) -> None:
        """`norm`: :math:`|s|_2`, (M,)."""
        self._norm = torch.where(norm > 0, norm, 1)
        self._term, self._ratio = torch.full_like(norm, torch.inf), torch.zeros_like(norm)

    def deviation(self, residual: Tensor, term: Tensor, largest: Tensor) -> Tensor:
        """(M,), from :math:`|r|_2`, :math:`\\max |\\alpha p|` and :math:`\\max |v|` after an
        iteration."""
        ratio = torch.where(self._term > 0, term / self._term, 0)
        q = torch.maximum(ratio, self._ratio).clamp(LEAST, MOST)
        self._term, self._ratio = term, ratio
        error = term * q / ((1 - q) * ALLOWED * largest)
        return torch.where(residual == 0, 0, torch.maximum(residual / self._norm, error))
