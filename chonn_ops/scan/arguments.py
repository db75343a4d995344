"""The arguments of the scans: the operator's tensors and modes, and what is required of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from chonn_ops.checks import answer, check_choice, check_kind, check_tensor, error
from chonn_ops.scan.walks import DIRECTIONS, MIRROR

BOUNDARIES = ("matched", "periodic", "neumann", "dirichlet")
# Decay rates whose inverse and product with an input are still normal numbers.
SLOWEST = {torch.float32: 1e-30, torch.float64: 1e-290}


class Inputs(NamedTuple):
    """The tensors, with P flattened positions and N states a channel."""

    u: Tensor  # (B, P, D)
    delta: Tensor  # (B, P, D)
    decay: Tensor  # (D, N)
    b: Tensor  # (B, P, N)
    c: Tensor  # (B, P, N)
    d: Tensor | None  # (D,)
    initial_state: Tensor | None  # (B, D, N)

    def to(self, dtype: torch.dtype) -> Inputs:
        """The tensors in a dtype."""
        converted: Any = (None if x is None else x.to(dtype) for x in self)
        return Inputs(*converted)


class Modes(NamedTuple):
    """The other arguments, in the order of the operator's schema.

    The defaults are needed because the dispatcher omits trailing arguments that equal theirs.
    """

    grid: Sequence[int]
    directions: str
    reverse: bool
    boundary: str
    backend: str
    passive: bool = True
    keep: bool = False  # whether the forward returns checkpoints; the backward has no such argument


def split(arguments: Sequence[Any]) -> tuple[Inputs, Modes]:
    """Split the operator's arguments into tensors and modes."""
    return Inputs(*arguments[:7]), Modes(*arguments[7:])


def check_modes(directions: str, boundary: str) -> None:
    """Require a known direction mode and a boundary that it can have: one that reflects is a
    ValueError with "raster"."""
    check_choice("directions", directions, DIRECTIONS)
    check_choice("boundary", boundary, BOUNDARIES)
    if directions == "raster" and boundary in MIRROR:
        raise error(
            "boundary",
            "'matched' or 'periodic' for a scan in one direction ('neumann' and 'dirichlet' start "
            "the reverse scan of a line from the end of its forward scan, so they need "
            "chonn_ops.scan_field with directions 'bidirectional', 'cross' or 'axial')",
            repr(boundary),
        )


def check_arguments(
    inputs: Inputs, boundary: str, directions: str = "raster", positions: str = "L"
) -> None:
    """Check shapes, dtypes, devices and modes, without reading a tensor's values.

    Inputs are fields (B, \\*grid, C). `positions` is what messages call the grid: "L" for a line,
    "\\*grid" for a field.
    """
    check_modes(directions, boundary)
    for name, value in zip(inputs._fields, inputs, strict=True):
        if value is not None or name not in ("d", "initial_state"):
            check_tensor(name, value)
    u, delta, decay, b, c, d, initial_state = inputs
    if boundary == "periodic" and initial_state is not None:
        raise error("initial_state", "None with boundary='periodic', which sets it", "a tensor")
    if u.dim() < 3 or (positions == "L" and u.dim() != 3):
        raise error("u", f"shape (B, {positions}, D)", tuple(u.shape))
    if decay.dim() != 2:
        raise error("decay", "shape (D, N)", tuple(decay.shape))
    B, *grid, D = u.shape
    N = decay.shape[1]
    if 0 in grid or D == 0 or N == 0:
        sizes = f"L={grid[0]}" if positions == "L" else f"grid={tuple(grid)}"
        expected = f"{positions.lstrip('*')}, D and N of at least 1"
        raise error("u and decay", expected, f"{sizes}, D={D}, N={N}")
    for name, tensor, symbols, shape in (
        ("u", u, f"(B, {positions}, D)", (B, *grid, D)),
        ("delta", delta, f"(B, {positions}, D)", (B, *grid, D)),
        ("decay", decay, "(D, N)", (D, N)),
        ("b", b, f"(B, {positions}, N)", (B, *grid, N)),
        ("c", c, f"(B, {positions}, N)", (B, *grid, N)),
        ("d", d, "(D,)", (D,)),
        ("initial_state", initial_state, "(B, D, N)", (B, D, N)),
    ):
        if tensor is None:
            continue
        if tensor.shape != shape:
            raise error(name, f"shape {symbols} = {shape}", tuple(tensor.shape))
        check_kind(name, tensor, u.device, "u")


def check_decay(decay: Tensor) -> None:
    """Require positive decay rates where values may be read."""
    smallest = answer(lambda: decay.min().item(), decay)
    if smallest is not None and not smallest > 0:
        raise error("decay", "> 0 everywhere", f"minimum {smallest:g}")


def within_range(decay: Tensor, dtype: torch.dtype) -> Tensor:
    """Decay rates whose inverse and product with an input are numbers of `dtype`.

    Slower rates are raised to the slowest such rate. Over any time step that `dtype` can hold the
    state then decays by less than rounding.
    """
    slowest = SLOWEST[dtype]
    if decay.device.type == "cpu" and decay.abs().min().item() >= slowest:
        return decay
    wide = decay.to(dtype)
    return torch.where(wide.abs() < slowest, torch.copysign(wide.new_full((), slowest), wide), wide)
