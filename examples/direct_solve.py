"""Darcy flow with nothing trained: the permeability is a circuit, solved for its potentials.

Every cell of the grid is a node, two cells in series are the resistor between their centres, rain
of 1 is the current into each node and the walls are ground. The pressure is the potential, and its
gradients with respect to the permeability come from one more solve of the same circuit.

    python examples/direct_solve.py --resolution 64
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import h5py
import torch
from torch import Tensor

from chonn_ops import edge_conductance, kirchhoff_network
from chonn_ops.problems import darcy


def pressure(permeability: Tensor) -> Tensor:
    """Potentials (B, R, R) of -div(a grad u) = 1 on the unit square, from a (B, R, R)."""
    k = permeability[..., None]  # one channel
    h = 1 / k.shape[1]
    ground = torch.zeros_like(k)
    for axis in (1, 2):
        for end in (0, -1):  # PDEBench has u = 0 half a cell outside, a whole one from the centre
            ground.select(axis, end).add_(k.select(axis, end))
    rain = torch.full_like(k, h * h)
    return kirchhoff_network(rain, edge_conductance(k, h), ground, tol=1e-6)[..., 0]


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
    error = (u - truth).flatten(1).norm(dim=1) / truth.flatten(1).norm(dim=1)
    print(f"relative L2 difference from PDEBench's scheme: {error.mean():.4f}")
    print(f"passive: {u.min():.2e} <= u, as no node is below ground")

    a = a.clone().requires_grad_()
    (slope,) = torch.autograd.grad(pressure(a).mean(), a)
    print(f"a better conductor anywhere lowers the mean pressure: {slope.max():.2e} <= 0")


if __name__ == "__main__":
    main()
