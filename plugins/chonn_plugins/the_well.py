"""The models of chonn-ops as The Well's: for the trainer of its benchmark, and its hub folders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from the_well.benchmark.models.common import BaseModel
from torch import Tensor

from chonn_ops.checks import json_value
from chonn_plugins.fields import build


class _Model(BaseModel):
    _name: ClassVar[str]

    def __init__(
        self,
        dim_in: int,
        dim_out: int,
        n_spatial_dims: int,
        spatial_resolution: Sequence[int],
        **options: Any,
    ) -> None:
        """Build the model.

        Parameters
        ----------
        dim_in, dim_out : int
            Channels of input and output fields.
        n_spatial_dims : {1, 2, 3}
        spatial_resolution : sequence of int
            The training grid. The models are evaluated on any grid.
        **options
            As of `chonn_plugins.fields.build`, which raises a ValueError for unfit ones.
        """
        sizes = {"dim_in": dim_in, "dim_out": dim_out, "n_spatial_dims": n_spatial_dims}
        sizes = {name: json_value(name, size) for name, size in sizes.items()}
        grid = json_value("spatial_resolution", spatial_resolution)
        super().__init__(sizes["n_spatial_dims"], tuple(grid))
        self.model, known = build(self._name, *sizes.values(), options=options)
        # What hub folders store. The mixin leaves out what Hydra's types hold.
        self._hub_mixin_config.update(sizes, spatial_resolution=grid, **known)

    def forward(self, x: Tensor) -> Tensor:
        """Map fields (B, dim_in, \\*grid) to (B, dim_out, \\*grid)."""
        return self.model(x)

    def calibrate(self, x: Tensor, y: Tensor) -> Tensor:
        """See `chonn_ops.CHONNNetwork2d.calibrate`: inputs and targets of some samples."""
        model: Any = self.model
        return model.calibrate(x, y)


class CHONNNetwork(_Model):
    """`chonn_ops.CHONNNetwork1d`, `2d` or `3d`."""

    _name = "chonn_network"


class CHONNFNO(_Model):
    """`chonn_ops.CHONNFNO1d`, `2d` or `3d`."""

    _name = "chonn_fno"


class CHONNUNet(_Model):
    """`chonn_ops.CHONNUNet1d`, `2d` or `3d`."""

    _name = "chonn_unet"
