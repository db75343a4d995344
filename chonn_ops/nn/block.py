"""The Cascaded Kirchhoff Block: N first-order cells in series inside one gated residual block."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops.nn._checks import check_least
from chonn_ops.nn._linear import PositionLinear
from chonn_ops.nn.cell import KirchhoffCell
from chonn_ops.nn.options import CKBOptions


class CKB(nn.Module):
    """Cascaded Kirchhoff Block (the paper's Methods, "Neural architecture")::

        X~ = Norm(X);   u = SiLU(DSConv(W_u X~));   g = SiLU(W_g X~)
        y(1) = K_1(u);  y(r) = K_r(y(r-1)), r = 2..N;   Y = X + P((sum_r y(r)) * g)

    Shape in = shape out: sequences (B, L, dim), or channels-first fields (B, dim, \\*grid).

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
    order, d_state, expand, norm, directions, termination, topology, stage_input, constrained, \
    selective_norm, kernel_size, dt_rank, dt_min, dt_max
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

    def __init__(
        self,
        dim: int,
        spatial_dims: int | None = None,
        *,
        order: int = 2,
        d_state: int = 16,
        expand: int = 1,
        norm: str = "group",
        directions: str = "axial",
        termination: str = "matched",
        topology: str = "series",
        stage_input: str = "chain",
        constrained: bool = True,
        selective_norm: bool | None = None,
        kernel_size: int = 3,
        dt_rank: int | None = None,
        dt_min: float = 1e-2,
        dt_max: float = 1.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.options = CKBOptions(
            order=order,
            d_state=d_state,
            expand=expand,
            norm=norm,
            directions=directions,
            termination=termination,
            topology=topology,
            stage_input=stage_input,
            constrained=constrained,
            selective_norm=selective_norm,
            kernel_size=kernel_size,
            dt_rank=dt_rank,
            dt_min=dt_min,
            dt_max=dt_max,
        )
        if order < 1:
            raise ValueError(f"order: expected at least 1 in a CKB, got {order}")
        check_least(1, dim=dim)
        if spatial_dims not in (None, 1, 2, 3):
            raise ValueError(f"spatial_dims: expected None, 1, 2 or 3, got {spatial_dims!r}")
        self.dim, self.spatial_dims = dim, spatial_dims
        # Beside the options, which TorchScript cannot read.
        self._parallel, self._inject = topology == "parallel", stage_input == "inject"
        inner = expand * dim
        factory = {"device": device, "dtype": dtype}
        self.norm = _NORMS[norm](dim, **factory)
        self.in_proj = PositionLinear(dim, 2 * inner, bias=False, **factory)
        self.depthwise = _CONVS[spatial_dims or 1](
            inner,
            inner,
            kernel_size,
            padding=kernel_size // 2,
            padding_mode=_PADDINGS[termination],
            groups=inner,
            **factory,
        )
        self.pointwise = PositionLinear(inner, inner, **factory)
        self.cells = nn.ModuleList(
            KirchhoffCell(
                inner,
                d_state,
                dt_rank=dt_rank,
                dt_min=dt_min,
                dt_max=dt_max,
                directions=directions,
                termination=termination,
                constrained=constrained,
                selective_norm=order > 2 if selective_norm is None else selective_norm,
                **factory,
            )
            for _ in range(order)
        )
        self.out_proj = PositionLinear(inner, dim, **factory) if expand > 1 else nn.Identity()
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw fresh initial parameters; those of the cells are drawn by the cells."""
        for layer in (self.in_proj, self.depthwise, self.pointwise):
            nn.init.normal_(layer.weight, std=layer.weight[0].numel() ** -0.5)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block.

        Parameters
        ----------
        x : Tensor, shape (B, L, dim), or (B, dim, \\*grid) with `spatial_dims`

        Returns
        -------
        Tensor, shape of `x`
        """
        if not torch.jit.is_scripting():
            self._check(x)
        if self.spatial_dims is None:
            return x + self.branch(x)
        return x + self.branch(x.movedim(1, -1)).movedim(-1, 1)

    def branch(self, field: Tensor) -> Tensor:
        """What the block adds to its input, for backbones with residuals of their own.

        Parameters
        ----------
        field : Tensor, shape (B, \\*grid, dim)
            Channels-last whatever `spatial_dims`, which is the number of grid axes.

        Returns
        -------
        Tensor, shape of `field`
        """
        u, gate = self.in_proj(self.norm(field)).chunk(2, dim=-1)
        u = self.depthwise(u.movedim(-1, 1)).movedim(1, -1)
        u = F.silu(self.pointwise(u))
        return self.out_proj(self.cascade(u) * F.silu(gate))

    def cascade(self, u: Tensor) -> Tensor:
        """Sum of all stage outputs for a driving signal of shape (B, \\*grid, expand * dim)."""
        y = total = u  # for TorchScript, which wants them defined and cannot slice the cells
        for stage, cell in enumerate(self.cells):
            if stage == 0 or self._parallel:
                y = cell(u)
            elif self._inject:
                y = cell(u + y)
            else:
                y = cell(y)
            total = y if stage == 0 else total + y
        return total

    def _check(self, x: Tensor) -> None:
        axes = 3 if self.spatial_dims is None else 2 + self.spatial_dims
        channel_axis = -1 if self.spatial_dims is None else 1
        if x.ndim != axes or x.shape[channel_axis] != self.dim:
            grid = ("H", "W", "T")[: self.spatial_dims or 0]
            expected = ("B", "L", str(self.dim)) if not grid else ("B", str(self.dim), *grid)
            raise ValueError(f"x: expected shape ({', '.join(expected)}), got {tuple(x.shape)}")


class _FieldNorm(nn.GroupNorm):
    """One mean and variance a sample, over channels and positions, for channels-last fields."""

    def __init__(self, dim: int, device=None, dtype=None) -> None:
        super().__init__(1, dim, device=device, dtype=dtype)

    def forward(self, input: Tensor) -> Tensor:
        field = input.movedim(-1, 1)
        return F.group_norm(field, 1, self.weight, self.bias, self.eps).movedim(1, -1)


# "open": the scan's mirror image repeats the last point (its way back starts there), as "replicate"
# does at kernel size 3 and "reflect" never does. "short": the mirror image has the opposite sign,
# so the wall itself, half a step outside, is at 0; PyTorch pads zeros, but no odd mirror images.
_PADDINGS = {"matched": "zeros", "ring": "circular", "open": "replicate", "short": "zeros"}
_CONVS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
_NORMS = {
    "layer": nn.LayerNorm,
    "rms": nn.RMSNorm,
    "group": _FieldNorm,
    "none": nn.Identity,
}
