"""Permeability of a pore network, and the throats that limit it.

Pores are random points in a cube of 1 mm, throats are tubes along the edges of their Delaunay
graph. A tube of radius r and length L carries pi r^4 / (8 mu L) times the pressure drop (Hagen and
Poiseuille). One solve gives the flow from the left face to the right one; its gradient gives how
much each throat's radius matters.

    python examples/pore_network.py --figure pores.png
"""

import argparse
from itertools import combinations

from chonn_plugins.openmp import sleep_while_waiting

sleep_while_waiting()  # before torch is imported

import numpy as np
import torch
from scipy.spatial import Delaunay
from torch import Tensor

from chonn_ops import Circuit, Graph

SIDE, VISCOSITY = 1e-3, 1e-3  # m, Pa s
DROP = 1.0  # Pa between the faces


def network(pores: int, seed: int) -> tuple[Graph, Tensor, Tensor]:
    """Pores and throats, the throats' radii (E,) and lengths (E,), in m."""
    rng = np.random.default_rng(seed)
    points = SIDE * rng.random((pores, 3))
    pairs = Delaunay(points).simplices[:, list(combinations(range(4), 2))].reshape(-1, 2)
    edges = np.unique(np.sort(pairs, 1), axis=0)
    length = np.linalg.norm(points[edges[:, 0]] - points[edges[:, 1]], axis=1)
    # Delaunay edges along the hull are long; nothing like them is a throat.
    edges, length = edges[length < SIDE / 4], length[length < SIDE / 4]
    radius = rng.lognormal(np.log(5e-6), 0.5, len(edges))
    return Graph(edges, pores, points), torch.tensor(radius), torch.tensor(length)


def permeability(graph: Graph, radius: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
    """Permeability in m^2, and the pressure of each pore (N,) in Pa; inlets are the pores in the
    left tenth, outlets those in the right one."""
    assert graph.positions is not None
    x = torch.tensor(graph.positions)[:, 0] / SIDE
    # Conductances times the viscosity over a cubic micrometre: numbers near 1.
    g = torch.pi * radius**4 / (8 * length) * 1e18
    circuit = Circuit(g[None, :, None], torch.zeros(1, graph.num_nodes, 1).double(), graph)
    inlet, outlet = x < 0.1, x > 0.9
    held = circuit.hold((inlet | outlet)[:, None], DROP * inlet[:, None].double())
    pressure = held.solve(torch.zeros(1, graph.num_nodes, 1).double())
    through = -held.currents(pressure).walls[:, inlet].sum() * 1e-18 / VISCOSITY
    return through * VISCOSITY * 0.8 * SIDE / (SIDE**2 * DROP), pressure[0, :, 0]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pores", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--figure", help="PNG file to draw to; needs matplotlib")
    args = parser.parse_args(arguments)
    graph, radius, length = network(args.pores, args.seed)
    found, pressure = permeability(graph, radius.requires_grad_(), length)
    found.backward()
    assert radius.grad is not None
    # How much a relative change of a radius changes the permeability: they sum to 4.
    share = (radius.grad * radius / found).detach()
    order = share.sort(descending=True).values
    half = int((order.cumsum(0) < order.sum() / 2).sum()) + 1
    print(f"{graph.num_nodes} pores, {graph.num_edges} throats")
    print(f"permeability {found.item():.3e} m^2; shares of the throats sum to {share.sum():.4f}")
    print(f"half of it hangs on {half} throats, {half / graph.num_edges:.1%} of them")
    if args.figure:
        draw(args.figure, graph, pressure.detach(), share)


def draw(path: str, graph: Graph, pressure: Tensor, share: Tensor) -> None:
    """Pores seen along the third axis, coloured by pressure, and the throats that matter most."""
    import matplotlib.pyplot as plt
    from matplotlib.collections import LineCollection

    assert graph.positions is not None
    places = 1e3 * graph.positions[:, :2]
    figure, axes = plt.subplots(figsize=(5.2, 4.2), layout="constrained")
    width = (share / share.max()).sqrt().numpy()
    lines = LineCollection(list(places[graph.ends.T.numpy()]), linewidths=3 * width, colors="0.3")
    axes.add_collection(lines)
    dots = axes.scatter(*places.T, c=pressure, s=6, cmap="viridis", zorder=3)
    figure.colorbar(dots, label="pressure, Pa")
    axes.set(xlabel="mm", ylabel="mm", aspect="equal")
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
