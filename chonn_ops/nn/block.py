"""The Cascaded Kirchhoff Block: N first-order cells in series inside one gated residual block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops.boundary import CELL_CONDITIONS, per_axis
from chonn_ops.checks import GRID_AXES, as_field, check_choice, check_integer, check_shape
from chonn_ops.network.diffusion import Spacing
from chonn_ops.nn.geometry import Nodes, existing
from chonn_ops.nn.layers import CONV, NORMS, PositionLinear
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
    them back to the block's channels; u has no SiLU, so the sources are linear in the features and
    only conductivities and leaks are not.

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
            raise ValueError(f"order: expected at least 1 in a CKB, got {chosen.order}")
        self.dim, self.spatial_dims = dim, spatial_dims
        axes, inner = spatial_dims or 1, chosen.expand * dim
        boundary = per_axis(chosen.boundary, axes)
        factory = {"device": device, "dtype": dtype}
        self.has_networks = isinstance(chosen.cell, Network)
        outputs = chosen.cell.num_outputs(inner)
        self.split = [inner, outputs]
        self.norm = NORMS[chosen.norm](dim, **factory)
        self.in_proj = PositionLinear(dim, inner + outputs, bias=False, **factory)
        self._add_convolution(inner, boundary, factory)
        later = self._inputs_of_later_cells(inner, outputs)
        self.cells = nn.ModuleList(
            chosen.cell.build(width, axes, chosen.boundary, chosen.order, factory)
            for width in (inner, *[later] * (chosen.order - 1))
        )
        self.out_proj: nn.Module = nn.Identity()
        if self.has_networks or chosen.expand > 1:
            self.out_proj = PositionLinear(outputs, dim, **factory)
        self.reset_parameters()

    def _add_convolution(self, inner: int, boundary: Sequence[str], factory: dict) -> None:
        """A depthwise and a pointwise convolution; none for networks with ``kernel_size=1``, where
        W_u and the source projection are linear with nothing in between."""
        size = self.options.kernel_size
        paddings = [CELL_CONDITIONS[word].padding for word in boundary]
        # PyTorch's convolutions pad all axes alike. Where axes differ, `_padded` does it.
        self._paddings = paddings if len(set(paddings)) > 1 else None
        self.depthwise: nn.Module | None = None
        self.pointwise: nn.Module | None = None
        if self.has_networks and size == 1:
            return
        self.depthwise = CONV[len(paddings)](
            inner,
            inner,
            size,
            padding=0 if self._paddings else size // 2,
            padding_mode="zeros" if self._paddings else paddings[0],
            groups=inner,
            **factory,
        )
        self.pointwise = PositionLinear(inner, inner, **factory)

    def _inputs_of_later_cells(self, inner: int, outputs: int) -> int:
        """Channels that drive the second cell and those after it."""
        if not self.has_networks or self.options.topology == "parallel":
            return inner
        return inner + outputs if self.options.stage_input == "inject" else outputs

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
    ) -> Tensor:
        """Apply the block.

        Parameters
        ----------
        x : Tensor, shape (B, L, dim), or (B, dim, \\*grid) with `spatial_dims`
        spacing, mask, nodes : optional
            The geometry of the grid, for network cells; see `NetworkCell.forward`.

        Returns
        -------
        Tensor, shape of `x`

        Raises
        ------
        ValueError
            If a shape does not fit, or scan cells get a geometry.
        """
        x = as_field("x", x, self.parameters())
        if self.spatial_dims is None:
            check_shape("x", x, "B", "L", self.dim)
            return x + self.branch(x, spacing, mask, nodes)
        check_shape("x", x, "B", self.dim, *GRID_AXES[: self.spatial_dims])
        return x + self.branch(x.movedim(1, -1), spacing, mask, nodes).movedim(-1, 1)

    def branch(
        self,
        field: Tensor,
        spacing: Spacing | None = None,
        mask: Tensor | None = None,
        nodes: Nodes | None = None,
    ) -> Tensor:
        """Return the update that the block adds to its input, for models with their own residuals.

        Parameters
        ----------
        field : Tensor, shape (B, \\*grid, dim)
            Channels-last whatever `spatial_dims`, which is the number of grid axes.
        spacing, mask, nodes : optional
            As in `forward`.

        Returns
        -------
        Tensor, shape of `field`
        """
        return self.project(*self.gated(field, spacing, mask, nodes))

    def gated(
        self,
        field: Tensor,
        spacing: Spacing | None = None,
        mask: Tensor | None = None,
        nodes: Nodes | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The outputs of the cells, summed, and the gate before its SiLU, both (B, \\*grid, m):
        `branch` up to their product, for models that read the potentials out themselves."""
        geometry = (spacing, mask, nodes)
        if not self.has_networks:
            if any(argument is not None for argument in geometry):
                raise ValueError("spacing, mask, nodes: expected None with cell='scan'")
            geometry = ()
        u, gate = self._inputs(field, mask)
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
        return total, gate

    def project(self, total: Tensor, gate: Tensor) -> Tensor:
        """Return the update of the block, computed from the result of `gated`."""
        return self.out_proj(total.to(gate.dtype) * F.silu(gate))

    def _inputs(self, field: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the input of the cells (B, \\*grid, expand * dim) and the gate before its SiLU."""
        u, gate = self.in_proj(self.norm(field)).split(self.split, dim=-1)
        if mask is not None:  # the convolution must not see what is outside
            u = u * existing(mask, field).to(u.dtype)
        if self.depthwise is not None and self.pointwise is not None:
            u = self.depthwise(self._padded(u.movedim(-1, 1))).movedim(1, -1)
            u = self.pointwise(u)
        if not self.has_networks:
            return F.silu(u), gate
        # SiLU of a slice of few channels takes ten times as long on the CPU.
        return u, gate.contiguous()

    def _padded(self, field: Tensor) -> Tensor:
        """The field with what the convolution sees outside, where that differs from axis to axis;
        otherwise the convolution pads."""
        if self._paddings is None:
            return field
        axes, radius = len(self._paddings), self.options.kernel_size // 2
        for axis, mode in enumerate(self._paddings):
            around = [0, 0] * (axes - 1 - axis) + [radius, radius] + [0, 0] * axis
            field = F.pad(field, around, "constant" if mode == "zeros" else mode)
        return field
