"""Darcy flow and heat on meshes: circuits, MeshGraphNet, Transolver and GINO.

The data set's card is the docstring of `chonn_lab.problems.meshes`. Nodes have the means of k and
of 1 / k over their volumes, and f where it varies; models of other packages get their logarithms,
coordinates and the area of walls, too.

Two controls are told the equation. `MeshScheme` solves what made the data. `NodeScheme` has what
the models have: the mesh, and one k a node, the mean of both means.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from chonn_lab.experiments.base import CALIBRATED, Data, Problem, Untrained, relative_l1
from chonn_lab.experiments.solvers import Physics
from chonn_lab.problems import meshes
from chonn_ops import Dirichlet, FiniteVolumes, Mesh, Robin
from chonn_ops.checks import check_choice

CPU = torch.device("cpu")
GRID = {2: 24, 3: 12}  # latent points an axis of GINO, which has a third as many modes


@dataclasses.dataclass
class OnMesh:
    """Samples (S, N, ...) on one mesh: inputs, further ones for models of other packages, outputs,
    and what the generator made."""

    x: Tensor
    extra: Tensor
    y: Tensor
    volumes: FiniteVolumes
    made: meshes.Samples
    # What a model makes of the mesh once.
    kept: dict[Any, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, samples: meshes.Samples) -> OnMesh:
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
        return cls(x, extra, torch.tensor(samples.u).float()[..., None], volumes, samples)

    def subset(self, which: Tensor) -> OnMesh:
        rows = {name: getattr(self, name)[which] for name in ("x", "extra", "y")}
        fields = {name: getattr(self.made, name)[which.numpy()] for name in "kfu"}
        return dataclasses.replace(self, **rows, made=self.made._replace(**fields))

    @property
    def places(self) -> Tensor:
        return self.volumes.positions.float()

    @property
    def fields(self) -> Tensor:
        """All inputs of other packages' models."""
        return torch.cat((self.x, self.extra), -1)


@dataclasses.dataclass(kw_only=True)
class Meshes(Problem):
    """Conductivity and source at the nodes of a mesh to the solution there.

    Samples of a batch are numbers, of a mesh and of a sample on it.
    """

    mesh: str  # of the card; with "domains", every sample has its own
    # Edges along a side of the unit square; 0 is that of the card.
    resolution: int  # pyright: ignore[reportIncompatibleVariableOverride]
    # Standard deviation of the solution, by `mesh`: the unit of the models' outputs.
    spread: dict[str, float]

    error: ClassVar[str] = "relative_l1"
    scored_at_once: ClassVar[int] = 8
    generator: ClassVar[Any] = meshes
    out_channels: ClassVar[int] = 1
    physics: ClassVar[Physics] = Physics("mesh", "centres")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("mesh", self.mesh, meshes.PROBLEMS)
        self.on: list[OnMesh] = []

    @property
    def axes(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return 3 if self.mesh == "part" else 2

    @property
    def in_channels(self) -> int:
        return self.axes  # the source, too, in space

    def wrap(self, model: nn.Module) -> nn.Module:
        if hasattr(model, "calibrate"):
            return OnVolumes(model)
        return model if isinstance(model, Untrained) else Scaled(model, self.spread[self.mesh])

    def calibrate(self, model: nn.Module, train: TensorDataset) -> None:
        """Samples of several meshes count as one of their union."""
        if isinstance(model, OnVolumes):
            chosen = self.chosen(train[:CALIBRATED])
            volumes = [on.volumes for on in chosen]
            x, y = (torch.cat(fields, 1) for fields in zip(*map(model.fields, chosen), strict=True))
            model.model.calibrate(x, y, volumes=FiniteVolumes.union(volumes))

    def laws(self) -> dict[str, dict[str, Any]]:
        points = self.resolution or meshes.RESOLUTION[self.mesh]
        return {"": {"problem": self.mesh, "resolution": points, **self.sizes}}

    def load(self, folder: Path) -> Data:
        (path,) = self.makers(folder)
        self.on, splits = [], {}
        for split in meshes.SPLITS:
            new = [OnMesh.of(samples) for samples in meshes.read(path, split)]
            numbers = [(len(self.on) + i, j) for i, on in enumerate(new) for j in range(len(on.x))]
            splits[split] = TensorDataset(*torch.tensor(numbers).unbind(1))
            self.on += new
        return Data(splits.pop("train"), splits.pop("validation"), splits)

    def chosen(self, batch: tuple[Tensor, ...]) -> list[OnMesh]:
        """The samples of a batch, mesh by mesh."""
        if batch[0].device != CPU:
            raise ValueError(f"device: expected cpu for problem={self.name}, got {batch[0].device}")
        mesh, sample = batch
        return [self.on[i].subset(sample[mesh == i]) for i in mesh.unique(sorted=True).tolist()]

    def errors(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        return torch.cat([relative_l1(model(on), on.y) for on in self.chosen(batch)])

    @property
    def scheme(self) -> type[MeshScheme]:
        return MeshScheme


class Scaled(nn.Module):
    """A model on meshes whose outputs have the data's units."""

    def __init__(self, model: nn.Module, spread: float) -> None:
        super().__init__()
        self.model, self.spread = model, spread

    def forward(self, on: OnMesh) -> Tensor:
        return self.spread * self.model(on)


class OnVolumes(nn.Module):
    """The model of one circuit on a mesh; it takes the units of the data itself.

    Its inputs are the arithmetic and the harmonic mean of k, which grow with k, and f.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, on: OnMesh) -> Tensor:
        return self.model(self.fields(on)[0], volumes=on.volumes)

    def fields(self, on: OnMesh) -> tuple[Tensor, Tensor]:
        """Inputs and outputs."""
        x = on.x
        return torch.cat((x[..., :1], 1 / x[..., 1:2], x[..., 2:]), -1), on.y


class MeshScheme(Untrained):
    """The data's scheme."""

    def forward(self, on: OnMesh) -> Tensor:
        shape, k, f, _ = on.made
        u = [meshes.solve(shape, *fields) for fields in zip(k, f, strict=True)]
        return torch.tensor(np.stack(u)).to(on.y)[..., None]


class NodeScheme(Untrained):
    """The equation with the models' inputs."""

    def __init__(self, problem: Meshes) -> None:
        super().__init__()
        self.solid = problem.axes == 3

    def forward(self, on: OnMesh) -> Tensor:
        k = (on.x[..., :1] + 1 / on.x[..., 1:2]) / 2
        f = on.x[..., 2:3] if self.solid else torch.ones_like(k)
        walls = Robin(meshes.TRANSFER) if self.solid else Dirichlet()
        return on.volumes.circuit(k, 0 * k, walls, torch.tensor([0.5])).solve(f)


class MeshGraphNet(nn.Module):
    """PhysicsNeMo's, on copies of the mesh; needs torch_geometric and torch_scatter, too."""

    def __init__(self, problem: Meshes, width: int, depth: int) -> None:
        super().__init__()
        from physicsnemo.models.meshgraphnet import MeshGraphNet as Model

        parts = ("processor", "node_encoder", "edge_encoder", "node_decoder")
        hidden = {f"hidden_dim_{part}": width for part in parts}
        nodes, edges = 2 * problem.in_channels + 1 + problem.axes, problem.axes + 1
        self.model = Model(nodes, edges, 1, processor_size=depth, **hidden)

    def forward(self, on: OnMesh) -> Tensor:
        from torch_geometric.data import Data as Graph

        B, N, _ = on.x.shape
        ends = on.volumes.graph.ends
        ends = torch.cat((ends, ends.flip(0)), 1)
        step = 36 * (on.places[ends[0]] - on.places[ends[1]])
        step = torch.cat((step, step.norm(dim=1, keepdim=True)), 1).repeat(B, 1)
        copies = (ends[:, None] + N * torch.arange(B)[:, None]).flatten(1)
        graph = Graph(edge_index=copies, num_nodes=B * N)
        nodes = torch.cat((on.fields, on.places.expand(B, -1, -1)), -1).flatten(0, 1)
        return self.model(nodes, step, graph).view(B, N, 1)


class Transolver(nn.Module):
    """PhysicsNeMo's."""

    def __init__(self, problem: Meshes, width: int, depth: int) -> None:
        super().__init__()
        from physicsnemo.models.transolver import Transolver as Model

        sizes = {"n_layers": depth, "n_hidden": width, "mlp_ratio": 2}
        self.model = Model(2 * problem.in_channels + 1, 1, problem.axes, use_te=False, **sizes)

    def forward(self, on: OnMesh) -> Tensor:
        return self.model(on.fields, on.places.expand(len(on.x), -1, -1))


class GINO(nn.Module):
    """neuraloperator's, with the distance to the mesh on its grid."""

    def __init__(self, problem: Meshes, width: int, depth: int) -> None:
        super().__init__()
        from neuralop.models import GINO as Model

        axes, fields = problem.axes, 2 * problem.in_channels + 1
        points = GRID[axes]
        self.model = Model(
            fields,
            1,
            latent_feature_channels=1,
            gno_coord_dim=axes,
            in_gno_radius=1.5 / points,
            out_gno_radius=1.5 / points,
            fno_in_channels=fields,
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
        self.kept: dict[Any, Any] = {}
        for gno in (self.model.gno_in, self.model.gno_out):
            search: Any = gno.neighbor_search
            search.forward = functools.partial(self._once, search.forward)
        side = [torch.linspace(0, 1, points)] * axes
        self.grid = torch.stack(torch.meshgrid(*side, indexing="ij"), -1)

    def forward(self, on: OnMesh) -> Tensor:
        places, self.kept = on.places, on.kept
        distance = torch.cdist(self.grid.flatten(0, -2), places).amin(1)
        distance = distance.view(1, *self.grid.shape[:-1], 1)
        return self.model(places[None], self.grid[None], places[None], on.fields, distance)

    def _once(self, search: Callable[..., Any], **arguments: Tensor) -> Any:
        """The neighbours on a mesh, which the original searches anew in every step."""
        if search not in self.kept:
            self.kept[search] = search(**arguments)
        return self.kept[search]
