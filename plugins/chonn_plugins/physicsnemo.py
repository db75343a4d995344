"""The models of chonn-ops as PhysicsNeMo's: registered by name, saved as and loaded from .mdlus.

>>> from physicsnemo.core import ModelRegistry, Module
>>> model = ModelRegistry().factory("chonn_network")(1, 1, boundary="periodic")
>>> model.save("darcy.mdlus")
>>> model = Module.from_checkpoint("darcy.mdlus")
"""

from __future__ import annotations

from typing import Any, ClassVar

from physicsnemo.core import ModelMetaData, Module
from torch import Tensor

from chonn_ops.checks import json_value
from chonn_plugins.fields import build


class _Model(Module):
    _name: ClassVar[str]

    def __init__(
        self, in_channels: int, out_channels: int, dimension: int = 2, **options: Any
    ) -> None:
        """Build the model.

        Parameters
        ----------
        in_channels, out_channels : int
        dimension : {1, 2, 3}
            Axes of the grid.
        **options
            As of `chonn_plugins.fields.build`, which raises a ValueError for unfit ones.
        """
        sizes = {"in_channels": in_channels, "out_channels": out_channels, "dimension": dimension}
        sizes = {name: json_value(name, size) for name, size in sizes.items()}
        model, known = build(self._name, *sizes.values(), options=options)
        # What `StaticCapture*` asks. Autocast of float16, its default on a GPU, overflows in the
        # scans of some untrained models. Its CUDA graphs are untested with our models.
        scans = (known.get("ckb") or {}).get("cell") == "scan"
        super().__init__(meta=ModelMetaData(amp_cpu=True, amp_gpu=not scans, cuda_graphs=False))
        self._args["__args__"].update(sizes, **known)  # what .mdlus files store
        self.model = model

    def forward(self, x: Tensor, **geometry: Any) -> Tensor:
        """Map fields (B, in_channels, \\*grid) to (B, out_channels, \\*grid)."""
        return self.model(x, **geometry)

    def calibrate(self, x: Tensor, y: Tensor, **geometry: Any) -> Tensor:
        """See `chonn_ops.CHONNNetwork2d.calibrate`: inputs and targets of some samples."""
        model: Any = self.model
        return model.calibrate(x, y, **geometry)


class CHONNNetwork(_Model):
    """`chonn_ops.CHONNNetwork1d`, `2d` or `3d`; its call takes `spacing`, `mask` and `nodes`."""

    _name = "chonn_network"


class CHONNFNO(_Model):
    """`chonn_ops.CHONNFNO1d`, `2d` or `3d`."""

    _name = "chonn_fno"


class CHONNUNet(_Model):
    """`chonn_ops.CHONNUNet1d`, `2d` or `3d`."""

    _name = "chonn_unet"
