"""The Kirchhoff Neural Cell: one selective first-order circuit."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops._dtypes import at_least_float32, without_autocast
from chonn_ops.checks import as_field, check_bool, check_integer, error
from chonn_ops.nn.layers import Stated
from chonn_ops.scan.api import scan_checked
from chonn_ops.scan.arguments import Inputs, check_modes

# Orders above this one overflow on fields with large tails unless b and c are bounded.
LARGEST_UNBOUNDED_ORDER = 2
# Range of the initial Delta, in units of one grid step at unit decay.
DELTAS = (1e-2, 1.0)


@dataclasses.dataclass(frozen=True)
class Scan:
    """Options of a `KirchhoffCell`.

    Parameters
    ----------
    d_state : int
        States a channel, N.
    directions : {"axial", "raster", "bidirectional", "cross"}
        How a field becomes lines, see `chonn_ops.scan_field`. "axial" is the default: a scan in one
        direction along one line cannot be a symmetric operator of a field. "raster" is the paper's.
    constrained : bool
        Keep the circuit stable and dissipative by construction.
    selective_norm : bool, optional
        Divide ``b_k`` by ``sqrt(1 + mean_n b_kn^2)``, and ``c_k`` likewise. Without it they grow
        with the input: a cell is cubic in large inputs and N cells in series of degree ``3^N``, so
        from order 3 on outputs overflow on fields with large tails, already at initial weights.
        With it a cell is of degree 1 in large inputs, and unchanged for small ones. Default: in
        blocks of an order above 2.

    Raises
    ------
    ValueError
        For a size below 1 or an unknown word.
    """

    d_state: int = 16
    directions: str = "axial"
    constrained: bool = True
    selective_norm: bool | None = None

    name: ClassVar[str] = "scan"
    # A block with these cells has these defaults.
    block_defaults: ClassVar[Mapping[str, Any]] = {
        "order": 2,
        "norm": "group",
        "boundary": "matched",
    }

    def __post_init__(self) -> None:
        check_integer(1, d_state=self.d_state)
        check_bool(constrained=self.constrained)
        if not isinstance(self.selective_norm, bool | None):
            raise error("selective_norm", "a bool or None", repr(self.selective_norm))
        check_modes(self.directions, "matched")

    def check_boundary(self, boundary: str | Sequence[str]) -> str:
        """The boundary; ValueError for an unknown one, or one that needs other directions."""
        if not isinstance(boundary, str):
            raise error("boundary", "one word for a scan", repr(boundary))
        check_modes(self.directions, boundary)
        return boundary

    def num_outputs(self, inputs: int) -> int:
        """Channels that a cell returns."""
        return inputs

    def build(
        self, dim: int, axes: int, boundary: str | Sequence[str], order: int, factory: dict
    ) -> KirchhoffCell:
        """A cell of a block of this order."""
        del axes
        options = self
        if self.selective_norm is None:
            bounded = order > LARGEST_UNBOUNDED_ORDER
            options = dataclasses.replace(self, selective_norm=bounded)
        return KirchhoffCell(dim, options, boundary=self.check_boundary(boundary), **factory)


class KirchhoffCell(Stated):
    """Relax, inject, read out: one selective first-order update (a KNC of the paper).

    For every position ``k`` of a line, with the paper's selective projections::

        Delta_k = softplus(W_Delta u_k + b_Delta),   b_k = W_b u_k,   c_k = W_c u_k
        v_k = exp(-Delta_k decay) v_{k-1} + (1 - exp(-Delta_k decay)) / decay * b_k u_k
        y_k = <c_k, v_k> + d u_k

    Choices the paper leaves open:

    - ``W_Delta`` has the rank ``ceil(dim / 16)``, as is usual for selective scans.
    - Projections start as LeCun normal. With PyTorch's default (a third of that variance) the
      response, a product of three small factors, starts about 100 times smaller than the skip.
    - ``decay`` starts at 1..N in every channel, so one cell spans N time constants; ``b_Delta``
      starts so that Delta is log-uniform between 0.01 and 1.
    - The constraints: ``decay = exp(log_decay) > 0`` and ``Delta > 0`` give ``0 < alpha < 1``; the
      direct path ``d = softplus(.) >= 0`` is a passive conductance. With ``constrained=False``
      decay and skip are free parameters of either sign (the circuit may be active and unstable).

    Parameters
    ----------
    dim : int
        Channels D.
    options : Scan
    boundary : {"matched", "periodic", "neumann", "dirichlet"}
        The boundary at the ends of the lines, see `chonn_ops.scan_field`. The ends are the domain's
        for directions "axial" and for one axis; the other directions have one line from corner to
        corner. "raster" takes "matched" and "periodic" only.

    Raises
    ------
    ValueError
        For sizes below 1, or a boundary that is unknown or does not fit the directions.

    Examples
    --------
    >>> import torch
    >>> from chonn_ops.nn import KirchhoffCell, Scan
    >>> cell = KirchhoffCell(24, Scan(d_state=8))
    >>> cell(torch.randn(4, 32, 32, 24)).shape
    torch.Size([4, 32, 32, 24])
    """

    def __init__(
        self,
        dim: int,
        options: Scan = Scan(),
        *,
        boundary: str = Scan.block_defaults["boundary"],
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_integer(1, dim=dim)
        if not isinstance(options, Scan):
            raise error("options", "Scan(...)", repr(options))
        self.dim, self.options = dim, options
        self.boundary = options.check_boundary(boundary)
        self.dt_rank = math.ceil(dim / 16)
        factory = {"device": device, "dtype": dtype}
        n = options.d_state
        self.selective_proj = nn.Linear(dim, self.dt_rank + 2 * n, bias=False, **factory)
        self.dt_proj = nn.Linear(self.dt_rank, dim, **factory)
        # log(decay) when constrained, decay itself when free.
        self.decay_param = nn.Parameter(torch.empty(dim, n, **factory))
        # softplus^-1(d) when constrained, d itself when free.
        self.skip_param = nn.Parameter(torch.empty(dim, **factory))
        self.reset_parameters()

    def stated(self) -> Mapping[str, Any]:
        """See `Stated`."""
        return {"boundary": self.boundary}

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw fresh initial parameters."""
        nn.init.normal_(self.selective_proj.weight, std=self.dim**-0.5)
        bound = self.dt_rank**-0.5
        nn.init.uniform_(self.dt_proj.weight, -bound, bound)
        low, high = map(math.log, DELTAS)
        uniform = torch.rand_like(self.dt_proj.bias, dtype=torch.float32)
        dt = torch.exp(uniform * (high - low) + low)
        self.dt_proj.bias.copy_(dt + torch.log(-torch.expm1(-dt)))  # softplus^-1
        rates = torch.arange(1, self.options.d_state + 1, device=self.decay_param.device)
        rates = rates.to(torch.float32).expand_as(self.decay_param)
        self.decay_param.copy_(torch.log(rates) if self.options.constrained else rates)
        self.skip_param.fill_(math.log(math.expm1(1.0)) if self.options.constrained else 1.0)

    @property
    def decay(self) -> Tensor:
        """Decay rates (D, N), in float32 at least; positive if constrained."""
        raw = at_least_float32(self.decay_param)
        if self.options.constrained:
            return torch.exp(raw)
        # (1 - exp(-z)) / decay has a removable pole at 0: keep the free rate off it.
        tiny = torch.full_like(raw, 1e-6)
        return torch.where(raw.abs() < 1e-6, torch.copysign(tiny, raw), raw)

    @property
    def skip(self) -> Tensor:
        """Direct path d (D,); non-negative if constrained."""
        return F.softplus(self.skip_param) if self.options.constrained else self.skip_param

    def coefficients(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Selective coefficients of an input of shape (..., D).

        Returns
        -------
        delta : Tensor, shape (..., D)
        b, c : Tensor, shape (..., N)
        """
        n = self.options.d_state
        low_rank, b, c = self.selective_proj(u).split([self.dt_rank, n, n], dim=-1)
        if self.options.selective_norm:
            b, c = _bounded(b), _bounded(c)
        raw = self.dt_proj(low_rank)
        # In float32 inside, as autocast would have it, which makes two copies for that.
        with without_autocast(raw):
            delta = F.softplus(raw)
        return delta, b, c

    def forward(self, u: Tensor) -> Tensor:
        """Scan a sequence or a channels-last field.

        Parameters
        ----------
        u : Tensor, shape (B, L, D) or (B, \\*grid, D)

        Returns
        -------
        Tensor, shape of `u`

        Raises
        ------
        ValueError
            If the channels differ from `dim`.
        """
        u = as_field("u", u, self.parameters())
        if u.dim() < 3 or u.shape[-1] != self.dim or 0 in u.shape[1:]:
            expected = f"shape (B, *grid, {self.dim}) with at least one point"
            raise error("u", expected, tuple(u.shape))
        delta, b, c = self.coefficients(u)
        u = u.to(delta.dtype)  # autocast casts the projections, not their input
        # All that `scan_field` checks follows from the input's shape and the constructor's checks.
        inputs = Inputs(u, delta, self.decay, b, c, self.skip, None)
        passive, directions = self.options.constrained, self.options.directions
        return scan_checked(inputs, directions, False, self.boundary, passive, None)[0]

    def extra_repr(self) -> str:
        return f"dim={self.dim}, {self.options}, boundary={self.boundary!r}"


def _bounded(x: Tensor) -> Tensor:
    """x over the root of 1 plus its mean square over the last axis."""
    wide = at_least_float32(x)
    return (wide * torch.rsqrt(1 + wide.square().mean(-1, keepdim=True))).to(x.dtype)
