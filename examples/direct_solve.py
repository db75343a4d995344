"""Solve Darcy flow as a circuit, with nothing trained, and compare with PDEBench's scheme.

Each cell of the grid is a node. The permeability of two neighbouring cells sets the resistor
between them, the source term is a current into each node, and the boundary is connected to ground.
The pressure is the voltage. Its gradient with respect to the permeability costs one more solve.

    pip install . ./lab    # the laboratory generates the data
    python examples/direct_solve.py --resolution 64
"""

import argparse
import tempfile
from pathlib import Path

from chonn_plugins.openmp import sleep_while_waiting

sleep_while_waiting()  # before torch is imported

import h5py
import torch
from torch import Tensor

from chonn_lab.problems import darcy
from chonn_ops import Dirichlet, diffusion


def pressure(permeability: Tensor, arithmetic: float = 0.0) -> Tensor:
    """Solve -div(a grad u) = 1 on the unit square for u (B, R, R), given a (B, R, R)."""
    k = permeability[..., None]  # one channel
    h = 1 / k.shape[1]
    wall = Dirichlet(0.0, distance=h / 2)  # PDEBench has u = 0 half a cell outside
    return diffusion(k, h, boundary=wall, arithmetic=arithmetic).solve(torch.ones_like(k))[..., 0]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--resolution", type=int, default=64, help="points a side")
    parser.add_argument("--samples", type=int, default=8)
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "darcy.hdf5"
        darcy.generate(path, args.samples, args.resolution, progress=False)
        with h5py.File(path) as file:
            a, truth = torch.tensor(file["nu"][:]), torch.tensor(file["tensor"][:, 0])

    u = pressure(a)
    # PDEBench's scheme takes the arithmetic mean of two cells at their face.
    for name, found in (("harmonic", u), ("arithmetic", pressure(a, arithmetic=1.0))):
        error = (found - truth).flatten(1).norm(dim=1) / truth.flatten(1).norm(dim=1)
        print(f"relative L2 difference from the data, {name} faces: {error.mean():.1e}")
    print(f"smallest pressure: {u.min():.2e} >= 0, because a resistor network is passive")

    a = a.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(pressure(a).mean(), a)
    print(f"largest gradient of the mean pressure by the permeability: {gradient.max():.2e} <= 0")


if __name__ == "__main__":
    main()
