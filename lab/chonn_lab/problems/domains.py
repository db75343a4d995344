"""Domains inside the unit square: which points of a grid exist, and their place in data files.

========= ==========================================================================================
square    all of it
l-shape   without its upper right quadrant, ``x > 1/2`` and ``y > 1/2``: a re-entrant corner, beside
          which the gradient of a solution is unbounded
holes     without three discs: centre (0.30, 0.30), radius 0.12; (0.70, 0.55), 0.15; (0.35, 0.75),
          0.10
========= ==========================================================================================

A shape is a property of points, so it is the same on every grid, up to the size of a cell: a node
exists if its own position is inside. With an even number R of cell centres ``(i + 1/2) / R``, or
of nodes ``p / (R - 1)`` with the boundary among them, the faces between nodes that exist and those
that do not are at 1/2 exactly for the l-shape; those of the holes are steps.

Files of a domain other than the square have its mask, ``mask`` (R, R) bool, and the attribute
``domain``; fields are 0 where no node exists.
"""

import numpy as np

SQUARE = "square"
DOMAINS = (SQUARE, "l-shape", "holes")
_DISCS = ((0.30, 0.30, 0.12), (0.70, 0.55, 0.15), (0.35, 0.75, 0.10))
# Fewer points do not separate the discs from each other and from the edge.
LEAST_POINTS = 16


def cell_centres(resolution: int) -> np.ndarray:
    """(R,) cell centres of the unit interval."""
    return (np.arange(resolution) + 0.5) / resolution


def coordinates(resolution: int) -> dict[str, np.ndarray]:
    """`cell_centres` along both axes, by PDEBench's names."""
    return dict.fromkeys(("x-coordinate", "y-coordinate"), cell_centres(resolution))


def nodes(resolution: int) -> np.ndarray:
    """(R,) nodes of the unit interval, its ends among them."""
    return np.linspace(0, 1, resolution)


def check_domain(domain: str, resolution: int) -> None:
    """ValueError for an unknown domain, or a grid that is too coarse for it."""
    if domain not in DOMAINS:
        raise ValueError(f"domain: expected one of {', '.join(DOMAINS)}, got {domain!r}")
    if domain != SQUARE and resolution < LEAST_POINTS:
        raise ValueError(
            f"resolution: expected at least {LEAST_POINTS} for the domain {domain}, "
            f"got {resolution}"
        )


def domain_mask(domain: str, coordinates: np.ndarray) -> np.ndarray:
    """Which nodes of a grid exist, (R, R) bool, x along axis 0.

    `coordinates` (R,) are their positions along both axes. Errors as `check_domain`.
    """
    check_domain(domain, len(coordinates))
    x, y = np.meshgrid(coordinates, coordinates, indexing="ij")
    if domain == "l-shape":
        return (x < 0.5) | (y < 0.5)
    exists = np.ones(x.shape, dtype=bool)
    if domain == "holes":
        for centre_x, centre_y, radius in _DISCS:
            exists &= np.hypot(x - centre_x, y - centre_y) > radius
    return exists


def suffix(domain: str) -> str:
    """What a file's name says of the domain: nothing of the square."""
    return "" if domain == SQUARE else f"_{domain}"
