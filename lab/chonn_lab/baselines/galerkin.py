"""Galerkin Transformer: linear attention without softmax (Cao, NeurIPS 2021, arXiv 2105.14995).

Written from the paper's equations; module names are ours, no checkpoint of the original loads.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_lab.baselines.fields import check_field, coordinates, with_coordinates
from chonn_ops.checks import check_least
from chonn_ops.models.fno import SpectralConv

# The paper's small initial projections, and the part of the identity in them.
_GAIN, _DIAGONAL = 1e-2, 1e-2
# In the norms; it counts, because keys and values start small.
_EPSILON = 1e-7


class GalerkinAttention(nn.Module):
    r"""Galerkin-type attention, linear in the number of points: (B, N, C) to the same.

    .. math::

        z = \frac{1}{N} \, Q \, (\tilde K^\top \tilde V)

    in each head, with a layer norm of each point's keys and values, none of queries, and no
    softmax: a Petrov-Galerkin projection whose columns are learned bases. Coordinates stand
    beside queries, keys and values of each head, unprojected.

    Parameters
    ----------
    channels : int
        A multiple of `heads`.
    heads : int

    Raises
    ------
    ValueError
        For sizes below 1, or channels that the heads do not divide.
    """

    def __init__(
        self,
        channels: int,
        heads: int = 4,
    ) -> None:
        super().__init__()
        check_least(1, channels=channels, heads=heads)
        if channels % heads:
            raise ValueError(f"channels: expected a multiple of heads={heads}, got {channels}")
        self.heads, d = heads, channels // heads
        self.projections = nn.ModuleList(_projection(channels) for _ in range(3))
        # Each head has its own for keys and values.
        self.scales = nn.Parameter(torch.ones(2, heads, 1, d))
        self.shifts = nn.Parameter(torch.zeros(2, heads, 1, d))
        self.out = nn.Linear(channels + heads * 2, channels)

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        """Mix the points of x, (B, N, C), at the coordinates `places`, (B, N, 2)."""
        q, k, v = (self._heads(projection(x)) for projection in self.projections)
        k, v = (
            F.layer_norm(field, field.shape[-1:], eps=_EPSILON) * scale + shift
            for field, scale, shift in zip((k, v), self.scales, self.shifts, strict=True)
        )
        where = places[:, None].expand(-1, self.heads, -1, -1)
        q, k, v = (torch.cat((where, field), dim=-1) for field in (q, k, v))
        z = q @ (k.transpose(2, 3) @ v / x.shape[1])
        return self.out(z.transpose(1, 2).flatten(2))

    def _heads(self, x: Tensor) -> Tensor:
        """(B, N, C) to (B, heads, N, C / heads)."""
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)


def _projection(channels: int) -> nn.Linear:
    linear = nn.Linear(channels, channels)
    nn.init.xavier_uniform_(linear.weight, gain=_GAIN)
    nn.init.zeros_(linear.bias)
    with torch.no_grad():
        linear.weight.diagonal().add_(_DIAGONAL)
    return linear


class _Layer(nn.Module):
    """``h = x + attention(x)``, then ``h + mlp(h)``; no norms outside of the attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = GalerkinAttention(width, heads)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width),
            nn.ReLU(),
            nn.Linear(2 * width, width),
        )

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        x = x + self.attention(x, places)
        return x + self.mlp(x)


class _Regressor(nn.Module):
    """A layer of the decoder: Fourier modes and a pointwise map."""

    def __init__(self, width: int, modes: int) -> None:
        super().__init__()
        self.spectral = SpectralConv(width, width, (modes, modes))
        self.pointwise = nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(self.spectral(x) + self.pointwise(x))


class GalerkinTransformer(nn.Module):
    r"""Galerkin Transformer for fields: (B, C, H, W) -> (B, C', H, W).

    Pointwise lifting of field and coordinates, 0 to 1; an encoder of attention layers, on a
    coarser grid if asked; a decoder of two spectral convolutions on the field's own grid, the
    paper's spectral regressor; a pointwise readout. The coarser grid has means, and its result is
    interpolated. Without the paper's dropout and without its boundary values set to zero.

    Parameters
    ----------
    in_channels, out_channels : int
    width : int
        Hidden channels, a multiple of `heads`.
    depth : int
        Layers of attention.
    heads : int
    modes : int
        Fourier modes of the decoder.
    coarsening : int
        Points of the field's grid over those of the encoder's, along an axis.

    Raises
    ------
    ValueError
        For sizes out of range; when called with another shape, or a grid that does not resolve
        the modes.
    """

    def __init__(
        self,
        in_channels: int = 1,
        out_channels: int = 1,
        width: int = 128,
        depth: int = 6,
        heads: int = 4,
        modes: int = 12,
        coarsening: int = 1,
    ) -> None:
        super().__init__()
        check_least(1, in_channels=in_channels, out_channels=out_channels, width=width)
        check_least(1, depth=depth, modes=modes, coarsening=coarsening)
        self.in_channels, self.coarsening = in_channels, coarsening
        self.lift = nn.Conv2d(in_channels + 2, width, 1)
        self.encoder = nn.ModuleList(_Layer(width, heads) for _ in range(depth))
        self.join = nn.Conv2d(width + 2, width, 1)
        self.decoder = nn.Sequential(*(_Regressor(width, modes) for _ in range(2)))
        self.head = nn.Sequential(
            nn.Conv2d(width, 2 * width, 1), nn.SiLU(), nn.Conv2d(2 * width, out_channels, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map fields (B, in_channels, H, W) to fields (B, out_channels, H, W)."""
        check_field(x, self.in_channels)
        grid = x.shape[2:]
        h = self.lift(with_coordinates(x))
        if self.coarsening > 1:
            h = F.avg_pool2d(h, self.coarsening, ceil_mode=True)
        places = coordinates(h).flatten(2).transpose(1, 2)
        points = h.flatten(2).transpose(1, 2)
        for layer in self.encoder:
            points = layer(points, places)
        h = points.transpose(1, 2).reshape(h.shape)
        if self.coarsening > 1:
            h = F.interpolate(h, size=grid, mode="bilinear")
        return self.head(self.decoder(self.join(with_coordinates(h))))
