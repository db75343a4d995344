"""Models and a control of problems in three dimensions, for fields (B, 1, R, R, R)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from chonn_ops.experiments._families import Neuralop
from chonn_ops.experiments._steady_modules import PLAIN, Standardized
from chonn_ops.experiments.base import Variant
from chonn_ops.models import CHONNFNO3d, CHONNNetwork3d, CHONNUNet3d
from chonn_ops.network import edge_conductance, kirchhoff_network
from chonn_ops.network._conductance import end_walls
from chonn_ops.nn import CKBOptions

if TYPE_CHECKING:
    from chonn_ops.experiments._steady import SteadyConfig, SteadyExperiment

_TOLERANCE = 1e-6


class FNO3d(nn.Module):
    """PDEBench's plain FNO with channels first; adds the coordinates."""

    def __init__(self, modes: int, width: int) -> None:
        super().__init__()
        self.model = CHONNFNO3d(1, modes, modes, modes, width, initial_step=1, ckb=PLAIN)

    def forward(self, x: Tensor) -> Tensor:
        axes = [torch.linspace(0, 1, n, dtype=x.dtype, device=x.device) for n in x.shape[2:]]
        grid = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)
        y = self.model(x.movedim(1, -1), grid.expand(len(x), -1, -1, -1, -1))
        return y.squeeze(-2).movedim(-1, 1)


class DirectSolve3d(nn.Module):
    """Finite volumes on the input's own cells, harmonic means at faces, u = 0 at the walls; the
    size of the source is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.size = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        k = x.movedim(1, -1)
        steps = [1 / n for n in k.shape[1:-1]]
        leak = end_walls(k, steps, [True] * len(steps), None)
        source = torch.full_like(k, math.prod(steps))
        v = kirchhoff_network(source, edge_conductance(k, steps), leak, tol=_TOLERANCE)
        return self.size * v.movedim(-1, 1)


def _network(config: SteadyConfig, nodes: str, selective: bool = True) -> nn.Module:
    options = CKBOptions(cell="network", networks=config.networks, nodes=nodes, selective=selective)
    return CHONNNetwork3d(width=config.network_width, depth=config.network_depth, ckb=options)


def _neuralop(config: SteadyConfig) -> nn.Module:
    """neuraloperator's FNO, which adds the coordinates."""
    from neuralop.models import FNO

    model = FNO(
        (config.modes,) * 3,
        1,
        1,
        config.width,
        n_layers=config.depth,
        domain_padding=config.padding,
    )
    return Neuralop(model)


_NEURALOP = {
    "smoke": {"width": 4, "depth": 2, "modes": 4, "padding": 0.125},
    "small": {"width": 10, "depth": 4, "modes": 6, "padding": 0.125, "learning_rate": 1e-2},
    "paper": {"width": 32, "depth": 4, "modes": 16, "padding": 0.125},
}


def variants3d(experiment: SteadyExperiment[Any], config: SteadyConfig) -> tuple[Variant[Any], ...]:
    """U-Net, both FNOs, networks, networks of constant conductances, and the direct solve.

    Raises
    ------
    ValueError
        For the sizes of a search, which there is not in three dimensions.
    """
    if config.sizes not in _NEURALOP:
        raise ValueError(f"sizes: expected one of {tuple(_NEURALOP)}, got {config.sizes!r}")
    nodes = experiment.physics.nodes

    def variant(
        name: str,
        label: str,
        build: Callable[[SteadyConfig], nn.Module],
        cost: float,
        changes: dict[str, Any],
        **tags: Any,
    ) -> Variant[Any]:
        def scaled(own: SteadyConfig) -> nn.Module:
            return Standardized(build(own), experiment.units_of(own))

        return Variant(name, label, scaled, tags, changes, cost)

    def rate(name: str) -> dict[str, Any]:
        return {
            "batch_size": config.baseline_batch_size,
            "learning_rate": getattr(config, f"{name}_learning_rate"),
        }

    batch = {"batch_size": config.baseline_batch_size}
    own = {**rate("network"), "batch_size": config.network_batch_size}
    direct = Variant(
        "direct",
        "Direct solve",
        lambda _: DirectSolve3d(),
        {"family": "direct", "role": "control"},
        {**batch, "learning_rate": 1e-2},
        0.5,
    )
    return (
        variant(
            "unet",
            "U-Net",
            lambda c: CHONNUNet3d(1, 1, c.unet_features, ckb=PLAIN),
            0.4,
            rate("unet"),
            family="unet",
            role="baseline",
        ),
        variant(
            "fno",
            "FNO",
            lambda c: FNO3d(c.fno_modes, c.fno_width),
            0.6,
            rate("fno"),
            family="fno",
            role="baseline",
        ),
        variant(
            "fno-neuralop",
            "FNO (neuraloperator)",
            _neuralop,
            0.8,
            {**batch, **_NEURALOP[config.sizes]},
            family="fno-neuralop",
            role="baseline",
        ),
        variant(
            "network",
            "CHONN network",
            lambda c: _network(c, nodes),
            1.0,
            own,
            family="chonn",
            role="network",
            order=1,
            depth=config.network_depth,
        ),
        variant(
            "network-constant",
            "CHONN network of constant conductances",
            lambda c: _network(c, nodes, selective=False),
            0.9,
            own,
            family="chonn",
            role="control",
        ),
        direct,
    )
