"""The scans of lines and of fields, and what both call."""

from __future__ import annotations

from typing import Literal, overload

import torch
from torch import Tensor

from chonn_ops.scan import autograd  # noqa: F401 - registers the operator and its derivatives
from chonn_ops.scan._checks import check_arguments

_is_exporting = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)


def _keeps_checkpoints(*tensors: Tensor | None) -> bool:
    """Whether a backward will come. How much it wants kept has a step at lines of 512, which an
    exported program for lines of any length cannot have: its backward starts afresh."""
    needed = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
    return needed and not _is_exporting()


def _limit_growth(delta: Tensor, decay: Tensor) -> Tensor:
    """Steps within which no state grows by more than e^80; float32 ends at e^88."""
    fastest = (-decay).amax(1).clamp_min(1e-37)  # near the least float32 that is not denormal
    return torch.minimum(delta, (80 / fastest).to(delta.dtype))


def scan_checked(
    u: Tensor,
    delta: Tensor,
    decay: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor | None,
    initial_state: Tensor | None,
    directions: str,
    reverse: bool,
    termination: str,
    passive: bool,
    backend: str | None,
) -> tuple[Tensor, Tensor]:
    """The operator on checked fields (B, \\*grid, C): output and final state, which is empty but
    for "raster". `initial_state` and `reverse` are for "raster", too.

    By the dispatcher's name, which TorchScript knows too; so no argument is unpacked here.
    """
    if not torch.jit.is_scripting() and torch.jit.is_tracing():
        raise NotImplementedError(
            "torch.jit.trace cannot record the scan; expected torch.jit.script or torch.export"
        )
    if not passive:
        delta = _limit_growth(delta, decay)
    keep = torch.is_grad_enabled()
    if not torch.jit.is_scripting():
        keep = _keeps_checkpoints(u, delta, decay, b, c, d, initial_state)
    # Views where the grid has one stride, as it has in a slice of channels: else copies.
    y, state, _ = torch.ops.chonn_ops.kirchhoff_scan(
        u.flatten(1, -2),
        delta.flatten(1, -2),
        decay,
        b.flatten(1, -2),
        c.flatten(1, -2),
        d,
        initial_state,
        list(u.shape[1:-1]),
        directions,
        reverse,
        termination,
        "" if backend is None else backend,
        passive,
        keep,
    )
    return y.reshape(u.shape), state


@overload
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
    return_state: Literal[False] = False,
    termination: str = "matched",
    backend: str | None = None,
    passive: bool = True,
) -> Tensor: ...


@overload
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
    return_state: Literal[True],
    termination: str = "matched",
    backend: str | None = None,
    passive: bool = True,
) -> tuple[Tensor, Tensor]: ...


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
    termination: str = "matched",
    backend: str | None = None,
    passive: bool = True,
) -> Tensor | tuple[Tensor, Tensor]:
    r"""Run N first-order circuit states per channel along a line and read them out.

    .. math::

        v_k = e^{-\Delta_k \lambda} v_{k-1}
              + \frac{1 - e^{-\Delta_k \lambda}}{\lambda} b_k u_k, \qquad
        y_k = \sum_n c_k v_k + d u_k

    State, exponentials and sums are float32 for narrower inputs, and float64 as soon as one input
    is float64. Nothing of size (B, L, D, N) is ever stored, forward or backward.

    Parameters
    ----------
    u : Tensor, shape (B, L, D)
        Input :math:`u_k`. bfloat16, float16, float32 or float64.
    delta : Tensor, shape (B, L, D)
        Time steps :math:`\Delta_k` > 0, in the time unit of ``1 / decay``.
    decay : Tensor, shape (D, N)
        Decay rates :math:`\lambda` > 0. Checked on the CPU; a check on a GPU would stall it.
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
    termination : {"matched", "ring"}, or "periodic" for "ring"
        "matched" starts from rest or `initial_state`. "ring" closes the line on itself: the scan
        starts from the state that one turn reproduces, so the final state equals the initial one.
        "open" and "short" join the two ways of a line: they need `chonn_ops.scan_field`.
    backend : {"reference", "torch", "cpu", "triton"}, optional
        Default: the environment variable ``CHONN_SCAN_BACKEND``, else by device.
    passive : bool
        Require decay > 0. With False, for ablations, decay may have either sign (but not be 0):
        such a circuit amplifies, and steps are shortened where one alone would grow by e^80.

    Returns
    -------
    y : Tensor, shape (B, L, D)
        Output, in ``u.dtype``.
    state : Tensor, shape (B, D, N)
        Only with `return_state`; float32, or float64 where an input is float64.

    Raises
    ------
    ValueError
        Wrong shape, dtype or device; non-positive decay; an unknown termination, or one that
        needs both ways; an unknown or unavailable backend; an `initial_state` with "ring".

    References
    ----------
    The CHONN paper, Methods, eqs. methods_knc_impl and methods_selective_disc; "ring" is this
    package's own.
    """
    termination = check_arguments(u, delta, decay, b, c, d, initial_state, termination)
    y, state = scan_checked(
        *(u, delta, decay, b, c, d, initial_state),
        *("raster", reverse, termination, passive, backend),
    )
    return (y, state) if return_state else y


def scan_field(
    u: Tensor,
    delta: Tensor,
    decay: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor | None = None,
    *,
    directions: str = "raster",
    termination: str = "matched",
    passive: bool = True,
    backend: str | None = None,
) -> Tensor:
    r"""Scan a channels-last field along the lines of a direction mode.

    The paper flattens a field into one line ("L is the flattened spatial length"). A line read one
    way is causal, so it cannot represent a symmetric operator such as an inverse Laplacian; the
    other modes read it from both ends or along several axes.

    ==============  =================================  ====================================
    directions      lines                              scans for a field of n axes
    ==============  =================================  ====================================
    raster          the flattened field                1 (forwards only: the paper's letter)
    bidirectional   the flattened field                2 (both ways)
    cross           the field flattened along each     2 n (the visual state-space default)
                    axis in turn
    axial           every row, every column, ...       2 n, all lines in parallel
    ==============  =================================  ====================================

    The result is the mean over the scans, so its scale does not depend on the mode, plus one skip.
    All scans share one set of coefficients: an isotropic prior, with 2 n times fewer projections.
    The compiled backends ("cpu", "triton") walk strides: no mode transposes or flips a tensor.

    ===========  =======================================================  ====================
    termination  what a line does at its ends                             domain
    ===========  =======================================================  ====================
    matched      both ways start from rest: silence outside (the paper)   open space
    ring         starts from the state that one turn reproduces           periodic
    open         the way back starts from the final state of the way      wall, even (Neumann)
                 forth, as if the line went on as its mirror image
    short        the way back starts from minus that state, as if the     wall, odd (Dirichlet)
                 mirror image had the opposite sign
    ===========  =======================================================  ====================

    The way forth starts from rest with "open" and "short": only the last end of a line reflects.
    They join the two ways, so "raster", which has one, refuses them. Lines of "axial", and of a
    field with one axis, end at its walls. Flattened modes of a field with several axes have one
    line from corner to corner, which jumps from each row's end to the next row's start: ring, open
    and short then join corners, and say nothing about the walls.

    Parameters
    ----------
    u, delta : Tensor, shape (B, \*grid, D)
        Input and positive step along the line. bfloat16, float16, float32 or float64.
    decay : Tensor, shape (D, N)
        Decay rate for a unit step, > 0. Checked on the CPU; a check on a GPU would stall it.
    b, c : Tensor, shape (B, \*grid, N)
        Injection and readout coefficients, shared by the channels.
    d : Tensor, shape (D,), optional
        Skip, added once whatever the number of scans; none by default.
    directions : {"raster", "bidirectional", "cross", "axial"}
        Lines and ways, as above. "raster" by default, the paper's, of which `kirchhoff_scan` is
        the case of one axis; blocks of fields have a default of their own (`chonn_ops.CKB`).
    termination : {"matched", "ring", "open", "short"}
        What every line does at its ends, as above; "periodic", "neumann" and "dirichlet" are other
        words for ring, open and short.
    passive : bool
        Whether `decay` must be positive, see `chonn_ops.kirchhoff_scan`.
    backend : {"reference", "torch", "cpu", "triton"}, optional
        Default: the environment variable ``CHONN_SCAN_BACKEND``, else by device.

    Returns
    -------
    Tensor, shape (B, \*grid, D)
        Mean over the scans plus ``d * u``, in ``u.dtype``.

    Raises
    ------
    ValueError
        Wrong shape, dtype or device; non-positive decay; an unknown mode; "open" or "short" with
        "raster"; an unknown or unavailable backend.

    References
    ----------
    The CHONN paper, Methods, eqs. methods_knc_impl and methods_selective_disc; the two-way modes
    and the terminations other than "matched" are this package's own.
    """
    termination = check_arguments(
        u, delta, decay, b, c, d, None, termination, directions, axes="*grid"
    )
    y, _ = scan_checked(
        *(u, delta, decay, b, c, d, None),
        *(directions, False, termination, passive, backend),
    )
    return y
