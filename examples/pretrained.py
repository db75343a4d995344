"""Evaluate a pretrained circuit on Darcy flow, on its training grid and on a finer one.

The model has 955 parameters and was trained on 64 x 64 points. It takes any grid, because the
spacing of the grid enters the conductances of its circuit.

    pip install '.[pretrained]' ./lab
    python examples/pretrained.py --resolutions 64 128
"""

import argparse
import tempfile
from pathlib import Path

from chonn_plugins.openmp import sleep_while_waiting

sleep_while_waiting()  # before torch is imported

import h5py
import torch

from chonn_lab.problems import darcy
from chonn_ops import CHONNNetwork2d


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
            # u = 0 lies 1/128 outside the square in the training data: half a cell of 64 points.
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
