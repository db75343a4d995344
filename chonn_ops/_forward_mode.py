"""Forward mode of `torch.autograd.Function`, nested as `torch.func` nests it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.autograd import forward_ad


@contextmanager
def at_lower_levels(*fields: Tensor | None) -> Iterator[list[Any]]:
    """The fields without the tangents of this level; other levels go on differentiating.

    PyTorch turns forward mode off while it runs `torch.autograd.Function.jvp`, so that forward mode
    over forward mode is silently wrong without this (seen in PyTorch 2.15). There is no public name
    for it.
    """
    with forward_ad._set_fwd_grad_enabled(True):
        # PyTorch has one level, number 0, which a compiler enters without Python's knowing.
        yield [None if x is None else forward_ad.unpack_dual(x, level=0).primal for x in fields]


def has_tangents(*fields: Tensor | None) -> bool:
    """Whether forward mode differentiates through one of the fields."""
    duals = (forward_ad.unpack_dual(x) for x in fields if x is not None)
    return any(dual.tangent is not None for dual in duals)
