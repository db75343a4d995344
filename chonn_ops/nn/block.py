"""The Cascaded Kirchhoff Block: N first-order cells in series inside one gated residual block."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops.boundary import CELL_CONDITIONS
from chonn_ops.checks import GRID_AXES, as_field, check_choice, check_integer, error
from chonn_ops.network.discretise.grids import Spacing
from chonn_ops.network.discretise.volumes import FiniteVolumes
from chonn_ops.nn.geometry import Nodes
from chonn_ops.nn.layers import CONV, NORMS
from chonn_ops.nn.network_cell import Network
from chonn_ops.nn.options import block_options


class CKB(nn.Module):
    """Cascaded Kirchhoff Block (the paper's Methods, "Neural architecture")::

        X~ = Norm(X);   u = SiLU(DSConv(W_u X~));   g = SiLU(W_g X~)
        y(1) = K_1(u);  y(r) = K_r(y(r-1)), r = 2..N;   Y = X + P((sum_r y(r)) * g)

    The output has the shape of the input: sequences (B, L, dim), or channels-first fields
    (B, dim, \\*grid). The cells K are networks on the grid (`NetworkCell`) or scans of lines
    (`KirchhoffCell`, the paper's).

    Choices the paper leaves open: the norm takes one mean and variance a sample, over channels and
    positions, which keeps the relative amplitudes of a field (on Darcy flow it beat a LayerNorm
    over channels); fields are scanned along their axes; scans have a projection P only for
    ``expand > 1``, where shapes demand it (the paper's equation has none); W_u and W_g are one
    matrix without bias; linear maps before the cells start as LeCun normal, so that signals keep
    their size; a stage merges all its scan directions before the next one starts, so that a
    cascade of order n that scans both ways can represent the n-th power of a symmetric first-order
    kernel.

    Blocks of networks differ from this in two ways: the gate acts on the potentials, and P maps
    them back to the block's channels; u is W_u X~ alone, so the sources are linear in the features
    and only conductivities and leaks are not. Without a convolution, which belongs to a grid,
    trained weights mean the same on every grid.

    Parameters
    ----------
    dim : int
        Channels of the block.
    spatial_dims : {1, 2, 3}, optional
        Axes of a channels-first field (B, dim, \\*grid). Default: sequences (B, L, dim).
    **options
        Those of `CKBOptions`. The order is at least 1 here.

    Raises
    ------
    ValueError
        For unfit options, or an input whose shape does not fit; states expected and actual.

    Examples
    --------
    >>> import torch
    >>> from chonn_ops import CKB, Network
    >>> block = CKB(32, 2, cell=Network(num_networks=8), order=3)
    >>> block(torch.randn(4, 32, 16, 16)).shape
    torch.Size([4, 32, 16, 16])
    """

    def __init__(
        self,
        dim: int,
        spatial_dims: int | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.options = chosen = block_options(options)
        check_integer(1, dim=dim)
        check_choice("spatial_dims", spatial_dims, (None, 1, 2, 3))
        if chosen.order < 1:
            raise error("order", "at least 1 in a CKB", chosen.order)
        self.dim, self.spatial_dims = dim, spatial_dims
        axes, inner = spatial_dims or 1, chosen.expand * dim
        factory = {"device": device, "dtype": dtype}
        self.has_networks = isinstance(chosen.cell, Network)
        outputs = chosen.cell.num_outputs(inner)
        self.split = [inner, outputs]
        self.norm = NORMS[chosen.norm](dim, **factory)
        self.in_proj = nn.Linear(dim, inner + outputs, bias=False, **factory)
        self.depthwise: nn.Module | None = None
        self.pointwise: nn.Module | None = None
        if not self.has_networks:
            mode = CELL_CONDITIONS[str(chosen.boundary)].padding
            conv = {"padding": 1, "padding_mode": mode, "groups": inner, **factory}
            self.depthwise = CONV[axes](inner, inner, 3, **conv)
            self.pointwise = nn.Linear(inner, inner, **factory)
        later = inner  # channels that drive the cells behind the first one
        if self.has_networks and chosen.topology == "series":
            later = inner + outputs if chosen.stage_input == "inject" else outputs
        self.cells = nn.ModuleList(
            chosen.cell.build(width, axes, chosen.boundary, chosen.order, factory)
            for width in (inner, *[later] * (chosen.order - 1))
        )
        self.out_proj: nn.Module = nn.Identity()
        if self.has_networks or chosen.expand > 1:
            self.out_proj = nn.Linear(outputs, dim, **factory)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw fresh initial parameters; the cells draw their own."""
        for layer in (self.in_proj, self.depthwise, self.pointwise):
            if isinstance(layer, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)):
                nn.init.normal_(layer.weight, std=layer.weight[0].numel() ** -0.5)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)

    def forward(
        self,
        x: Tensor,
        spacing: Spacing | None = None,
        mask: Tensor | None = None,
        nodes: Nodes | None = None,
        volumes: FiniteVolumes | None = None,
    ) -> Tensor:
        """Apply the block.

        Parameters
        ----------
        x : Tensor, shape (B, L, dim), or (B, dim, \\*grid) with `spatial_dims`
        spacing, mask, nodes : optional
            The geometry of the grid, for network cells; see `NetworkCell.forward`.
        volumes : FiniteVolumes, optional
            Geometry of a graph instead of a grid, for network cells; x is (B, N, dim) then.

        Returns
        -------
        Tensor, shape of `x`

        Raises
        ------
        ValueError
            If a shape does not fit, scan cells get a geometry, or a graph meets a norm over
            positions, whose weight depends on the mesh.
        """
        geometry = (spacing, mask, nodes, volumes)
        if self.spatial_dims is None or volumes is not None:
            x = as_field("x", x, self.parameters(), "B", "L", self.dim)
            return x + self._branch(x, *geometry)
        grid = GRID_AXES[: self.spatial_dims]
        x = as_field("x", x, self.parameters(), "B", self.dim, *grid)
        return x + self._branch(x.movedim(1, -1), *geometry).movedim(-1, 1)

    def _branch(self, field: Tensor, *geometry: Any) -> Tensor:
        """What the block adds to a field (B, \\*grid, dim)."""
        if not self.has_networks:
            if any(argument is not None for argument in geometry):
                raise ValueError("spacing, mask, nodes, volumes: expected None with cell='scan'")
            geometry = ()
        elif geometry[-1] is not None and self.options.norm == "group":
            raise error("norm", "'none' or 'layer' on a graph", "'group'")
        u, gate = self.in_proj(self.norm(field)).split(self.split, dim=-1)
        if self.depthwise is not None and self.pointwise is not None:
            u = F.silu(self.pointwise(self.depthwise(u.movedim(-1, 1)).movedim(1, -1)))
        y = total = self.cells[0](u, *geometry)
        for cell in self.cells[1:]:
            driven = u
            if self.options.topology == "series":
                driven = y.to(u.dtype)
                if self.options.stage_input == "inject":
                    # A network's source is one linear map of both.
                    driven = torch.cat((u, driven), -1) if self.has_networks else u + driven
            y = cell(driven, *geometry)
            total = total + y
        # SiLU of a slice of few channels takes ten times as long on the CPU.
        return self.out_proj(total.to(gate.dtype) * F.silu(gate.contiguous()))


class CKBBranch(CKB):
    """A `CKB` without its residual, for models with residuals of their own.

    It maps channels-last fields (B, \\*grid, dim), also with `spatial_dims`, to what the block
    adds to them. Parameters and arguments are those of `CKB`.
    """

    def forward(
        self,
        x: Tensor,
        spacing: Spacing | None = None,
        mask: Tensor | None = None,
        nodes: Nodes | None = None,
        volumes: FiniteVolumes | None = None,
    ) -> Tensor:
        """Return what the block adds to `x`, in its shape."""
        return self._branch(x, spacing, mask, nodes, volumes)
