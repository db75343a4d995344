"""Transport by characteristics: fields moved along displacements, on periodic and walled grids."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from chonn_ops._dtypes import at_least_float32
from chonn_ops.boundary import per_axis

BOUNDARIES = ("periodic", "robin")


def transport(
    field: Tensor,
    displacement: Tensor,
    *,
    boundary: str | Sequence[str] = "periodic",
) -> Tensor:
    r"""Move a field (B, \*grid, C) along displacements (B, \*grid, H, axes) in steps of the grid.

    Each node gets the value upstream, :math:`y_p = f(p - d_p)`, interpolated linearly between nodes
    along each axis: a semi-Lagrangian step (A. Staniforth, J. Cote, Monthly Weather Review 119,
    1991). It stays within the range of the field, and is exact where the displacements are whole
    numbers of steps. One displacement moves C / H consecutive channels. Where the boundary of an
    axis is "robin", a displacement through the wall ends at the outermost node.

    Examples
    --------
    >>> line = torch.arange(5.0).view(1, 5, 1)
    >>> transport(line, torch.full((1, 5, 1, 1), 2.0)).flatten().tolist()
    [3.0, 4.0, 0.0, 1.0, 2.0]
    """
    (samples, *grid, channels), heads = field.shape, displacement.shape[-2]
    displacement, device = at_least_float32(displacement), displacement.device

    def index(n: int, axis: int) -> Tensor:
        return torch.arange(n, device=device).view([n if k == axis else 1 for k in range(dims)])

    dims = displacement.dim() - 1
    # Rows of the field (B grid H, C / H) around the end of each displacement, and their weights.
    rows, weights = [index(samples, 0)], [displacement.new_ones(())]
    words = per_axis(boundary, len(grid), BOUNDARIES)
    for axis, (n, end) in enumerate(zip(grid, words, strict=True)):
        start = index(n, axis + 1)
        # Added to the index of its node, a shift would lose digits, in half precision all of them.
        shift = -displacement[..., axis]
        if end == "robin":
            shift = shift.clamp((-start).to(shift), (n - 1 - start).to(shift))
        whole = shift.detach().floor()
        below, part = start + whole.long(), shift - whole
        taps = [tap % n if end == "periodic" else tap.clamp(0, n - 1) for tap in (below, below + 1)]
        rows = [row * n + tap for row in rows for tap in taps]
        weights = [weight * share for weight in weights for share in (1 - part, part)]
    row = torch.stack(rows, -1) * heads + torch.arange(heads, device=device)[:, None]
    # PyTorch's `embedding_bag` needs less memory, but has neither forward nor second derivatives.
    values = field.reshape(-1, channels // heads).index_select(0, row.flatten())
    values = values.view(*row.shape, channels // heads)
    return (values * torch.stack(weights, -1).to(field.dtype)[..., None]).sum(-2).view_as(field)
