"""`kirchhoff_scan` and `scan_field`: the scan of lines, and of fields along their lines."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from chonn_ops._backends import requested
from chonn_ops.checks import check_bool, refuse_trace
from chonn_ops.scan.arguments import Inputs, Modes, check_arguments
from chonn_ops.scan.autograd import scan

_is_exporting = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)


def _keeps_checkpoints(*tensors: Tensor | None) -> bool:
    """Whether to keep checkpoints for a backward.

    An exported program keeps none: their number changes at lines of 512 steps, and a program for
    lines of any length cannot branch there. Its backward walks the line again instead.
    """
    needed = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
    return needed and not _is_exporting()


def _limit_growth(delta: Tensor, decay: Tensor) -> Tensor:
    """Shorten time steps so that no state grows by more than e^80 in one; float32 ends at e^88."""
    fastest = (-decay).amax(1).clamp_min(1e-18)  # the derivative divides by its square
    return torch.minimum(delta, (80 / fastest).to(delta.dtype))


def scan_checked(
    inputs: Inputs,
    directions: str,
    reverse: bool,
    boundary: str,
    passive: bool,
    backend: str | None,
) -> tuple[Tensor, Tensor]:
    """Run the operator on checked fields (B, \\*grid, C).

    Returns the output and the final state. The state is empty unless `directions` is "raster";
    `initial_state` and `reverse` are for "raster" only.
    """
    refuse_trace("kirchhoff_scan")
    u = inputs.u
    if not passive:
        inputs = inputs._replace(delta=_limit_growth(inputs.delta, inputs.decay))
    grid, keep = u.shape[1:-1], _keeps_checkpoints(*inputs)
    modes = Modes(grid, directions, reverse, boundary, requested(backend), passive, keep)
    if len(grid) == 1:
        return scan(inputs, modes)
    # A grid with a single stride, as in a slice of channels, flattens to a view; others are copied.
    flat = {x: getattr(inputs, x).flatten(1, -2) for x in ("u", "delta", "b", "c")}
    y, state = scan(inputs._replace(**flat), modes)
    return y.reshape(u.shape), state


def kirchhoff_scan(
    u: Tensor,
    delta: Tensor,
    decay: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor | None = None,
    *,
    reverse: bool = False,
    initial_state: Tensor | None = None,
    return_state: bool = False,
    boundary: str = "matched",
    backend: str | None = None,
    passive: bool = True,
) -> Any:
    r"""Run N first-order circuit states per channel along a line and read them out.

    .. math::

        v_k = e^{-\Delta_k \lambda} v_{k-1}
              + \frac{1 - e^{-\Delta_k \lambda}}{\lambda} b_k u_k, \qquad
        y_k = \sum_n c_k v_k + d u_k

    States, exponentials and sums are float64 if any input is float64, else float32. Neither the
    forward nor the backward stores a tensor of size (B, L, D, N).

    Parameters
    ----------
    u : Tensor, shape (B, L, D)
        Input :math:`u_k`. bfloat16, float16, float32 or float64.
    delta : Tensor, shape (B, L, D)
        Time steps :math:`\Delta_k \ge 0`, in the time unit of ``1 / decay``; 0 holds the state.
        Checked on the CPU, like `decay`.
    decay : Tensor, shape (D, N)
        Decay rates :math:`\lambda` > 0. Checked on the CPU only, because reading values stalls a
        GPU.
    b, c : Tensor, shape (B, L, N)
        Injection and readout coefficients, shared by the channels.
    d : Tensor, shape (D,), optional
        Skip from input to output; none by default.
    reverse : bool
        Scan from k = L-1 down to 0.
    initial_state : Tensor, shape (B, D, N), optional
        State before the first step of the scan; rest (zeros) by default.
    return_state : bool
        Also return the state after the last step of the scan.
    boundary : {"matched", "periodic"}
        "matched" starts from rest or `initial_state`. "periodic" joins the line's end to its
        start: the scan starts from the state that one period reproduces, so the final state equals
        the initial one; it is NaN where all steps of a line are 0, as any state would do. States
        grow as 1 / decay; in float32 gradients overflow where these are above 1e19.
        "neumann" and "dirichlet" need both directions of a line, and so `chonn_ops.scan_field`.
    backend : {"reference", "torch", "cpu", "cuda"}, optional
        Default: the environment variable ``CHONN_SCAN_BACKEND``, else by device.
    passive : bool
        Require decay > 0. With False, for ablations, decay may have either sign, but not be 0.
        Such a circuit amplifies; time steps are shortened where a state would grow by more than
        e^80 in one.

    Returns
    -------
    y : Tensor, shape (B, L, D)
        Output, in ``u.dtype``.
    state : Tensor, shape (B, D, N)
        Only with `return_state`; float32, or float64 where an input is float64.

    Raises
    ------
    TypeError
        Something else than a Tensor.
    ValueError
        Wrong shape, dtype, device or layout; a negative delta or a decay that is not positive (on
        the CPU); an unknown boundary, or one that needs both directions; an unknown or unavailable
        backend; an `initial_state` with "periodic".

    References
    ----------
    The CHONN paper, Methods, eqs. 32 and 34. The boundary "periodic" is this package's own.
    """
    inputs = Inputs(u, delta, decay, b, c, d, initial_state)
    check_arguments(inputs, boundary)
    check_bool(reverse=reverse, passive=passive)
    y, state = scan_checked(inputs, "raster", reverse, boundary, passive, backend)
    return (y, state) if return_state else y


def scan_field(
    u: Tensor,
    delta: Tensor,
    decay: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor | None = None,
    *,
    directions: str = "axial",
    boundary: str = "matched",
    passive: bool = True,
    backend: str | None = None,
) -> Tensor:
    r"""Scan a channels-last field along its lines, in one or both directions.

    The paper flattens a field into one line ("L is the flattened spatial length"). A scan in one
    direction is causal, so it cannot represent a symmetric operator such as an inverse Laplacian.
    The other modes scan in both directions, or along several axes.

    ==============  =========================================  ===================================
    directions      lines                                      scans for a field of n axes
    ==============  =========================================  ===================================
    raster          the flattened field                        1, forward (the paper's text)
    bidirectional   the flattened field                        2, forward and reverse
    cross           the field flattened along each axis        2 n, as in visual state-space models
    axial           every row, every column, ...               2 n, all lines of an axis at once
    ==============  =========================================  ===================================

    The result is the mean over the scans plus the skip, so its scale does not depend on the mode.
    All scans share one set of coefficients: an isotropic prior, with 2 n times fewer projections.
    The compiled backends ("cpu", "cuda") walk strides; they transpose and flip no tensor.

    ===========  ===============================================================
    boundary     states that the scans of a line start from
    ===========  ===============================================================
    matched      rest: no input outside of the line (the paper's choice)
    periodic     the state that one period reproduces
    neumann      the reverse scan starts from the final state of the forward
                 scan, as if the line continued as its mirror image
    dirichlet    the reverse scan starts from minus that state, as if the line
                 continued as its mirror image with the opposite sign
    ===========  ===============================================================

    With "neumann" and "dirichlet" the forward scan starts from rest, so only the far end of a line
    reflects. "raster" has no reverse scan and refuses both. The lines of "axial", and of a field
    with one axis, end at the boundary of the domain. The other modes flatten a field of several
    axes into one line from corner to corner, which jumps from each row's end to the next row's
    start; its boundary is not that of the domain.

    Parameters
    ----------
    u, delta, decay, b, c, d, passive, backend
        As in `kirchhoff_scan`, with \*grid in the place of L; the skip d is added once.
    directions : {"raster", "bidirectional", "cross", "axial"}
        Lines and directions, as above. "raster" is the paper's.
    boundary : {"matched", "periodic", "neumann", "dirichlet"}
        Boundary condition at the ends of every line, as above.

    Returns
    -------
    Tensor, shape (B, \*grid, D)
        Mean over the scans plus ``d * u``, in ``u.dtype``.

    Raises
    ------
    TypeError, ValueError
        As `kirchhoff_scan`; also for unknown directions, and "neumann" or "dirichlet" with
        "raster".

    References
    ----------
    As `kirchhoff_scan`; the modes with reverse scans are this package's own.
    """
    inputs = Inputs(u, delta, decay, b, c, d, None)
    check_arguments(inputs, boundary, directions, positions="*grid")
    check_bool(passive=passive)
    return scan_checked(inputs, directions, False, boundary, passive, backend)[0]
