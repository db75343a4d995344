"""Time-harmonic waves in open space: the problem, and the circuit that learns it."""

import dataclasses
import math
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_lab.experiments.fields import Steady
from chonn_lab.experiments.solvers import Physics
from chonn_lab.problems import helmholtz
from chonn_ops import CHONNNetwork2d, absorbing_layer
from chonn_ops import helmholtz as circuit_of_waves

# Width that `OpenNetwork` adds on every side, over the square's.
MARGIN = 0.125


def extended(x: Tensor, width: float) -> tuple[Tensor, int]:
    """Fields (B, C, R, R) that go on beyond the square, and the points added on every side."""
    added = math.ceil(width * x.shape[-1])
    return F.pad(x, (added,) * 4, mode="replicate"), added


@dataclasses.dataclass(kw_only=True)
class Helmholtz(Steady):
    """Wave number and source to outgoing waves, real and imaginary part."""

    generator: ClassVar[Any] = helmholtz
    in_channels: ClassVar[int] = 2
    out_channels: ClassVar[int] = 2
    physics: ClassVar[Physics] = Physics("wave number", "centres")

    def scheme(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The equation by `chonn_ops.helmholtz`, with the data's layer."""
        wide, added = extended(x, helmholtz.LAYER)
        k, f = (field[..., None] for field in wide.unbind(1))
        f = F.pad(x[:, 1], (added,) * 4)[..., None]
        size, ones = (helmholtz.LAYER, 1 / x.shape[-1]), torch.ones_like(k)
        loss = absorbing_layer(ones, k**2, *size, attenuation=helmholtz.ATTENUATION)
        u = circuit_of_waves(ones, k**2, loss, 1.0, size[1], boundary="dirichlet").solve(f)
        u = torch.cat((u.real, u.imag), -1).movedim(-1, 1)
        return u[..., added:-added, added:-added]

    def read(self, path: Path, n_samples: int) -> tuple[Tensor, ...]:
        return tuple(map(torch.from_numpy, helmholtz.read(path, 0, n_samples)))


class OpenNetwork(CHONNNetwork2d):
    """One circuit at a frequency, with room for a layer that absorbs waves around the square.

    Its "matched" walls alone reflect oblique waves: then the error was 0.081 and not 0.012. The
    depth in the layer is an input, from which the circuit learns what is lost there.
    """

    def __init__(self, width: int, depth: int) -> None:
        sizes: dict[str, Any] = {"width": width, "depth": depth, "lengths": 1 + 2 * MARGIN}
        super().__init__(3, 2, **sizes, boundary="matched", ac=True)

    def forward(self, x: Tensor, **geometry: Any) -> Tensor:
        wide, added = self._with_depth(x)
        return super().forward(wide, **geometry)[..., added:-added, added:-added]

    @torch.no_grad()
    def calibrate(self, x: Tensor, y: Tensor, **geometry: Any) -> Tensor:
        wide, added = self._with_depth(x)
        return super().calibrate(wide, F.pad(y, (added,) * 4, value=math.nan), **geometry)

    @staticmethod
    def _with_depth(x: Tensor) -> tuple[Tensor, int]:
        wide, added = extended(x, MARGIN)
        place = torch.arange(wide.shape[-1], device=x.device, dtype=x.dtype)
        depth = (added - 0.5 - torch.minimum(place, place.flip(0))).clamp(min=0) / added
        depth = torch.maximum(depth, depth[:, None]).expand(len(x), 1, -1, -1)
        return torch.cat((wide, depth), 1), added


def open_network(problem: Any, width: int, depth: int) -> nn.Module:
    """`OpenNetwork`, for `Helmholtz` alone."""
    if not isinstance(problem, Helmholtz):
        raise ValueError(f"problem: expected helmholtz, got {problem.name}")
    return OpenNetwork(width, depth)
