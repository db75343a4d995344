"""What stands around and beside the models of the steady problems, for fields (B, 1, R, R).

Apart from `_steady_models`, which knows all models: a result names the files of its own model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from chonn_ops.models import CHONNFNO2d, CHONNNetwork2d
from chonn_ops.nn import CKBOptions

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
