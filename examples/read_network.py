"""Print the circuits that a pretrained network has learned.

`chonn inspect` writes the same numbers with pictures, for checkpoints of every host.

    pip install '.[pretrained]' ./lab
    python examples/read_network.py
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from chonn_plugins.openmp import sleep_while_waiting

sleep_while_waiting()  # before torch is imported

import h5py
import torch

import chonn_ops
from chonn_lab.problems import darcy


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--resolution", type=int, default=64, help="points a side")
    parser.add_argument("--samples", type=int, default=4)
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "darcy.hdf5"
        darcy.generate(path, args.samples, args.resolution, seed=7, margin=1 / 128, progress=False)
        with h5py.File(path) as file:
            permeability = torch.tensor(file["nu"][:])[:, None]  # (B, 1, R, R)

    model = chonn_ops.CHONNNetwork2d.from_pretrained("darcy-small")
    layers = chonn_ops.read_circuits(model, permeability)["networks"]
    for place, layer in enumerate(layers):
        print(f"\nlayer {place}, effective rank of its voltages: {layer['effective_rank']:.1f}")
        print("network  conductivity  length scale  power to ground")
        for number, network in enumerate(layer["networks"]):
            # Quantiles 0, 1/4, 1/2, 3/4 and 1 over samples and nodes: entry 2 is the median.
            conductivity, length = network["conductivity"][2], network["length_scale"][2]
            share = network["leak_share"]
            print(f"{number:>7}  {conductivity:>12.3g}  {length:>12.3g}  {share:>15.0%}")


if __name__ == "__main__":
    main()
