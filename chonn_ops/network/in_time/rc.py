"""`rc_step`: networks with a capacitor at every node, one implicit step in time a solve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, overload

import torch
from torch import Tensor

from chonn_ops.network._checks import (
    check_arguments,
    check_field,
    check_like,
    check_not_negative,
    error,
)
from chonn_ops.network._ends import leak_with_ends
from chonn_ops.network.api import NetworkInfo, solve_checked
from chonn_ops.network.in_time.passive import passive

# How many capacitances over dt the network solved for a step has: that of Euler is the new
# potentials, that of the midpoint rule the potentials in the middle of the step.
METHODS = {"euler": 1.0, "midpoint": 2.0}


def check_step(dt: float) -> None:
    """A step in time; a Tensor would be read from its device."""
    if isinstance(dt, Tensor) or not 0 < dt < math.inf:
        raise error("dt", "a finite number > 0", dt)


def like(name: str, value: Tensor | float, field: Tensor) -> Tensor:
    """A number or a tensor as a tensor of the field's shape, in float32 at least."""
    wide = torch.promote_types(field.dtype, torch.float32)
    if not isinstance(value, Tensor):
        return torch.full((), value, dtype=wide, device=field.device).expand(field.shape)
    if value.device != field.device:
        raise error(name, f"device {field.device}, where the potentials are", value.device)
    try:
        return value.to(torch.promote_types(wide, value.dtype)).expand(field.shape)
    except RuntimeError:
        expected = f"a number, or a shape that expands to {tuple(field.shape)}"
        raise error(name, expected, tuple(value.shape)) from None


def solve_passively(
    source: Tensor,
    conductance: list[Tensor],
    leak: Tensor,
    words: Sequence[str],
    wall: Tensor | None,
    tol: float,
    max_iterations: int,
    backend: str | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """`solve_checked`, whose potentials feed no power even where it warns."""
    ends = list(words)
    v, iterations, residual = solve_checked(
        source, conductance, leak, ends, wall, tol, max_iterations, backend
    )
    total = leak_with_ends(conductance, leak, ends, wall, v.dtype)
    ring, late = [word == "ring" for word in words], ~(residual <= tol) & (iterations > 0)
    return passive(v, source, conductance, total, ring, late), iterations, residual


@overload
def rc_step(
    v: Tensor,
    conductance: Sequence[Tensor],
    leak: Tensor,
    capacitance: Tensor | float,
    dt: float,
    source: Tensor | None = None,
    *,
    method: str = "euler",
    ends: str | Sequence[str] = "open",
    wall: Tensor | None = None,
    tol: float = 1e-5,
    max_iterations: int = 100,
    return_info: Literal[False] = False,
    backend: str | None = None,
) -> Tensor: ...


@overload
def rc_step(
    v: Tensor,
    conductance: Sequence[Tensor],
    leak: Tensor,
    capacitance: Tensor | float,
    dt: float,
    source: Tensor | None = None,
    *,
    method: str = "euler",
    ends: str | Sequence[str] = "open",
    wall: Tensor | None = None,
    tol: float = 1e-5,
    max_iterations: int = 100,
    return_info: Literal[True],
    backend: str | None = None,
) -> tuple[Tensor, NetworkInfo]: ...


def rc_step(
    v: Tensor,
    conductance: Sequence[Tensor],
    leak: Tensor,
    capacitance: Tensor | float,
    dt: float,
    source: Tensor | None = None,
    *,
    method: str = "euler",
    ends: str | Sequence[str] = "open",
    wall: Tensor | None = None,
    tol: float = 1e-5,
    max_iterations: int = 100,
    return_info: bool = False,
    backend: str | None = None,
) -> Tensor | tuple[Tensor, NetworkInfo]:
    r"""Potentials of RC networks a time `dt` later: `kirchhoff_network` with capacitors.

    .. math::

        C_p \dot v_p + \sum_q g_{pq} (v_p - v_q) + l_p v_p = s_p

    by one implicit step, which is one solve of a resistor network: a capacitor over a step is a
    conductance :math:`C_p / dt` to ground beside a source of current :math:`C_p v_p / dt`.

    ==========  ============================================================  =======  ============
    method      step                                                          order    stable
    ==========  ============================================================  =======  ============
    euler       :math:`(C/dt + A)\, v' = C/dt\, v + s`                        1        for any dt;
                                                                                       damps all
    midpoint    :math:`(2C/dt + A)\, m = 2C/dt\, v + s,\; v' = 2m - v`        2        for any dt;
                                                                                       long steps
                                                                                       turn signs
    ==========  ============================================================  =======  ============

    with A the matrix of `kirchhoff_network`. Without sources the energy
    :math:`\tfrac12 \sum_p C_p v_p^2` never rises but by rounding, whatever conductances, step and
    tolerance: the residual at which conjugate gradients stop is orthogonal to the potentials, so
    that it feeds no power; where they did not get there, which a warning says, the potentials are
    scaled until it is. Up to `tol`, with "euler" no potential leaves the range of the potentials
    before and 0, and charge, :math:`\sum_p C_p v_p`, leaves through leaks and ends alone. In
    float32 that wants steps with :math:`g\,dt / C` below :math:`10^7`, except on lines.

    Parameters
    ----------
    v : Tensor, shape (B, \*grid, C)
        Potentials before the step, 1 to 3 grid axes.
    conductance : sequence of Tensor, shape (B, \*grid, C)
        One an axis, as in `kirchhoff_network`, as are `leak`, `ends`, `wall`, `tol`,
        `max_iterations` and `backend`. An end "matched" is a line at rest that goes on for ever.
    leak : Tensor, shape (B, \*grid, C)
        May be 0 everywhere: the capacitors tie the nodes to ground.
    capacitance : float or Tensor that expands to the shape of `v`
        :math:`C_p \ge 0`, in the unit of conductance times that of `dt`. 0: a node that follows at
        once.
    dt : float
        Length of the step > 0.
    source : Tensor, shape (B, \*grid, C), optional
        Current into each node during the step; none by default.
    method : {"euler", "midpoint"}
        As above.
    return_info : bool
        Also return iterations and residual of each network.

    Returns
    -------
    v : Tensor, shape (B, \*grid, C)
        Potentials after the step, in the dtype of `v`.
    info : NetworkInfo
        Only with `return_info`.

    Raises
    ------
    TypeError, ValueError
        As `kirchhoff_network`; also for a `dt` not above 0, an unknown `method`, and on the CPU for
        a negative capacitance.

    References
    ----------
    L. Nagel, "SPICE2" (1975), companion models of capacitors; E. Hairer, G. Wanner, "Solving
    Ordinary Differential Equations II" (1996), section IV.3.

    Examples
    --------
    1 F at 1 V beside 1 S, over 1 s:

    >>> import torch
    >>> from chonn_ops import rc_step
    >>> one = torch.ones(1, 1, 1)
    >>> rc_step(one, (one,), one, 1.0, 1.0).item()
    0.5
    """
    if method not in METHODS:
        raise error("method", f"one of {tuple(METHODS)}", repr(method))
    check_step(dt)
    check_field("v", v)
    words = check_arguments(v, conductance, leak, ends, wall, tol, max_iterations)
    storage = like("capacitance", capacitance, v)
    check_not_negative("leak", leak)
    check_not_negative("capacitance", storage)
    storage = storage * (METHODS[method] / dt)
    current = storage * v
    if source is not None:
        check_like("source", source, v)
        current = current + source
    after, iterations, residual = solve_passively(
        current, list(conductance), leak + storage, words, wall, tol, max_iterations, backend
    )
    if method == "midpoint":
        after = 2 * after - v
    after = after.to(v.dtype)
    return (after, NetworkInfo(iterations, residual)) if return_info else after
