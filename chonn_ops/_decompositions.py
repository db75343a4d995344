"""Circuits in PyTorch's own operations, for programs that run where chonn-ops is not installed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from chonn_ops._dtypes import compute_dtype, widened
from chonn_ops.checks import error
from chonn_ops.network.layout import edges_alone
from chonn_ops.scan import derivatives
from chonn_ops.scan.arguments import split

_Inverse = Callable[[Tensor], Tensor]


def decompositions(*, onnx: bool = False) -> dict[Any, Callable[..., Any]]:
    """Return the table with which `torch.export.ExportedProgram.run_decompositions` replaces the
    operators of scans and networks by operations of PyTorch.

    Such a program runs where chonn-ops is not installed: packaged by
    `torch._inductor.aoti_compile_and_package`, or written by ``torch.onnx.export(program,
    dynamo=True)``. Its batch may be dynamic; its grid is the one it was exported for. It is meant
    for small grids. A network of n blocks of m nodes, n along its longest axis, is eliminated in
    float64 and takes n m^3 operations and n m^2 numbers; a scan keeps every state. Values are no
    longer checked: a network without a leak returns infinities or noise instead of an error.

    Parameters
    ----------
    onnx : bool
        Compute inverses of blocks by products, because ONNX has no operator for an inverse. The
        program has about 16 operations for each column of a block.

    Raises
    ------
    ValueError
        When a program is decomposed: its grid is dynamic, a network is on a graph or complex.

    Examples
    --------
    >>> import torch, chonn_ops
    >>> model, x = chonn_ops.CKB(4, 2, cell="scan").eval(), torch.randn(1, 4, 8, 8)
    >>> with torch.no_grad():
    ...     program = torch.export.export(model, (x,))
    >>> program = program.run_decompositions(chonn_ops.decompositions())
    >>> torch.allclose(program.module()(x), model(x), atol=1e-5)
    True
    """
    inverse = _inverse if onnx else lambda a: torch.linalg.inv_ex(a).inverse
    return {
        torch.ops.chonn_ops.kirchhoff_scan.default: _scan,
        torch.ops.chonn_ops.kirchhoff_network.default: partial(_network, inverse),
        torch.ops.chonn_ops.cut_off.default: _cut_off,
    }


def _fixed(grid: Sequence[Any]) -> tuple[int, ...]:
    if any(isinstance(n, torch.SymInt) for n in grid):
        raise error("grid", "a program exported for one grid", tuple(grid))
    return tuple(map(int, grid))


def _scan(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    inputs, modes = split(arguments)
    y, state = derivatives.scan(modes._replace(grid=_fixed(modes.grid)), *inputs)
    return y, state, y.new_empty(0)


def _network(
    inverse: _Inverse,
    source: Tensor,
    g0: Tensor,
    g1: Tensor | None,
    g2: Tensor | None,
    leak: Tensor,
    periodic: Sequence[bool],
    *options: Any,  # tol, max_iterations, backend, method, graph, check
) -> tuple[Tensor, Tensor, Tensor]:
    dtype = compute_dtype(source, leak, g0)
    if dtype.is_complex:
        raise error("dtype", "real networks to decompose", dtype)
    if len(options) > 4 and options[4] is not None:
        raise error("graph", "networks on grids to decompose", "a graph")
    B, *grid, C = leak.shape
    grid = _fixed(grid)
    several = source.dim() > leak.dim()
    first = max(range(len(grid)), key=grid.__getitem__)  # blocks are along this axis
    n, m = grid[first], math.prod(grid) // grid[first]
    other = [k for k in range(len(grid)) if k != first]

    def blocks(field: Tensor) -> Tensor:
        """(B, \\*grid, C) to (B C, n, m)."""
        return widened(field).movedim((-1, first + 1), (1, 2)).reshape(B * C, n, m)

    diagonal = blocks(leak)
    beside = diagonal.new_zeros(())
    across = torch.zeros_like(diagonal)
    for axis, g in enumerate(x for x in (g0, g1, g2) if x is not None):
        if grid[axis] == 1:
            continue
        g = edges_alone(g, axis, periodic[axis])
        diagonal = diagonal + blocks(g) + blocks(g.roll(1, axis + 1))
        if axis == first:
            across = blocks(g)
            continue
        # Row j of `to` has its one where the next node along the axis has it in the unit matrix.
        to = torch.eye(m, dtype=diagonal.dtype, device=g.device)
        to = to.reshape(*(grid[k] for k in other), m).roll(-1, other.index(axis)).reshape(m, m)
        coupling = blocks(g)[..., None] * to
        beside = beside + coupling + coupling.mT
    # A node without edges and leak has potential zero, whatever its source.
    connected = diagonal > 0
    diagonal_blocks = torch.diag_embed(torch.where(connected, diagonal, 1)) - beside
    columns = source.unbind(1) if several else (source,)
    s = torch.stack([torch.where(connected, blocks(x), 0) for x in columns], -1)
    v = _cyclic_reduction(diagonal_blocks, -torch.diag_embed(across), s, inverse)
    v = v.reshape(B, C, n, *(grid[k] for k in other), len(columns))
    v = v.movedim((1, 2), (-2, first + 1)).to(dtype)
    v = v.movedim(-1, 1) if several else v[..., 0]
    numbers = (*source.shape[: 1 + several], C)
    # The residuals are not known.
    return v, v.new_zeros(numbers, dtype=torch.int32), v.new_full(numbers, math.nan)


def _cyclic_reduction(diagonal: Tensor, after: Tensor, s: Tensor, inverse: _Inverse) -> Tensor:
    """Solve a symmetric ring of n blocks (M, n, m, m), with `diagonal` on its diagonal and `after`
    between each block and the next one, for s (M, n, m, S). Every second block is eliminated, all
    at once, until one is left [1]_.

    A program has 464 operations of this for 16 x 16 nodes; of the fronts of
    `chonn_ops.network.direct.torch` it would have 6,454, which take five times as long.

    References
    ----------
    .. [1] B. L. Buzbee, G. H. Golub, C. W. Nielson, "On direct methods for solving Poisson's
       equations", SIAM J. Numer. Anal. 7 (1970) 627.
    """
    n = diagonal.shape[1]
    if n == 1:
        return inverse(diagonal + after + after.mT) @ s
    half = n // 2  # of an odd number the last block stays beside the first one

    def blocks(x: Tensor) -> Tensor:
        return F.pad(x, (0, 0, 0, 0, 0, n % 2))

    before, behind = after[:, 0 : 2 * half : 2], after[:, 1::2]
    solved = inverse(diagonal[:, 1::2])
    from_before, from_behind, y = solved @ before.mT, solved @ behind, solved @ s[:, 1::2]
    x = _cyclic_reduction(
        diagonal[:, ::2]
        - blocks(before @ from_before)
        - blocks(behind.mT @ from_behind).roll(1, 1),
        torch.cat([-(before @ from_behind), after[:, 2 * half :]], 1),
        s[:, ::2] - blocks(before @ y) - blocks(behind.mT @ y).roll(1, 1),
        inverse,
    )
    y = y - from_before @ x[:, :half] - from_behind @ x.roll(-1, 1)[:, :half]
    pairs = torch.stack([x[:, :half], y], 2).flatten(1, 2)
    return torch.cat([pairs, x[:, half:]], 1)


def _cut_off(*arguments: Any) -> Tensor:
    """No part is known to be without ground: only derivatives ask."""
    return torch.full_like(arguments[3], -1, dtype=torch.int32)


def _inverse(a: Tensor) -> Tensor:
    """The inverse of a symmetric positive definite matrix, from those of its halves."""
    n = a.shape[-1]
    if n == 1:
        return 1 / a
    k = n // 2
    b, d = a[..., :k, k:], a[..., k:, k:]
    inverse = _inverse(a[..., :k, :k])
    share = inverse @ b
    last = _inverse(d - b.mT @ share)
    beside = -(share @ last)
    first = inverse - beside @ share.mT
    return torch.cat([torch.cat([first, beside], -1), torch.cat([beside.mT, last], -1)], -2)
