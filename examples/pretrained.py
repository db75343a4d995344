"""A network that comes with trained weights: Darcy flow at its own resolution and on finer grids.

8,073 parameters, trained on 64 x 64 points; it takes any grid, as a circuit has the spacing in its
resistors.

    python examples/pretrained.py --resolutions 64 128
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import h5py
import torch

from chonn_ops import CHONNNetwork2d
from chonn_ops.problems import darcy


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--resolutions", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--samples", type=int, default=8)
    args = parser.parse_args(arguments)
    model = CHONNNetwork2d.from_pretrained("darcy-small")
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters")
    for resolution in args.resolutions:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "darcy.hdf5"
            # The walls of its training data lie 1/128 outside, half a cell of 64 points.
            darcy.generate(path, args.samples, resolution, seed=7, margin=1 / 128, progress=False)
            with h5py.File(path) as file:
                permeability = torch.tensor(file["nu"][:])[:, None]  # (B, 1, R, R)
                truth = torch.tensor(file["tensor"][:])
        with torch.no_grad():
            pressure = model(permeability)
        error = (pressure - truth).abs().sum((1, 2, 3)) / truth.abs().sum((1, 2, 3))
        print(f"{resolution:>4} x {resolution}: relative L1 {error.mean():.4f}")


if __name__ == "__main__":
    main()
