"""Upwind conductances of a flow, and an implicit advection step."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from chonn_ops.boundary import per_axis
from chonn_ops.checks import error
from chonn_ops.experimental.directed.api import directed_network
from chonn_ops.network.checks import BOUNDED, check_field, check_like, check_not_negative
from chonn_ops.network.conductance import (
    Spacing,
    edge_conductance,
    edges_alone,
    face_area,
    spacings,
)
from chonn_ops.network.rc import check_step


def upwind_conductance(
    velocity: Sequence[Tensor], spacing: Spacing = 1.0, *, boundary: str | Sequence[str] = "neumann"
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    r"""Conductances of a flow: :math:`|F| \max(a, 0)` forward and :math:`|F| \max(-a, 0)` back,
    with :math:`|F|` the area of a face.

    Add the `edge_conductance` of a diffusivity to both for advection with diffusion.

    Parameters
    ----------
    velocity : sequence of Tensor, shape (B, \*grid, C), one an axis
        a through the face between node p and the next one along the axis. The last entry is used
        on periodic axes only. For velocities at nodes, pass the mean of two neighbours.
    spacing : float or sequence of float, one an axis
        Distance of the nodes > 0.
    boundary : {"neumann", "dirichlet", "periodic"} or a sequence of them, one an axis
        As in `directed_network`. The last entries are 0 on axes that are not periodic.

    Returns
    -------
    forward, backward : tuple of Tensor, shape (B, \*grid, C)
        For `directed_network`, whose leak and source are densities times the cell's volume.

    Raises
    ------
    TypeError, ValueError
        For another type or shape of the velocities, spacings not above 0, or an unknown boundary.
    """
    if not velocity:
        raise error("velocity", "one tensor an axis", "none")
    check_field("velocity[0]", velocity[0])
    axes = velocity[0].dim() - 2
    if len(velocity) != axes:
        raise error("velocity", f"{axes} tensors, one an axis", len(velocity))
    for axis, a in enumerate(velocity):
        check_field(f"velocity[{axis}]", a)
        if a.shape != velocity[0].shape:
            raise error(f"velocity[{axis}]", tuple(velocity[0].shape), tuple(a.shape))
    steps = spacings(spacing, axes)
    words = per_axis(boundary, axes, BOUNDED)
    through = [
        edges_alone(a, axis, words[axis] == "periodic") * face_area(steps, axis)
        for axis, a in enumerate(velocity)
    ]
    return tuple(a.clamp(min=0) for a in through), tuple((-a).clamp(min=0) for a in through)


def advection_step(
    v: Tensor,
    velocity: Sequence[Tensor],
    dt: float,
    spacing: Spacing = 1.0,
    source: Tensor | None = None,
    *,
    diffusivity: Tensor | None = None,
    conservative: bool = True,
    split: bool = False,
    boundary: str | Sequence[str] = "neumann",
    tol: float = 1e-5,
    max_iterations: int = 100,
    backend: str | None = None,
) -> Tensor:
    r"""One implicit upwind step of :math:`\dot v + \nabla\cdot(a v) = s`: backward Euler.

    The step is one solve of a `directed_network` with a capacitor at every node. It is stable for
    any `dt`, and :math:`v \ge 0` stays non-negative. For constant a it adds the numerical
    diffusivity

    .. math::

        D = \frac{|a| h}{2} \left(1 + \frac{|a| dt}{h}\right)

    The mean and the variance of v grow by exactly :math:`a\,dt` and :math:`2 D\,dt` a step, because
    the step's response is a geometric distribution. The first term of D comes from the upwind
    difference, the second from backward Euler.

    Parameters
    ----------
    v : Tensor, shape (B, \*grid, C)
        Density before the step, 1 to 3 grid axes.
    velocity : sequence of Tensor, shape (B, \*grid, C), one an axis
        a through the faces, see `upwind_conductance`.
    dt : float
        Length of the step > 0.
    spacing : float or sequence of float, one an axis
        Distance of the nodes > 0.
    source : Tensor, shape (B, \*grid, C), optional
        s; none by default.
    diffusivity : Tensor, shape (B, \*grid, C), optional
        k >= 0 of :math:`-\nabla\cdot(k \nabla v)` beside the advection; none by default.
    conservative : bool
        If False, the step of :math:`\dot v + a\cdot\nabla v = s`, whose v stays within its bounds.
        Both are the same equation where a is free of divergence.
    split : bool
        Step along one axis after the other, and add the source before the first. Each axis is a
        set of lines, which elimination solves several times as fast as iterations solve a grid.
        The properties above hold; splitting adds an error of the order of `dt` where the flows
        along the axes do not commute.
    boundary : {"neumann", "dirichlet", "periodic"} or a sequence of them, one an axis
        "neumann": no flux through the face; with ``conservative=False`` the inflow has the value
        of the node at the face. "dirichlet": v = 0 outside, and outflow leaves the domain.
    tol, max_iterations, backend
        As in `directed_network`.

    Returns
    -------
    Tensor, shape (B, \*grid, C)
        v after the step, in its dtype.

    Raises
    ------
    TypeError, ValueError
        As `directed_network`; also for a `dt` or spacings not above 0.

    Examples
    --------
    >>> import torch
    >>> from chonn_ops.experimental import advection_step
    >>> v = torch.tensor([1.0, 0.0, 0.0, 0.0]).reshape(1, 4, 1)
    >>> after = advection_step(v, (torch.ones_like(v),), dt=1.0, boundary="periodic")
    >>> [round(x, 4) for x in after.flatten().tolist()]
    [0.5333, 0.2667, 0.1333, 0.0667]
    """
    check_step(dt)
    check_field("v", v)
    words = per_axis(boundary, v.dim() - 2, BOUNDED)
    forward, backward = upwind_conductance(velocity, spacing, boundary=words)
    if not conservative:
        forward, backward = backward, forward
    if diffusivity is not None:
        rest = ["periodic" if word == "periodic" else "neumann" for word in words]
        check_not_negative("diffusivity", diffusivity)
        g = edge_conductance(diffusivity, spacing, boundary=rest)
        forward = tuple(a + b for a, b in zip(forward, g, strict=True))
        backward = tuple(a + b for a, b in zip(backward, g, strict=True))
    density = math.prod(spacings(spacing, len(forward))) / dt
    after = v.to(torch.promote_types(v.dtype, torch.float32))
    if source is not None:
        check_like("source", source, v)
        after = after + dt * source
    options = {
        "conservative": conservative,
        "tol": tol,
        "max_iterations": max_iterations,
        "backend": backend,
    }
    if not split:
        leak = after.new_full((), density).expand(v.shape)
        found = directed_network(
            after * density, forward, backward, leak, boundary=words, **options
        )
        return found.to(v.dtype)
    for axis, word in enumerate(words):
        lines = after.movedim(axis + 1, -2)
        u, f, b = (
            x.movedim(axis + 1, -2).flatten(0, -3) for x in (after, forward[axis], backward[axis])
        )
        leak = u.new_full((), density).expand(u.shape)
        u = directed_network(u * density, (f,), (b,), leak, boundary=word, **options)
        after = u.reshape(lines.shape).movedim(-2, axis + 1)
    return after.to(v.dtype)
