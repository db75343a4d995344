"""Transolver on regular grids (Wu et al., ICML 2024, arXiv 2402.02366).

Written from the paper's equations; module names are ours, no checkpoint of the original loads.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from chonn_lab.baselines.fields import check_field, coordinates
from chonn_ops.checks import check_least

# Bounds of the temperature, and its initial value.
_RANGE, _START = (0.1, 5.0), 0.5
_EPSILON = 1e-5
# Reference points an axis.
REFERENCE = 8


class PhysicsAttention(nn.Module):
    r"""Attention among slices, each a weighted mean over all points: (B, C, H, W) to the same.

    In each head, with features :math:`x_i` of point i::

        w_i = softmax(Linear(x_i) / tau)                        weights of M slices, sum 1
        z_j = sum_i w_ij f_i / sum_i w_ij                       slice tokens
        z'  = softmax(q k^T / sqrt(d)) v,  q, k, v = Linear(z)  attention among M tokens
        y_i = sum_j w_ij z'_j                                   back to the points

    On a grid x and f are convolutions over 3 points an axis of the input (the paper's structured
    meshes). Linear maps of slices, q, k and v are shared by the heads; each head has its own tau,
    between 0.1 and 5.

    Parameters
    ----------
    channels : int
        A multiple of `heads`.
    heads, slices : int

    Raises
    ------
    ValueError
        For sizes below 1, or channels that the heads do not divide.
    """

    def __init__(
        self,
        channels: int,
        heads: int = 8,
        slices: int = 64,
    ) -> None:
        super().__init__()
        check_least(1, channels=channels, heads=heads, slices=slices)
        if channels % heads:
            raise ValueError(f"channels: expected a multiple of heads={heads}, got {channels}")
        self.heads, d = heads, channels // heads
        self.points = nn.Conv2d(channels, channels, 3, padding=1)
        self.features = nn.Conv2d(channels, channels, 3, padding=1)
        self.slice = nn.Linear(d, slices)
        self.temperature = nn.Parameter(torch.full((heads, 1, 1), _START))
        self.qkv = nn.Linear(d, 3 * d, bias=False)
        self.out = nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        # (B, heads, N, d)
        points, features = (
            conv(x).flatten(2).unflatten(1, (self.heads, -1)).transpose(2, 3)
            for conv in (self.points, self.features)
        )
        weights = (self.slice(points) / self.temperature.clamp(*_RANGE)).softmax(dim=-1)
        tokens = weights.transpose(2, 3) @ features
        tokens = tokens / (weights.sum(dim=2)[..., None] + _EPSILON)
        q, k, v = self.qkv(tokens).chunk(3, dim=-1)
        attention = (q @ k.transpose(2, 3) * q.shape[-1] ** -0.5).softmax(dim=-1)
        mixed = weights @ (attention @ v)
        y = self.out(mixed.transpose(1, 2).flatten(2))
        return y.transpose(1, 2).reshape(x.shape)


class _Layer(nn.Module):
    """``h = x + attention(norm(x))``, then ``h + mlp(norm(h))``."""

    def __init__(self, width: int, heads: int, slices: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attention = PhysicsAttention(width, heads, slices)
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(_over_channels(self.norms[0], x))
        return x + _over_channels(self.mlp, _over_channels(self.norms[1], x))


class Transolver(nn.Module):
    r"""Transolver: (B, C, H, W) -> (B, C', H, W).

    Points see their distances to a grid of 8 x 8 points beside the field, as in the paper's Darcy
    benchmark.

    Parameters
    ----------
    in_channels, out_channels : int
    width : int
        Hidden channels, a multiple of `heads`.
    depth : int
        Layers.
    heads, slices : int
        Heads and slices of the attention.

    Raises
    ------
    ValueError
        For sizes out of range; when called with another shape.
    """

    def __init__(
        self,
        in_channels: int = 1,
        out_channels: int = 1,
        width: int = 128,
        depth: int = 8,
        heads: int = 8,
        slices: int = 64,
    ) -> None:
        super().__init__()
        sizes = {"in_channels": in_channels, "out_channels": out_channels, "width": width}
        check_least(1, **sizes, depth=depth)
        self.in_channels = in_channels
        self.lift = nn.Sequential(
            nn.Linear(in_channels + REFERENCE**2, 2 * width),
            nn.GELU(),
            nn.Linear(2 * width, width),
        )
        self.layers = nn.Sequential(*(_Layer(width, heads, slices) for _ in range(depth)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, out_channels))
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for module in self.modules():
            if isinstance(module, PhysicsAttention):
                nn.init.orthogonal_(module.slice.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Map fields (B, in_channels, H, W) to fields (B, out_channels, H, W)."""
        check_field(x, self.in_channels)
        h = torch.cat((x, reference_distances(x)), dim=1)
        h = self.layers(_over_channels(self.lift, h))
        return _over_channels(self.head, h)


def reference_distances(x: Tensor) -> Tensor:
    """Distances of the points of x to the reference points, (B, P, H, W)."""
    corner = x.new_zeros(1, 1, REFERENCE, REFERENCE)
    marks = coordinates(corner)[0].flatten(1)
    distances = torch.cdist(coordinates(x)[0].flatten(1).T, marks.T)
    return distances.T.unflatten(1, x.shape[2:]).expand(len(x), -1, -1, -1)


def _over_channels(module: nn.Module, x: Tensor) -> Tensor:
    """A module of channels-last fields on one of (B, C, H, W)."""
    return module(x.movedim(1, -1)).movedim(-1, 1)
