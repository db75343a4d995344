"""Print the circuit that a pretrained model has learned of Darcy flow.

`chonn inspect` writes the same numbers with pictures, for checkpoints of every host.

    pip install '.[pretrained]' ./lab
    python examples/read_network.py
"""

import argparse
import tempfile
from pathlib import Path

from chonn_plugins.openmp import sleep_while_waiting

sleep_while_waiting()  # before torch is imported

import h5py
import torch

from chonn_lab.problems import darcy
from chonn_ops import CHONNNetwork2d, read_circuits
from chonn_ops.inspect import conductivity_law


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

    model = CHONNNetwork2d.from_pretrained("darcy-small")
    (circuit,) = read_circuits(model, permeability)["networks"][0]["networks"]
    print("The median conductivity is 1; quantiles 0, 1/4, 1/2, 3/4 and 1 over samples and nodes:")
    for axis, quantiles in enumerate(circuit["by_axis"]):
        print(f"conductivity, axis {axis}: " + " ".join(f"{x:.3g}" for x in quantiles))
    print("source: " + " ".join(f"{x:.3g}" for x in circuit["source"]))
    for wall in circuit["walls"]:
        print(f"{wall['wall']}: {wall['value']:.2g} held {wall['distance']:.4f} behind the face")
    law = conductivity_law(model, torch.tensor([[0.1], [1.0]]))[:, 0, 0]
    print(f"conductivity at a permeability of 1 over that at 0.1: {law[1] / law[0]:.4f}")


if __name__ == "__main__":
    main()
