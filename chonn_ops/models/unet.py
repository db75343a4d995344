"""U-Nets with cascaded Kirchhoff blocks in their deepest stages, or a network model before them.

The plain network is PDEBench's U-Net (pdebench/models/unet/unet.py, MIT, after
mateuszbuda/brain-segmentation-pytorch): four levels, two 3-point convolutions with batch norm and
tanh a level. Module names, creation order and so parameters are the same: with ``order=0`` a
PDEBench checkpoint loads and the same seed gives the same weights.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from chonn_ops.models._blocks import CONV_TRANSPOSE, Equalised, build_ckb
from chonn_ops.models.network import CHONNNetwork1d, CHONNNetwork2d, CHONNNetwork3d
from chonn_ops.nn import CKBOptions
from chonn_ops.nn._checks import check_choice
from chonn_ops.nn._layers import CONV
from chonn_ops.nn.options import options_or_defaults

LEVELS = 4
STAGES = (
    *(f"encoder{k}" for k in range(1, LEVELS + 1)),
    "bottleneck",
    *(f"decoder{k}" for k in range(LEVELS, 0, -1)),
)
MODES = ("stages", "correction")
DEEPEST_STAGES = ("encoder4", "bottleneck", "decoder4")

_NORM = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
_POOL = {1: nn.MaxPool1d, 2: nn.MaxPool2d, 3: nn.MaxPool3d}
_NETWORK = {1: CHONNNetwork1d, 2: CHONNNetwork2d, 3: CHONNNetwork3d}


class _CHONNUNet(nn.Module):
    """U-Net over `spatial_dims` axes, with CKBs as `mode` says."""

    spatial_dims: int

    def __init__(
        self,
        in_channels: int = 3,
        out_channels: int = 1,
        init_features: int = 32,
        *,
        ckb: CKBOptions | None = None,
        stages: Sequence[str] = DEEPEST_STAGES,
        mode: str = "stages",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        ckb = options_or_defaults(ckb)
        unknown = [stage for stage in stages if stage not in STAGES]
        if unknown:
            raise ValueError(f"stages: expected names out of {STAGES}, got {unknown}")
        check_choice("mode", mode, MODES)
        if mode == "correction" and ckb.order and ckb.cell != "network":
            raise ValueError(f"mode: expected 'stages' with cell={ckb.cell!r}, got {mode!r}")
        dims = self.spatial_dims
        factory = {"device": device, "dtype": dtype}
        widths = [init_features * 2**k for k in range(LEVELS + 1)]
        width_of = {"bottleneck": widths[-1]}

        corrects = mode == "correction" and bool(ckb.order)
        channels = in_channels + (out_channels if corrects else 0)
        for level in range(1, LEVELS + 1):
            width = width_of[f"encoder{level}"] = width_of[f"decoder{level}"] = widths[level - 1]
            self.add_module(f"encoder{level}", self._block(channels, width, f"enc{level}", factory))
            self.add_module(f"pool{level}", _POOL[dims](kernel_size=2, stride=2))
            channels = width
        self.bottleneck = self._block(channels, widths[-1], "bottleneck", factory)
        for level in range(LEVELS, 0, -1):
            width = widths[level - 1]
            upconv = CONV_TRANSPOSE[dims](2 * width, width, kernel_size=2, stride=2, **factory)
            self.add_module(f"upconv{level}", upconv)
            self.add_module(
                f"decoder{level}", self._block(2 * width, width, f"dec{level}", factory)
            )
        self.conv = CONV[dims](init_features, out_channels, kernel_size=1, **factory)

        # After all plain parameters, so that these draw the same random numbers as PDEBench's.
        self.ckbs = nn.ModuleDict()
        self.network: nn.Module | None = None
        if corrects:
            network = _NETWORK[dims](in_channels, out_channels, ckb=ckb, **factory)
            self.network = Equalised(network)
            nn.init.zeros_(self.conv.weight)
            nn.init.zeros_(self.conv.bias)
        elif ckb.order:
            for stage in stages:
                block: nn.Module = build_ckb(width_of[stage], dims, ckb, device, dtype)
                self.ckbs[stage] = Equalised(block) if ckb.cell == "network" else block

    @classmethod
    def _block(cls, in_channels: int, features: int, name: str, factory: dict) -> nn.Sequential:
        layers: list[tuple[str, nn.Module]] = []
        for index, channels in ((1, in_channels), (2, features)):
            conv = CONV[cls.spatial_dims](
                channels, features, kernel_size=3, padding=1, bias=False, **factory
            )
            layers += [
                (f"{name}conv{index}", conv),
                (f"{name}norm{index}", _NORM[cls.spatial_dims](features, **factory)),
                (f"{name}tanh{index}", nn.Tanh()),
            ]
        return nn.Sequential(OrderedDict(layers))

    def forward(self, x: Tensor) -> Tensor:
        """Map fields to fields.

        Parameters
        ----------
        x : Tensor, shape (B, in_channels, \\*grid)
            Every axis of the grid a multiple of 16.

        Returns
        -------
        Tensor, shape (B, out_channels, \\*grid)

        Raises
        ------
        ValueError
            For another number of axes, or a grid that four poolings do not divide.
        """
        grid = tuple(x.shape[2:])
        if x.ndim != self.spatial_dims + 2 or any(n % 2**LEVELS for n in grid):
            raise ValueError(
                f"x: expected shape (B, C, *grid) with {self.spatial_dims} grid axes, each a "
                f"multiple of {2**LEVELS}, got {tuple(x.shape)}"
            )
        first = None
        if self.network is not None:
            first = self.network(x)
            x = torch.cat((x, first), dim=1)
        skips = []
        for level in range(1, LEVELS + 1):
            x = self._stage(f"encoder{level}", x)
            skips.append(x)
            x = self.get_submodule(f"pool{level}")(x)
        x = self._stage("bottleneck", x)
        for level in range(LEVELS, 0, -1):
            x = self.get_submodule(f"upconv{level}")(x)
            x = self._stage(f"decoder{level}", torch.cat((x, skips.pop()), dim=1))
        x = self.conv(x)
        return x if first is None else first + x

    def _stage(self, name: str, x: Tensor) -> Tensor:
        x = self.get_submodule(name)(x)
        return self.ckbs[name](x) if name in self.ckbs else x


_PARAMETERS = """

    Parameters
    ----------
    in_channels, out_channels : int
        Channels of input and output fields.
    init_features : int
        Channels of the first level; level k has ``2**k`` times as many.
    ckb : CKBOptions, optional
        Options of the blocks; ``CKBOptions(order=0)`` is the plain U-Net to the last parameter.
    stages : sequence of str
        Stages that get a CKB after their convolutions. Default: the deepest encoder stage, the
        bottleneck and the deepest decoder stage, as in the paper.
    mode : {"stages", "correction"}
        "correction", for network cells: a `CHONNNetwork2d` (or 1d, 3d) of these blocks predicts v,
        and the U-Net corrects it, ``v + UNet(x, v)``, from zero on; no stage gets a CKB.
    """


class CHONNUNet1d(_CHONNUNet):
    __doc__ = "PDEBench's ``UNet1d`` with CKBs: (B, C, X) -> (B, C', X)." + _PARAMETERS
    spatial_dims = 1


class CHONNUNet2d(_CHONNUNet):
    __doc__ = "PDEBench's ``UNet2d`` with CKBs: (B, C, X, Y) -> (B, C', X, Y)." + _PARAMETERS
    spatial_dims = 2


class CHONNUNet3d(_CHONNUNet):
    __doc__ = "PDEBench's ``UNet3d`` with CKBs: (B, C, X, Y, Z) -> (B, C', X, Y, Z)." + _PARAMETERS
    spatial_dims = 3
