"""Models and a control of problems in three dimensions, for fields (B, 1, R, R, R)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from chonn_ops.experiments._families import Neuralop
from chonn_ops.experiments._steady_modules import PLAIN
from chonn_ops.experiments._steady_variants import RATES, Variants
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
    nodes, made = experiment.physics.nodes, Variants(experiment, config)
    batch = {"batch_size": config.baseline_batch_size}
    rates = {name: {"learning_rate": getattr(config, f"{name}_learning_rate")} for name in RATES}
    baselines = (
        ("unet", "U-Net", lambda c: CHONNUNet3d(1, 1, c.unet_features, ckb=PLAIN), rates["unet"]),
        ("fno", "FNO", lambda c: FNO3d(c.fno_modes, c.fno_width), rates["fno"]),
        ("fno-neuralop", "FNO (neuraloperator)", _neuralop, _NEURALOP[config.sizes]),
    )
    networks = (
        ("network", "CHONN network", "network", True),
        ("network-constant", "CHONN network of constant conductances", "control", False),
    )
    return (
        *(
            made.variant(name, label, build, 0.6, {**batch, **own}, family=name, role="baseline")
            for name, label, build, own in baselines
        ),
        *(
            made.variant(
                name,
                label,
                lambda c, selective=selective: _network(c, nodes, selective),
                1.0,
                made.of_network(),
                family="chonn",
                role=role,
            )
            for name, label, role, selective in networks
        ),
        Variant(
            "direct",
            "Direct solve",
            lambda _: DirectSolve3d(),
            {"family": "direct", "role": "control"},
            {**batch, "learning_rate": 1e-2},
            0.5,
        ),
    )
