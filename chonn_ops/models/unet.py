"""U-Nets as the trunk of a circuit head, or with cascaded Kirchhoff blocks in their deepest stages.

The plain network is PDEBench's U-Net (pdebench/models/unet/unet.py, MIT, after
mateuszbuda/brain-segmentation-pytorch): four levels, two 3-point convolutions with batch norm and
tanh a level. Module names and creation order, and so the parameters, are the same: with ``order=0``
a PDEBench checkpoint loads, and the same seed gives the same weights.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from chonn_ops.boundary import Condition
from chonn_ops.checks import GRID_AXES, as_field, check_integer, error
from chonn_ops.models.pretrained import Pretrained
from chonn_ops.models.trunks import NETWORKS, OF_BLOCKS, check_ckb
from chonn_ops.network.discretise.grids import Spacing
from chonn_ops.nn import CKB, CKBOptions
from chonn_ops.nn.geometry import Nodes
from chonn_ops.nn.layers import CONV, Factory

LEVELS = 4
STAGES = (
    *(f"encoder{k}" for k in range(1, LEVELS + 1)),
    "bottleneck",
    *(f"decoder{k}" for k in range(LEVELS, 0, -1)),
)

NORM = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
POOL = {1: nn.MaxPool1d, 2: nn.MaxPool2d, 3: nn.MaxPool3d}
CONV_TRANSPOSE = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}


class CHONNUNet(Pretrained):
    """The U-Net in any number of dimensions; see `CHONNUNet2d`."""

    spatial_dims: ClassVar[int]

    def __init__(
        self,
        in_channels: int = 3,
        out_channels: int = 1,
        init_features: int = 32,
        *,
        lengths: float | Sequence[float] = 1.0,
        boundary: Any = "robin",
        inner: str | Condition = "robin",
        nodes: Nodes = "centres",
        ckb: CKBOptions | None = None,
        stages: Sequence[str] = OF_BLOCKS["stages"],
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_integer(1, in_channels=in_channels, out_channels=out_channels)
        check_integer(1, init_features=init_features)
        unknown = [stage for stage in stages if stage not in STAGES]
        if unknown:
            raise error("stages", f"names out of {STAGES}", unknown)
        head = {"lengths": lengths, "boundary": boundary, "inner": inner, "nodes": nodes}
        check_ckb(ckb, **head, stages=tuple(stages))
        dims, self.in_channels = self.spatial_dims, in_channels
        factory: Factory = {"device": device, "dtype": dtype}
        self.network: Any = None
        if ckb is None:
            sizes = (in_channels, init_features, init_features)
            trunk = _Trunk(type(self)(*sizes, ckb=CKBOptions(order=0), **factory))
            sizes = (in_channels, out_channels, init_features)
            self.network = NETWORKS[dims](*sizes, trunk=trunk, **head, **factory)
            return
        widths = [init_features * 2**k for k in range(LEVELS + 1)]
        width_of = {"bottleneck": widths[-1]}

        channels = in_channels
        for level in range(1, LEVELS + 1):
            width = width_of[f"encoder{level}"] = width_of[f"decoder{level}"] = widths[level - 1]
            self.add_module(f"encoder{level}", self._block(channels, width, f"enc{level}", factory))
            self.add_module(f"pool{level}", POOL[dims](kernel_size=2, stride=2))
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
        for stage in stages if ckb.order else ():
            self.ckbs[stage] = CKB(width_of[stage], dims, **vars(ckb), **factory)

    @classmethod
    def _block(cls, in_channels: int, features: int, name: str, factory: Factory) -> nn.Sequential:
        layers: list[tuple[str, nn.Module]] = []
        for index, channels in ((1, in_channels), (2, features)):
            conv = CONV[cls.spatial_dims](
                channels, features, kernel_size=3, padding=1, bias=False, **factory
            )
            layers += [
                (f"{name}conv{index}", conv),
                (f"{name}norm{index}", NORM[cls.spatial_dims](features, **factory)),
                (f"{name}tanh{index}", nn.Tanh()),
            ]
        return nn.Sequential(OrderedDict(layers))

    def forward(
        self,
        x: Tensor,
        *,
        spacing: Spacing | None = None,
        mask: Tensor | None = None,
        nodes: Nodes | None = None,
    ) -> Tensor:
        """Map fields to fields.

        Parameters
        ----------
        x : Tensor, shape (B, in_channels, \\*grid)
            Every axis of the grid a multiple of 16.
        spacing, mask, nodes : optional
            The geometry of a circuit head, as `CHONNNetwork2d.forward` takes it.

        Returns
        -------
        Tensor, shape (B, out_channels, \\*grid)

        Raises
        ------
        ValueError
            For another number of axes or channels, a grid that four poolings do not divide, a
            geometry that does not fit, or any without a circuit head.
        """
        geometry = {"spacing": spacing, "mask": mask, "nodes": nodes}
        if self.network is not None:
            return self.network(x, **geometry)
        if any(value is not None for value in geometry.values()):
            raise ValueError(f"{', '.join(geometry)}: expected None with `ckb`")
        shape = ("B", self.in_channels, *GRID_AXES[: self.spatial_dims])
        x = as_field("x", x, self.parameters(), *shape, multiple=2**LEVELS)
        skips = []
        for level in range(1, LEVELS + 1):
            x = self._stage(f"encoder{level}", x)
            skips.append(x)
            x = self.get_submodule(f"pool{level}")(x)
        x = self._stage("bottleneck", x)
        for level in range(LEVELS, 0, -1):
            x = self.get_submodule(f"upconv{level}")(x)
            x = torch.cat((x, skips.pop()), dim=1)
            x = self._stage(f"decoder{level}", x)
        return self.conv(x)

    def calibrate(self, x: Tensor, y: Tensor, **geometry: Any) -> Tensor:
        """See `CHONNNetwork2d.calibrate`. A ValueError with `ckb`, which leaves no circuit head."""
        if self.network is None:
            raise ValueError("calibrate: expected a model without `ckb`, whose head is a circuit")
        return self.network.calibrate(x, y, **geometry)

    def _stage(self, name: str, x: Tensor) -> Tensor:
        x = self.get_submodule(name)(x)
        return self.ckbs[name](x) if name in self.ckbs else x


class _Trunk(nn.Module):
    """A plain U-Net of channels-last fields."""

    def __init__(self, unet: CHONNUNet) -> None:
        super().__init__()
        self.unet = unet

    def forward(self, x: Tensor) -> Tensor:
        return self.unet(x.movedim(-1, 1)).movedim(1, -1)


class CHONNUNet1d(CHONNUNet):
    """`CHONNUNet2d` for fields (B, C, X)."""

    spatial_dims = 1


class CHONNUNet2d(CHONNUNet):
    """PDEBench's ``UNet2d`` with circuits: (B, C, X, Y) -> (B, C', X, Y).

    The U-Net is the trunk of a `CHONNNetwork2d`: its features set the elements of one circuit an
    output, whose potential is the output. `calibrate` takes units and first parameters from some
    data, as there.

    Parameters
    ----------
    in_channels, out_channels : int
        Channels of input and output fields.
    init_features : int
        Channels of the first level, and of the features; level k has ``2**k`` times as many.
    lengths, boundary, inner, nodes
        As in `CHONNNetwork2d`.
    ckb : CKBOptions, optional
        In place of the circuit head: ``CKBOptions("scan")`` is the paper's form, a U-Net with
        blocks, and ``CKBOptions(order=0)`` the plain U-Net, parameter for parameter.
    stages : sequence of str
        Stages whose convolutions a block of `ckb` follows. Default: the deepest encoder stage, the
        bottleneck and the deepest decoder stage, as in the paper.
    device, dtype
        As in `torch.nn`.

    Raises
    ------
    ValueError
        For unfit options, and blocks of networks: the circuit head has their place.
    """

    spatial_dims = 2


class CHONNUNet3d(CHONNUNet):
    """`CHONNUNet2d` for fields (B, C, X, Y, Z)."""

    spatial_dims = 3
