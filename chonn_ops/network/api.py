"""`kirchhoff_network`: the potentials of grids of nodes under Kirchhoff's current law."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, overload

import torch
from torch import Tensor

from chonn_ops._backends import requested
from chonn_ops._dtypes import compute_dtype, potential_dtype
from chonn_ops.boundary import Boundary, is_periodic, per_face
from chonn_ops.checks import error, refuse_trace
from chonn_ops.network import autograd  # noqa: F401 - registers the operator and its derivatives
from chonn_ops.network.checks import (
    NETWORK_DTYPES,
    any_complex,
    check_arguments,
    check_grounded,
    readable,
    traced,
)
from chonn_ops.network.direct.factor import check_sources, factorize
from chonn_ops.network.leaks import leak_with_boundary

Method = Literal["auto", "direct", "multigrid"]
_MOST_ITERATIONS = 2**31 - 1  # the kernels count in int32


class NetworkInfo(NamedTuple):
    """How the solves went: what `kirchhoff_network` returns with ``return_info=True``.

    Attributes
    ----------
    iterations : Tensor, shape (B, C)
        int32; 0 where the network was eliminated without iterations.
    residual : Tensor, shape (B, C)
        :math:`|s - A v|_2 / |s|_2`, float32, or float64 where an input is float64. 0 without a
        source, and 0 where an eliminated network leaves no more than rounding:
        :math:`|s - A v|_2 \\le 16 \\epsilon \\, | |A| |v| |_2`, with :math:`\\epsilon` the rounding
        unit. NaN where an input is not finite. It has no gradient.
    """

    iterations: Tensor
    residual: Tensor


def solve_checked(
    source: Tensor,
    conductance: Sequence[Tensor],
    leak: Tensor,
    faces: Sequence[tuple[str, str]],
    wall: Tensor | None,
    tol: float,
    max_iterations: int,
    backend: str | None,
    method: str = "auto",
) -> tuple[Tensor, Tensor, Tensor]:
    """`kirchhoff_network` of checked arguments.

    Returns potentials in the dtype of the solve, iterations and residuals. `faces` is what
    `chonn_ops.boundary.per_face` returns.
    """
    refuse_trace("kirchhoff_network")
    axes = len(conductance)
    dtype = compute_dtype(source, leak, wall, *conductance)
    total = leak_with_boundary(conductance, leak, faces, wall, dtype)
    return torch.ops.chonn_ops.kirchhoff_network(
        source,
        conductance[0],
        conductance[1] if axes > 1 else None,
        conductance[2] if axes > 2 else None,
        total,
        is_periodic(faces),
        float(tol),
        min(int(max_iterations), _MOST_ITERATIONS),
        requested(backend),
        method,
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
    boundary: Boundary = "neumann",
    wall: Tensor | None = None,
    tol: float = 1e-5,
    max_iterations: int = 100,
    method: Method = "auto",
    return_info: Literal[False] = False,
    backend: str | None = None,
) -> Tensor: ...


@overload
def kirchhoff_network(
    source: Tensor,
    conductance: Sequence[Tensor],
    leak: Tensor,
    *,
    boundary: Boundary = "neumann",
    wall: Tensor | None = None,
    tol: float = 1e-5,
    max_iterations: int = 100,
    method: Method = "auto",
    return_info: Literal[True],
    backend: str | None = None,
) -> tuple[Tensor, NetworkInfo]: ...


def kirchhoff_network(
    source: Tensor,
    conductance: Sequence[Tensor],
    leak: Tensor,
    *,
    boundary: Boundary = "neumann",
    wall: Tensor | None = None,
    tol: float = 1e-5,
    max_iterations: int = 100,
    method: Method = "auto",
    return_info: bool = False,
    backend: str | None = None,
) -> Tensor | tuple[Tensor, NetworkInfo]:
    r"""Solve Kirchhoff's current law at every node of a grid, one network a batch and channel.

    .. math::

        \sum_q g_{pq} (v_p - v_q) + l_p v_p = s_p

    over the neighbours q of each node p along 1, 2 or 3 axes. The matrix is symmetric and an
    M-matrix. For any conductances :math:`v \ge 0` where :math:`s \ge 0`,
    :math:`|v| \le \max |s| / \min l`, and the network dissipates the power :math:`s \cdot v`.

    Complex numbers make it a network at a frequency, or a time-harmonic wave, see Notes.

    Real networks are eliminated (`method` "direct"), which loses no digit at any contrast, or
    iterated ("multigrid"), which is faster for large batches of smooth networks at a coarse `tol`.
    A gradient costs one more solve; a direct forward keeps its factors for it, as long as all that
    are kept take at most 2 GiB.

    ===========  =================================================================================
    boundary     conductance to ground of the nodes at a face of the grid
    ===========  =================================================================================
    neumann      none: no current leaves
    dirichlet    half an edge to potential 0: 2 g
    robin        `wall` in series with half an edge: 1 / (1 / wall + 1 / (2 g))
    matched      an endless line of the same edges and leaks, for an unbounded domain:
                 2 g l / (l + sqrt(l^2 + 4 g l)); 0 where l = 0
    periodic     none; an edge joins the last node and the first
    ===========  =================================================================================

    with g the conductance of the edge next to the face (an axis of one node: its only entry) and l
    the node's leak. "robin" goes from "neumann" (``wall=0``) to "dirichlet" (``wall=inf``).

    Parameters
    ----------
    source : Tensor, shape (B, \*grid, C) or (B, S, \*grid, C)
        Current :math:`s_p` into each node, 1 to 3 grid axes. bfloat16, float16, float32, float64,
        complex64 or complex128. The solve is float64 if any input is float64 or complex128, else
        float32, also under autocast, and complex if any input is complex. S sources
        share one elimination of their networks, with the backends and derivatives of `factorize`;
        under `torch.func` each source has its own elimination.
    conductance : sequence of Tensor, shape (B, \*grid, C)
        :math:`g_{pq}`, one tensor an axis, >= 0 if all inputs are real: entry p joins node p and
        the next one along that axis. The last entry along an axis is used by "periodic" only, where
        it joins the last node to the first; where it is 0 the axis is open. `edge_conductance`
        computes them from a conductivity; pass it "periodic", too, for this last edge.
    leak : Tensor, shape (B, \*grid, C)
        Conductance :math:`l_p` from each node to ground, >= 0 if all inputs are real. Every
        connected part of a network needs a leak at one node, or a boundary that adds one; otherwise
        its potentials are not determined, and the call raises a ValueError. A node with neither
        edge nor leak has potential 0, whatever its source.
    boundary : {"neumann", "dirichlet", "periodic", "matched", "robin"} or a sequence
        Boundary condition, see above: one word for all axes, or for each axis one word or a pair
        of words for its low and its high face.
    wall : Tensor, shape (C,) or (axes, 2, C), optional
        Conductance >= 0 to ground behind the half edge at "robin" faces, which require it: one a
        channel, or one for the low and the high face of each axis. Other faces do not use theirs.
    tol : float
        Relative residual at which iterations stop: :math:`|s - A v|_2 \le tol \, |s|_2`. A direct
        solve is right to rounding, which alone leaves residuals of about
        :math:`10^{-7} \, |A|\,|v| / |s|` in float32.
    max_iterations : int
        Most iterations of multigrid; "auto" stops after 12 (40 on three axes) where it can
        eliminate the rest.
    method : {"auto", "direct", "multigrid"}
        "auto" eliminates at once, on the compiled kernel, grids of two axes with at most 512 x 512
        nodes and of three with at most 12 x 12 x 12, if `tol` is below 1e-4, in groups of networks
        whose factors are predicted to take at most 2 GiB. It iterates all others, and eliminates
        those that stay above `tol`, up to 512 x 512 or 32 x 32 x 32 nodes and 2 GiB a network. It
        eliminates networks of these sizes at once if the leaks of one, all or those of a part, are
        below the rounding of its largest conductance.
        "direct" eliminates without a bound. "multigrid" only iterates.
        The backend "reference" is direct in any case.
    return_info : bool
        Also return iterations and residual of each network.
    backend : {"reference", "torch", "cpu", "triton"}, optional
        Default: the environment variable ``CHONN_NETWORK_BACKEND``, else by device.

    Returns
    -------
    v : Tensor, shape (B, \*grid, C)
        Potentials :math:`v_p`, in ``source.dtype`` or the complex dtype of its precision, in the
        unit of source over conductance. A network with a NaN or an infinity in an input is all NaN;
        the others are not affected.
    info : NetworkInfo
        Only with `return_info`.

    Raises
    ------
    TypeError
        Something else than a Tensor.
    ValueError
        Wrong shape, dtype or device; negative conductance, leak or wall, or a connected part
        without leak, which is named (checked on the CPU only, because reading values stalls a GPU;
        a direct solve finds such parts everywhere); an unknown boundary or method; a `wall` without
        "robin" or "robin" without `wall`; a `tol` not between 0 and 1, a `max_iterations` below 1;
        an unknown or unavailable backend.
    RuntimeError
        A network is above `tol` after `max_iterations` and too large to be eliminated, or `method`
        is "multigrid", or a complex network is at a resonance. The message says what to change.

    Notes
    -----
    If any input is complex, conductances are admittances of coils, capacitors and resistors, or
    the equation is :math:`-\nabla (k \nabla u) - \omega^2 c u - i \omega d u = f`. Then no sign is
    checked, and real numbers may be negative. Time goes as :math:`e^{-i \omega t}`, so loss is a
    negative imaginary part of a wave's leak and a positive real part of an admittance. Passive
    networks, which have no gain anywhere, are recommended: they have no resonance where there is
    loss.

    Complex networks are eliminated, whatever `tol`; "multigrid" is refused. complex64: factors in
    complex64, and steps of refinement with residuals in complex128, one at least, until the
    residual is at most `tol`; networks that stay above it are eliminated in complex128. complex128:
    factors in complex128, refined to rounding whatever `tol`. What is above `tol` then is at a
    resonance, a `RuntimeError`. The residual is that of the potentials before they are rounded to
    complex64. Gradients follow PyTorch: for a real loss, the conjugate
    Wirtinger derivative, and its real part for a real input.

    "matched" takes the root of the endless line that decays away from the face. Without loss
    neither decays; then it is the root that takes power in, and for real conductances the wave
    that goes out with :math:`e^{-i \omega t}`. It reflects nothing of a wave at normal incidence.

    References
    ----------
    C.-W. Ho, A. Ruehli, P. Brennan, "The modified nodal approach to network analysis", IEEE Trans.
    Circuits and Systems 22 (1975). The boundary "matched" is this package's own.

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
    both = isinstance(source, Tensor) and isinstance(leak, Tensor)
    # With conductances that fit the source, it is the leak that lacks an axis.
    fit = both and isinstance(conductance, (tuple, list)) and source.dim() == len(conductance) + 2
    if both and not fit and source.dim() == leak.dim() + 1:
        v, info = _solve_many(
            source, conductance, leak, boundary, wall, tol, max_iterations, method, backend
        )
        return (v, info) if return_info else v
    faces = check_arguments(
        source, conductance, leak, boundary, wall, tol, max_iterations, method, NETWORK_DTYPES
    )
    v, iterations, residual = solve_checked(
        source, conductance, leak, faces, wall, tol, max_iterations, backend, method
    )
    v = v.to(potential_dtype(source, v.dtype))
    return (v, NetworkInfo(iterations, residual)) if return_info else v


def _solve_many(
    source: Tensor,
    conductance: Sequence[Tensor],
    leak: Tensor,
    boundary: Boundary,
    wall: Tensor | None,
    tol: float,
    max_iterations: int,
    method: str,
    backend: str | None,
) -> tuple[Tensor, NetworkInfo]:
    """`kirchhoff_network` of sources (B, S, \\*grid, C): one elimination for all of them."""
    faces = check_arguments(
        leak, conductance, leak, boundary, wall, tol, max_iterations, method, NETWORK_DTYPES
    )
    check_sources("source", source, leak, NETWORK_DTYPES)
    if source.is_complex() and not any_complex(leak, wall, *conductance):
        leak = leak.to(compute_dtype(source, leak, *conductance))
    if method == "multigrid":
        raise error("method", "'auto' or 'direct' for sources (B, S, *grid, C)", repr(method))
    B, S, C = source.shape[0], source.shape[1], source.shape[-1]
    if traced(source):  # what transforms and compilers cannot do with `factorize`
        apart = [x[:, None].expand(source.shape).flatten(0, 1) for x in (leak, *conductance)]
        faces = per_face(boundary, len(conductance))
        options = (tol, max_iterations, backend, "direct")
        found = solve_checked(source.flatten(0, 1), apart[1:], apart[0], faces, wall, *options)
        v, iterations, residual = (x.unflatten(0, (B, S)) for x in found)
        return v.to(potential_dtype(source, v.dtype)), NetworkInfo(iterations, residual)
    networks = factorize(conductance, leak, boundary=boundary, wall=wall, backend=backend)
    if readable(leak):
        with torch.no_grad():
            dtype = compute_dtype(leak, wall, *conductance)
            total = leak_with_boundary(conductance, leak, faces, wall, dtype)
            check_grounded(conductance, total, is_periodic(faces))
    v, residual = networks.solve_with_residual(source)
    iterations = torch.zeros(B, S, C, dtype=torch.int32, device=source.device)
    return v, NetworkInfo(iterations, residual)
