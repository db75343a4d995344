"""Equalised learning rates: parameters that count several times."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Gained(nn.Module):
    """Base of modules whose own parameters count `gain` times: `forward` computes with
    `effective` values, and `parameters` and `state_dict` hold the values before the gain."""

    gain: float = 1.0

    def effective(self, name: str) -> Any:
        """The parameter of this name times the gain; None where the module has none."""
        stored: Tensor | None = getattr(self, name)
        return stored if stored is None or self.gain == 1 else self.gain * stored


def learn_faster(module: nn.Module, gain: float) -> None:
    """Let a module learn `gain` times as fast at an optimiser's learning rate.

    Hosts train all parameters at one rate, usually 1e-3, which suits their wide layers and is ten
    times too small for networks of a few channels. This multiplies the gain of every submodule and
    divides its parameters, so the module still computes the same. Steps of Adam, whose size is the
    learning rate, become `gain` times as large in the values that the module uses, and an L2
    penalty of the host becomes ``gain**2`` times as weak (equalised learning rates: Karras et al.,
    "Progressive growing of GANs", ICLR 2018).

    A state dict holds the stored values, so it fits modules of the same gain.

    Parameters
    ----------
    module : Module
        Whose submodules with parameters are all `Gained`.
    gain : float
        Above 0.

    Raises
    ------
    TypeError
        For a submodule with parameters that is not `Gained`.
    """
    for part in module.modules():
        parameters = list(part.parameters(recurse=False))
        if not parameters:
            continue
        if not isinstance(part, Gained):
            raise TypeError(f"module: expected modules with a gain, got {type(part).__name__}")
        part.gain *= gain
        with torch.no_grad():
            for parameter in parameters:
                parameter.div_(gain)
