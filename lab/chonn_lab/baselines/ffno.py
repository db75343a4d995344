"""Factorised Fourier neural operator (Tran et al., ICLR 2023, arXiv 2111.13802).

Written from the paper and compared with its authors' code, github.com/alasdairtran/fourierflow: at
equal weights outputs are equal to rounding (tests). Module names are ours.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from chonn_lab.baselines.fields import with_coordinates


class FactorizedSpectralConv(nn.Module):
    r"""Sum over the axes of a linear map of the lowest Fourier modes along that axis alone.

    .. math::

        K(z) = \sum_d \mathrm{IFFT}_d (R_d \cdot \mathrm{FFT}_d(z))

    with :math:`R_d` a complex matrix for each of the lowest `modes`, which is the paper's
    equation for the kernel of a layer. The grid has to resolve the modes.
    """

    def __init__(self, channels: int, modes: int) -> None:
        super().__init__()
        self.modes = modes
        # Xavier's initialisation with all modes as inputs.
        scale = (2 * channels * modes) ** -0.5
        self.weights = nn.ParameterList(
            scale * torch.randn(channels, channels, modes, dtype=torch.cfloat) for _ in range(2)
        )

    def forward(self, z: Tensor) -> Tensor:
        out = torch.zeros_like(z)
        for axis, (n, weight) in enumerate(zip(z.shape[2:], self.weights, strict=True), start=2):
            spectrum = torch.fft.rfft(z.movedim(axis, -1), norm="ortho")[..., : self.modes]
            mapped = torch.einsum("bi...m,iom->bo...m", spectrum, weight)
            # irfft takes the modes that are missing for zero.
            out = out + torch.fft.irfft(mapped, n=n, norm="ortho").movedim(-1, axis)
        return out


class FFNO(nn.Module):
    r"""F-FNO: (B, C, H, W) -> (B, C', H, W).

    Layers :math:`z + W_2\,\mathrm{ReLU}(W_1 K(z) + b_1) + b_2` behind a pointwise lifting; the
    residual goes around the nonlinearity. As in the authors' code, the readout of two linear maps
    sees what the last layer adds, all pointwise maps have normalised weights, and the coordinates,
    0 to 1, are additional inputs. The paper writes an activation behind :math:`W_2`, which its code
    does not have.

    There are `depth` layers with `width` channels, which keep `modes` along each axis. `padding`
    are points of zeros at the end of each axis, as a part of its points: fields that are not
    periodic need some.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        width: int,
        depth: int,
        modes: int,
        padding: float = 0.0,
    ) -> None:
        super().__init__()
        self.padding = padding

        def linear(channels: int, features: int) -> nn.Module:
            return weight_norm(nn.Conv2d(channels, features, 1))

        self.lift = linear(in_channels + 2, width)
        self.kernels = nn.ModuleList(FactorizedSpectralConv(width, modes) for _ in range(depth))
        self.pointwise = nn.ModuleList(
            nn.Sequential(linear(width, 2 * width), nn.ReLU(), linear(2 * width, width))
            for _ in range(depth)
        )
        self.head = nn.Sequential(linear(width, 128), linear(128, out_channels))

    def forward(self, x: Tensor) -> Tensor:
        """Map fields (B, in_channels, H, W) to fields (B, out_channels, H, W)."""
        grid = x.shape[2:]
        margins = [round(self.padding * n) for n in grid]
        z = self.lift(with_coordinates(x))
        z = added = F.pad(z, [side for margin in reversed(margins) for side in (0, margin)])
        for kernel, pointwise in zip(self.kernels, self.pointwise, strict=True):
            added = pointwise(kernel(z))
            z = z + added
        return self.head(added[(..., *(slice(n) for n in grid))])
