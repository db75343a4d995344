"""Where the forward keeps states for the backward, the same for every backend."""

from __future__ import annotations

CHUNK = 32  # steps; as in scan.h
LINE = 512  # steps, likewise: what the compiled kernel walks without checkpoints


def spacing(states: int) -> int:
    """Chunks between two checkpoints: one (B, L, D) tensor's worth of states at the most."""
    return -(-states // CHUNK)
