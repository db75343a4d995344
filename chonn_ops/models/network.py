"""Operator networks whose points see each other through Kirchhoff networks alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, cast

import torch
from torch import Tensor, nn

from chonn_ops.models import pretrained
from chonn_ops.models._blocks import Pointwise, build_ckb, check_field
from chonn_ops.network._conductance import spacings
from chonn_ops.nn import CKB, CKBOptions
from chonn_ops.nn._checks import check_least
from chonn_ops.nn._geometry import check_geometry, default_spacing, places
from chonn_ops.nn._linear import PositionLinear
from chonn_ops.nn.gates import ADAPTIVE, StageGates
from chonn_ops.nn.network_cell import place_nodes

if TYPE_CHECKING:
    from typing_extensions import Self


class _CHONNNetwork(nn.Module):
    """The model in any number of dimensions; see `CHONNNetwork2d`."""

    axes: ClassVar[int]

    def __init__(
        self,
        in_channels: int = 1,
        out_channels: int = 1,
        width: int = 24,
        depth: int | str = 2,
        *,
        mlp_ratio: int = 2,
        patch: int = 1,
        coordinates: bool = True,
        lengths: float | Sequence[float] = 1.0,
        max_depth: int = 4,
        ckb: CKBOptions | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        layers = _layers(depth, max_depth)
        check_least(
            1,
            in_channels=in_channels,
            out_channels=out_channels,
            width=width,
            mlp_ratio=mlp_ratio,
            patch=patch,
        )
        ckb = CKBOptions(cell="network") if ckb is None else ckb
        if not isinstance(ckb, CKBOptions) or ckb.cell != "network":
            raise ValueError(f"ckb: expected CKBOptions(cell='network', ...) or None, got {ckb!r}")
        if patch > 1 and ckb.nodes != "centres":
            raise ValueError(f"nodes: expected 'centres' with patch={patch}, got {ckb.nodes!r}")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.patch, self.coordinates, self.nodes = patch, coordinates, ckb.nodes
        self.lengths = tuple(spacings(lengths, self.axes, "lengths"))
        factory = {"device": device, "dtype": dtype}
        points = patch**self.axes
        inputs = in_channels * points + (self.axes if coordinates else 0)
        self.lift = PositionLinear(inputs, width, **factory)
        blocks, pointwise = [], []
        for _ in range(layers):
            if ckb.order:
                blocks.append(build_ckb(width, self.axes, ckb, device, dtype))
            pointwise.append(Pointwise(width, mlp_ratio * width, factory))
        self.blocks, self.pointwise = nn.ModuleList(blocks), nn.ModuleList(pointwise)
        self.head = PositionLinear(width, out_channels * points, **factory)
        self.gates = None
        if depth == ADAPTIVE:
            self.gates = StageGates(layers, ckb.sparsity, **factory)

    def take_closed_away(self) -> None:
        """Of ``depth="adaptive"``: remove the layers whose gates are closed. Outputs are equal."""
        if self.gates is None:
            raise ValueError(f"depth: expected {ADAPTIVE!r}, got {len(self.pointwise)}")
        count = self.gates.open_stages()
        self.gates.keep(count)
        self.blocks, self.pointwise = self.blocks[:count], self.pointwise[:count]

    def place(self, nodes: str) -> None:
        """Say where the nodes lie, see `chonn_ops.NetworkCell`: a host may know it from its data.

        Raises
        ------
        ValueError
            For another word, or any but "centres" with patches.
        """
        if self.patch > 1 and nodes != "centres":
            raise ValueError(f"nodes: expected 'centres' with patch={self.patch}, got {nodes!r}")
        place_nodes(self, nodes)
        self.nodes = nodes

    @classmethod
    def from_pretrained(cls, name: str) -> Self:
        """A trained model that comes with the package.

        Parameters
        ----------
        name : str
            One of `chonn_ops.models.pretrained.names`; `chonn_ops.models.pretrained.card` has its
            data, training and scores.

        Returns
        -------
        The model, in evaluation mode, between fields in the data's own units.

        Raises
        ------
        ValueError
            For an unknown name, or weights of another model.
        ImportError
            Without safetensors.
        """
        return cast("Self", pretrained.load(cls, name))

    def forward(
        self,
        x: Tensor,
        *,
        spacing: Sequence[float] | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Map fields to fields.

        Parameters
        ----------
        x : Tensor, shape (B, in_channels, \\*grid)
            The grid a multiple of `patch`.
        spacing : sequence of float, one an axis, optional
            Distance of the points, in the unit of `lengths`. Default: `lengths`
            over the grid, as its nodes lie.
        mask : Tensor of bool, shape (\\*grid) or (B, \\*grid), optional
            Which points belong to the domain; needs ``patch=1``. The output is 0 at the others.

        Returns
        -------
        Tensor, shape (B, out_channels, \\*grid)

        Raises
        ------
        ValueError
            For another number of axes or channels, a grid that the patches do not tile, or a
            spacing or mask that does not fit.
        """
        check_field(x, self.in_channels, self.axes, self.patch)
        grid = x.shape[2:]
        check_geometry((x.shape[0], *grid), spacing, mask)
        if mask is not None and self.patch > 1:
            raise ValueError(f"mask: expected None with patch={self.patch}, as masks need patch=1")
        spacing = spacing or default_spacing(self.lengths, grid, self.nodes)
        steps = [self.patch * step for step in spacing]
        outside = None if mask is None else ~(mask if mask.dim() > self.axes else mask[None])
        if outside is not None:  # whatever is written there, a NaN too
            x = x.masked_fill(outside[:, None], 0)
        h = self._patches(x.movedim(1, -1))
        if self.coordinates:
            # Of the nodes, -1/2 to 1/2 from wall to wall.
            lines = torch.stack([place - 0.5 for place in places(h, self.nodes)], -1)
            h = torch.cat((h, lines.expand(*h.shape[:-1], -1)), dim=-1)
        h = self.lift(h)
        for layer, pointwise in enumerate(self.pointwise):
            if len(self.blocks):
                h = h + self._gated(cast("CKB", self.blocks[layer]).branch(h, steps, mask), layer)
            h = h + self._gated(pointwise(h), layer)
        y = self._points(self.head(h)).movedim(-1, 1)
        return y if outside is None else y.masked_fill(outside[:, None], 0)

    def _gated(self, update: Tensor, layer: int) -> Tensor:
        return update if self.gates is None else self.gates(update, layer)

    def _patches(self, field: Tensor) -> Tensor:
        """(B, \\*grid, C) to (B, \\*grid / patch, patch^axes C)."""
        if self.patch == 1:
            return field
        axes = self.axes
        for axis in range(axes):
            field = field.unflatten(2 * axis + 1, (-1, self.patch))
        grid, places = range(1, 2 * axes, 2), range(2, 2 * axes + 1, 2)
        return field.permute(0, *grid, *places, 2 * axes + 1).flatten(axes + 1)

    def _points(self, field: Tensor) -> Tensor:
        """The inverse of `_patches`, for the output's channels."""
        if self.patch == 1:
            return field
        axes = self.axes
        field = field.unflatten(-1, (*(self.patch,) * axes, self.out_channels))
        order = [place for axis in range(1, axes + 1) for place in (axis, axes + axis)]
        field = field.permute(0, *order, 2 * axes + 1)
        for axis in range(axes):
            field = field.flatten(axis + 1, axis + 2)
        return field


class CHONNNetwork1d(_CHONNNetwork):
    """`CHONNNetwork2d` for fields (B, C, N): on a line, elimination solves the networks."""

    axes = 1


class CHONNNetwork2d(_CHONNNetwork):
    """Neural operator whose only spatial coupling is circuits solved on the grid.

    A pointwise embedding; `depth` layers of a `CKB` with `NetworkCell` and a pointwise network,
    both residual; a pointwise readout. All that reaches over more than a point are finite volumes
    in units of the domain, so trained weights are asked on any grid, any shape of cell and, by
    `mask`, any domain. The coordinates, -1/2 to 1/2, are additional inputs.

    Not in the CHONN paper, whose circuits are lines.

    Parameters
    ----------
    in_channels, out_channels : int
        Channels of input and output fields.
    width : int
        Hidden channels.
    depth : int or "adaptive"
        Layers. "adaptive": `max_depth` layers, whose updates have gates with the sparsity prior of
        the options `ckb`; `chonn_ops.prune` takes away what they close.
    mlp_ratio : int
        Hidden channels of the pointwise networks over `width`.
    patch : int
        Points along the edge of a patch that share a node: the way to large grids. 1: every point.
    coordinates : bool
        Whether the model gets the coordinates; without, it is equivariant to shifts wherever its
        ends are ("ring").
    lengths : float or sequence of float, one an axis
        Size of the domain, to tell the spacing from a grid; the unit box by default.
    max_depth : int
        Layers of ``depth="adaptive"``.
    ckb : CKBOptions, optional
        Options of the blocks, with ``cell="network"``.

    Raises
    ------
    ValueError
        For sizes below 1, lengths not above 0, or options of another cell.

    Examples
    --------
    >>> model = CHONNNetwork2d(1, 1)
    >>> model(torch.randn(4, 1, 32, 48)).shape
    torch.Size([4, 1, 32, 48])
    """

    axes = 2


class CHONNNetwork3d(_CHONNNetwork):
    """`CHONNNetwork2d` for fields (B, C, H, W, T)."""

    axes = 3


def _layers(depth: int | str, max_depth: int) -> int:
    """How many there are.

    Raises
    ------
    ValueError
        For another word, or numbers that are no integers of at least 1.
    """
    if isinstance(depth, str):
        if depth != ADAPTIVE:
            raise ValueError(f"depth: expected an integer or {ADAPTIVE!r}, got {depth!r}")
        check_least(1, max_depth=max_depth)
        return max_depth
    check_least(1, depth=depth)
    return depth
