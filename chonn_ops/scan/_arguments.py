"""What the scan's operator is called with: its tensors, and how it walks them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor


class Inputs(NamedTuple):
    """The tensors, fields with their P positions flattened, for N states a channel."""

    u: Tensor  # (B, P, D)
    delta: Tensor  # (B, P, D)
    decay: Tensor  # (D, N)
    b: Tensor  # (B, P, N)
    c: Tensor  # (B, P, N)
    d: Tensor | None  # (D,)
    initial_state: Tensor | None  # (B, D, N)


class Modes(NamedTuple):
    """All that is no tensor, in the order of the operator's schema.

    The dispatcher leaves out last arguments that equal their defaults.
    """

    grid: Sequence[int]
    directions: str
    reverse: bool
    termination: str
    backend: str
    passive: bool = True
    keep: bool = False  # of the forward alone: what the backward starts from


def split(arguments: Sequence[Any]) -> tuple[Inputs, Modes]:
    """The operator's arguments by kind."""
    return Inputs(*arguments[:7]), Modes(*arguments[7:])
