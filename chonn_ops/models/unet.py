"""U-Nets with cascaded Kirchhoff blocks in their deepest stages, or a network model before them.

The plain network is PDEBench's U-Net (pdebench/models/unet/unet.py, MIT, after
mateuszbuda/brain-segmentation-pytorch): four levels, two 3-point convolutions with batch norm and
tanh a level. Module names and creation order, and so the parameters, are the same: with ``order=0``
a PDEBench checkpoint loads, and the same seed gives the same weights.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from chonn_ops.checks import GRID_AXES, as_field, check_choice, check_integer, error, plain
from chonn_ops.models.circuit import CHONNNetwork1d, CHONNNetwork2d, CHONNNetwork3d
from chonn_ops.models.hosted import hosted_ckb
from chonn_ops.models.pretrained import Pretrained
from chonn_ops.network.grids import Spacing, spacings
from chonn_ops.nn import CKBOptions, Network
from chonn_ops.nn.geometry import Nodes, coarser, spacing_and_nodes
from chonn_ops.nn.layers import CONV, Factory
from chonn_ops.nn.options import options_or_default

LEVELS = 4
STAGES = (
    *(f"encoder{k}" for k in range(1, LEVELS + 1)),
    "bottleneck",
    *(f"decoder{k}" for k in range(LEVELS, 0, -1)),
)
MODES = ("correction", "stages")

NORM = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
POOL = {1: nn.MaxPool1d, 2: nn.MaxPool2d, 3: nn.MaxPool3d}
CONV_TRANSPOSE = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
NETWORK = {1: CHONNNetwork1d, 2: CHONNNetwork2d, 3: CHONNNetwork3d}


class CHONNUNet(Pretrained):
    """The U-Net in any number of dimensions; see `CHONNUNet2d`."""

    spatial_dims: ClassVar[int]
    # Blocks do different things by cell: networks where they have the lowest error, scans as in the
    # paper.
    default_mode: ClassVar[Mapping[str, str]] = {"network": "correction", "scan": "stages"}
    default_stages: ClassVar[tuple[str, ...]] = ("encoder4", "bottleneck", "decoder4")

    def __init__(
        self,
        in_channels: int = 3,
        out_channels: int = 1,
        init_features: int = 32,
        *,
        ckb: CKBOptions | None = None,
        mode: str | None = None,
        stages: Sequence[str] = default_stages,
        lengths: float | Sequence[float] = 1.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_integer(1, in_channels=in_channels, out_channels=out_channels)
        check_integer(1, init_features=init_features)
        ckb = options_or_default(ckb)
        unknown = [stage for stage in stages if stage not in STAGES]
        if unknown:
            raise error("stages", f"names out of {STAGES}", unknown)
        mode = self.default_mode[ckb.cell.name] if mode is None else mode
        check_choice("mode", mode, MODES)
        if mode == "correction" and ckb.order and ckb.cell.name != "network":
            raise error("mode", f"'stages' with cell={ckb.cell.name!r}", repr(mode))
        if mode == "correction" and ckb.order and tuple(stages) != self.default_stages:
            raise error("stages", "no other ones than by default without mode='stages'", stages)
        dims, self.in_channels = self.spatial_dims, in_channels
        self.lengths = tuple(spacings(plain("lengths", lengths), dims, "lengths"))
        self.nodes = ckb.cell.nodes if isinstance(ckb.cell, Network) else None
        factory: Factory = {"device": device, "dtype": dtype}
        widths = [init_features * 2**k for k in range(LEVELS + 1)]
        width_of = {"bottleneck": widths[-1]}

        corrects = mode == "correction" and bool(ckb.order)
        channels = in_channels + (out_channels if corrects else 0)
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
        self.network: nn.Module | None = None
        if corrects:
            options = {"lengths": self.lengths, "nodes": self.nodes or "centres"}
            self.network = NETWORK[dims](in_channels, out_channels, **options, **factory)
            nn.init.zeros_(self.conv.weight)
            nn.init.zeros_(self.conv.bias)
        elif ckb.order:
            for stage in stages:
                self.ckbs[stage] = hosted_ckb(width_of[stage], dims, ckb, factory)

    def stated(self) -> Mapping[str, Any]:
        """See `Stated`."""
        return {"lengths": self.lengths}

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
        self, x: Tensor, *, spacing: Spacing | None = None, nodes: Nodes | None = None
    ) -> Tensor:
        """Map fields to fields.

        Parameters
        ----------
        x : Tensor, shape (B, in_channels, \\*grid)
            Every axis of the grid a multiple of 16.
        spacing : float or sequence of float, one an axis, optional
            Distance of the points, in the unit of `lengths`, for networks. Default: the points fill
            `lengths`.
        nodes : {"centres", "left", "corners"} or pairs of float, optional
            Where the points lie, see `chonn_ops.Network`. Default: the option of the cells.

        Returns
        -------
        Tensor, shape (B, out_channels, \\*grid)

        Raises
        ------
        ValueError
            For another number of axes or channels, a grid that four poolings do not divide, or a
            geometry that does not fit.
        """
        shape = ("B", self.in_channels, *GRID_AXES[: self.spatial_dims])
        x = as_field("x", x, self.parameters(), *shape, multiple=2**LEVELS)
        if self.nodes is not None:
            grid = (x.shape[0], *x.shape[2:])
            spacing, nodes = spacing_and_nodes(grid, self.lengths, self.nodes, spacing, None, nodes)
        elif spacing is not None or nodes is not None:
            raise ValueError("spacing, nodes: expected None with cell='scan'")
        geometry = spacing, nodes
        first = None
        if self.network is not None:
            first = self.network(x, spacing=spacing, nodes=nodes)
            x = torch.cat((x, first), dim=1)
        skips = []
        for level in range(1, LEVELS + 1):
            x = self._stage(f"encoder{level}", x, geometry, level - 1)
            skips.append(x)
            x = self.get_submodule(f"pool{level}")(x)
        x = self._stage("bottleneck", x, geometry, LEVELS)
        for level in range(LEVELS, 0, -1):
            x = self.get_submodule(f"upconv{level}")(x)
            x = torch.cat((x, skips.pop()), dim=1)
            x = self._stage(f"decoder{level}", x, geometry, level - 1)
        x = self.conv(x)
        return x if first is None else first + x

    def _stage(self, name: str, x: Tensor, geometry: Any, halvings: int) -> Tensor:
        """A stage on the grid that so many poolings have halved, with its block."""
        x = self.get_submodule(name)(x)
        if name not in self.ckbs:
            return x
        spacing, nodes = geometry
        if nodes is None:
            return self.ckbs[name](x)
        factor = 2**halvings
        steps = [factor * step for step in spacing]
        return self.ckbs[name](x, steps, nodes=coarser(nodes, factor))


class CHONNUNet1d(CHONNUNet):
    """`CHONNUNet2d` for fields (B, C, X)."""

    spatial_dims = 1


class CHONNUNet2d(CHONNUNet):
    """PDEBench's ``UNet2d`` with CKBs: (B, C, X, Y) -> (B, C', X, Y).

    Parameters
    ----------
    in_channels, out_channels : int
        Channels of input and output fields.
    init_features : int
        Channels of the first level; level k has ``2**k`` times as many.
    ckb : CKBOptions, optional
        Options of the blocks. Default: networks. ``CKBOptions("scan")`` is the paper's form, and
        ``CKBOptions(order=0)`` the plain U-Net, parameter for parameter.
    mode : {"correction", "stages"}, optional
        "correction" (default for networks, which it needs): a `CHONNNetwork2d` with these blocks
        predicts v, and the U-Net adds a correction, ``v + UNet(x, v)``, which starts at zero.
        "stages" (the paper's, default for scans): blocks follow the convolutions of `stages`.
    stages : sequence of str
        Stages that get a CKB with mode "stages". Default: the deepest encoder stage, the bottleneck
        and the deepest decoder stage, as in the paper.
    lengths : float or sequence of float, one an axis
        Size of the domain in which networks are solved, as in `CHONNNetwork2d`.
    device, dtype
        As in `torch.nn`.

    Raises
    ------
    ValueError
        For unfit options.
    """

    spatial_dims = 2


class CHONNUNet3d(CHONNUNet):
    """`CHONNUNet2d` for fields (B, C, X, Y, Z)."""

    spatial_dims = 3
