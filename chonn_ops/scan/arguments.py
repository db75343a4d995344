"""The arguments of the scan's operator: tensors and modes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor


class Inputs(NamedTuple):
    """The tensors, with P flattened positions and N states a channel."""

    u: Tensor  # (B, P, D)
    delta: Tensor  # (B, P, D)
    decay: Tensor  # (D, N)
    b: Tensor  # (B, P, N)
    c: Tensor  # (B, P, N)
    d: Tensor | None  # (D,)
    initial_state: Tensor | None  # (B, D, N)


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
