"""The models that the steady problems compare, for fields (B, 1, R, R)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from torch import nn

from chonn_ops.experiments._steady_modules import FNO, PLAIN
from chonn_ops.experiments._steady_modules import OnDomain as OnDomain
from chonn_ops.experiments._steady_modules import Standardized as Standardized
from chonn_ops.experiments._steady_modules import Units as Units
from chonn_ops.models import CHONNNetwork2d, CHONNUNet2d
from chonn_ops.models.cno import CNOUNet
from chonn_ops.models.mixer import CHONNMixer2d
from chonn_ops.nn import CKBOptions
from chonn_ops.problems.domains import SQUARE

if TYPE_CHECKING:
    from chonn_ops.experiments._steady import SteadyConfig


def in_channels(config: SteadyConfig) -> int:
    """The field and, on a part of the square, the mask."""
    return 1 if config.domain == SQUARE else 2


def unet(config: SteadyConfig) -> nn.Module:
    """PDEBench's plain U-Net."""
    return CHONNUNet2d(in_channels(config), 1, config.unet_features, ckb=PLAIN)


def fno(config: SteadyConfig) -> nn.Module:
    """PDEBench's plain FNO."""
    return FNO(config.fno_modes, config.fno_width, in_channels(config))


def cno(config: SteadyConfig) -> nn.Module:
    """Plain CNO of sizes of its own."""
    return backbone(config, config.cno_layers, config.cno_res_neck, 0)


def network(
    config: SteadyConfig, nodes: str, *, width: int | None = None, selective: bool = True
) -> nn.Module:
    """Networks as the only coupling between points, on every point of the grid."""
    return CHONNNetwork2d(
        width=config.network_width if width is None else width,
        depth=config.network_depth,
        ckb=CKBOptions(cell="network", networks=config.networks, nodes=nodes, selective=selective),
    )


def backbone(config: SteadyConfig, n_layers: int, n_res_neck: int, order: int) -> nn.Module:
    """The paper's CHONN: a CNO with CKBs in its deepest stages."""
    return CNOUNet(
        in_channels(config),
        n_layers=n_layers,
        n_res=config.n_res,
        n_res_neck=n_res_neck,
        channel_multiplier=config.channel_multiplier,
        latent=config.latent,
        ckb=_block(config, order),
        stages=config.stages or None,
    )


def mixer(config: SteadyConfig, depth: int, order: int, **block: Any) -> nn.Module:
    """CKBs as the only coupling between patches.

    Without a norm in them, unless `block` has it: one over the field hides the amplitude, in which
    Poisson's operator is linear. It doubled the error out of distribution, and changed none on
    Darcy flow.
    """
    return CHONNMixer2d(
        in_channels(config),
        width=config.mixer_width,
        depth=depth,
        patch=config.mixer_patch,
        ckb=dataclasses.replace(_block(config, order), **{"norm": "none", **block}),
    )


def _block(config: SteadyConfig, order: int) -> CKBOptions:
    return CKBOptions(order=order, d_state=config.d_state, selective_norm=config.selective_norm)
