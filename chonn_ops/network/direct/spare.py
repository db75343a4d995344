"""Memory of freed factors, reused by the next ones: the operating system takes as long to hand
out fresh pages as the elimination takes."""

from __future__ import annotations

import sys

import torch
from torch import Tensor

# One block at most, and not more than so many bytes.
_spare: list[Tensor] = []
_SPARE = 512 * 2**20


def take(like: Tensor, count: int) -> Tensor:
    """Uninitialised numbers, in spare memory if its size fits."""
    size = count * like.element_size()
    try:
        spare = _spare.pop()
    except IndexError:
        spare = None
    if spare is None or not size <= spare.nbytes <= 4 * size:
        spare = torch.empty(size, dtype=torch.uint8)
    return spare[:size].view(like.dtype)


def give(numbers: Tensor | None) -> None:
    """Return memory that `take` handed out and that is no longer read."""
    if sys.is_finalizing():  # PyTorch's storages are gone
        return
    if numbers is not None and numbers.untyped_storage().nbytes() <= _SPARE:
        storage = numbers.untyped_storage()
        _spare[:] = [torch.empty(0, dtype=torch.uint8).set_(storage)]  # pyright: ignore[reportArgumentType]
