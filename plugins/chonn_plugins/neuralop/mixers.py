"""The mixers that chonn-ops registers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from chonn_ops import CKB, CKBOptions
from chonn_plugins.neuralop.fixed_grid import FixedGridCKB

# What the host decides for each cell. Its grids have their nodes at i / n. On its Darcy flow
# (trained at 16 x 16, one seed) that lowered the error at 32 x 32 from 0.094 to 0.039.
HOST = {"network": {"nodes": "left", "grid": "input"}, "scan": {"grid": "training"}}


# Where blocks stand by default.
MODE = {"network": "lift", "scan": "replace"}


class CKBMixer:
    """``spectral_mixer="ckb"``: a block in neuraloperator's FNOs.

    Options are those of `chonn_ops.CKBOptions.from_mapping` (the order is at least 1). Networks are
    the default and stand behind the lifting, which had the lowest errors on Darcy flow. Their nodes
    are at i / n (``nodes="left"``), as neuraloperator's grids have them. The paper's scans,
    ``cell="scan"``, take the place of the first layer's skip. One option is added, ``grid``:

    - ``"training"``: the block runs on the grid of the first training pass whatever grid a field
      has, see `FixedGridCKB`; the default for scans, since FNOs are evaluated on other grids than
      they were trained on;
    - ``"input"``: on the grid of the input; the default for networks, whose cells know the spacing
      of a grid;
    - a sequence of sizes: on that grid.
    """

    n_dims = (1, 2, 3)
    complex_data = True

    def complete(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """All options, with the defaults of the chosen cell."""
        cell = options.get("cell", CKBOptions().cell.name)
        host = HOST[cell] if isinstance(cell, str) and cell in HOST else {}
        chosen = {**host, **options}
        grid = chosen.pop("grid", None)
        return {**CKBOptions.from_mapping(chosen).to_mapping(), "grid": grid}

    def mode(self, options: Mapping[str, Any]) -> str:
        """Where blocks go by default."""
        return MODE[options["cell"]]

    def __call__(self, channels: int, n_modes: tuple[int, ...], **options: Any) -> nn.Module:
        chosen = self.complete(options)
        grid = chosen.pop("grid")
        block = CKB(channels, len(n_modes), **vars(CKBOptions.from_mapping(chosen)))
        if grid == "training":
            return FixedGridCKB(block)
        if grid == "input":
            return block
        if isinstance(grid, str) or not isinstance(grid, Sequence):
            raise ValueError(f"grid: expected 'training', 'input' or sizes, got {grid!r}")
        return FixedGridCKB(block, tuple(grid))


ckb = CKBMixer()
