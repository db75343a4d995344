"""Models on meshes at equal CPU seconds: circuits, MeshGraphNet, Transolver and GINO.

Data are those of `chonn_lab.problems.meshes`. Every model is trained on the relative L1 error as
`equal_seconds` says; a trial has a third of the seconds. MeshGraphNet and Transolver are
PhysicsNeMo's, GINO is neuraloperator's. Nodes have the means of k and of 1 / k over their volumes,
and f where it varies; all but the circuits, whose meshes have these, get logarithms, coordinates
and the area of walls beside.

Two controls are told the equation. "scheme" solves what made the data. "equation" has what the
models have: the mesh, and one k a node, the mean of both means.

    python -m chonn_lab.studies.meshes --problem holes --data folder --seconds 60 --seeds 0 1 2
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from chonn_lab.baselines.fields import count_parameters
from chonn_lab.problems import meshes
from chonn_lab.studies import equal_seconds
from chonn_lab.studies.equal_seconds import BATCHES, adamw
from chonn_ops import CHONNNetwork2d, CHONNNetwork3d, Dirichlet, FiniteVolumes, Mesh, Robin

TRAINED, FINER = "test", "test_fine"
SIZES = {
    "circuits": ((16, 24, 32), (1, 2, 3)),
    "MeshGraphNet": ((16, 32, 64), (4, 8, 12)),
    "Transolver": ((32, 64, 128), (2, 4, 6)),
    "GINO": ((16, 32, 48), (2, 3, 4)),
}
GRID = {2: 24, 3: 12}  # latent points an axis of GINO, which has a third as many modes


@dataclasses.dataclass
class Domains:
    """Samples (S, N, ...) on one mesh, or one sample on the union of several.

    `x` are the inputs of all models, `extra` further ones of the baselines, `y` the outputs, and
    `parts` are the nodes of each mesh.
    """

    x: Tensor
    extra: Tensor
    y: Tensor
    volumes: FiniteVolumes
    parts: list[slice]
    # What a baseline makes of the mesh once.
    kept: dict[Any, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, samples: meshes.Samples) -> Domains:
        shape = samples.shape
        mesh = Mesh(shape.points, shape.cells, sets={"wall": shape.wall})
        area = mesh.area["wall"]
        node = area.nonzero()[:, 0]
        walls = (node, area[node], torch.zeros(len(node)))
        volumes = FiniteVolumes(mesh.edges, mesh.weight, mesh.volume, mesh.points, walls)
        d = shape.points.shape[1]
        part = np.repeat(meshes.sizes(shape.points[shape.cells]) / (d + 1), d + 1)
        nodes, total = shape.cells.ravel(), np.bincount(shape.cells.ravel(), part)

        def mean(k: np.ndarray) -> np.ndarray:
            return np.bincount(nodes, part * np.repeat(k, d + 1)) / total

        fields = [
            [mean(k), mean(1 / k)] + ([f] if d == 3 else [])
            for k, f in zip(samples.k, samples.f, strict=True)
        ]
        x = torch.tensor(np.stack(fields)).float().movedim(1, 2)
        # Area of walls over the volume, times its length, does not depend on the resolution.
        exposed = (area / mesh.volume ** ((d - 1) / d)).float()[:, None]
        extra = torch.cat((x.log(), exposed.expand(len(x), -1, -1)), -1)
        y = torch.tensor(samples.u).float()[..., None]
        return cls(x, extra, y, volumes, [slice(0, len(shape.points))])

    @classmethod
    def union(cls, domains: Sequence[Domains]) -> Domains:
        x, extra, y = (
            torch.cat([getattr(d, name) for d in domains], 1) for name in ("x", "extra", "y")
        )
        ends = np.cumsum([0] + [d.x.shape[1] for d in domains]).tolist()
        parts = [slice(*pair) for pair in itertools.pairwise(ends)]
        return cls(x, extra, y, FiniteVolumes.union([d.volumes for d in domains]), parts)

    def subset(self, which: Tensor) -> Domains:
        x, extra, y = (field[which] for field in (self.x, self.extra, self.y))
        return dataclasses.replace(self, x=x, extra=extra, y=y)

    def errors(self, prediction: Tensor, scale: float = 1.0) -> Tensor:
        """Relative L1 errors of all samples, each on its own mesh."""
        error = (prediction * scale - self.y).abs()
        sums = [[field[:, at].sum((1, 2)) for field in (error, self.y.abs())] for at in self.parts]
        return torch.cat([e / y for e, y in sums])

    @property
    def places(self) -> Tensor:
        return self.volumes.positions.float()

    @property
    def fields(self) -> Tensor:
        """All inputs of the baselines."""
        return torch.cat((self.x, self.extra), -1)


class Circuits(nn.Module):
    """`CHONNNetwork2d` or `CHONNNetwork3d` on the mesh, or on the union of meshes."""

    def __init__(self, inputs: int, axes: int, width: int, depth: int) -> None:
        super().__init__()
        kind = CHONNNetwork2d if axes == 2 else CHONNNetwork3d
        self.model = kind(inputs, 1, width, depth)

    def forward(self, samples: Domains) -> Tensor:
        return self.model(samples.x, volumes=samples.volumes)


class MeshGraphNet(nn.Module):
    """PhysicsNeMo's, on copies of the mesh."""

    def __init__(self, inputs: int, axes: int, width: int, depth: int) -> None:
        super().__init__()
        from physicsnemo.models.meshgraphnet import MeshGraphNet as Model

        hidden = {
            f"hidden_dim_{part}": width
            for part in ("processor", "node_encoder", "edge_encoder", "node_decoder")
        }
        self.model = Model(2 * inputs + 1 + axes, axes + 1, 1, processor_size=depth, **hidden)

    def forward(self, samples: Domains) -> Tensor:
        from torch_geometric.data import Data

        B, N, _ = samples.x.shape
        if B not in samples.kept:
            ends = samples.volumes.graph.ends
            ends = torch.cat((ends, ends.flip(0)), 1)
            step = 36 * (samples.places[ends[0]] - samples.places[ends[1]])
            step = torch.cat((step, step.norm(dim=1, keepdim=True)), 1).repeat(B, 1)
            copies = (ends[:, None] + N * torch.arange(B)[:, None]).flatten(1)
            samples.kept[B] = Data(edge_index=copies, num_nodes=B * N), step
        graph, step = samples.kept[B]
        nodes = torch.cat((samples.fields, samples.places.expand(B, -1, -1)), -1).flatten(0, 1)
        return self.model(nodes, step, graph).view(B, N, 1)


class Transolver(nn.Module):
    """PhysicsNeMo's, on one mesh after the other."""

    def __init__(self, inputs: int, axes: int, width: int, depth: int) -> None:
        super().__init__()
        from physicsnemo.models.transolver import Transolver as Model

        self.model = Model(
            2 * inputs + 1, 1, axes, n_layers=depth, n_hidden=width, mlp_ratio=2, use_te=False
        )

    def forward(self, samples: Domains) -> Tensor:
        x = samples.fields
        places = samples.places.expand(len(x), -1, -1)
        return torch.cat([self.model(x[:, at], places[:, at]) for at in samples.parts], 1)


class Kept(nn.Module):
    """A search that is done once for each list `found`."""

    def __init__(self, search: nn.Module) -> None:
        super().__init__()
        self.search, self.found = search, []

    def forward(self, **arguments: Any) -> Any:
        if not self.found:
            self.found.append(self.search(**arguments))
        return self.found[0]


class GINO(nn.Module):
    """neuraloperator's, on one mesh after the other, with the distance to the mesh on its grid."""

    def __init__(self, inputs: int, axes: int, width: int, depth: int) -> None:
        super().__init__()
        from neuralop.models import GINO as Model

        points = GRID[axes]
        self.model = Model(
            2 * inputs + 1,
            1,
            latent_feature_channels=1,
            gno_coord_dim=axes,
            in_gno_radius=1.5 / points,
            out_gno_radius=1.5 / points,
            fno_in_channels=2 * inputs + 1,
            fno_n_modes=(points // 3,) * axes,
            fno_hidden_channels=width,
            fno_n_layers=depth,
            gno_embed_channels=8,
            in_gno_transform_type="nonlinear",
            in_gno_channel_mlp_hidden_layers=[32, 32],
            out_gno_channel_mlp_hidden_layers=[32, 32],
            gno_use_open3d=False,
            gno_use_torch_scatter=find_spec("torch_scatter") is not None,
        )
        # The original searches the neighbours of all points anew in every step.
        self.neighbours = []
        for gno in (self.model.gno_in, self.model.gno_out):
            self.neighbours.append(Kept(gno.neighbor_search))
            setattr(gno, "neighbor_search", self.neighbours[-1])  # noqa: B010 - of another type
        side = [torch.linspace(0, 1, points)] * axes
        self.grid = torch.stack(torch.meshgrid(*side, indexing="ij"), -1)

    def forward(self, samples: Domains) -> Tensor:
        x, every, out = samples.fields, samples.places, []
        for at in samples.parts:
            places = every[at]
            if at.start not in samples.kept:
                distance = torch.cdist(self.grid.flatten(0, -2), places).amin(1)
                samples.kept[at.start] = distance.view(1, *self.grid.shape[:-1], 1)
            for number, search in enumerate(self.neighbours):
                search.found = samples.kept.setdefault((at.start, number), [])
            given = x[:, at], samples.kept[at.start]
            out.append(self.model(places[None], self.grid[None], places[None], *given))
        return torch.cat(out, 1)


MODELS: dict[str, Callable[[int, int, int, int], nn.Module]] = {
    "circuits": Circuits,
    "MeshGraphNet": MeshGraphNet,
    "Transolver": Transolver,
    "GINO": GINO,
}
PACKAGES = {"nvidia-physicsnemo": {"MeshGraphNet", "Transolver"}, "neuraloperator": {"GINO"}}


@torch.no_grad()
def test(model: nn.Module, splits: Sequence[Domains], scale: float) -> float:
    """The mean relative L1 error over all samples."""
    errors = [
        samples.subset(which).errors(model(samples.subset(which)), scale)
        for samples in splits
        for which in torch.arange(len(samples.x)).split(8)
    ]
    return torch.cat(errors).mean().item()


class Study(equal_seconds.Study):
    """Data of a problem, and the runs of its models."""

    def __init__(self, path: Path, seconds: float) -> None:
        super().__init__(SIZES, 1 / 3, seconds)
        samples = {split: meshes.read(path, split) for split in meshes.SPLITS}
        self.samples = samples[TRAINED]
        self.splits = {split: [Domains.of(s) for s in found] for split, found in samples.items()}
        train = self.splits["train"]
        self.scale = torch.cat([d.y.flatten() for d in train]).std().item()
        # Several meshes are put together once, not in every step.
        self.batches = {
            size: train
            if len(train) == 1
            else [Domains.union(train[i : i + size]) for i in range(0, len(train), size)]
            for size in BATCHES
        }
        self.axes, self.inputs = train[0].places.shape[1], train[0].x.shape[-1]

    def trained(
        self, model: str, settings: dict[str, Any], seed: int, seconds: float
    ) -> tuple[nn.Module, int]:
        """One mesh with all samples gives random ones of them, several meshes give one batch."""
        torch.manual_seed(seed)
        made = MODELS[model](self.inputs, self.axes, settings["width"], settings["depth"])
        size = settings["batch"]
        batches = self.batches[size]

        def loss() -> Tensor:
            samples = batches[int(torch.randint(len(batches), ()))]
            if len(samples.x) > size:
                samples = samples.subset(torch.randperm(len(samples.x))[:size])
            return samples.errors(made(samples), self.scale).mean()

        return made, equal_seconds.train(adamw(made, settings["rate"]), loss, seconds)

    def validate(self, made: nn.Module) -> float:
        return test(made, self.splits["validation"], self.scale)

    def test(self, made: nn.Module) -> dict[str, Any]:
        errors = {name: test(made, self.splits[name], self.scale) for name in (TRAINED, FINER)}
        return {"parameters": count_parameters(made), "errors": errors}

    def controls(self) -> dict[str, Any]:
        """Errors of the equation with the models' inputs, and seconds a sample of the scheme."""
        errors = {}
        for name in (TRAINED, FINER):
            found = []
            for domains in self.splits[name]:
                k = (domains.x[..., :1] + 1 / domains.x[..., 1:2]) / 2
                f = domains.x[..., 2:3] if self.axes == 3 else torch.ones_like(k)
                walls = Robin(meshes.TRANSFER) if self.axes == 3 else Dirichlet()
                circuit = domains.volumes.circuit(k, 0 * k, walls, torch.tensor([0.5]))
                found.append(domains.errors(circuit.solve(f)))
            errors[name] = torch.cat(found).mean().item()
        begin, solved = time.process_time(), []
        for mesh in self.samples:
            for k, f, u in zip(mesh.k[:8], mesh.f[:8], mesh.u[:8], strict=True):
                again = meshes.solve(mesh.shape, k, f, meshes.TRANSFER if self.axes == 3 else None)
                solved.append(np.abs(again - u).sum() / np.abs(u).sum())
        seconds = (time.process_time() - begin) / len(solved)
        return {"equation": errors, "scheme": {"error": float(np.mean(solved)), "seconds": seconds}}


def main(arguments: list[str] | None = None) -> None:
    parser = equal_seconds.arguments(__doc__, meshes.SIZES, MODELS, "meshes_")
    parser.add_argument("--resolution", type=int, default=0)
    args = parser.parse_args(arguments)
    path = args.data / f"meshes_{args.problem}.h5"
    settings = {
        "resolution": args.resolution or meshes.RESOLUTION[args.problem],
        "fraction": args.fraction,
    }
    make = functools.partial(meshes.generate, path, args.problem, **settings)
    equal_seconds.make_data(path, make, **settings)
    packages = [name for name, models in PACKAGES.items() if not models.isdisjoint(args.models)]
    equal_seconds.carry_out("meshes", args, path, packages, lambda: Study(path, args.seconds))


if __name__ == "__main__":
    main()
