"""`scan_field`: the scan of a field, along the lines and ways of a direction mode."""

from __future__ import annotations

from torch import Tensor

from chonn_ops.scan._checks import check_arguments
from chonn_ops.scan._scan import call


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
        Lines and ways, as above.
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
    return scan_checked_field(u, delta, decay, b, c, d, directions, termination, passive, backend)


def scan_checked_field(
    u: Tensor,
    delta: Tensor,
    decay: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor | None,
    directions: str,
    termination: str,
    passive: bool,
    backend: str | None,
) -> Tensor:
    """`scan_field` without its checks and keywords, neither of which TorchScript knows."""
    # Views where the grid has one stride, as it has in a slice of channels: else copies.
    y, _ = call(
        u.flatten(1, -2),
        delta.flatten(1, -2),
        decay,
        b.flatten(1, -2),
        c.flatten(1, -2),
        d,
        None,
        grid=list(u.shape[1:-1]),
        directions=directions,
        reverse=False,
        termination=termination,
        backend=backend,
        passive=passive,
    )
    return y.reshape(u.shape)
