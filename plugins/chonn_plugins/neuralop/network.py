"""``model_arch: chonn_network``: the network model of chonn-ops among neuraloperator's.

`neuralop.models.get_model`, `Trainer` and checkpoints take it like one of their own.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from neuralop.models.base_model import BaseModel
from torch import Tensor


class CHONNNetwork(BaseModel, name="chonn_network"):
    """`chonn_ops.CHONNNetwork1d`, `2d` or `3d` as a model of neuraloperator.

    It is asked on any grid, whatever grid it was trained on, and has coordinates of its own.

    Parameters
    ----------
    in_channels, out_channels : int
    n_dim : {1, 2, 3}
        Axes of the grid.
    width, depth, mlp_ratio, patch, coordinates, lengths, max_depth
        See `chonn_ops.CHONNNetwork2d`.
    ckb : mapping, optional
        Options of the blocks, the fields of `chonn_ops.CKBOptions`; the cell is "network". Nodes
        are where neuraloperator's grids have them, "left" (i / n), unless there are patches.

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

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        n_dim: int = 2,
        width: int = 24,
        depth: int | str = 2,
        mlp_ratio: int = 2,
        patch: int = 1,
        coordinates: bool = True,
        lengths: float | Sequence[float] = 1.0,
        max_depth: int = 4,
        ckb: Mapping[str, Any] | None = None,
    ) -> None:
        # Here: who loads neuraloperator and none of our models must not wait for them.
        import chonn_ops

        super().__init__()
        models = {
            1: chonn_ops.CHONNNetwork1d,
            2: chonn_ops.CHONNNetwork2d,
            3: chonn_ops.CHONNNetwork3d,
        }
        if n_dim not in models:
            raise ValueError(f"n_dim: expected 1, 2 or 3, got {n_dim!r}")
        if ckb is not None and not isinstance(ckb, Mapping):
            raise ValueError(f"ckb: expected a mapping of options or None, got {ckb!r}")
        known = [field.name for field in dataclasses.fields(chonn_ops.CKBOptions)]
        unknown = sorted(set(ckb or ()) - set(known))
        if unknown:
            raise ValueError(f"ckb: expected options out of {known}, got {unknown}")
        given = {"cell": "network", **(ckb or {})}
        if given["cell"] == "network" and patch == 1:
            given = {"nodes": "left", **given}
        options = chonn_ops.CKBOptions(**given)
        recorded: Any = self._init_kwargs
        if "ckb" in recorded:  # else a subclass chose them
            # All options, so that checkpoints outlive a change of a default.
            recorded["ckb"] = dataclasses.asdict(options)
        self.model = models[n_dim](
            in_channels,
            out_channels,
            width,
            depth,
            mlp_ratio=mlp_ratio,
            patch=patch,
            coordinates=coordinates,
            lengths=lengths,
            max_depth=max_depth,
            ckb=options,
        )

    def forward(
        self,
        x: Tensor,
        *,
        spacing: Sequence[float] | None = None,
        mask: Tensor | None = None,
        **_: Any,
    ) -> Tensor:
        """Map fields (B, in_channels, \\*grid) to (B, out_channels, \\*grid).

        `spacing` and `mask` are those of `chonn_ops.CHONNNetwork2d`. Other fields of a sample,
        which neuraloperator's `Trainer` hands to the model too, are not used.
        """
        return self.model(x, spacing=spacing, mask=mask)


def install() -> None:
    """Register with the neuraloperator that is loaded; where that is done, this does nothing."""
    current = sys.modules["neuralop.models.base_model"].BaseModel
    if not issubclass(CHONNNetwork, current) or "chonn_network" not in current._models:
        importlib.reload(sys.modules[__name__])
