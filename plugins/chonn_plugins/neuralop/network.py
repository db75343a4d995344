"""``model_arch: chonn_network``: CHONN's network model among neuraloperator's.

`neuralop.models.get_model`, `Trainer` and checkpoints take it like their own.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from neuralop.models.base_model import BaseModel
from torch import Tensor


def install() -> None:
    """Register with the neuraloperator that is loaded; where that is done, this does nothing."""
    if not issubclass(CHONNNetwork, sys.modules["neuralop.models.base_model"].BaseModel):
        importlib.reload(sys.modules[__name__])  # neuralop was imported anew


class CHONNNetwork(BaseModel, name="chonn_network"):
    """`chonn_ops.CHONNNetwork1d`, `2d` or `3d` as a model of neuraloperator.

    Grids may be of any size, in training and after it. The model has coordinates of its own.

    Parameters
    ----------
    in_channels, out_channels : int
    n_dim : {1, 2, 3}
        Axes of the grid.
    ckb : CKBOptions or mapping, optional
        Options of the blocks; those of a mapping are for network cells unless it has a "cell".
    \\*\\*sizes
        Those of `chonn_ops.CHONNNetwork2d`: ``width``, ``depth``, ...

    Raises
    ------
    ValueError
        For another number of axes, and unknown or unfit options.

    Examples
    --------
    >>> model = CHONNNetwork(1, 1, width=24, depth=2, ckb={"networks": 8})
    >>> model(torch.randn(4, 1, 32, 32)).shape
    torch.Size([4, 1, 32, 32])
    """
