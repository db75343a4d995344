"""What the scans accept; every message says what was expected and what came."""

from __future__ import annotations

import torch
from torch import Tensor

from chonn_ops._dtypes import DTYPES
from chonn_ops._ends import canonical, expected
from chonn_ops.scan._walks import DIRECTIONS

_SLOWEST = {torch.float32: 1e-30, torch.float64: 1e-290}
TERMINATIONS = ("matched", "ring", "open", "short")
MIRROR = {"open": 1, "short": -1}  # sign of what the line is beyond an end that reflects


def _error(name: str, expected: object, actual: object) -> ValueError:
    return ValueError(f"{name}: expected {expected}, got {actual}")


def _check_tensor(name: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise _error(name, "a torch.Tensor", f"a {type(value).__module__}.{type(value).__name__}")


def check_modes(directions: str, termination: str) -> str:
    """Known names that fit each other; the termination as one of `TERMINATIONS`."""
    given, termination = termination, canonical(termination)
    if directions not in DIRECTIONS:
        raise _error("directions", f"one of {DIRECTIONS}", repr(directions))
    if termination not in TERMINATIONS:
        raise _error("termination", expected(TERMINATIONS), repr(given))
    if directions == "raster" and termination in ("open", "short"):
        raise _error(
            "termination",
            "'matched' or 'ring' for a scan one way ('open' and 'short' start the reverse scan of "
            "a line from the end of its forward scan, so they need a field with directions "
            "'bidirectional', 'cross' or 'axial')",
            repr(given),
        )
    return termination


def check_arguments(
    u: Tensor,
    delta: Tensor,
    decay: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor | None,
    initial_state: Tensor | None,
    termination: str,
    directions: str = "raster",
    axes: str = "L",
) -> str:
    """Shapes, dtypes, devices and names: nothing here reads a tensor's values.

    `axes` is what messages call the positions: "L" for a line, "\\*grid" for a field. Returns the
    termination as one of `TERMINATIONS`.
    """
    termination = check_modes(directions, termination)
    for name, value in (("u", u), ("delta", delta), ("decay", decay), ("b", b), ("c", c)):
        _check_tensor(name, value)
    for name, value in (("d", d), ("initial_state", initial_state)):
        if value is not None:
            _check_tensor(name, value)
    if termination == "ring" and initial_state is not None:
        raise _error("initial_state", "None with termination='ring', which sets it", "a tensor")
    if u.dim() < 3 or (axes == "L" and u.dim() != 3):
        raise _error("u", f"shape (B, {axes}, D)", tuple(u.shape))
    if decay.dim() != 2:
        raise _error("decay", "shape (D, N)", tuple(decay.shape))
    B, *grid, D = u.shape
    N = decay.shape[1]
    if 0 in grid or D == 0 or N == 0:
        positions = f"L={grid[0]}" if axes == "L" else f"grid={tuple(grid)}"
        sizes = f"{positions}, D={D}, N={N}"
        raise _error("u and decay", f"{axes.lstrip('*')}, D and N of at least 1", sizes)
    for name, tensor, symbols, shape in (
        ("u", u, f"(B, {axes}, D)", (B, *grid, D)),
        ("delta", delta, f"(B, {axes}, D)", (B, *grid, D)),
        ("decay", decay, "(D, N)", (D, N)),
        ("b", b, f"(B, {axes}, N)", (B, *grid, N)),
        ("c", c, f"(B, {axes}, N)", (B, *grid, N)),
        ("d", d, "(D,)", (D,)),
        ("initial_state", initial_state, "(B, D, N)", (B, D, N)),
    ):
        if tensor is None:
            continue
        if tensor.shape != shape:
            raise _error(name, f"shape {symbols} = {shape}", tuple(tensor.shape))
        if tensor.device != u.device:
            raise _error(name, f"device {u.device}, where u is", tensor.device)
        if tensor.dtype not in DTYPES:
            raise _error(name, f"a dtype of {DTYPES}", tensor.dtype)
    return termination


def check_decay(decay: Tensor) -> None:
    """Positive decays; CPU only, because reading the answer on a GPU would stall its queue."""
    if decay.device.type == "cpu":
        smallest = decay.min().item()
        if not smallest > 0:
            raise _error("decay", "> 0 everywhere", f"minimum {smallest:g}")


def within_range(decay: Tensor, dtype: torch.dtype) -> Tensor:
    """Rates whose inverse and product with an input are numbers of `dtype`.

    Slower ones are raised to the slowest: over any time step that fits, they decay by less than
    rounding sees.
    """
    slowest = _SLOWEST[dtype]
    if decay.device.type == "cpu" and decay.abs().min().item() >= slowest:
        return decay
    wide = decay.to(dtype)
    return torch.where(wide.abs() < slowest, torch.copysign(wide.new_full((), slowest), wide), wide)
