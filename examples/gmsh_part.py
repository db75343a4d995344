"""Heat in a part with a hole, meshed by gmsh, whose physical groups are the walls.

The group "hot" is held at 400 K and coolant of 300 K flows through the group "hole"; other walls
are insulated. A file that is missing is made by gmsh: a plate of 200 x 100 mm with a hole of 40 mm.

    pip install '.[meshes]' gmsh    # meshio; gmsh only where the file is missing
    python examples/gmsh_part.py part.msh
"""

import argparse
import importlib
from pathlib import Path

from chonn_plugins.openmp import sleep_while_waiting

sleep_while_waiting()  # before torch is imported

import meshio
import torch

from chonn_ops import Dirichlet, Mesh, Robin

CONDUCTIVITY, FILM, HOT, COOLANT = 50.0, 500.0, 400.0, 300.0  # W / (m K), W / (m^2 K), K


def make(path: Path) -> None:
    """The mesh of the plate, with groups of the lines at x = 0 and around the hole."""
    gmsh = importlib.import_module("gmsh")
    gmsh.initialize(["", "-v", "0", "-clmax", "0.004"])
    shapes = gmsh.model.occ
    plate = (2, shapes.addRectangle(0, 0, 0, 0.2, 0.1))
    shapes.cut([plate], [(2, shapes.addDisk(0.13, 0.05, 0, 0.02, 0.02))])
    shapes.synchronize()
    for name, x in {"hot": (-0.01, 0.01), "hole": (0.1, 0.16)}.items():
        lines = gmsh.model.getEntitiesInBoundingBox(x[0], -1, -1, x[1], 1, 1, dim=1)
        gmsh.model.addPhysicalGroup(1, [tag for _, tag in lines], name=name)
    gmsh.model.addPhysicalGroup(2, [plate[1]], name="steel")
    gmsh.model.mesh.generate(2)
    gmsh.write(str(path))
    gmsh.finalize()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path)
    path = parser.parse_args(arguments).file
    if not path.exists():
        make(path)
    mesh = Mesh.from_mesh(meshio.read(path))
    k = torch.full((1, len(mesh.cells), 1), CONDUCTIVITY, dtype=torch.float64)
    circuit = mesh.diffusion(k, boundary={"hot": Dirichlet(HOT), "hole": Robin(FILM, COOLANT)})
    u = circuit.solve(torch.zeros(1, len(mesh.points), 1, dtype=torch.float64))
    into = circuit.currents(u).walls[0, mesh.sets["hole"]].sum()
    print(f"{mesh}: {u.min():.2f} to {u.max():.2f} K, {into:.1f} W into a metre of the hole")


if __name__ == "__main__":
    main()
