"""The Cascaded Kirchhoff Block: N first-order cells in series inside one gated residual block."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops import _ends
from chonn_ops.nn._checks import GRID, check_least, check_shape
from chonn_ops.nn._geometry import CELL_ENDS, existing
from chonn_ops.nn._layers import CONV, NORMS, PADDINGS, build_cell
from chonn_ops.nn._linear import PositionLinear
from chonn_ops.nn.gates import ADAPTIVE, StageGates
from chonn_ops.nn.options import CKBOptions


class CKB(nn.Module):
    """Cascaded Kirchhoff Block (the paper's Methods, "Neural architecture")::

        X~ = Norm(X);   u = SiLU(DSConv(W_u X~));   g = SiLU(W_g X~)
        y(1) = K_1(u);  y(r) = K_r(y(r-1)), r = 2..N;   Y = X + P((sum_r y(r)) * g)

    Shape in = shape out: sequences (B, L, dim), or channels-first fields (B, dim, \\*grid). The
    cells K are scans of lines (`KirchhoffCell`, the paper's) or networks on the grid
    (`NetworkCell`).

    Choices the paper leaves open: the norm takes one mean and variance a sample, over channels and
    positions, which keeps the relative amplitudes of a field (on Darcy flow it beat a LayerNorm
    over channels); fields are scanned along their axes; the projection P exists only for
    ``expand > 1``, where shapes demand it (the paper's equation has none); W_u and W_g are one
    matrix without bias; linear maps before the cells start as LeCun normal, so that signals keep
    their size; a stage merges all its scan directions before the next one starts, so that a
    two-way cascade of order n can represent the n-th power of a symmetric first-order kernel.

    Parameters
    ----------
    dim : int
        Channels of the block.
    spatial_dims : {1, 2, 3}, optional
        Axes of a channels-first field (B, dim, \\*grid). Default: sequences (B, L, dim).
    cell, order, networks, nodes, selective, d_state, expand, norm, directions, termination, \
    topology, stage_input, constrained, selective_norm, kernel_size, dt_rank, dt_min, dt_max, \
    max_order, sparsity
        See `CKBOptions`. The order is at least 1 here.

    Raises
    ------
    ValueError
        For unfit options, or an input whose shape does not fit; states expected and actual.

    Examples
    --------
    >>> block = CKB(32, spatial_dims=2, order=2)
    >>> block(torch.randn(4, 32, 16, 16)).shape
    torch.Size([4, 32, 16, 16])
    """

    __constants__ = ("_direct", "_networks")  # TorchScript compiles one branch of these only

    def __init__(
        self,
        dim: int,
        spatial_dims: int | None = None,
        *,
        cell: str = "scan",
        order: int | str | None = None,
        networks: int = 8,
        nodes: str = "centres",
        selective: bool = True,
        d_state: int = 16,
        expand: int = 1,
        norm: str | None = None,
        directions: str = "axial",
        termination: str | tuple[str, ...] | None = None,
        topology: str = "series",
        stage_input: str = "chain",
        constrained: bool = True,
        selective_norm: bool | None = None,
        kernel_size: int | None = None,
        dt_rank: int | None = None,
        dt_min: float = 1e-2,
        dt_max: float = 1.0,
        max_order: int = 4,
        sparsity: float = 0.005,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        options = CKBOptions(
            cell=cell,
            order=cast("int", order),
            networks=networks,
            nodes=nodes,
            selective=selective,
            d_state=d_state,
            expand=expand,
            norm=cast("str", norm),
            directions=directions,
            termination=cast("str", termination),
            topology=topology,
            stage_input=stage_input,
            constrained=constrained,
            selective_norm=selective_norm,
            kernel_size=cast("int", kernel_size),
            dt_rank=dt_rank,
            dt_min=dt_min,
            dt_max=dt_max,
            max_order=max_order,
            sparsity=sparsity,
        )
        self.options = options
        if options.stages < 1:
            raise ValueError(f"order: expected at least 1 in a CKB, got {options.order}")
        check_least(1, dim=dim)
        if spatial_dims not in (None, 1, 2, 3):
            raise ValueError(f"spatial_dims: expected None, 1, 2 or 3, got {spatial_dims!r}")
        axes = spatial_dims or 1
        ends = _ends.of_axes(options.termination, axes, CELL_ENDS, "termination")
        self.dim, self.spatial_dims, self._radius = dim, spatial_dims, options.kernel_size // 2
        # Beside the options, which TorchScript cannot read.
        self._parallel, self._inject = topology == "parallel", stage_input == "inject"
        inner = expand * dim
        factory = {"device": device, "dtype": dtype}
        paddings = [PADDINGS[end] for end in ends]
        mixed = len(set(paddings)) > 1
        self.norm = NORMS[options.norm](dim, **factory)
        self._networks = cell == "network"
        # Networks are read where they are gated, so P is what returns to the block's channels.
        outputs = networks if self._networks else inner
        self._split = [inner, outputs]
        self.in_proj = PositionLinear(dim, inner + outputs, bias=False, **factory)
        self._paddings, self._mixed = paddings, mixed
        # W_u and what drives a network are linear: without neighbours nothing comes in between.
        self._direct = self._networks and options.kernel_size == 1
        self.depthwise: nn.Module = nn.Identity()
        self.pointwise: nn.Module = nn.Identity()
        if not self._direct:
            self.depthwise = CONV[axes](
                inner,
                inner,
                options.kernel_size,
                padding=0 if mixed else options.kernel_size // 2,
                padding_mode="zeros" if mixed else paddings[0],
                groups=inner,
                **factory,
            )
            self.pointwise = PositionLinear(inner, inner, **factory)
        later = inner  # channels that drive the second cell
        if self._networks and topology == "series":
            later = inner + networks if stage_input == "inject" else networks
        self.cells = nn.ModuleList(
            build_cell(options, later if stage else inner, axes, factory)
            for stage in range(options.stages)
        )
        self.gates = None
        if options.order == ADAPTIVE:
            self.gates = StageGates(options.stages, options.sparsity, **factory)
        self.out_proj: nn.Module = nn.Identity()
        if self._networks or expand > 1:
            self.out_proj = PositionLinear(outputs, dim, **factory)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw fresh initial parameters; those of the cells are drawn by the cells."""
        for layer in (self.in_proj, self.depthwise, self.pointwise):
            if isinstance(layer, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)):
                nn.init.normal_(layer.weight, std=layer.weight[0].numel() ** -0.5)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)

    def forward(
        self, x: Tensor, spacing: list[float] | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Apply the block.

        Parameters
        ----------
        x : Tensor, shape (B, L, dim), or (B, dim, \\*grid) with `spatial_dims`
        spacing, mask : optional
            Of network cells, see `NetworkCell`.

        Returns
        -------
        Tensor, shape of `x`

        Raises
        ------
        ValueError
            If a shape does not fit, or scan cells get a spacing or a mask.
        """
        if not torch.jit.is_scripting():
            self._check(x)
        if self.spatial_dims is None:
            return x + self.branch(x, spacing, mask)
        return x + self.branch(x.movedim(1, -1), spacing, mask).movedim(-1, 1)

    def branch(
        self, field: Tensor, spacing: list[float] | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """What the block adds to its input, for backbones with residuals of their own.

        Parameters
        ----------
        field : Tensor, shape (B, \\*grid, dim)
            Channels-last whatever `spatial_dims`, which is the number of grid axes.
        spacing, mask : optional
            Of network cells, see `NetworkCell`.

        Returns
        -------
        Tensor, shape of `field`
        """
        if not self._networks and (spacing is not None or mask is not None):
            raise ValueError("spacing, mask: expected None, as scan cells have neither")
        u, gate = self._inputs(field, mask)
        y = total = u  # for TorchScript, which wants them defined and cannot slice the cells
        for stage, cell in enumerate(self.cells):
            driven = u
            if stage > 0 and not self._parallel:
                driven = y.to(u.dtype)
                if self._inject:  # of networks "u + y" is one linear map of both
                    driven = torch.cat((u, driven), -1) if self._networks else u + driven
            y = cell(driven, spacing, mask) if self._networks else cell(driven)
            read = y if self.gates is None else self.gates(y, stage)
            total = read if stage == 0 else total + read
        return self.out_proj(total.to(gate.dtype) * F.silu(gate))

    def _inputs(self, field: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """What drives the cells, (B, \\*grid, expand * dim), and the gate before its SiLU."""
        u, gate = self.in_proj(self.norm(field)).split(self._split, dim=-1)
        if mask is not None:  # the convolution must not see what is outside
            u = u * existing(mask, field).to(u.dtype)
        if not self._direct:
            u = u.movedim(-1, 1)
            u = self.depthwise(self._padded(u) if self._mixed else u).movedim(1, -1)
            u = self.pointwise(u)
        if not self._networks:  # whose sources are linear in u; only their coefficients are not
            u = F.silu(u)
        else:  # SiLU of a slice of few channels takes ten times as long on the CPU
            gate = gate.contiguous()
        return u, gate

    def take_closed_away(self) -> None:
        """Of ``order="adaptive"``: remove the stages whose gates are closed. Outputs are equal."""
        if self.gates is None:
            raise ValueError(f"order: expected {ADAPTIVE!r}, got {self.options.order!r}")
        count = self.gates.open_stages()
        self.gates.keep(count)
        self.cells = self.cells[:count]
        options = self.options
        if not self._networks:  # what the number of cells decided
            bounded = cast("Any", self.cells[0]).selective_norm
            options = dataclasses.replace(options, selective_norm=bounded)
        self.options = dataclasses.replace(options, max_order=count)

    def _padded(self, field: Tensor) -> Tensor:
        """The field with what the convolution sees outside, where that differs from axis to axis;
        else the convolution pads."""
        axes = len(self._paddings)
        for axis, mode in enumerate(self._paddings):
            around = [0, 0] * (axes - 1 - axis) + [self._radius, self._radius] + [0, 0] * axis
            field = F.pad(field, around, "constant" if mode == "zeros" else mode)
        return field

    def _check(self, x: Tensor) -> None:
        if self.spatial_dims is None:
            check_shape("x", x, "B", "L", self.dim)
        else:
            check_shape("x", x, "B", self.dim, *GRID[: self.spatial_dims])
