"""Points of the unit interval where fields of grids are given."""

import numpy as np


def cell_centres(resolution: int) -> np.ndarray:
    """(R,) cell centres of the unit interval."""
    return (np.arange(resolution) + 0.5) / resolution


def coordinates(resolution: int) -> dict[str, np.ndarray]:
    """`cell_centres` along both axes, by PDEBench's names."""
    return dict.fromkeys(("x-coordinate", "y-coordinate"), cell_centres(resolution))


def nodes(resolution: int) -> np.ndarray:
    """(R,) nodes of the unit interval, its ends among them."""
    return np.linspace(0, 1, resolution)
