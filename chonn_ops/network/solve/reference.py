"""Kirchhoff networks by SciPy's direct solver in float64 or complex128: the reference for every
backend.

=================  ================  ==============================================================
here               nodal analysis    meaning
=================  ================  ==============================================================
``v``              :math:`v_p`       potential of node p, solved for
``source``         :math:`s_p`       current fed into node p
``conductance``    :math:`g_{pq}`    conductance of the edge between nodes p and q >= 0; 0: no edge
``leak``           :math:`l_p`       conductance from node p to ground (potential 0) >= 0
``flow``           :math:`i_{pq}`    current from p to q: Ohm's law, :math:`g_{pq} (v_p - v_q)`
``residual``       :math:`r_p`       residual of Kirchhoff's current law at node p
=================  ================  ==============================================================

Kirchhoff's current law at every node p: the current in equals the current out::

    source_p  =  sum over neighbours q of  g_pq (v_p - v_q)  +  leak_p v_p

In matrix form A v = s with A_pp = leak_p + sum_q g_pq and A_pq = -g_pq: symmetric, and positive
definite where every connected part has a leak. The same equation is the finite-volume scheme for
-div(k grad v) + c v = f: g_pq = k_pq * face area / distance, l_p = c_p * volume, s_p = f_p * volume
(`chonn_ops.diffusion`).

Complex numbers are admittances at one frequency: A is symmetric, neither Hermitian nor definite,
so its factors take pivots where they find them. At resonance A is singular, an error.

The factors of A (SuperLU) compute corrections of the potentials. The residual that they reduce is
computed in extended precision from differences of potentials, so that small leaks beside large
conductances are not lost in the sum A_pp.

A node with neither edge nor leak is not part of the network: its potential is 0. NaN or infinity
anywhere in a network makes all its potentials NaN.

References: C.-W. Ho, A. Ruehli, P. Brennan, "The modified nodal approach to network analysis",
IEEE Trans. Circuits and Systems 22 (1975); R. Eymard, T. Gallouet, R. Herbin, "Finite volume
methods", Handbook of Numerical Analysis 7 (2000).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chonn_ops._dtypes import compute_dtype, widest_dtype
from chonn_ops.checks import resonance
from chonn_ops.network.layout import Layout

_CORRECTIONS = 20
# The most that the last of them may be, relative to the largest potential.
_LAST_CORRECTION = 1e-12
_Array = np.ndarray[Any, Any]


def _residual(s: _Array, g: _Array, ends: _Array, leak: _Array, v: _Array) -> _Array:
    """The residual of Kirchhoff's current law at each node of one network."""
    residual = s - leak * v
    flow = g * (v[ends[0]] - v[ends[1]])
    np.subtract.at(residual, ends[0], flow)
    np.add.at(residual, ends[1], flow)
    return residual


def _lost(network: tuple[int, int], got: str) -> RuntimeError:
    return RuntimeError(
        f"network {network} (batch, channel): expected corrections that vanish, got {got}: "
        "leaks are below the rounding of the conductances, which factors in float64 lose. To solve "
        "it: the backend 'torch' or 'cpu' with solver=Direct()"
    )


def _factors(
    g: _Array, ends: _Array, leak: _Array, network: tuple[int, int], tol: float
) -> Callable[[_Array], _Array]:
    """Solves A x = b for one network, to the accuracy of a stored diagonal."""
    from scipy.sparse import coo_array, diags_array
    from scipy.sparse.linalg import splu

    size = (leak.size, leak.size)
    adjacency = coo_array((g[g != 0], ends[:, g != 0]), shape=size).tocsc()
    adjacency = adjacency + adjacency.T
    diagonal = leak + adjacency.sum(1)
    diagonal[(leak == 0) & (abs(adjacency).sum(1) == 0)] = 1  # not part of the network
    in_place = {"diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}
    try:
        factors = splu(
            (diags_array(diagonal) - adjacency).tocsc(),
            permc_spec="MMD_AT_PLUS_A",
            **({} if np.iscomplexobj(leak) else in_place),
        )
    except RuntimeError as singular:
        if not np.iscomplexobj(leak):
            raise _lost(network, "none") from singular
        raise resonance(1.0, tol, network) from singular
    return factors.solve


def _solve_one(
    s: _Array, g: _Array, ends: _Array, leak: _Array, network: tuple[int, int], tol: float
) -> tuple[_Array | float, float]:
    """Potentials (nodes,) and relative residual of one network whose edges have these ends."""
    if not all(np.isfinite(x).all() for x in (s, leak, g)):
        return float("nan"), float("nan")
    tied = leak != 0
    tied[ends[:, g != 0]] = True
    s = np.where(tied, s, 0)
    if not s.any():
        return 0.0, 0.0
    correct = _factors(g, ends, leak, network, tol)
    wide = [x.astype(np.result_type(x, np.longdouble)) for x in (s, g, leak)]
    network_of = wide[0], wide[1], ends, wide[2]
    v = step = np.zeros_like(wide[0])
    residual = wide[0]
    for _ in range(_CORRECTIONS):
        step = correct(residual.astype(s.dtype))
        v = v + step
        residual = _residual(*network_of, v)
        if not np.abs(step).max() > np.finfo(np.float64).eps / 4 * np.abs(v).max():
            break
    last, largest = np.abs(step).max(), np.abs(v).max()
    # A complex network is near a resonance then, which its residual tells.
    if not np.iscomplexobj(v) and last > _LAST_CORRECTION * largest:
        raise _lost(network, f"one of {last:.1e} beside potentials of up to {largest:.1e}")
    rounded = v.astype(s.dtype)
    residual = _residual(*network_of, rounded.astype(v.dtype))
    return rounded, float(np.linalg.norm(residual) / np.linalg.norm(wide[0]))


def solve(
    source: Tensor,
    conductance: Sequence[Tensor],
    leak: Tensor,
    layout: Layout,
    tol: float = 0.0,
    max_iterations: int = 0,  # noqa: ARG001 - direct
) -> tuple[Tensor, Tensor, Tensor]:
    """Potentials (float64 or complex128), iterations (0) and relative residuals, as a backend of
    `chonn_ops.network.solve.operator` computes them, on grids and graphs.

    Corrections that do not vanish, because leaks are near the rounding of the conductances in
    float64, are a RuntimeError.
    """
    fields = (source, leak, *conductance)
    wide = widest_dtype(compute_dtype(*fields), torch.device("cpu"))
    edge, ends = layout.edge_ends()

    def rows(field: Tensor) -> _Array:
        """(B, C, nodes or entries)."""
        wider = field.detach().resolve_conj().cpu().to(wide).numpy()
        return np.moveaxis(wider, -1, 1).reshape(field.shape[0], field.shape[-1], -1)

    s, leaks = rows(source), rows(leak)
    g = np.concatenate([rows(x) for x in conductance], 2)[..., edge]
    v, residual = np.empty_like(s), np.empty(s.shape[:2])
    for b, c in np.ndindex(*s.shape[:2]):
        v[b, c], residual[b, c] = _solve_one(s[b, c], g[b, c], ends, leaks[b, c], (b, c), tol)
    v = v.reshape(*v.shape[:2], *layout.shape)
    out = torch.from_numpy(np.ascontiguousarray(np.moveaxis(v, 1, -1))).to(source.device)
    iterations = torch.zeros(residual.shape, dtype=torch.int32, device=source.device)
    return out, iterations, torch.from_numpy(residual).to(source.device)
