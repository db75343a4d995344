"""The networks that the network benchmark solves, and how well a solution solves them.

Conductivity ``contrast ** sign`` with one random sign a region, edges by harmonic means, leak
0.05 * 256 / H^2 (0.05 on lines, where float32 could not hold the potentials of so small a leak),
half an edge to ground at the first wall of the first axis, sources of white noise. Regions:

inclusions    cubes of 8 points a side, each with a sign of its own
field         where a smooth random field is positive
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

TOLERANCE = 1e-5
INCLUSION = 8  # points a side
CHANNELS = 16  # networks side by side in the last axis of our tensors, as a layer has them
UNIT_ROUNDOFF = 2.0**-24  # of float32


@dataclasses.dataclass(frozen=True)
class Case:
    """Networks of one kind: how many, on what grid."""

    grid: tuple[int, ...]
    networks: int
    contrast: float = 100.0
    regions: str = "inclusions"

    def label(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "grid": list(self.grid)}

    @property
    def nodes(self) -> int:
        return math.prod(self.grid)


@dataclasses.dataclass(frozen=True)
class Networks:
    """(networks, \\*grid) tensors; the conductances, one tensor an axis, have a last entry of 0."""

    source: Tensor
    conductance: tuple[Tensor, ...]
    leak: Tensor

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(self.source.shape[1:])

    def __len__(self) -> int:
        return len(self.source)

    def first(self, count: int) -> Networks:
        conductance = tuple(g[:count] for g in self.conductance)
        return Networks(self.source[:count], conductance, self.leak[:count])


def make(case: Case, device: str = "cpu") -> Networks:
    """Random networks in float32, the same at every call."""
    generator = torch.Generator().manual_seed(0)
    count, grid = case.networks, case.grid
    make_sign = {"inclusions": _inclusions, "field": _smooth}[case.regions]
    k = case.contrast ** (make_sign(count, grid, generator) > 0).double()
    conductance = []
    for axis in range(1, k.ndim):
        after = k.roll(-1, axis)
        edges = 2 * k * after / (k + after)
        edges.select(axis, -1).zero_()
        conductance.append(edges)
    leak = torch.full_like(k, 0.05 if len(grid) == 1 else 0.05 * 256 / grid[0] ** 2)
    leak[:, 0] += 2 * k[:, 0]
    source = torch.randn(k.shape, generator=generator)
    edges32 = tuple(g.float().to(device) for g in conductance)
    return Networks(source.to(device), edges32, leak.float().to(device))


def _inclusions(count: int, grid: tuple[int, ...], generator: torch.Generator) -> Tensor:
    sign = torch.randn(count, *(-(-size // INCLUSION) for size in grid), generator=generator)
    for axis, size in enumerate(grid, 1):
        sign = sign.repeat_interleave(INCLUSION, axis).narrow(axis, 0, size)
    return sign


def _smooth(count: int, grid: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """White noise through (4 pi^2 |k|^2 + 9)^-1, k in waves a side."""
    squares = torch.zeros(grid, dtype=torch.float64)
    for axis, size in enumerate(grid):
        waves = torch.fft.fftfreq(size, 1 / size, dtype=torch.float64) ** 2
        squares += waves.view([-1 if a == axis else 1 for a in range(len(grid))])
    axes = tuple(range(1, len(grid) + 1))
    noise = torch.fft.fftn(torch.randn(count, *grid, generator=generator).double(), dim=axes)
    noise /= 4 * math.pi**2 * squares + 9
    noise.flatten(1)[:, 0] = 0
    return torch.fft.ifftn(noise, dim=axes).real


def channels_last(networks: Networks) -> list[Tensor]:
    """source, leak, conductances as our operator takes them: (B, \\*grid, C), with gradients."""
    channels = math.gcd(len(networks), CHANNELS)

    def turned(t: Tensor) -> Tensor:
        return t.unflatten(0, (-1, channels)).movedim(1, -1).contiguous().requires_grad_()

    return [turned(t) for t in (networks.source, networks.leak, *networks.conductance)]


def networks_first(v: Tensor) -> Tensor:
    """The reverse of `channels_last` for one tensor."""
    return v.detach().movedim(-1, 1).flatten(0, 1)


def drained(networks: Networks, v: Tensor) -> Tensor:
    """What Kirchhoff's current law says the sources are, in float64 from differences."""
    out = networks.leak.double() * v
    for axis, g in enumerate(networks.conductance, 1):
        current = g.double() * (v - v.roll(-1, axis))
        out += current - current.roll(1, axis)
    return out


def quality(networks: Networks, v: Tensor) -> dict[str, float]:
    """The worst network's relative residual in float64, and what rounding alone would leave.

    ``rounding`` is the residual that potentials equal to `v` have when each is off by a random
    part of half a unit in its last place of float32: nothing stored in float32 can be expected
    to be below.
    """
    v = v.detach().to("cpu", torch.float64).reshape(networks.source.shape)
    host = Networks(
        networks.source.cpu(), tuple(g.cpu() for g in networks.conductance), networks.leak.cpu()
    )
    norm = host.source.double().flatten(1).norm(dim=1)
    generator = torch.Generator().manual_seed(1)
    slips = torch.rand(v.shape, generator=generator, dtype=torch.float64) * 2 - 1
    residual = (drained(host, v) - host.source).flatten(1).norm(dim=1) / norm
    rounding = drained(host, v * slips * UNIT_ROUNDOFF).flatten(1).norm(dim=1) / norm
    return {"residual": float(residual.max()), "rounding": float(rounding.max())}


@functools.cache
def pattern(grid: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the matrix: each edge twice, then the diagonal, as `entries` has them."""
    nodes = np.arange(math.prod(grid)).reshape(grid)
    ends = [(nodes.take(range(n - 1), axis), nodes.take(range(1, n), axis))
            for axis, n in enumerate(grid)]  # fmt: skip
    p, q = (np.concatenate([end[side].ravel() for end in ends]) for side in (0, 1))
    diagonal = nodes.ravel()
    return np.concatenate([p, q, diagonal]), np.concatenate([q, p, diagonal])


def diagonal(networks: Networks) -> Tensor:
    """Leak and all conductances of each node."""
    out = networks.leak.clone()
    for axis, g in enumerate(networks.conductance, 1):
        out += g + g.roll(1, axis)
    return out


def entries(networks: Networks) -> Tensor:
    """(networks, entries) values of the matrices at `pattern`, in float64."""
    exact = Networks(
        networks.source,
        tuple(g.double() for g in networks.conductance),
        networks.leak.double(),
    )
    edges = torch.cat(
        [
            g.narrow(axis, 0, g.shape[axis] - 1).flatten(1)
            for axis, g in enumerate(exact.conductance, 1)
        ],
        dim=1,
    )
    return torch.cat([-edges, -edges, diagonal(exact).flatten(1)], dim=1)


def gradients(v: Tensor, w: Tensor) -> list[Tensor]:
    """Of leak and conductances from the potentials and the adjoint's; that of the source is w."""
    found = [-w * v]
    for axis in range(1, v.ndim):
        after = [t.narrow(axis, 1, t.shape[axis] - 1) for t in (v, w)]
        before = [t.narrow(axis, 0, t.shape[axis] - 1) for t in (v, w)]
        found.append((before[1] - after[1]) * (after[0] - before[0]))
    return found


def unavoidable_bytes(case: Case, itemsize: int = 4) -> dict[str, int]:
    """Bytes of the inputs read once and the outputs written once, forward; and with backward.

    Forward: source, leak, a conductance an axis; potentials. Backward: their gradient, the
    potentials, leak, conductances; a gradient of each input.
    """
    axes = len(case.grid)
    field = case.networks * case.nodes * itemsize
    forward, backward = 3 + axes, (3 + axes) + (2 + axes)
    return {"forward": forward * field, "both": (forward + backward) * field}
