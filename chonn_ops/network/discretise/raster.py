"""`raster`: circuits of cells that are joined to four or eight neighbours, as in Circuitscape."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from chonn_ops._dtypes import at_least_float32
from chonn_ops.boundary import series
from chonn_ops.checks import check_choice, check_field, check_positive, error
from chonn_ops.network.circuit import Circuit
from chonn_ops.network.discretise.grids import density_of, mask_of_fields
from chonn_ops.network.discretise.tensors import lattice


def raster(
    resistance: Tensor,
    neighbours: Literal[4, 8] = 8,
    *,
    mean: Literal["resistance", "conductance"] = "resistance",
    mask: Tensor | None = None,
    leak: Tensor | float = 0.0,
) -> Circuit:
    r"""The circuit of a raster of resistances, whose cells are joined to their neighbours.

    With the conductances c = 1 / resistance of two cells and their distance d, 1 or, diagonally,
    :math:`\sqrt 2`, they are joined by :math:`2 / (1 / c_p + 1 / c_q) / d` (mean resistance) or
    :math:`(c_p + c_q) / 2 / d` (mean conductance). Unlike `diffusion`, which is an equation's, this
    is a rule for graphs; with eight neighbours it conducts more than the medium of its cells.

    Parameters
    ----------
    resistance : Tensor, shape (B, H, W, C)
        Resistance > 0 of each cell. A cell that is NaN or infinite has no data and no edge.
    neighbours : {8, 4}
    mean : {"resistance", "conductance"}
    mask : Tensor of bool, shape (H, W) or one that broadcasts to the resistance's, optional
        Which cells have edges, instead of those that are finite. With mean conductances an infinite
        cell among them has half of its neighbour's, as in short-circuit regions.
    leak : float or Tensor that expands to (B, H, W, C)
        Conductance >= 0 from each cell to ground.

    Returns
    -------
    Circuit
        On the graph of all H W cells in row-major order: its fields are (B, H W, C). The
        potential of cells without edge and leak is 0. `Circuit.merge` joins short-circuit regions,
        `Circuit.resistance` has effective resistances of focal nodes, `Circuit.node_currents` maps
        of currents.

    Raises
    ------
    TypeError
        Something else than a Tensor.
    ValueError
        Another shape, dtype or device; a resistance that is not above 0 (checked on the CPU only).

    References
    ----------
    B. McRae, B. Dickson, T. Keitt, V. Shah, "Using circuit theory to model connectivity in ecology,
    evolution, and conservation", Ecology 89 (2008).

    Examples
    --------
    From corner to corner of four cells, two ways of two edges beside the diagonal:

    >>> import torch
    >>> from chonn_ops import raster
    >>> pair = torch.tensor([[0, 3]])
    >>> round(raster(torch.ones(1, 2, 2, 1)).resistance(pair).item(), 4)  # 1 / (1 + 1 / sqrt 2)
    0.5858
    """
    check_field("resistance", resistance)
    if resistance.dim() != 4:
        raise error("resistance", "shape (B, H, W, C)", tuple(resistance.shape))
    check_choice("neighbours", neighbours, (4, 8))
    check_choice("mean", mean, ("resistance", "conductance"))
    r = at_least_float32(resistance)
    known = mask_of_fields(mask, r)
    exists = r.isfinite() if known is None else known.expand(r.shape)
    r = torch.where(exists, r, 1)
    check_positive("resistance", r)
    ground = density_of("leak", leak, r)
    c = torch.where(exists, 1 / r.to(ground.dtype), 0).flatten(1, 2)
    graph, edge = lattice(*r.shape[1:3], neighbours)
    first, second = graph.at_ends(c, 0)
    if mean == "resistance":
        g = 2 * series(first, second)
    else:
        here, there = graph.at_ends(exists.flatten(1, 2), 0)
        g = torch.where(here & there, (first + second) / 2, 0)
    distance = (1 + (edge >= 2 * graph.num_nodes).to(c)).sqrt()
    return Circuit(g / distance[:, None], ground.flatten(1, 2), graph)
