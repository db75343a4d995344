"""The mixers that chonn-ops registers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from chonn_ops import CKB, CKBOptions, FixedGridCKB


class CKBMixer:
    """``spectral_mixer="ckb"``: a Cascaded Kirchhoff Block of the layer's channels.

    Options are the fields of `CKBOptions` (the order is at least 1), with ``cell="network"`` by
    default, and behind the lifting: what had the lowest errors on Darcy flow
    (docs/neuraloperator.md). Networks have ``nodes="left"``, as neuraloperator's grids (i / n).
    The paper's scans, ``cell="scan"``, have ``directions="raster"`` and take the place of the first
    skip. And ``grid``:

    - ``"training"``: the block evolves on the grid of the first training pass whatever grid a
      field has, see `chonn_ops.FixedGridCKB`; the default for scans, since FNOs are asked at
      resolutions they were not trained on;
    - ``"input"``: on the grid of the input; the default for networks, whose cells know the
      spacing of a grid;
    - a sequence of sizes: on that grid.
    """

    n_dims = (1, 2, 3)
    complex_data = True
    # What FNOs want otherwise than other hosts; `conv.CKBSpectralConv` shares it.
    _own: Mapping[str, Mapping[str, Any]] = {
        "scan": {"directions": "raster", "grid": "training"},
        "network": {"grid": "input", "nodes": "left"},
    }
    defaults: Mapping[str, Any] = {
        **dataclasses.asdict(CKBOptions(cell="network")),
        **_own["network"],
    }

    def complete(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """All options, with the defaults of the chosen cell."""
        cell = options.get("cell", "network")
        chosen = {"cell": cell, **self._own.get(cell, {}), **options}
        grid = chosen.pop("grid", None)
        return {**dataclasses.asdict(CKBOptions(**chosen)), "grid": grid}

    def mode(self, options: Mapping[str, Any]) -> str:
        """Where blocks go unless said otherwise."""
        return "lift" if options["cell"] == "network" else "replace"

    def __call__(self, channels: int, n_modes: tuple[int, ...], **options: Any) -> nn.Module:
        chosen = self.complete(options)
        grid = chosen.pop("grid")
        block = CKB(channels, len(n_modes), **chosen)
        if grid == "input":
            return block
        if grid == "training":
            return FixedGridCKB(block)
        if isinstance(grid, str) or not isinstance(grid, Sequence):
            raise ValueError(f"grid: expected 'training', 'input' or sizes, got {grid!r}")
        return FixedGridCKB(block, tuple(grid))


ckb = CKBMixer()
