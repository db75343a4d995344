"""Wrappers that give every model of an experiment the same interface."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from chonn_lab.baselines.fields import coordinates
from chonn_ops.nn import CKBOptions

PLAIN = CKBOptions(order=0)
# The U-Net and the CNO halve the grid, the U-Net four times.
MULTIPLE = 16


class Units(NamedTuple):
    """Typical mean and standard deviation of the fields, constants for every split; those of an
    input with several channels one a channel, or of its logarithm."""

    input_centre: float | tuple[float, ...]
    input_spread: float | tuple[float, ...]
    output_centre: float
    output_spread: float
    logarithm: bool = False

    def scaled(self, x: Tensor) -> Tensor:
        """An input (B, C, \\*grid) of about unit size around zero."""
        centre, spread = (
            x.new_tensor(numbers).reshape(-1, *[1] * (x.dim() - 2))
            for numbers in (self.input_centre, self.input_spread)
        )
        return ((x.log() if self.logarithm else x) - centre) / spread


class Standardized(nn.Module):
    """Scales the fields of a model to about unit size; input and output have the data's units."""

    def __init__(self, model: nn.Module, units: Units) -> None:
        super().__init__()
        self.model, self.units = model, units

    def forward(self, x: Tensor) -> Tensor:
        units = self.units
        y = self.model(units.scaled(x))
        return units.output_centre + units.output_spread * y


class Extended(nn.Module):
    """A model that sees the fields (B, C, \\*grid) beyond their ends, where the outermost values go
    on; what is added is cut off again.

    `margin` is the width that is added on every side, over the domain's: room for a layer that
    absorbs waves. `multiple` divides the numbers of points that the model needs: further ones are
    added at the ends.
    """

    def __init__(self, model: nn.Module, margin: float = 0.0, multiple: int = 1) -> None:
        super().__init__()
        self.model, self.margin, self.multiple = model, margin, multiple

    def forward(self, x: Tensor) -> Tensor:
        grid = x.shape[2:]
        added = [round(self.margin * n) for n in grid]
        ends = [(m, m + -(n + 2 * m) % self.multiple) for m, n in zip(added, grid, strict=True)]
        padding = [side for pair in reversed(ends) for side in pair]
        y = self.model(F.pad(x, padding, mode="replicate"))
        return y[(..., *(slice(m, m + n) for m, n in zip(added, grid, strict=True)))]


class GridFNO(nn.Module):
    """Calls PDEBench's FNO, whose arguments are (x, grid), with fields (B, C, \\*grid)."""

    def __init__(self, fno: nn.Module) -> None:
        super().__init__()
        self.fno = fno

    def forward(self, x: Tensor) -> Tensor:
        y = self.fno(x.movedim(1, -1), coordinates(x).movedim(1, -1))
        return y.squeeze(-2).movedim(-1, 1)


def of_neuralop(model: nn.Module) -> nn.Module:
    """A model of neuraloperator whose state dict has tensors only."""
    wrapped = nn.Sequential(model)
    wrapped.register_state_dict_post_hook(without_metadata)
    return wrapped


def without_metadata(_module: nn.Module, state: dict[str, Any], *_: Any) -> None:
    """neuraloperator stores the arguments of its models under this key."""
    state.pop("_metadata", None)


class Forecaster(nn.Module):
    """Earlier frames (B, history, R, R) to the next one (B, R, R), by a model of one channel: the
    frame, or with `increment` the change from the last one."""

    def __init__(self, model: nn.Module, increment: bool) -> None:
        super().__init__()
        self.model, self.increment = model, increment

    def forward(self, frames: Tensor) -> Tensor:
        predicted = self.model(frames)[:, 0]
        return frames[:, -1] + predicted if self.increment else predicted
