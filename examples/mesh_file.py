"""Heat conduction on a mesh from a file: gmsh, VTK, Abaqus, whatever meshio reads.

Solves -div(k grad u) = 1 with u = 0 on the whole boundary, k = 1 or, where the file has such cell
data, that of --conductivity, and writes u for ParaView.

    pip install '.[meshes]'    # meshio
    python examples/mesh_file.py part.msh --output temperature.vtu
"""

import argparse

from chonn_plugins.openmp import sleep_while_waiting

sleep_while_waiting()  # before torch is imported

import meshio
import torch
from torch import Tensor

from chonn_ops import Mesh


def temperature(mesh: meshio.Mesh, name: str | None = None) -> Tensor:
    """u at the points of a mesh of tetrahedra or triangles, (N,)."""
    kind = "tetra" if "tetra" in mesh.cells_dict else "triangle"
    domain = Mesh.from_mesh(mesh)
    k = torch.ones(len(domain.cells)).double()
    if name is not None:
        k = torch.tensor(mesh.cell_data_dict[name][kind].astype("float64"))
    circuit = domain.diffusion(k[None, :, None], boundary="dirichlet")
    return circuit.solve(torch.ones(1, len(domain.points), 1).double())[0, :, 0]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file")
    parser.add_argument("--conductivity", help="name of cell data")
    parser.add_argument("--output", default="temperature.vtu")
    args = parser.parse_args(arguments)
    mesh = meshio.read(args.file)
    mesh.point_data["u"] = temperature(mesh, args.conductivity).numpy()
    mesh.write(args.output)
    print(f"{len(mesh.points)} points, largest u {mesh.point_data['u'].max():.6f}")


if __name__ == "__main__":
    main()
