"""The models of chonn-ops as PhysicsNeMo's: registered by name, saved as and loaded from .mdlus.

>>> model = ModelRegistry().factory("chonn_network")(1, 1, ckb={"num_networks": 8})
>>> model.save("darcy.mdlus")
>>> model = Module.from_checkpoint("darcy.mdlus")
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from physicsnemo.core import ModelMetaData, Module
from torch import Tensor

from chonn_ops import Network
from chonn_plugins.fields import build, plain_options


class _Model(Module):
    _name: ClassVar[str]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dimension: int = 2,
        *,
        ckb: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """Build the model.

        Parameters
        ----------
        in_channels, out_channels : int
        dimension : {1, 2, 3}
            Axes of the grid.
        ckb : mapping, optional
            Options of the blocks, see `chonn_ops.CKBOptions.from_mapping`.
        **options
            Other arguments of the class of chonn_ops.

        Raises
        ------
        ValueError
            For another number of axes, and unfit options.
        """
        sizes = {"in_channels": in_channels, "out_channels": out_channels, "dimension": dimension}
        arguments = plain_options({**sizes, **options, "ckb": ckb})
        # What `StaticCapture*` asks. Autocast of float16, its default on a GPU, overflows in the
        # scans of some untrained models. Its CUDA graphs are untested with our models.
        networks = arguments["ckb"]["cell"] == Network.name
        super().__init__(meta=ModelMetaData(amp_cpu=True, amp_gpu=networks, cuda_graphs=False))
        self._args["__args__"].update(arguments)  # what .mdlus files store
        inputs, outputs, axes = map(arguments.pop, sizes)
        self.model = build(self._name, inputs, outputs, axes, arguments)

    def forward(self, x: Tensor, **geometry: Any) -> Tensor:
        """Map fields (B, in_channels, \\*grid) to (B, out_channels, \\*grid)."""
        return self.model(x, **geometry)


class CHONNNetwork(_Model):
    """`chonn_ops.CHONNNetwork1d`, `2d` or `3d`; its call takes `spacing`, `mask` and `nodes`."""

    _name = "chonn_network"


class CHONNFNO(_Model):
    """`chonn_ops.CHONNFNO1d`, `2d` or `3d`."""

    _name = "chonn_fno"


class CHONNUNet(_Model):
    """`chonn_ops.CHONNUNet1d`, `2d` or `3d`."""

    _name = "chonn_unet"
