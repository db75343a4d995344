"""`kirchhoff_network`: the potentials of grids of nodes under Kirchhoff's current law."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, overload

import torch
from torch import Tensor

from chonn_ops._dtypes import compute_dtype
from chonn_ops.network import autograd  # noqa: F401 - registers the operator and its derivatives
from chonn_ops.network._checks import check_arguments
from chonn_ops.network._ends import leak_with_ends


class NetworkInfo(NamedTuple):
    """How the solves went: what `kirchhoff_network` returns with ``return_info=True``.

    Attributes
    ----------
    iterations : Tensor, shape (B, C)
        int32; 0 where the network was solved by elimination.
    residual : Tensor, shape (B, C)
        :math:`|s - A v|_2 / |s|_2`, float32, or float64 where an input is float64; 0 without a
        source, NaN where an input is not finite. It has no gradient.
    """

    iterations: Tensor
    residual: Tensor


def solve_checked(
    source: Tensor,
    conductance: list[Tensor],
    leak: Tensor,
    ends: list[str],
    wall: Tensor | None,
    tol: float,
    max_iterations: int,
    backend: str | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """`kirchhoff_network` without its checks: potentials in the dtype of the solve, iterations,
    residuals. TorchScript knows it; so no argument is unpacked here."""
    axes = len(conductance)
    if torch.jit.is_scripting():
        dtype = torch.promote_types(leak.dtype, torch.float32)
    else:
        dtype = compute_dtype(leak, wall, *conductance)
    total = leak_with_ends(conductance, leak, ends, wall, dtype)
    return torch.ops.chonn_ops.kirchhoff_network(
        source,
        conductance[0],
        conductance[1] if axes > 1 else None,
        conductance[2] if axes > 2 else None,
        total,
        [word == "ring" for word in ends],
        float(tol),
        int(max_iterations),
        "" if backend is None else backend,
        None if total is leak else leak.detach(),
        None if wall is None else wall.detach(),
        True,
    )


@overload
def kirchhoff_network(
    source: Tensor,
    conductance: Sequence[Tensor],
    leak: Tensor,
    *,
    ends: str | Sequence[str] = "open",
    wall: Tensor | None = None,
    tol: float = 1e-5,
    max_iterations: int = 100,
    return_info: Literal[False] = False,
    backend: str | None = None,
) -> Tensor: ...


@overload
def kirchhoff_network(
    source: Tensor,
    conductance: Sequence[Tensor],
    leak: Tensor,
    *,
    ends: str | Sequence[str] = "open",
    wall: Tensor | None = None,
    tol: float = 1e-5,
    max_iterations: int = 100,
    return_info: Literal[True],
    backend: str | None = None,
) -> tuple[Tensor, NetworkInfo]: ...


def kirchhoff_network(
    source: Tensor,
    conductance: Sequence[Tensor],
    leak: Tensor,
    *,
    ends: str | Sequence[str] = "open",
    wall: Tensor | None = None,
    tol: float = 1e-5,
    max_iterations: int = 100,
    return_info: bool = False,
    backend: str | None = None,
) -> Tensor | tuple[Tensor, NetworkInfo]:
    r"""Solve Kirchhoff's current law at every node of a grid, one network a batch and channel.

    .. math::

        \sum_q g_{pq} (v_p - v_q) + l_p v_p = s_p

    over the neighbours q of each node p along 1, 2 or 3 axes. The matrix is symmetric and an
    M-matrix: :math:`v \ge 0` where :math:`s \ge 0`, :math:`|v| \le \max |s| / \min l`, and the
    power fed in, :math:`s \cdot v`, is dissipated, whatever the conductances. Each network stops by
    its own residual; a gradient costs one more solve.

    ===========  ================================================================  ==============
    ends         what the nodes at both ends of an axis have to ground             domain
    ===========  ================================================================  ==============
    open         nothing; with `wall`, the wall in series with half an edge,       Neumann; Robin
                 1 / (1 / w + 1 / (2 g))
    short        half an edge, 2 g                                                 Dirichlet
    matched      an endless line of the same edges and leaks,                      open space
                 2 g l / (l + sqrt(l^2 + 4 g l)); 0 where l = 0
    ring         nothing; the last node's edge leads to the first node             periodic
    ===========  ================================================================  ==============

    with g the conductance of the edge next to the end (an axis of one node: its only entry) and l
    the node's leak. So `wall` goes from open (0) to short (infinity).

    Parameters
    ----------
    source : Tensor, shape (B, \*grid, C)
        Current :math:`s_p` into each node, 1 to 3 grid axes. bfloat16, float16, float32 or float64;
        the solve is float32, and float64 as soon as one input is float64, autocast or not.
    conductance : sequence of Tensor, shape (B, \*grid, C)
        :math:`g_{pq} \ge 0`, one tensor an axis: entry p joins node p and the next one along that
        axis. The last entry along an axis counts for "ring" only, where it joins the last node to
        the first. See `edge_conductance` for those of a conductivity.
    leak : Tensor, shape (B, \*grid, C)
        Conductance :math:`l_p \ge 0` from each node to ground. Every connected part of a network
        needs one somewhere, or an end that has one: else its potentials are not determined, and
        nothing but a network without any is noticed. A node with neither edge nor leak has
        potential 0, whatever its source.
    ends : {"open", "short", "ring", "matched"} or a sequence of them, one an axis
        What happens at the ends of an axis, as above; "neumann", "dirichlet" and "periodic" are
        other words for open, short and ring.
    wall : Tensor, shape (C,) or (axes, 2, C), optional
        Conductance >= 0 to ground behind the half edge at open ends: one a channel, or one for the
        low and the high end of each axis (those of axes with other ends are not used).
    tol : float
        Where a network stops: :math:`|s - A v|_2 \le tol \, |s|_2`. Potentials rounded to float32
        have residuals of about :math:`10^{-7} \, |A|\,|v| / |s|`: less cannot be had in float32.
    max_iterations : int
        Where a network stops all the same, with a RuntimeWarning.
    return_info : bool
        Also return iterations and residual of each network.
    backend : {"reference", "torch", "cpu", "triton"}, optional
        Default: the environment variable ``CHONN_NETWORK_BACKEND``, else by device.

    Returns
    -------
    v : Tensor, shape (B, \*grid, C)
        Potentials :math:`v_p`, in ``source.dtype``, in the unit of source over conductance. A
        network with a NaN or an infinity in it is all NaN; others are not touched by it.
    info : NetworkInfo
        Only with `return_info`.

    Raises
    ------
    TypeError
        Something else than a Tensor.
    ValueError
        Wrong shape, dtype or device; negative conductance, leak or wall, or a network without any
        leak (checked on the CPU; a check on a GPU would stall it); unknown ends; a `wall` without
        open ends; a `tol` not between 0 and 1, a `max_iterations` below 1; an unknown or
        unavailable backend.

    Warns
    -----
    RuntimeWarning
        Once a call, if networks did not reach `tol`: how many, the worst residual, the grid.

    References
    ----------
    C.-W. Ho, A. Ruehli, P. Brennan, "The modified nodal approach to network analysis", IEEE Trans.
    Circuits and Systems 22 (1975). The ends "matched" and `wall` are this package's own.

    Examples
    --------
    Two nodes, 1 ohm between them, 1 ohm from the second to ground, 1 A into the first:

    >>> import torch
    >>> from chonn_ops import kirchhoff_network
    >>> field = lambda *values: torch.tensor(values).reshape(1, 2, 1)
    >>> v = kirchhoff_network(field(1.0, 0.0), (field(1.0, 0.0),), field(0.0, 1.0))
    >>> [round(x, 4) for x in v.flatten().tolist()]
    [2.0, 1.0]
    """
    words = check_arguments(source, conductance, leak, ends, wall, tol, max_iterations)
    v, iterations, residual = solve_checked(
        source, list(conductance), leak, list(words), wall, tol, max_iterations, backend
    )
    v = v.to(source.dtype)
    return (v, NetworkInfo(iterations, residual)) if return_info else v
