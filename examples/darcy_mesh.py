"""Darcy flow on a triangle mesh with two holes: a circuit on the mesh beside message passing.

-div(k grad p) = 1 with p = 0 at all walls; k is 1 or 10 on each triangle, by the sign of a random
field. SciPy solves the training data (linear elements). Both models train for the same CPU time and
are also evaluated on a mesh with half the edge length. Their inputs are the mean over each node's
volume of k and of 1 / k. "Equation" solves the equation with the k that these means give a node.

    python examples/darcy_mesh.py --seconds 150
"""

import argparse
import time
from typing import NamedTuple

from chonn_plugins.openmp import sleep_while_waiting

sleep_while_waiting()  # before torch is imported

import numpy as np
import scipy.sparse as sparse
import torch
from scipy.sparse.linalg import spsolve
from scipy.spatial import Delaunay
from torch import Tensor, nn

from chonn_ops import CHONNNetwork2d, Dirichlet, FiniteVolumes

HOLES = ((0.3, 0.35, 0.12), (0.68, 0.7, 0.17))  # x, y, radius
LENGTH = 0.12  # of the random field
CONTRAST = 10.0
BATCH = 4


class Mesh(NamedTuple):
    points: np.ndarray
    triangles: np.ndarray
    volumes: FiniteVolumes


def mesh(n: int) -> Mesh:
    """A Delaunay mesh of the unit square without the holes, with edges of about 1 / n."""
    rng, side = np.random.default_rng(0), np.arange(n) / n
    zero, one = np.zeros(n), np.ones(n)
    loops = [
        np.concatenate(
            [np.c_[side, zero], np.c_[one, side], np.c_[1 - side, one], np.c_[zero, 1 - side]]
        )
    ]
    for x, y, radius in HOLES:
        turn = np.arange(round(2 * np.pi * radius * n)) / round(2 * np.pi * radius * n)
        angle = 2 * np.pi * turn
        loops.append(np.c_[x + radius * np.cos(angle), y + radius * np.sin(angle)])
    inner = np.stack(np.meshgrid(side[1:], side[1:]), -1).reshape(-1, 2)
    inner += rng.uniform(-0.25, 0.25, inner.shape) / n
    # No angle opposite to a wall is obtuse if no point is in the circle over a piece of a wall.
    middle = np.concatenate([(loop + np.roll(loop, -1, 0)) / 2 for loop in loops])
    clear = (np.hypot(*(inner[:, None] - middle).transpose(2, 0, 1)) > 0.6 / n).all(1)
    for x, y, radius in HOLES:
        clear &= np.hypot(inner[:, 0] - x, inner[:, 1] - y) > radius
    pieces = [*loops, inner[clear]]
    points = np.concatenate(pieces)
    triangles = Delaunay(points).simplices
    # Triangles with three corners on one hole are in it; those on one side are flat.
    piece = np.repeat(np.arange(len(pieces)), [len(piece) for piece in pieces])[triangles]
    in_hole = (piece == piece[:, :1]).all(1) & (piece[:, 0] > 0) & (piece[:, 0] < len(loops))
    a, b = (points[triangles[:, i]] - points[triangles[:, 0]] for i in (1, 2))
    flat = np.abs(a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]) < 1e-9
    triangles = triangles[~(in_hole | flat)]
    return Mesh(points, triangles, FiniteVolumes.from_cells(points, triangles))


def conductivity(mesh: Mesh, seed: int) -> np.ndarray:
    """k of each triangle, the same function of the position on every mesh."""
    rng = np.random.default_rng(seed)
    wave, phase = rng.standard_normal((2, 200)) / LENGTH, rng.uniform(0, 2 * np.pi, 200)
    centre = mesh.points[mesh.triangles].mean(1)
    return np.where(np.cos(centre @ wave + phase).sum(1) > 0, CONTRAST, 1.0)


def sample(mesh: Mesh, seed: int) -> tuple[Tensor, Tensor]:
    """Both means of k at the nodes (N, 2), and the pressure (N, 1)."""
    k, corners = conductivity(mesh, seed), mesh.points[mesh.triangles]
    edge = np.roll(corners, -1, 1) - np.roll(corners, 1, 1)  # opposite to each corner
    area = np.abs(edge[:, 0, 0] * edge[:, 1, 1] - edge[:, 0, 1] * edge[:, 1, 0]) / 2
    local = (k / (4 * area))[:, None, None] * edge @ edge.swapaxes(1, 2)
    count = len(mesh.points)
    rows, columns = np.repeat(mesh.triangles, 3, 1), np.tile(mesh.triangles, 3)
    stiffness = sparse.csr_array((local.ravel(), (rows.ravel(), columns.ravel())), (count, count))
    free = np.setdiff1d(np.arange(count), mesh.volumes.walls.node)
    pressure = np.zeros((count, 1))
    load = mesh.volumes.volume.numpy()
    matrix = stiffness[free][:, free].tocsc()
    pressure[free, 0] = np.asarray(spsolve(matrix, load[free]))
    part = np.repeat(area / 3, 3)
    means = [
        np.bincount(mesh.triangles.ravel(), part * np.repeat(value, 3)) / load
        for value in (k, 1 / k)
    ]
    return torch.tensor(np.stack(means, 1)).float(), torch.tensor(pressure).float()


def samples(mesh: Mesh, seeds: range) -> tuple[Tensor, Tensor]:
    inputs, outputs = zip(*(sample(mesh, seed) for seed in seeds), strict=True)
    return torch.stack(inputs), torch.stack(outputs)


class Messages(nn.Module):
    """Message passing along the edges, after Pfaff et al., "Learning mesh-based simulation with
    graph networks" (2021), at a size that trains in minutes."""

    def __init__(self, width: int = 32, depth: int = 10) -> None:
        super().__init__()
        self.lift, self.head = nn.Linear(6, width), nn.Linear(width, 1)

        def network(inputs: int) -> nn.Module:
            layers = nn.Linear(inputs, width), nn.GELU(), nn.Linear(width, width)
            return nn.Sequential(*layers, nn.LayerNorm(width))

        self.edges = nn.ModuleList(network(2 * width + 3) for _ in range(depth))
        self.nodes = nn.ModuleList(network(2 * width) for _ in range(depth))

    def forward(self, x: Tensor, *, volumes: FiniteVolumes) -> Tensor:
        start, end = torch.cat((volumes.graph.ends, volumes.graph.ends.flip(0)), 1)
        places = volumes.positions.float()
        step = 36 * (places[start] - places[end])
        step = torch.cat((step, step.norm(dim=1, keepdim=True)), 1).expand(len(x), -1, -1)
        h = self.lift(torch.cat((x, x.log(), places.expand(len(x), -1, -1)), -1))
        for edge, node in zip(self.edges, self.nodes, strict=True):
            message = edge(torch.cat((h[:, start], h[:, end], step), -1))
            received = torch.zeros_like(h).index_add(1, end, message)
            h = h + node(torch.cat((h, received), -1))
        return self.head(h)


def relative_error(found: Tensor, truth: Tensor) -> Tensor:
    return ((found - truth).abs().sum((1, 2)) / truth.abs().sum((1, 2))).mean()


def train(
    model: nn.Module,
    rate: float,
    x: Tensor,
    y: Tensor,
    volumes: FiniteVolumes,
    seconds: float,
) -> int:
    """Adam on the relative error for so much CPU time, its rate a cosine; the steps done."""
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    begin, step = time.process_time(), 0
    while (used := (time.process_time() - begin) / seconds) < 1:
        for group in optimizer.param_groups:
            group["lr"] = rate * (1 + np.cos(np.pi * used)) / 2
        batch = torch.randint(len(x), (BATCH,))
        loss = relative_error(model(x[batch], volumes=volumes), y[batch])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
    return step


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--resolution", type=int, default=36, help="edges a side")
    parser.add_argument("--samples", type=int, default=256, help="for training")
    parser.add_argument("--tests", type=int, default=64)
    parser.add_argument(
        "--seconds", type=float, default=150.0, help="CPU time of training, each model"
    )
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    coarse, fine = mesh(args.resolution), mesh(2 * args.resolution)
    x, y = samples(coarse, range(args.samples))
    scale = y.std()
    tests = [(m.volumes, *samples(m, range(10**6, 10**6 + args.tests))) for m in (coarse, fine)]
    graph = coarse.volumes.graph
    print(f"{graph.num_nodes} nodes, {graph.num_edges} edges; {args.samples} samples")
    errors = []
    for volumes, means, pressure in tests:
        k = (means[..., :1] + 1 / means[..., 1:]) / 2
        circuit = volumes.circuit(k, 0 * k, Dirichlet(), torch.tensor([0.5]))
        errors.append(relative_error(circuit.solve(torch.ones_like(k)), pressure))
    print(f"equation: relative L1 {errors[0]:.4f}, on the finer mesh {errors[1]:.4f}")
    for name, make, rate in (
        ("circuit", lambda: CHONNNetwork2d(2, 1), 1e-2),
        ("messages", Messages, 2e-3),
    ):
        torch.manual_seed(args.seed)
        model = make()
        if isinstance(model, CHONNNetwork2d):
            model.calibrate(x[:48], y[:48] / scale, volumes=coarse.volumes)
        steps = train(model, rate, x, y / scale, coarse.volumes, args.seconds)
        with torch.no_grad():
            errors = [
                relative_error(
                    torch.cat([model(part, volumes=volumes) for part in means.split(16)]) * scale,
                    pressure,
                )
                for volumes, means, pressure in tests
            ]
        size = sum(p.numel() for p in model.parameters())
        print(
            f"{name}: {size} parameters, {steps} steps, "
            f"relative L1 {errors[0]:.4f}, on the finer mesh {errors[1]:.4f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
