"""Blocks that learn faster than their host's learning rate says."""

from __future__ import annotations

from chonn_ops.nn import CKB, CKBOptions
from chonn_ops.nn.layers import Factory, learn_faster

__all__ = ["BLOCK_GAIN", "hosted_ckb", "learn_faster"]

# How many times as fast a block of networks learns inside a host's model.
BLOCK_GAIN = 8.0

def hosted_ckb(dim: int, spatial_dims: int, options: CKBOptions, factory: Factory) -> CKB:
    """A CKB inside a model that is trained at its host's learning rate."""
    block = CKB(dim, spatial_dims, **vars(options), **factory)
    if block.has_networks:
        learn_faster(block, BLOCK_GAIN)
    return block
