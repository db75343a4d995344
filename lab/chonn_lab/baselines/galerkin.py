"""Galerkin Transformer: linear attention without softmax (Cao, NeurIPS 2021, arXiv 2105.14995).

Written from the paper's equations; module names are ours, no checkpoint of the original loads.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_lab.baselines.fields import (
    AVG_POOL,
    CONV,
    INTERPOLATION,
    check_axes,
    check_field,
    coordinates,
    with_coordinates,
)
from chonn_ops.checks import check_least
from chonn_ops.models.fno import SpectralConv

# The paper's small initial projections, and the part of the identity in them.
_GAIN, _DIAGONAL = 1e-2, 1e-2
# Of the norms: keys and values start small.
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
    axes : int
        Coordinates of a point.

    Raises
    ------
    ValueError
        For sizes below 1, or channels that the heads do not divide.
    """

    def __init__(
        self,
        channels: int,
        heads: int = 4,
        axes: int = 2,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_least(1, channels=channels, heads=heads, axes=axes)
        if channels % heads:
            raise ValueError(f"channels: expected a multiple of heads={heads}, got {channels}")
        self.heads, d = heads, channels // heads
        factory = {"device": device, "dtype": dtype}
        self.projections = nn.ModuleList(_projection(channels, factory) for _ in range(3))
        # Of keys and values, each head its own.
        self.scales = nn.Parameter(torch.ones(2, heads, 1, d, **factory))
        self.shifts = nn.Parameter(torch.zeros(2, heads, 1, d, **factory))
        self.out = nn.Linear(channels + heads * axes, channels, **factory)

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        """Mix the points of x, (B, N, C), at the coordinates `places`, (B, N, axes)."""
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


def _projection(channels: int, factory: dict[str, Any]) -> nn.Linear:
    linear = nn.Linear(channels, channels, **factory)
    nn.init.xavier_uniform_(linear.weight, gain=_GAIN)
    nn.init.zeros_(linear.bias)
    with torch.no_grad():
        linear.weight.diagonal().add_(_DIAGONAL)
    return linear


class _Layer(nn.Module):
    """``h = x + attention(x)``, then ``h + mlp(h)``; no norms outside of the attention."""

    def __init__(self, width: int, heads: int, axes: int, factory: dict[str, Any]) -> None:
        super().__init__()
        self.attention = GalerkinAttention(width, heads, axes, **factory)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width, **factory),
            nn.ReLU(),
            nn.Linear(2 * width, width, **factory),
        )

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        x = x + self.attention(x, places)
        return x + self.mlp(x)


class _Regressor(nn.Module):
    """A layer of the decoder: Fourier modes and a pointwise map."""

    def __init__(self, width: int, modes: int, axes: int, factory: dict[str, Any]) -> None:
        super().__init__()
        self.spectral = SpectralConv(width, width, (modes,) * axes, **factory)
        self.pointwise = CONV[axes](width, width, 1, **factory)

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(self.spectral(x) + self.pointwise(x))


class GalerkinTransformer(nn.Module):
    r"""Galerkin Transformer for fields: (B, C, \*grid) -> (B, C', \*grid).

    Pointwise lifting of field and coordinates, 0 to 1; an encoder of attention layers, on a
    coarser grid if asked; a decoder of spectral convolutions on the field's own grid, the paper's
    spectral regressor; a pointwise readout. The coarser grid has means, and its result is
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
    decoder_layers : int
    coarsening : int
        Points of the field's grid over those of the encoder's, along an axis.
    axes : {2, 1, 3}
        Of the grid.

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
        *,
        decoder_layers: int = 2,
        coarsening: int = 1,
        axes: int = 2,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_least(1, in_channels=in_channels, out_channels=out_channels, width=width)
        check_least(1, depth=depth, modes=modes, coarsening=coarsening)
        check_least(0, decoder_layers=decoder_layers)
        check_axes(axes)
        self.in_channels, self.coarsening, self.axes = in_channels, coarsening, axes
        factory = {"device": device, "dtype": dtype}
        conv = functools.partial(CONV[axes], **factory)
        self.lift = conv(in_channels + axes, width, 1)
        self.encoder = nn.ModuleList(_Layer(width, heads, axes, factory) for _ in range(depth))
        self.join = conv(width + axes, width, 1)
        self.decoder = nn.Sequential(
            *(_Regressor(width, modes, axes, factory) for _ in range(decoder_layers))
        )
        self.head = nn.Sequential(
            conv(width, 2 * width, 1), nn.SiLU(), conv(2 * width, out_channels, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map fields (B, in_channels, \\*grid) to fields (B, out_channels, \\*grid)."""
        check_field(x, self.in_channels, self.axes)
        grid = x.shape[2:]
        h = self.lift(with_coordinates(x))
        if self.coarsening > 1:
            h = AVG_POOL[self.axes](h, self.coarsening, ceil_mode=True)
        places = coordinates(h).flatten(2).transpose(1, 2)
        points = h.flatten(2).transpose(1, 2)
        for layer in self.encoder:
            points = layer(points, places)
        h = points.transpose(1, 2).reshape(h.shape)
        if self.coarsening > 1:
            h = F.interpolate(h, size=grid, mode=INTERPOLATION[self.axes])
        return self.head(self.decoder(self.join(with_coordinates(h))))
