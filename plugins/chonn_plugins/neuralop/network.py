"""``model_arch: chonn_network``: the circuit model of chonn-ops as one of neuraloperator's.

`neuralop.models.get_model`, `Trainer` and checkpoints take it like one of their own.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any

from neuralop.models.base_model import BaseModel
from torch import Tensor


class CHONNNetwork(BaseModel, name="chonn_network"):
    """`chonn_ops.CHONNNetwork1d`, `2d` or `3d` as a model of neuraloperator.

    It is evaluated on any grid, whatever grid it was trained on.

    Parameters
    ----------
    in_channels, out_channels : int
    n_dim : {1, 2, 3}
        Axes of the grid.
    width, depth, lengths, boundary, inner, nodes
        See `chonn_ops.CHONNNetwork2d`; conditions may be mappings. `nodes` is "left" by default,
        since neuraloperator's grids have their nodes at i / n.

    Raises
    ------
    ValueError
        For another number of axes, and unfit options.

    Examples
    --------
    >>> import torch
    >>> from chonn_plugins.neuralop import CHONNNetwork
    >>> model = CHONNNetwork(1, 1)
    >>> x, y = torch.rand(4, 1, 32, 32) + 0.1, torch.rand(4, 1, 32, 32)
    >>> residual = model.calibrate(x, y)  # optional: some training samples, as the loss has them
    >>> model(x).shape
    torch.Size([4, 1, 32, 32])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        n_dim: int = 2,
        width: int = 16,
        depth: int = 2,
        lengths: float | Sequence[float] = 1.0,
        boundary: Any = "robin",
        inner: Any = "robin",
        nodes: Any = "left",
    ) -> None:
        # Imported here, so that loading neuraloperator alone does not import our models.
        from chonn_ops.checks import json_value
        from chonn_plugins.fields import build

        super().__init__()
        options = {"width": width, "depth": depth, "lengths": lengths}
        options |= {"boundary": boundary, "inner": inner, "nodes": nodes}
        self.model, _ = build("chonn_network", in_channels, out_channels, n_dim, options)
        # What checkpoints keep. `Trainer` resumes from plain values; a subclass may have others.
        if type(self) is __class__:
            kept: Any = self._init_kwargs
            kept.update({name: json_value(name, value) for name, value in kept.items()})

    def forward(
        self,
        x: Tensor,
        *,
        spacing: Sequence[float] | None = None,
        mask: Tensor | None = None,
        nodes: Any = None,
        **_: Any,
    ) -> Tensor:
        """Map fields (B, in_channels, \\*grid) to (B, out_channels, \\*grid).

        `spacing`, `mask` and `nodes` are those of `chonn_ops.CHONNNetwork2d`. Other fields of a
        sample, which neuraloperator's `Trainer` passes to the model too, are ignored.
        """
        return self.model(x, spacing=spacing, mask=mask, nodes=nodes)

    def calibrate(self, x: Tensor, y: Tensor, **geometry: Any) -> Tensor:
        """See `chonn_ops.CHONNNetwork2d.calibrate`: inputs and targets of some samples, as the
        data processor makes them."""
        model: Any = self.model
        return model.calibrate(x, y, **geometry)


def install() -> None:
    """Register with the neuraloperator that is loaded; where that is done, this does nothing."""
    current = sys.modules["neuralop.models.base_model"].BaseModel
    if not issubclass(CHONNNetwork, current) or "chonn_network" not in current._models:
        importlib.reload(sys.modules[__name__])
