"""Convolutional neural operator (Raonic et al. 2023, arXiv 2302.01178) with Kirchhoff blocks.

Written from the CNO paper's description: a U-shaped network of convolutions whose activations and
changes of grid respect the bandwidth of the grid. The steady-state experiments of the CHONN paper
put CKBs into it. The module names are ours; checkpoints of the original do not load.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from chonn_ops.checks import as_field, check_integer, error
from chonn_ops.models._antialias import AntialiasedLeakyReLU, Resample
from chonn_ops.models.pretrained import Pretrained
from chonn_ops.nn import CKB, CKBOptions
from chonn_ops.nn.layers import Factory, channels_last

DEFAULT = CKBOptions()


class CNOUNet(Pretrained):
    """Convolutional neural operator with CKBs: (B, C, H, W) -> (B, C', H, W).

    Level k = 1..``n_layers + 1`` has a grid ``2^(k-1)`` times coarser and ``2^(k-1)``
    ``channel_multiplier / 2`` channels. Blocks are convolution, batch norm, anti-aliased leaky
    ReLU. Lifting: a block without norm to `latent` channels and a convolution. Encoder: residual
    blocks, then a block and low-passed downsampling. Bottleneck: residual blocks and a block.
    Decoder: a block and band-limited upsampling, with the encoder's features of that grid, sent
    through a block, beside the result. Projection: as the lifting.

    The plain network at the paper's settings has 2,013,073 parameters for Darcy (``CNOUNet()``) and
    2,008,073 for Poisson (``n_layers=4, channel_multiplier=16``); the CNO that the paper puts
    beside the latter (``channel_multiplier=16``) has 512,393.

    Parameters
    ----------
    in_channels, out_channels : int
        Channels of input and output fields.
    n_layers : int
        Changes of grid.
    n_res, n_res_neck : int
        Residual blocks of every encoder level, and of the bottleneck.
    channel_multiplier : int
        Twice the channels of the first level; even.
    latent : int
        Channels inside lifting and projection.
    ckb : CKBOptions
        Options of the CKBs. Default: networks. ``CKBOptions("scan")`` is the paper's form, and
        ``CKBOptions(order=0)`` the plain CNO, parameter for parameter.
    stages : sequence of str, optional
        Stages that a CKB follows, out of, from first to last: "lift" (full grid, after the
        lifting), "encoder1" (full grid) to "encoder{n_layers}" (after the residual blocks of the
        level; the skip connection gets the CKB's output), "bottleneck", "decoder{n_layers}" to
        "decoder1" (full grid; after the upsampling). Default: the deepest encoder stage, the
        bottleneck and the deepest decoder stage, as in the paper.

    Raises
    ------
    ValueError
        For unfit options.
    """

    def __init__(
        self,
        in_channels: int = 1,
        out_channels: int = 1,
        n_layers: int = 3,
        n_res: int = 4,
        n_res_neck: int = 4,
        channel_multiplier: int = 32,
        latent: int = 64,
        *,
        ckb: CKBOptions = DEFAULT,
        stages: Sequence[str] | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(ckb, CKBOptions):
            raise error("ckb", "CKBOptions(...)", repr(ckb))
        check_integer(1, in_channels=in_channels, out_channels=out_channels, n_layers=n_layers)
        check_integer(0, n_res=n_res, n_res_neck=n_res_neck)
        check_integer(1, latent=latent, channel_multiplier=channel_multiplier)
        if channel_multiplier % 2:
            raise error("channel_multiplier", "a positive even number", channel_multiplier)
        encoders = [f"encoder{k}" for k in range(1, n_layers + 1)]
        decoders = [f"decoder{k}" for k in range(n_layers, 0, -1)]
        known = ["lift", *encoders, "bottleneck", *decoders]
        if stages is None:
            stages = (encoders[-1], "bottleneck", decoders[0])
        unknown = [stage for stage in stages if stage not in known]
        if unknown:
            raise error("stages", f"names out of {known}", unknown)
        self.n_layers, self.in_channels = n_layers, in_channels
        factory: Factory = {"device": device, "dtype": dtype}
        self.upsample, self.downsample = (Resample(up, **factory) for up in (True, False))

        def conv(channels: int, features: int, **options: Any) -> nn.Module:
            return nn.Conv2d(channels, features, 3, padding="same", **options, **factory)

        def activation() -> nn.Module:
            # One each: `functional_call` restores no buffer of a module that has several names.
            return AntialiasedLeakyReLU(**factory)

        def normed(channels: int, features: int) -> tuple[nn.Module, nn.Module]:
            return conv(channels, features, bias=False), nn.BatchNorm2d(features, **factory)

        def block(channels: int, features: int) -> nn.Sequential:
            return nn.Sequential(*normed(channels, features), activation())

        def ends(channels: int, features: int) -> nn.Sequential:
            return nn.Sequential(conv(channels, latent), activation(), conv(latent, features))

        def residual(width: int) -> nn.Sequential:
            return _Residual(*normed(width, width), activation(), *normed(width, width))

        def residuals(width: int, count: int) -> nn.Sequential:
            return nn.Sequential(*(residual(width) for _ in range(count)))

        widths = [channel_multiplier // 2 * 2**k for k in range(n_layers + 1)]
        self.lift = ends(in_channels, widths[0])
        self.residuals = nn.ModuleList(residuals(width, n_res) for width in widths[:-1])
        self.encoders = nn.ModuleList(block(widths[k], widths[k + 1]) for k in range(n_layers))
        self.bottleneck = nn.Sequential(
            *residuals(widths[-1], n_res_neck), block(widths[-1], widths[-1])
        )
        self.skips = nn.ModuleList(block(width, width) for width in widths[:-1])
        # The deepest decoder reads the bottleneck alone, the others a skip beside their input.
        self.decoders = nn.ModuleList(
            block(widths[k + 1] * (1 if k == n_layers - 1 else 2), widths[k])
            for k in range(n_layers)
        )
        self.project = ends(2 * widths[0], out_channels)

        # After all plain parameters, so that these draw the same random numbers at any order.
        width_of = dict(zip([*encoders, "bottleneck"], widths, strict=True))
        width_of |= {"lift": widths[0], **dict(zip(decoders[::-1], widths[:-1], strict=True))}
        self.ckbs = nn.ModuleDict()
        if ckb.order:
            for stage in stages:
                self.ckbs[stage] = CKB(width_of[stage], 2, **vars(ckb), **factory)

    def forward(self, x: Tensor) -> Tensor:
        """Map fields to fields.

        Parameters
        ----------
        x : Tensor, shape (B, in_channels, H, W)
            H and W multiples of ``2^n_layers``.

        Returns
        -------
        Tensor, shape (B, out_channels, H, W)

        Raises
        ------
        ValueError
            For another number of axes or channels, or a grid that cannot be halved so often.
        """
        shape = ("B", self.in_channels, "H", "W")
        x = as_field("x", x, self.parameters(), *shape, multiple=2**self.n_layers)
        if x.device.type == "cpu":  # depthwise filters are twice as fast in this layout
            x = channels_last(x)
        x = self._ckb("lift", self.lift(x))
        kept = []
        for level in range(self.n_layers):
            x = self._ckb(f"encoder{level + 1}", self.residuals[level](x))
            kept.append(self.skips[level](x))
            x = self.downsample(self.encoders[level](x))
        x = self._ckb("bottleneck", self.bottleneck(x))
        for level in reversed(range(self.n_layers)):
            x = self.upsample(self.decoders[level](x))
            x = self._ckb(f"decoder{level + 1}", x)
            x = torch.cat((x, kept.pop()), dim=1)
        return self.project(x)

    def _ckb(self, stage: str, x: Tensor) -> Tensor:
        return self.ckbs[stage](x) if stage in self.ckbs else x


class _Residual(nn.Sequential):
    """``x + layers(x)``."""

    def forward(self, input: Tensor) -> Tensor:
        return input + super().forward(input)
