"""Memory for factors, used again, because the system clears new pages.

Without it an elimination and two solves of one network of 512 x 512 took 6 to 9 % longer; up to
256 x 256 they took the same.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor

# NumPy arrays of bytes that no tensor reads any more, the last one freed at the end.
_spare: list[Any] = []
_MOST = 4  # blocks


def empty(like: Tensor, count: int) -> Tensor:
    """So many uninitialised numbers of the dtype of `like`, in spare memory where a block fits."""
    size = count * like.element_size()
    if not size:
        return like.new_empty(0)
    at = next((i for i, x in enumerate(_spare) if size <= x.nbytes <= 4 * size), None)
    block = torch.empty(size, dtype=torch.uint8).numpy() if at is None else _spare.pop(at)
    view = block[:size]
    # PyTorch holds this view as long as any tensor reads the memory.
    weakref.finalize(view, _give, block).atexit = False
    return torch.from_numpy(view).view(like.dtype)


def _give(block: Any) -> None:
    _spare.append(block)
    del _spare[:-_MOST]
