"""Where the forward keeps states for the backward, the same for every backend."""

from __future__ import annotations

from torch import Tensor

CHUNK = 32  # steps; as in csrc/scan.h


def spacing(states: int) -> int:
    """Chunks between two checkpoints: one (B, L, D) tensor's worth of states at the most."""
    return -(-states // CHUNK)


def checkpoint_shape(u: Tensor, decay: Tensor) -> tuple[int, int, int, int]:
    """(B, checkpoints, N, D): the states before step 0, before step ``32 * spacing``, ..."""
    B, L, D = u.shape
    N = decay.shape[1]
    return B, -(-L // (CHUNK * spacing(N))), N, D
