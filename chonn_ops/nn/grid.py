"""How a field becomes scan paths.

The paper flattens a field into one line ("L is the flattened spatial length"). A line read one way
is causal, so it cannot represent a symmetric operator such as an inverse Laplacian; the other
modes read it from both ends or along several axes.

==============  =================================  ====================================
mode            lines                              scans for a field of n axes
==============  =================================  ====================================
raster          the flattened field                1 (forwards only: the paper's letter)
bidirectional   the flattened field                2 (both ways)
cross           the field flattened along each     2 n (the visual state-space default)
                axis in turn
axial           every row, every column, ...       2 n, all lines in parallel
==============  =================================  ====================================

The result is the mean over the scans, so its scale does not depend on the mode, plus one skip.
All scans share one set of coefficients: an isotropic prior, with 2 n times fewer projections.
"""

from __future__ import annotations

from torch import Tensor

from chonn_ops.scan import kirchhoff_scan

DIRECTIONS = ("raster", "bidirectional", "cross", "axial")


def axis_orders(n_axes: int, directions: str) -> list[tuple[int, ...]]:
    """Orders in which the axes of a field are walked, the last one fastest.

    Parameters
    ----------
    n_axes : int
        Number of spatial axes.
    directions : str
        One of `DIRECTIONS`.

    Returns
    -------
    list of tuple of int
        Rotations of ``(0, .., n_axes - 1)``, starting with the identity.

    Raises
    ------
    ValueError
        For an unknown mode.
    """
    if directions not in DIRECTIONS:
        raise ValueError(f"directions: expected one of {DIRECTIONS}, got {directions!r}")
    axes = tuple(range(n_axes))
    if directions in ("raster", "bidirectional"):
        return [axes]
    return [axes] + [axes[k:] + axes[:k] for k in range(1, n_axes)]


def scan_field(
    u: Tensor,
    delta: Tensor,
    decay: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor | None = None,
    *,
    directions: str = "raster",
    termination: str = "matched",
    passive: bool = True,
) -> Tensor:
    """Scan a channels-last field along the paths of a direction mode.

    Parameters
    ----------
    u, delta : Tensor, shape (B, \\*grid, D)
        Input and positive step along the line.
    decay : Tensor, shape (D, N)
        Decay rate for a unit step.
    b, c : Tensor, shape (B, \\*grid, N)
        Injection and readout.
    d : Tensor, shape (D,), optional
        Skip, added once whatever the number of scans.
    directions : str
        One of `DIRECTIONS`.
    termination : str
        What every line does at its ends, see `chonn_ops.kirchhoff_scan`. Flattened modes end each
        line at the last corner of the field, not at its sides; `axial` lines end at the sides.
    passive : bool
        Whether `decay` must be positive, see `chonn_ops.kirchhoff_scan`.

    Returns
    -------
    Tensor, shape (B, \\*grid, D)
        Mean over the scans plus ``d * u``.

    Raises
    ------
    ValueError
        For an unknown mode, or from `kirchhoff_scan` for unfit coefficients.
    """
    grid = u.shape[1:-1]
    orders = axis_orders(len(grid), directions)
    ways = (False,) if directions == "raster" else (False, True)
    line_axes = 1 if directions == "axial" else len(grid)
    # The mean is taken on the readout: (B, *grid, N) is the smaller tensor.
    c = c / (len(orders) * len(ways))
    result: Tensor | None = None
    for order in orders:
        lines = [_to_lines(t, order, line_axes) for t in (u, delta, b, c)]
        for reverse in ways:
            y = kirchhoff_scan(
                lines[0],
                lines[1],
                decay,
                lines[2],
                lines[3],
                d if result is None else None,
                reverse=reverse,
                termination=termination,
                passive=passive,
            )
            y = _from_lines(y, u.shape[0], grid, order)
            result = y if result is None else result + y
    assert result is not None
    return result


def _to_lines(field: Tensor, order: tuple[int, ...], line_axes: int) -> Tensor:
    """Channels-last field -> (lines, length, channels); the last `line_axes` axes form a line."""
    ordered = field.permute(0, *(axis + 1 for axis in order), field.ndim - 1)
    split = field.ndim - 1 - line_axes
    return ordered.flatten(split, -2).flatten(0, split - 1)


def _from_lines(lines: Tensor, batch: int, grid: tuple[int, ...], order: tuple[int, ...]) -> Tensor:
    """Inverse of `_to_lines`."""
    ordered = lines.reshape(batch, *(grid[axis] for axis in order), lines.shape[-1])
    inverse = sorted(range(len(order)), key=order.__getitem__)
    return ordered.permute(0, *(axis + 1 for axis in inverse), ordered.ndim - 1)
