"""Neural operators whose points interact only through resistor networks on a grid or graph."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from chonn_ops.checks import (
    GRID_AXES,
    answer,
    as_field,
    check_bool,
    check_integer,
    check_number,
    error,
    numbers_of,
    plain,
)
from chonn_ops.models.pretrained import Pretrained
from chonn_ops.network.grids import Spacing, spacings
from chonn_ops.network.volumes import FiniteVolumes
from chonn_ops.nn import CKBBranch, CKBOptions, Network
from chonn_ops.nn.fused.functions import bounded_sum
from chonn_ops.nn.geometry import (
    Nodes,
    check_volumes,
    coarser,
    node_positions,
    spacing_and_nodes,
)
from chonn_ops.nn.layers import Factory, Gained, Pointwise, PositionLinear
from chonn_ops.nn.options import options_or_default

# The weights of the readout count a tenth and start small, so that the first steps of an optimiser
# stay small beside samples of small amplitude, whose relative errors would be hundreds.
READOUT_GAIN = 0.1
# The offset learns fast, because otherwise the readout's weights make the constant of shifted
# targets first and have to forget it again. That is enough at rates of 1e-2 and above; no gain from
# 1 to 48 and no curve of it was at all rates (see `offset` of `CHONNNetwork2d`, which is). Darcy
# flow at contrast 1,000 on 16 x 16 points, 832 steps: errors with targets y / 12 and with
# (y - 7) / 12, at a rate of 1e-2 (means of three seeds), were 0.0044 and 0.038 with 0.1, 0.0029 and
# 0.0057 with 1, 0.0036 and 0.0072 with 4, 0.0045 and 0.0084 with 8.
OFFSET_GAIN = 4.0
# The embedding has each input twice: linear up to about ten, and logarithmic above a thousandth.
LARGE, SMALL = 10.0, 1e-3
# The most that circuits and pointwise networks add to a feature. Outputs are potentials times
# features, and potentials are linear in the features: without these bounds large steps of an
# optimiser make outputs explode.
CIRCUITS_ADD, POINTWISE_ADDS = 2.0, 1.0
# The pointwise networks learn so many times as fast as the rest. When one part of the model at a
# time learned 8 times as fast at a host's 1e-3, the error was 0.04 with these networks, and 0.08 or
# more with every other part (Darcy flow on 32 x 32 points, one seed). At hosts' rates of 5e-4 and
# 2e-2 the errors were 0.13 and 0.05 with 4, 0.06 and 0.07 with 6, 0.05 and 0.09 with 8.
POINTWISE_GAIN = 6.0


def embedded(x: Tensor) -> Tensor:
    """Features (..., 2 C) of a model's inputs (..., C).

    Conductivities matter by their logarithm, sources by their value: both are there, and neither
    lets an outlier dominate.
    """
    wide = x.to(torch.promote_types(x.dtype, torch.float32))  # float16 overflows at 65 / 1e-3
    both = bounded_sum(None, wide, LARGE), torch.asinh(wide / SMALL) / 3
    return torch.cat(both, dim=-1).to(x.dtype)


def _offsets(offset: Any, channels: int) -> list[float]:
    """One number for each output channel; a normaliser's have the shape (1, C, 1, 1)."""
    values = numbers_of("offset", plain("offset", offset), torch.device("cpu")).flatten().tolist()
    if len(values) not in (1, channels):
        raise error("offset", f"one number or {channels}, one an output channel", offset)
    for value in values:
        check_number(offset=value)
        if not math.isfinite(value):
            raise error("offset", "finite numbers", offset)
    return [float(value) for value in values] * (channels // len(values))


class CHONNNetwork(Gained, Pretrained):
    """The model in any number of dimensions; see `CHONNNetwork2d`."""

    axes: ClassVar[int]

    def __init__(
        self,
        in_channels: int = 1,
        out_channels: int = 1,
        width: int = 24,
        depth: int = 2,
        *,
        mlp_ratio: int = 2,
        patch: int = 1,
        coordinates: bool = True,
        lengths: float | Sequence[float] = 1.0,
        offset: float | Sequence[float] | Tensor = 0.0,
        ckb: CKBOptions | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_integer(1, in_channels=in_channels, out_channels=out_channels, width=width)
        check_integer(1, depth=depth, mlp_ratio=mlp_ratio, patch=patch)
        check_bool(coordinates=coordinates)
        ckb = options_or_default(ckb)
        if not isinstance(ckb.cell, Network):
            raise error("ckb", "cell='network'", ckb)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.patch, self.coordinates = patch, coordinates
        self.nodes = ckb.cell.nodes
        self.lengths = tuple(spacings(plain("lengths", lengths), self.axes, "lengths"))
        factory: Factory = {"device": device, "dtype": dtype}
        points = patch**self.axes
        inputs = 2 * in_channels * points + (self.axes if coordinates else 0)
        self.lift = PositionLinear(inputs, width, **factory)
        # The inputs' values alone have weights at the start. Constants and coordinates are smooth
        # sources, whose potentials would hide those of the inputs, and logarithms of a field around
        # 0 are little more than its sign.
        nn.init.normal_(self.lift.weight, std=inputs**-0.5)
        with torch.no_grad():
            self.lift.weight[:, in_channels * points :] = 0
        nn.init.zeros_(self.lift.bias)
        blocks, pointwise = [], []
        for _ in range(depth):
            if ckb.order:
                blocks.append(CKBBranch(width, self.axes, **vars(ckb), **factory))
            pointwise.append(Pointwise(width, mlp_ratio * width, gain=POINTWISE_GAIN, **factory))
        self.blocks, self.pointwise = nn.ModuleList(blocks), nn.ModuleList(pointwise)
        # For each output the weights of all potentials; the output itself without circuits.
        weights = depth * ckb.cell.num_outputs(width) if ckb.order else 1
        self.head = PositionLinear(width, out_channels * points * weights, **factory)
        nn.init.normal_(self.head.weight, std=READOUT_GAIN * width**-0.5)
        nn.init.zeros_(self.head.bias)
        start = _offsets(offset, out_channels)
        self.offset = nn.Parameter(torch.tensor(start * points, **factory).div_(OFFSET_GAIN))
        self.set_gain(OFFSET_GAIN)  # of its own parameter

    def stated(self) -> Mapping[str, Any]:
        """See `Stated`."""
        return {"lengths": self.lengths}

    def forward(
        self,
        x: Tensor,
        *,
        spacing: Spacing | None = None,
        mask: Tensor | None = None,
        nodes: Nodes | None = None,
        volumes: FiniteVolumes | None = None,
        y: Tensor | None = None,
    ) -> Tensor:
        """Map fields to fields.

        Parameters
        ----------
        x : Tensor, shape (B, in_channels, \\*grid); with `volumes` (B, N, in_channels)
            The grid a multiple of `patch`.
        spacing : float or sequence of float, one an axis, optional
            Distance of the points, in the unit of `lengths`. Default: the points fill `lengths`.
        mask : Tensor of bool, shape (\\*grid) or (B, \\*grid), optional
            Which points belong to the domain; needs ``patch=1``. The output is 0 at the others.
        nodes : {"centres", "left", "corners"} or pairs of float, optional
            Where the points lie, see `chonn_ops.Network`. Default: the option of the cells.
        volumes : FiniteVolumes, optional
            A mesh or another graph instead of a grid, with all nodes in the box from 0 to
            `lengths`; needs ``patch=1``. A regular grid given so has the outputs of the grid.
        y : Tensor, optional
            Ignored: neuraloperator's `Trainer` calls a model with whole samples, targets too.

        Returns
        -------
        Tensor, shape (B, out_channels, \\*grid); with `volumes` (B, N, out_channels)

        Raises
        ------
        ValueError
            For another number of axes or channels, a grid that the patches do not tile, or a
            geometry that does not fit.
        """
        if volumes is not None:
            return self._on_graph(x, volumes, spacing, mask, nodes)
        shape = ("B", self.in_channels, *GRID_AXES[: self.axes])
        x = as_field("x", x, self.parameters(), *shape, multiple=self.patch)
        spacing, distances = spacing_and_nodes(
            (x.shape[0], *x.shape[2:]), self.lengths, self.nodes, spacing, mask, nodes
        )
        if mask is not None and self.patch > 1:
            raise ValueError(f"mask: expected None with patch={self.patch}, as masks need patch=1")
        steps = [self.patch * step for step in spacing]
        outside = None if mask is None else ~(mask if mask.dim() > self.axes else mask[None])
        if outside is not None:  # Values outside the domain must not matter, not even NaN.
            x = x.masked_fill(outside[:, None], 0)
        field = self._to_patches(x.movedim(1, -1))
        lie = coarser(distances, self.patch)
        places = torch.stack(node_positions(field, lie), -1)
        y = self._to_points(self._nodes_to_nodes(field, places, steps, mask, lie)).movedim(-1, 1)
        return y if outside is None else y.masked_fill(outside[:, None], 0)

    def _on_graph(self, x: Tensor, volumes: FiniteVolumes, *geometry: Any) -> Tensor:
        count = check_volumes(volumes, self.axes, *geometry)
        if self.patch > 1:
            raise ValueError(f"volumes: expected None with patch={self.patch}")
        x = as_field("x", x, self.parameters(), "B", count, self.in_channels)
        places = volumes.positions / torch.tensor(self.lengths, dtype=torch.float64)
        outside = (places - 0.5).abs() > 0.5 + 1e-6
        if self.coordinates and answer(lambda: bool(outside.any()), outside):
            actual = f"{volumes.positions.amin(0).tolist()} to {volumes.positions.amax(0).tolist()}"
            raise error("volumes", f"positions from 0 to lengths={self.lengths}", actual)
        return self._nodes_to_nodes(x, places.to(x), *geometry, volumes)

    def _nodes_to_nodes(self, field: Tensor, places: Tensor, *geometry: Any) -> Tensor:
        """The model on a field of nodes (B, \\*grid, C), which lie at `places`, 0 to 1."""
        h = embedded(field)
        if self.coordinates:
            # The coordinates run from -1/2 to 1/2 across the domain.
            h = torch.cat((h, (places - 0.5).expand(*h.shape[:-1], -1)), dim=-1)
        h = self.lift(h)
        potentials = []
        for layer, pointwise in enumerate(self.pointwise):
            if len(self.blocks):
                added, v = self.blocks[layer](h, *geometry)
                potentials.append(v.to(h.dtype))
                h = bounded_sum(h, added, CIRCUITS_ADD)
            h = pointwise(h, POINTWISE_ADDS)
        return self._read(h, potentials)

    def _read(self, h: Tensor, potentials: list[Tensor]) -> Tensor:
        """The output of each node: an offset and the potentials of all layers, weighted by the
        features. Features alone are left out: they would be learned first, and keep the potentials
        from being learned."""
        y = self.head(h)
        if potentials:
            weights = y.unflatten(-1, (len(self.offset), -1))
            y = (weights * torch.cat(potentials, dim=-1).unsqueeze(-2)).sum(-1)
        return torch.add(self.effective("offset"), y, alpha=READOUT_GAIN)

    def _to_patches(self, field: Tensor) -> Tensor:
        """(B, \\*grid, C) to (B, \\*grid / patch, patch^axes C)."""
        if self.patch == 1:
            return field
        axes = self.axes
        for axis in range(axes):
            field = field.unflatten(2 * axis + 1, (-1, self.patch))
        grid, places = range(1, 2 * axes, 2), range(2, 2 * axes + 1, 2)
        return field.permute(0, *grid, *places, 2 * axes + 1).flatten(axes + 1)

    def _to_points(self, field: Tensor) -> Tensor:
        """The inverse of `_to_patches`, for the output's channels."""
        if self.patch == 1:
            return field
        axes = self.axes
        field = field.unflatten(-1, (*(self.patch,) * axes, self.out_channels))
        order = [place for axis in range(1, axes + 1) for place in (axis, axes + axis)]
        field = field.permute(0, *order, 2 * axes + 1)
        for axis in range(axes):
            field = field.flatten(axis + 1, axis + 2)
        return field


class CHONNNetwork1d(CHONNNetwork):
    """`CHONNNetwork2d` for fields (B, C, N)."""

    axes = 1


class CHONNNetwork2d(CHONNNetwork):
    """Neural operator whose points interact only through circuits solved on the grid.

    A pointwise embedding of the inputs and their logarithms; `depth` layers of a `CKB` with
    `NetworkCell` and a pointwise network, both residual and bounded; a readout that weights the
    potentials of all layers by the features. Outputs are thus potentials, which scale with the
    inverse of the conductivity: inputs and outputs should be scaled to about unit size, but a
    positive field not be shifted, as the logarithm needs its zero.
    The coordinates, -1/2 to 1/2, are additional inputs.

    Everything that reaches further than a point is a finite volume scheme in units of the domain,
    so trained weights can be evaluated on any grid, any shape of cell, with `mask` any domain, and
    with `volumes` any mesh. For that `nodes` has to be that of the data (`chonn_ops.Network`).

    The model is not in the CHONN paper, whose circuits are lines.

    Parameters
    ----------
    in_channels, out_channels : int
        Channels of input and output fields.
    width : int
        Hidden channels.
    depth : int
        Layers.
    mlp_ratio : int
        Hidden channels of the pointwise networks over `width`.
    patch : int
        Points along the edge of a patch that share a node, for large grids. 1: every point.
    coordinates : bool
        Whether the model gets the coordinates. Without them it is equivariant to shifts along
        "periodic" axes.
    lengths : float or sequence of float, one an axis
        Size of the domain, which sets the default spacing of a grid; the unit box by default.
    offset : float or sequence of float, one an output channel; also as a tensor
        Constant that the outputs start with, and learn from there. With shifted targets, as in
        ``mean + std * model(x)``, set it to ``-mean / std``: then rates from 5e-4 to 2e-2 train as
        well as with targets that are not shifted. From 0 the constant is learned at rates of 3e-3
        and above; below, it takes longer than everything else.
    ckb : CKBOptions, optional
        Options of the blocks, whose cells are networks.
    device, dtype
        As in `torch.nn`.

    Raises
    ------
    ValueError
        For sizes below 1, lengths not above 0, offsets that do not fit, or options of scans.

    Examples
    --------
    >>> model = CHONNNetwork2d(1, 1)
    >>> model(torch.randn(4, 1, 32, 48)).shape
    torch.Size([4, 1, 32, 48])
    """

    axes = 2


class CHONNNetwork3d(CHONNNetwork):
    """`CHONNNetwork2d` for fields (B, C, H, W, T)."""

    axes = 3
