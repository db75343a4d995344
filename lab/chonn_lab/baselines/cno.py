"""Convolutional neural operator (Raonic et al., NeurIPS 2023, arXiv 2302.01178).

Written from the paper and compared with the form of its authors' code that needs nothing but
PyTorch, CNO2d_simplified of github.com/camlab-ethz/ConvolutionalNeuralOperator: at equal weights
outputs are equal to rounding (tests). Module names are ours. `chonn_ops.models.CNOUNet` is the
backbone of the CHONN paper, which has other filters and other connections.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def _resized(x: Tensor, factor: float) -> Tensor:
    size = [round(factor * n) for n in x.shape[2:]]
    return F.interpolate(x, size=size, mode="bicubic", antialias=True)


class Block(nn.Module):
    """Convolution, batch norm, and a leaky ReLU on twice the grid, whose way back to the grid times
    `factor` is a low-pass filter."""

    def __init__(self, channels: int, features: int, factor: float = 1.0, norm: bool = True):
        super().__init__()
        self.conv = nn.Conv2d(channels, features, 3, padding=1)
        self.norm = nn.BatchNorm2d(features) if norm else nn.Identity()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return _resized(F.leaky_relu(_resized(self.norm(self.conv(x)), 2)), self.factor / 2)


class Residual(nn.Module):
    """A block, a convolution and a batch norm beside the identity."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.block, self.conv = Block(width, width), nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.norm(self.conv(self.block(x)))


class CNO(nn.Module):
    """CNO: (B, C, H, W) -> (B, C', H, W), H and W multiples of ``2^n_layers``.

    The grid is halved `n_layers` times; channels are `channel_multiplier` behind the first halving,
    half as many on the finest grid, and twice as many behind each further halving. `n_res` residual
    blocks see each grid, `n_res_neck` the coarsest one; at all but that one their output goes to
    the decoder only. Lifting and projection have `latent` channels inside.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        n_layers: int = 3,
        n_res: int = 4,
        n_res_neck: int = 4,
        channel_multiplier: int = 16,
        latent: int = 64,
    ) -> None:
        super().__init__()

        def ends(channels: int, features: int) -> nn.Module:
            block = Block(channels, latent, norm=False)
            return nn.Sequential(block, nn.Conv2d(latent, features, 3, padding=1))

        def residuals(width: int, count: int) -> nn.Module:
            return nn.Sequential(*(Residual(width) for _ in range(count)))

        widths = [channel_multiplier // 2, *(channel_multiplier * 2**k for k in range(n_layers))]
        self.lift = ends(in_channels, widths[0])
        self.residuals = nn.ModuleList(residuals(width, n_res) for width in widths[:-1])
        self.encoders = nn.ModuleList(Block(widths[k], widths[k + 1], 0.5) for k in range(n_layers))
        self.neck = residuals(widths[-1], n_res_neck)
        # What the residual blocks of a grid give passes one more block on its way to the decoder.
        self.links = nn.ModuleList(Block(width, width) for width in widths)
        # The coarsest grid's block reads the neck alone, the others a link beside their input.
        self.decoders = nn.ModuleList(
            Block(widths[k + 1] * (1 if k == n_layers - 1 else 2), widths[k], 2.0)
            for k in range(n_layers)
        )
        self.project = ends(2 * widths[0], out_channels)

    def forward(self, x: Tensor) -> Tensor:
        """Map fields (B, in_channels, H, W) to fields (B, out_channels, H, W)."""
        x, kept = self.lift(x), []
        for residuals, encoder, link in zip(
            self.residuals, self.encoders, self.links[:-1], strict=True
        ):
            kept.append(link(residuals(x)))
            x = encoder(x)
        x = self.links[-1](self.neck(x))
        for decoder in reversed(self.decoders):
            x = torch.cat((decoder(x), kept.pop()), dim=1)
        return self.project(x)
