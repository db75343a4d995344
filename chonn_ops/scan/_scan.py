"""`kirchhoff_scan`: the scan of a line, one way."""

from __future__ import annotations

from typing import Literal, overload

import torch
from torch import Tensor

from chonn_ops.scan import _derivatives  # noqa: F401 - registers the operator
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


def call(
    u: Tensor,
    delta: Tensor,
    decay: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor | None,
    initial_state: Tensor | None,
    *,
    grid: list[int],
    directions: str,
    reverse: bool,
    termination: str,
    backend: str | None,
    passive: bool,
) -> tuple[Tensor, Tensor]:
    """The operator on checked (B, P, C) fields: output and final state (empty but for "raster").

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
    forced = "" if backend is None else backend
    y, state, _ = torch.ops.chonn_ops.kirchhoff_scan(
        u,
        delta,
        decay,
        b,
        c,
        d,
        initial_state,
        grid,
        directions,
        reverse,
        termination,
        forced,
        passive,
        keep,
    )
    return y, state


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
    y, state = call(
        *(u, delta, decay, b, c, d, initial_state),
        grid=[u.shape[1]],
        directions="raster",
        reverse=reverse,
        termination=termination,
        backend=backend,
        passive=passive,
    )
    return (y, state) if return_state else y
