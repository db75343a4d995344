"""`directed_network`: networks whose edges have a conductance for each direction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, overload

import torch
from torch import Tensor

from chonn_ops._dtypes import compute_dtype
from chonn_ops.boundary import per_axis
from chonn_ops.checks import error
from chonn_ops.experimental.directed.operator import DirectedSolve
from chonn_ops.network.api import NetworkInfo
from chonn_ops.network.checks import (
    BOUNDED,
    check_arguments,
    check_not_negative,
    check_some_leak,
    readable,
)
from chonn_ops.network.conductance import edges_alone
from chonn_ops.network.edges import pad

_BACKENDS = ("reference", "torch")


@torch._disable_dynamo  # the number of iterations depends on data
def _solve(*arguments: Any) -> Any:
    return DirectedSolve.apply(*arguments)


def _leak_with_dirichlet(
    forward: list[Tensor], backward: list[Tensor], leak: Tensor, words: Sequence[str]
) -> Tensor:
    """The leak plus the conductances to ground of "dirichlet" faces."""
    for axis, word in enumerate(words):
        if word != "dirichlet":
            continue
        dim, n = axis + 1, leak.shape[axis + 1]
        for node, edge, out in ((0, 0, backward), (n - 1, max(n - 2, 0), forward)):
            f, b = (g[axis].narrow(dim, edge, 1) for g in (forward, backward))
            added = out[axis].narrow(dim, edge, 1) + torch.minimum(f, b)
            leak = leak + pad(added, axis, node, n - 1 - node)
    return leak


@overload
def directed_network(
    source: Tensor,
    forward: Sequence[Tensor],
    backward: Sequence[Tensor],
    leak: Tensor,
    *,
    conservative: bool = True,
    boundary: str | Sequence[str] = "neumann",
    tol: float = 1e-5,
    max_iterations: int = 100,
    return_info: Literal[False] = False,
    backend: str | None = None,
) -> Tensor: ...


@overload
def directed_network(
    source: Tensor,
    forward: Sequence[Tensor],
    backward: Sequence[Tensor],
    leak: Tensor,
    *,
    conservative: bool = True,
    boundary: str | Sequence[str] = "neumann",
    tol: float = 1e-5,
    max_iterations: int = 100,
    return_info: Literal[True],
    backend: str | None = None,
) -> tuple[Tensor, NetworkInfo]: ...


def directed_network(
    source: Tensor,
    forward: Sequence[Tensor],
    backward: Sequence[Tensor],
    leak: Tensor,
    *,
    conservative: bool = True,
    boundary: str | Sequence[str] = "neumann",
    tol: float = 1e-5,
    max_iterations: int = 100,
    return_info: bool = False,
    backend: str | None = None,
) -> Tensor | tuple[Tensor, NetworkInfo]:
    r"""Solve networks with directed edges: `kirchhoff_network` with controlled sources.

    .. math::

        \sum_q (f_{pq} v_p - f_{qp} v_q) + l_p v_p = s_p

    with :math:`f_{pq} \ge 0` from node p to its neighbour q and :math:`f_{qp}` back. The current
    :math:`f_{pq} v_p` leaves p, arrives at q, and depends on the potential at p only. An edge with
    :math:`f_{pq} = f_{qp}` is a resistor. ``conservative=False`` solves with the transposed
    matrix,

    .. math::

        \sum_q f_{pq} (v_p - v_q) + l_p v_p = s_p

    Both are M-matrices for all conductances, so that :math:`s \ge 0` gives :math:`v \ge 0`. The
    first conserves charge: :math:`\sum l v = \sum s`. The second bounds the potentials:
    :math:`|v| \le \max|s| / \min l`. With the conductances of `upwind_conductance` the first
    discretises :math:`\nabla\cdot(a v) + l v = s`; with forward and backward exchanged, the second
    discretises :math:`a\cdot\nabla v + l v = s`. Lines are solved by elimination, grids by
    conjugate residuals with a multigrid cycle that smooths along lines. A gradient is one more
    solve, with the transposed matrix.

    ===========  =================================================================================
    boundary     conductance to ground that the nodes at both ends of an axis get
    ===========  =================================================================================
    neumann      none
    dirichlet    the last edge continued for half an edge to potential 0: its outward conductance
                 plus its symmetric part, min(f, b)
    periodic     none; an edge joins the last node and the first
    ===========  =================================================================================

    Parameters
    ----------
    source : Tensor, shape (B, \*grid, C)
        Current :math:`s_p` into each node, 1 to 3 grid axes, as in `kirchhoff_network`.
    forward, backward : sequence of Tensor, shape (B, \*grid, C)
        One tensor an axis: entry p is :math:`f_{pq} \ge 0` from node p to the next one, and
        :math:`f_{qp}` back. The last entry along an axis is used on periodic axes only.
    leak : Tensor, shape (B, \*grid, C)
        Conductance >= 0 of each node to ground. A directed path must lead from every node to a
        leak; only networks without any leak are refused. A node without outgoing edges and leak has
        the potential 0.
    conservative : bool
        Whether to solve the first equation; the second otherwise.
    boundary : {"neumann", "dirichlet", "periodic"} or a sequence of them, one an axis
    tol, max_iterations
        As in `kirchhoff_network`.
    return_info : bool
        Also return iterations and residual of each network.
    backend : {"reference", "torch"}, optional
        "reference": SciPy's direct solver in float64. Default: "torch".

    Returns
    -------
    v : Tensor, shape (B, \*grid, C)
        Potentials, in ``source.dtype``. A network with a NaN or an infinity in it is all NaN.
    info : NetworkInfo
        Only with `return_info`.

    Raises
    ------
    TypeError
        Something else than a Tensor.
    ValueError
        Wrong shape, dtype or device; on the CPU negative conductances or leaks, or a network
        without any leak; an unknown boundary or backend; `tol` or `max_iterations` out of range.

    Warns
    -----
    RuntimeWarning
        Once a call, if networks did not reach `tol`.

    References
    ----------
    S. Patankar, "Numerical Heat Transfer and Fluid Flow" (1980), section 5.2: upwind.

    Examples
    --------
    A current of 1 A enters the first of two nodes; the edge leads to the second node only:

    >>> import torch
    >>> from chonn_ops.experimental import directed_network
    >>> field = lambda *values: torch.tensor(values).reshape(1, 2, 1)
    >>> on, back = field(2.0, 0.0), field(0.0, 0.0)
    >>> v = directed_network(field(1.0, 0.0), (on,), (back,), field(0.0, 4.0))
    >>> [round(x, 4) for x in v.flatten().tolist()]
    [0.5, 0.25]
    """
    check_arguments(source, forward, leak, "neumann", None, tol, max_iterations)
    check_arguments(source, backward, leak, "neumann", None, tol, max_iterations)
    axes = source.dim() - 2
    words = per_axis(boundary, axes, BOUNDED)
    if backend not in (None, *_BACKENDS):
        raise error("backend", f"one of {_BACKENDS}", repr(backend))
    wide = compute_dtype(source, leak, *forward, *backward)
    closed = [word == "periodic" for word in words]
    f, b = (
        [edges_alone(g.to(wide), axis, closed[axis]) for axis, g in enumerate(edges)]
        for edges in (forward, backward)
    )
    total = _leak_with_dirichlet(f, b, leak.to(wide), words)
    for name, edges in (("forward", f), ("backward", b)):
        for axis, g in enumerate(edges):
            check_not_negative(f"{name}[{axis}]", g)
    check_not_negative("leak", leak)
    if readable(total):
        check_some_leak(total)
    found = _solve(
        source, total, not conservative, float(tol), int(max_iterations), backend or "torch", *f, *b
    )
    v = found[0].to(source.dtype)
    return (v, NetworkInfo(found[1], found[2])) if return_info else v
