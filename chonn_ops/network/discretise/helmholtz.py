r"""Networks at a frequency: admittances of coils and capacitors, and time-harmonic waves.

Fields vary in time as :math:`\mathrm{Re}(v\, e^{-i \omega t})`, everywhere in this package. So a
time derivative is a factor :math:`-i \omega`, a wave that travels along +x is
:math:`e^{i \kappa x}`, and the potentials are the complex conjugates of an electrical engineer's,
who writes :math:`e^{+j \omega t}`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from chonn_ops._dtypes import compute_dtype, real_dtype
from chonn_ops.boundary import Boundary, Matched, Neumann, conditions
from chonn_ops.checks import (
    answer,
    check_above,
    check_field,
    check_not_negative,
    check_open_unit_interval,
)
from chonn_ops.network.circuit import Circuit
from chonn_ops.network.discretise.grids import (
    Spacing,
    check_conditions,
    circuit_of,
    density_of,
    edges,
    masked_conductivity,
    spacings,
)

Density = Tensor | float
# The strength of an absorbing layer grows with this power of the depth: the smoother the start, the
# less it reflects.
GRADING = 2
# Nodes a wavelength. At 4 the waves on the grid are 13 % shorter than those of the equation
# (2 - 2 cos(kappa h) = omega^2 h^2 c / k); below pi there are none.
FEW_NODES = 4


def _dtype_of(*values: Density | None) -> torch.dtype:
    """float64 if one of the tensors has its precision, else float32."""
    return real_dtype(compute_dtype(*(x for x in values if isinstance(x, Tensor))))


def _warn_of_few_nodes(
    conductivity: Tensor,
    capacity: Tensor,
    exists: Tensor | None,
    omega: float,
    steps: Sequence[float],
) -> None:
    """Warn where values may be read and a wavelength has fewer than `FEW_NODES` nodes."""

    def shortest() -> float:
        waves = (conductivity > 0) & (capacity > 0)
        if exists is not None:
            waves = waves & exists
        squared = torch.where(waves, conductivity / torch.where(waves, capacity, 1), math.inf)
        return 2 * math.pi / omega * float(squared.amin().sqrt())

    length = answer(shortest, conductivity) if conductivity.numel() else None
    step = max(steps)
    if length is not None and length < FEW_NODES * step:
        warnings.warn(
            f"helmholtz: the shortest wavelength, {length:.3g}, has {length / step:.3g} "
            f"nodes along axis {steps.index(step)} (spacing {step:.3g}); with fewer than "
            f"{FEW_NODES} the waves on the grid are not those of the equation. Ten are few, twenty "
            "are enough for most purposes",
            stacklevel=3,
        )


def helmholtz(
    conductivity: Tensor,
    capacity: Density,
    loss: Density,
    omega: float,
    spacing: Spacing = 1.0,
    *,
    boundary: Boundary = "neumann",
    mask: Tensor | None = None,
) -> Circuit:
    r"""The circuit of time-harmonic waves in a medium.

    .. math::

        -\nabla \cdot (k \nabla u) - \omega^2 c \, u - i \omega d \, u = f

    the equation of :math:`c \, \ddot w + d \, \dot w = \nabla \cdot (k \nabla w) + f` for
    :math:`w = u \, e^{-i \omega t}`, by finite volumes of second order. Waves travel at
    :math:`\sqrt{k / c}`; ten nodes a wavelength are few, twenty are enough for most purposes. With
    ``boundary="dirichlet"`` u is 0 at the face, half a step outside the first node. "matched" lets
    waves out that meet the face at a right angle; for oblique ones add an `absorbing_layer` to the
    loss.

    Parameters
    ----------
    conductivity : Tensor, shape (B, \*grid, C)
        k >= 0; for sound 1 / density.
    capacity, loss : float or Tensor, shape (B, \*grid, C)
        c >= 0 and d >= 0; for sound 1 / bulk modulus and what dampens.
    omega : float
        Angular frequency > 0.
    spacing, boundary
        As in `diffusion`.
    mask : Tensor of bool, optional
        As in `diffusion`: missing nodes are sound-hard obstacles, in which u is 0.

    Returns
    -------
    Circuit
        Its `solve` takes f per unit volume, real or complex, and returns u, complex.

    Raises
    ------
    TypeError, ValueError
        As `diffusion`; also for negative numbers and a frequency not above 0.

    Warns
    -----
    UserWarning
        The shortest wavelength, 2 pi sqrt(k / c) / omega, has fewer than four nodes along an axis
        (checked on the CPU only, because reading values stalls a GPU).

    Examples
    --------
    A wave of length 1 / 2 from the left end of a line, damped by nothing, out of the right end:

    >>> import math, torch
    >>> from chonn_ops import helmholtz
    >>> f, k = torch.zeros(1, 80, 1), torch.ones(1, 80, 1)
    >>> f[:, 0] = 80.0
    >>> u = helmholtz(k, 1.0, 0.0, 4 * math.pi, 1 / 80, boundary="matched").solve(f)
    >>> bool((u.abs().max() / u.abs().min()) < 1.001)
    True
    """
    check_above(0, omega=omega)
    check_field("conductivity", conductivity)
    wide = _dtype_of(conductivity, capacity, loss)
    conductivity = conductivity.to(wide)
    capacity = density_of("capacity", capacity, conductivity)
    loss = density_of("loss", loss, conductivity)
    axes = conductivity.dim() - 2
    faces, steps = conditions(boundary, axes), spacings(spacing, axes)
    k, exists, _ = masked_conductivity(conductivity, mask)
    check_conditions(faces, k)
    volume = math.prod(steps)
    leak = volume * torch.complex(-(omega**2) * capacity, -omega * loss)
    if exists is not None:
        leak = torch.where(exists, leak, 0)
    _warn_of_few_nodes(conductivity, capacity, exists, omega, steps)
    closed = [low.periodic for low, _ in faces]
    hard = ((Neumann(), Neumann()),) * axes
    conductance = edges(k, steps, closed)
    return circuit_of(k, conductance, leak, steps, faces, exists=exists, inner=hard)


def absorbing_layer(
    conductivity: Tensor,
    capacity: Density,
    thickness: float,
    spacing: Spacing = 1.0,
    *,
    boundary: Boundary = "matched",
    attenuation: float = 0.1,
) -> Tensor:
    r"""The loss of a layer along faces that absorbs waves from every direction.

    .. math::

        d = \sqrt{k c} \, \frac{3 \ln (1 / a)}{D} \left(\frac{x}{D}\right)^2

    at the depth x in a layer of thickness D. A wave at a right angle leaves the layer, reflected at
    its end, with a of its amplitude; an oblique one, whose path is longer, with less. The end
    itself absorbs with ``boundary="matched"``, so that a need not be small: what starts more gently
    reflects less. A layer of two wavelengths in front of a matched end reflects 0.2 % of a wave at
    a right angle and 2 % of one at 60 degrees to it; the end alone reflects 0 % and 34 %.

    Parameters
    ----------
    conductivity : Tensor, shape (B, \*grid, C)
        As in `helmholtz`.
    capacity : float or Tensor, shape (B, \*grid, C)
        As in `helmholtz`.
    thickness : float
        D > 0, in the unit of the spacing.
    spacing : float or sequence of float, one an axis
    boundary : str or a sequence
        As in `helmholtz`: the layer is at the faces that are "matched".
    attenuation : float
        a, above 0 and below 1.

    Returns
    -------
    d : Tensor, shape (B, \*grid, C)
        To be added to the loss of `helmholtz`; 0 outside the layer. It does not depend on
        the frequency.

    Raises
    ------
    TypeError, ValueError
        For another shape or dtype, and numbers outside these ranges.

    References
    ----------
    M. Israeli, S. Orszag, "Approximation of radiation boundary conditions", Journal of
    Computational Physics 41 (1981).
    """
    check_field("conductivity", conductivity)
    check_not_negative("conductivity", conductivity)
    wide = _dtype_of(conductivity, capacity)
    conductivity = conductivity.to(wide)
    capacity = density_of("capacity", capacity, conductivity)
    axes = conductivity.dim() - 2
    steps, faces = spacings(spacing, axes), conditions(boundary, axes)
    check_above(0, thickness=thickness)
    check_open_unit_interval(attenuation=attenuation)
    depth = torch.zeros((1,) * conductivity.dim(), dtype=wide, device=conductivity.device)
    for axis, (step, pair) in enumerate(zip(steps, faces, strict=True)):
        n = conductivity.shape[axis + 1]
        place = (torch.arange(n, dtype=wide, device=conductivity.device) + 0.5) * step
        inside = [place, n * step - place]
        line = torch.zeros_like(place)
        for condition, distance in zip(pair, inside, strict=True):
            if isinstance(condition, Matched):
                line = torch.maximum(line, (1 - distance / thickness).clamp(min=0))
        depth = torch.maximum(depth, line.reshape([n] + [1] * (conductivity.dim() - axis - 2)))
    strength = (GRADING + 1) * math.log(1 / attenuation) / thickness
    return (conductivity * capacity).sqrt() * (strength * depth**GRADING)
