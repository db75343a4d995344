"""Gains by which models train at the learning rate of their host."""

from __future__ import annotations

import torch

from chonn_ops.models.network import CHONNNetwork
from chonn_ops.nn import CKB, CKBOptions
from chonn_ops.nn.layers import Factory, learn_faster

__all__ = ["BLOCK_GAIN", "hosted_ckb", "learn_faster", "suit_host"]

# How many times as fast a block of networks learns inside a host's model.
BLOCK_GAIN = 8.0
# In a `CHONNNetwork`: pointwise networks, and the projections into and out of its blocks. With a
# gain of 2 for pointwise networks alone, errors at a rate of 5e-4 were 0.022, 0.041 and 0.034
# (seeds 11, 13, 14), with these 0.014, 0.023 and 0.026; at 2e-2 0.025 and 0.026 (means of eight and
# seven seeds). At 2e-2 a gain of 8 for the projections was worse (0.037 and 0.033), and 4 for the
# first and the last layer as well failed (0.23). Without gains, errors at 5e-4 were 0.04 and 0.13.
POINTWISE_GAIN, PROJECTION_GAIN = 2.0, 4.0
# The offset learns slowly: at low rates it takes up the mean of the targets before the circuits do,
# and the rest of the training is spent on forgetting it. Errors on PDEBench's Darcy flow with a
# fortieth of its usual gain and with all of it: 64 x 64 points, 1e-3: 0.0138 and 0.0263 (means of
# four and three seeds), 2e-3: 0.0141 and 0.0261; 32 x 32 points, 1e-2: 0.0282 and 0.0254, 2e-2:
# 0.0270 and 0.0195; shifted targets on 16 x 16, 1e-3: 0.097 and 0.094, 1e-2: 0.129 and 0.072 (two
# seeds). The argument `offset` is for these.
OFFSET_GAIN = 1 / 32


def hosted_ckb(dim: int, spatial_dims: int, options: CKBOptions, factory: Factory) -> CKB:
    """A CKB inside a model that is trained at its host's learning rate."""
    block = CKB(dim, spatial_dims, **vars(options), **factory)
    if block.has_networks:
        learn_faster(block, BLOCK_GAIN)
    return block


def suit_host(network: CHONNNetwork) -> CHONNNetwork:
    """Let a `CHONNNetwork*` train at a host's rate, from 5e-4 to 2e-2: its pointwise networks learn
    twice as fast, projections into and out of its blocks four times, its offset a thirty-second.

    Returns
    -------
    The network, changed in place.
    """
    for pointwise in network.pointwise:
        learn_faster(pointwise, POINTWISE_GAIN)
    for block in network.blocks:
        assert isinstance(block, CKB)
        for projection in (block.in_proj, block.out_proj):
            learn_faster(projection, PROJECTION_GAIN)
    network.set_gain(network.gain * OFFSET_GAIN)
    with torch.no_grad():
        network.offset.div_(OFFSET_GAIN)
    return network
