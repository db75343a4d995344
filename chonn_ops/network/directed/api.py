"""`directed_network`: networks whose edges conduct one way and the other differently."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, overload

import torch
from torch import Tensor

from chonn_ops import _ends
from chonn_ops._dtypes import compute_dtype
from chonn_ops.network._checks import (
    BOUNDED_ENDS,
    check_arguments,
    check_not_negative,
    check_values,
    error,
    readable,
)
from chonn_ops.network._conductance import edges_alone
from chonn_ops.network._edges import pad
from chonn_ops.network.api import NetworkInfo
from chonn_ops.network.directed.operator import DirectedSolve

_BACKENDS = ("reference", "torch")


@torch._disable_dynamo  # iterations that end by what they find are no graph
def _solve(*arguments: Any) -> Any:
    return DirectedSolve.apply(*arguments)


def _leak_with_shorts(
    forward: list[Tensor], backward: list[Tensor], leak: Tensor, words: Sequence[str]
) -> Tensor:
    for axis, word in enumerate(words):
        if word != "short":
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
    ends: str | Sequence[str] = "open",
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
    ends: str | Sequence[str] = "open",
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
    ends: str | Sequence[str] = "open",
    tol: float = 1e-5,
    max_iterations: int = 100,
    return_info: bool = False,
    backend: str | None = None,
) -> Tensor | tuple[Tensor, NetworkInfo]:
    r"""Solve networks whose edges carry: `kirchhoff_network` with controlled sources.

    .. math::

        \sum_q (f_{pq} v_p - f_{qp} v_q) + l_p v_p = s_p

    with :math:`f_{pq} \ge 0` from p to its neighbour q and :math:`f_{qp}` back: the current
    :math:`f_{pq} v_p` leaves p, controlled by the potential there alone, and arrives at q. Two
    equal ones are a resistor. With ``conservative=False`` the transposed matrix,

    .. math::

        \sum_q f_{pq} (v_p - v_q) + l_p v_p = s_p

    Both are M-matrices, whatever the conductances, so that :math:`v \ge 0` where
    :math:`s \ge 0`. The first keeps charge: :math:`\sum l v = \sum s`. The second keeps bounds:
    :math:`|v| \le \max|s| / \min l`. With `upwind_conductance`, times areas over volumes, they are
    :math:`\nabla\cdot(a v) + l v = s` and, with forward and backward exchanged,
    :math:`a\cdot\nabla v + l v = s`. On a line the solve is an elimination; grids take conjugate
    residuals with a multigrid cycle of line relaxations. A gradient is one more solve, of the other
    of the two.

    ===========  =================================================================================
    ends         what the nodes at both ends of an axis have to ground
    ===========  =================================================================================
    open         nothing: no current passes
    short        the edge next to the end, going on for half an edge to potential 0: what it carries
                 outwards, and once more its symmetric part, min(f, b)
    ring         nothing; the last node's edge leads to the first node
    ===========  =================================================================================

    Parameters
    ----------
    source : Tensor, shape (B, \*grid, C)
        Current :math:`s_p` into each node, 1 to 3 grid axes, as in `kirchhoff_network`.
    forward, backward : sequence of Tensor, shape (B, \*grid, C)
        One tensor an axis: entry p is :math:`f_{pq} \ge 0` from node p to the next one, and
        :math:`f_{qp}` from there back. The last entry along an axis counts for "ring" alone.
    leak : Tensor, shape (B, \*grid, C)
        Conductance >= 0 of each node to ground. From every node there must be a way to one; nothing
        but a network without any is noticed. A node that nothing leads away from has potential 0.
    conservative : bool
        Which of the two.
    ends : {"open", "short", "ring"} or a sequence of them, one an axis
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
        without any leak; unknown ends or backend; `tol` or `max_iterations` out of range.

    Warns
    -----
    RuntimeWarning
        Once a call, if networks did not reach `tol`.

    References
    ----------
    S. Patankar, "Numerical Heat Transfer and Fluid Flow" (1980), section 5.2: upwind.

    Examples
    --------
    1 A into the first of two nodes, which only leads on to the second:

    >>> import torch
    >>> from chonn_ops import directed_network
    >>> field = lambda *values: torch.tensor(values).reshape(1, 2, 1)
    >>> on, back = field(2.0, 0.0), field(0.0, 0.0)
    >>> v = directed_network(field(1.0, 0.0), (on,), (back,), field(0.0, 4.0))
    >>> [round(x, 4) for x in v.flatten().tolist()]
    [0.5, 0.25]
    """
    check_arguments(source, forward, leak, "open", None, tol, max_iterations)
    check_arguments(source, backward, leak, "open", None, tol, max_iterations)
    axes = source.dim() - 2
    words = _ends.of_axes(ends, axes, BOUNDED_ENDS)
    if backend not in (None, *_BACKENDS):
        raise error("backend", f"one of {_BACKENDS}", repr(backend))
    wide = compute_dtype(source, leak, *forward, *backward)
    closed = [word == "ring" for word in words]
    f, b = (
        [edges_alone(g.to(wide), axis, closed[axis]) for axis, g in enumerate(edges)]
        for edges in (forward, backward)
    )
    total = _leak_with_shorts(f, b, leak.to(wide), words)
    for name, edges in (("forward", f), ("backward", b)):
        for axis, g in enumerate(edges):
            check_not_negative(f"{name}[{axis}]", g)
    check_not_negative("leak", leak)
    if readable(total):
        check_values((), total, (), None, None)
    found = _solve(
        source, total, not conservative, float(tol), int(max_iterations), backend or "torch", *f, *b
    )
    v = found[0].to(source.dtype)
    return (v, NetworkInfo(found[1], found[2])) if return_info else v
