"""The models that the steady problems compare, for fields (B, 1, R, R)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from chonn_ops.models import CHONNFNO2d, CHONNNetwork2d, CHONNUNet2d
from chonn_ops.models.cno import CNOUNet
from chonn_ops.models.mixer import CHONNMixer2d
from chonn_ops.nn import CKBOptions
from chonn_ops.problems.domains import SQUARE

if TYPE_CHECKING:
    from chonn_ops.experiments._steady import SteadyConfig

PLAIN = CKBOptions(order=0)


class Units(NamedTuple):
    """Typical mean and deviation of the fields: constants, the same for every split."""

    input_centre: float
    input_spread: float
    output_centre: float
    output_spread: float


class Standardized(nn.Module):
    """A model between fields of about unit size, called with fields in the data's units."""

    def __init__(self, model: nn.Module, units: Units) -> None:
        super().__init__()
        self.model, self.units = model, units

    def forward(self, x: Tensor) -> Tensor:
        units = self.units
        y = self.model((x - units.input_centre) / units.input_spread)
        return units.output_centre + units.output_spread * y


class OnDomain(nn.Module):
    """A model that is told which nodes exist: 1 or 0 in a channel of its own, networks as a mask.

    Parameters
    ----------
    model : nn.Module
        Of one input channel more, unless it is a `CHONNNetwork2d`.
    mask : callable
        The mask, (R, R) bool, of a grid of R x R nodes.
    """

    def __init__(self, model: nn.Module, mask: Callable[[int], Tensor]) -> None:
        super().__init__()
        self.model, self._mask = model, mask

    def forward(self, x: Tensor) -> Tensor:
        mask = self._mask(x.shape[-1]).to(x.device)
        if isinstance(self.model, CHONNNetwork2d):
            return self.model(x, mask=mask)
        channel = mask.to(x.dtype).expand(len(x), 1, -1, -1)
        return self.model(torch.cat((x, channel), dim=1))


class FNO(nn.Module):
    """PDEBench's plain FNO with channels first; adds the coordinates."""

    def __init__(self, modes: int, width: int, in_channels: int = 1) -> None:
        super().__init__()
        # As frames: channels are the same in and out.
        self.model = CHONNFNO2d(1, modes, modes, width, initial_step=in_channels, ckb=PLAIN)

    def forward(self, x: Tensor) -> Tensor:
        axes = [torch.linspace(0, 1, n, dtype=x.dtype, device=x.device) for n in x.shape[2:]]
        grid = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)
        y = self.model(x.movedim(1, -1), grid.expand(len(x), -1, -1, -1))
        return y.squeeze(-2).movedim(-1, 1)


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
