"""The baselines of the steady problems: how each is built, and its sizes and rates.

Sizes and learning rates at the budgets of `BUDGETS` are those that `tools/search.py` chose on
validation data; they are in chosen.json, beside this file.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor, nn

from chonn_ops.experiments import _steady_models as models
from chonn_ops.models.ffno import FFNO
from chonn_ops.models.galerkin import GalerkinTransformer
from chonn_ops.models.mgno import MgNO
from chonn_ops.models.transolver import Transolver

if TYPE_CHECKING:
    from chonn_ops.experiments._steady import SteadyConfig

# By hand, and as searched: at most so many parameters or multiply-adds, or so many seconds.
BY_HAND = ("smoke", "small", "paper")
BUDGETS = ("parameters", "multiply_adds", "seconds")
CHOSEN = Path(__file__).with_name("chosen.json")


class Neuralop(nn.Module):
    """A model of neuraloperator whose state is tensors alone, as checkpoints want it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.register_state_dict_post_hook(_without_metadata)

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)


def _without_metadata(_module: nn.Module, state: dict[str, Any], *_: Any) -> None:
    # neuraloperator puts the arguments of its models there; it takes the key for all prefixes.
    state.pop("_metadata", None)


def neuralop_fno(config: SteadyConfig) -> nn.Module:
    """neuraloperator's FNO, which adds the coordinates."""
    from neuralop.models import FNO

    return Neuralop(
        FNO(
            (config.modes, config.modes),
            models.in_channels(config),
            1,
            config.width,
            n_layers=config.depth,
            domain_padding=config.padding,
        )
    )


def uno(config: SteadyConfig) -> nn.Module:
    """neuraloperator's UNO in its Darcy example's shape: half the grid in the three middle layers,
    of twice the channels."""
    from neuralop.models import UNO

    width, wide = config.width, 2 * config.width
    with contextlib.redirect_stdout(io.StringIO()):  # it prints what skips it has
        model = UNO(
            models.in_channels(config),
            1,
            width,
            lifting_channels=2 * wide,
            projection_channels=2 * wide,
            n_layers=5,
            uno_out_channels=[width, wide, wide, wide, width],
            uno_n_modes=[[config.modes] * 2] * 5,
            uno_scalings=[[scale, scale] for scale in (1, 0.5, 1, 2, 1)],
            channel_mlp_skip="linear",
            domain_padding=config.padding,
        )
    return Neuralop(model)


def ffno(config: SteadyConfig) -> nn.Module:
    """Our F-FNO."""
    return FFNO(
        models.in_channels(config),
        width=config.width,
        depth=config.depth,
        modes=config.modes,
        padding=config.padding,
        shared_weights=config.shared_weights,
    )


def transolver(config: SteadyConfig) -> nn.Module:
    """Our Transolver."""
    sizes = {name: getattr(config, name) for name in ("width", "depth", "heads", "slices")}
    return Transolver(models.in_channels(config), **sizes)


def galerkin(config: SteadyConfig) -> nn.Module:
    """Our Galerkin Transformer."""
    sizes = {name: getattr(config, name) for name in ("width", "depth", "heads", "modes")}
    return GalerkinTransformer(models.in_channels(config), **sizes, coarsening=config.coarsening)


def mgno(config: SteadyConfig) -> nn.Module:
    """Our MgNO."""
    return MgNO(
        models.in_channels(config), width=config.width, depth=config.depth, levels=config.levels
    )


class Family(NamedTuple):
    """A kind of baseline.

    Attributes
    ----------
    label : str
    build : callable
    cost : float
        Seconds of a run relative to the other variants'.
    settings : mapping of str to mapping of str to value
        For each of `BY_HAND`, fields of the config; without, those of the config itself.
    """

    label: str
    build: Callable[[SteadyConfig], nn.Module]
    cost: float
    settings: Mapping[str, Mapping[str, Any]] = {}


# At "small", 67,000 to 75,000 parameters; at "paper", the sizes that the papers or the libraries'
# examples have for Darcy flow.
BASELINES: Mapping[str, Family] = {
    "unet": Family("U-Net", models.unet, 0.2),
    "fno": Family("FNO", models.fno, 0.45),
    "cno": Family("CNO", models.cno, 0.95),
    "fno-neuralop": Family(
        "FNO (neuraloperator)",
        neuralop_fno,
        0.5,
        {
            "smoke": {"width": 4, "depth": 2, "modes": 4, "padding": 0.125},
            "small": {
                "width": 11,
                "depth": 4,
                "modes": 16,
                "padding": 0.125,
                "learning_rate": 1e-2,
            },
            "paper": {"width": 64, "depth": 4, "modes": 32, "padding": 0.125},
        },
    ),
    "uno": Family(
        "UNO (neuraloperator)",
        uno,
        0.5,
        {
            "smoke": {"width": 2, "modes": 4},
            "small": {"width": 8, "modes": 10, "learning_rate": 1e-2},
            "paper": {"width": 32, "modes": 16},
        },
    ),
    "ffno": Family(
        "F-FNO",
        ffno,
        0.5,
        {
            "smoke": {"width": 4, "depth": 2, "modes": 4, "padding": 0.125},
            "small": {
                "width": 25,
                "depth": 4,
                "modes": 12,
                "padding": 0.125,
                "learning_rate": 1e-2,
            },
            "paper": {"width": 64, "depth": 24, "modes": 16, "padding": 0.125},
        },
    ),
    "transolver": Family(
        "Transolver",
        transolver,
        1.7,
        {
            "smoke": {"width": 4, "depth": 1, "heads": 2, "slices": 4},
            "small": {
                "width": 32,
                "depth": 3,
                "heads": 4,
                "slices": 32,
                "learning_rate": 5e-3,
            },
            "paper": {"width": 128, "depth": 8, "heads": 8, "slices": 64},
        },
    ),
    "galerkin": Family(
        "Galerkin Transformer",
        galerkin,
        1.1,
        {
            "smoke": {"width": 4, "depth": 1, "heads": 2, "modes": 4, "coarsening": 2},
            "small": {
                "width": 20,
                "depth": 3,
                "heads": 4,
                "modes": 6,
                "coarsening": 1,
                "learning_rate": 5e-3,
            },
            "paper": {"width": 128, "depth": 6, "heads": 4, "modes": 12, "coarsening": 3},
        },
    ),
    "mgno": Family(
        "MgNO",
        mgno,
        0.3,
        {
            "smoke": {"width": 2, "depth": 2, "levels": 3},
            "small": {"width": 13, "depth": 3, "levels": 5, "learning_rate": 5e-3},
            "paper": {"width": 24, "depth": 5, "levels": 6},
        },
    ),
}


def chosen(experiment: str, config: SteadyConfig) -> Mapping[str, Mapping[str, Any]]:
    """What the search chose for a config whose `sizes` is one of `BUDGETS`: fields by model.

    Raises
    ------
    ValueError
        Without a search at this budget, number of samples and resolution; names the command.
    """
    found = json.loads(CHOSEN.read_text(encoding="utf-8")).get(experiment, {})
    data = {"n_train": config.n_train, "resolution": config.resolution}
    for entry in found.get(config.sizes, []):
        if entry["data"] == data:
            return entry["models"]
    raise ValueError(
        f"sizes: expected a budget that was searched for {experiment} with {data}, got "
        f"{config.sizes!r}; tools/search.py searches it"
    )
