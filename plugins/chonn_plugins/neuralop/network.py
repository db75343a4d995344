"""``model_arch: chonn_network``: the network model of chonn-ops as one of neuraloperator's.

`neuralop.models.get_model`, `Trainer` and checkpoints take it like one of their own.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from neuralop.models.base_model import BaseModel
from torch import Tensor

from chonn_plugins.neuralop.hook import refuse_elsewhere


class CHONNNetwork(BaseModel, name="chonn_network"):
    """`chonn_ops.CHONNNetwork1d`, `2d` or `3d` as a model of neuraloperator.

    It is evaluated on any grid, whatever grid it was trained on, and makes its own coordinates.

    Parameters
    ----------
    in_channels, out_channels : int
    n_dim : {1, 2, 3}
        Axes of the grid.
    width, depth, mlp_ratio, patch, coordinates, lengths, offset
        See `chonn_ops.CHONNNetwork2d`. With an output normaliser, `offset` is ``-mean / std`` of
        the normaliser.
    ckb : mapping, optional
        Options of the blocks, see `chonn_ops.CKBOptions.from_mapping`; the cell is "network".
        ``nodes`` is "left" by default, since neuraloperator's grids have their nodes at i / n.

    Raises
    ------
    ValueError
        For another number of axes, and unknown or unfit options.

    Examples
    --------
    >>> model = CHONNNetwork(1, 1, width=24, depth=2, ckb={"num_networks": 8})
    >>> model(torch.randn(4, 1, 32, 32)).shape
    torch.Size([4, 1, 32, 32])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        n_dim: int = 2,
        width: int = 24,
        depth: int = 2,
        mlp_ratio: int = 2,
        patch: int = 1,
        coordinates: bool = True,
        lengths: float | Sequence[float] = 1.0,
        offset: float | Sequence[float] = 0.0,
        ckb: Mapping[str, Any] | None = None,
    ) -> None:
        # Imported here, so that loading neuraloperator alone does not import our models.
        from chonn_ops.checks import plain
        from chonn_plugins.fields import MODELS, build, plain_options

        super().__init__()
        if n_dim not in MODELS["chonn_network"]:
            raise ValueError(f"n_dim: expected 1, 2 or 3, got {n_dim!r}")
        if ckb is not None and not isinstance(ckb, Mapping):
            raise ValueError(f"ckb: expected a mapping of options or None, got {ckb!r}")
        given = {"cell": "network", **(ckb or {})}
        if given["cell"] == "network":
            given = {"nodes": "left", **given}
        options = plain_options(
            {
                "width": width,
                "depth": depth,
                "mlp_ratio": mlp_ratio,
                "patch": patch,
                "coordinates": coordinates,
                "lengths": lengths,
                "offset": offset,
                "ckb": given,
            }
        )
        # What checkpoints keep. `Trainer` resumes from plain values; a subclass may have others.
        recorded: Any = self._init_kwargs
        if type(self) is __class__:
            recorded.update({name: plain(name, value) for name, value in recorded.items()})
        if "ckb" in recorded:  # else a subclass chose them
            # All options, so that checkpoints survive a change of a default.
            recorded["ckb"] = options["ckb"]
        self.model = build("chonn_network", in_channels, out_channels, n_dim, options)

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


def install() -> None:
    """Register with the neuraloperator that is loaded; where that is done, this does nothing."""
    current = sys.modules["neuralop.models.base_model"].BaseModel
    refuse_elsewhere(current)
    if not issubclass(CHONNNetwork, current) or "chonn_network" not in current._models:
        importlib.reload(sys.modules[__name__])
