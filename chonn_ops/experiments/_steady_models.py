"""The models that the steady problems compare, for fields (B, 1, \\*grid): how each is built, and
the baselines' sizes and rates.

Sizes and learning rates at the budgets of `BUDGETS` are those that `tools/search.py` chose on
validation data; they are in chosen.json, beside this file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import nn

from chonn_ops.experiments._modules import PLAIN, GridFNO, Neuralop
from chonn_ops.experiments._steady_controls import NoCell
from chonn_ops.models import (
    CHONNFNO2d,
    CHONNFNO3d,
    CHONNNetwork2d,
    CHONNNetwork3d,
    CHONNUNet2d,
    CHONNUNet3d,
)
from chonn_ops.models.cno import CNOUNet
from chonn_ops.models.ffno import FFNO
from chonn_ops.models.galerkin import GalerkinTransformer
from chonn_ops.models.mgno import MgNO
from chonn_ops.models.mixer import CHONNMixer2d
from chonn_ops.models.stack import count_parameters
from chonn_ops.models.transolver import Transolver
from chonn_ops.nn import CKB, CKBOptions
from chonn_ops.problems.domains import SQUARE

if TYPE_CHECKING:
    from chonn_ops.experiments._steady import SteadyConfig

# By hand, and as searched: at most so many parameters or multiply-adds, or so many seconds.
BY_HAND = ("smoke", "small", "paper")
BUDGETS = ("parameters", "multiply_adds", "seconds")
# Fields of the config that are sizes of these models, each of those that it has.
FAMILY_SIZES = (
    *("width", "depth", "heads", "slices", "modes", "levels"),
    *("coarsening", "padding", "shared_weights"),
)
CHOSEN = Path(__file__).with_name("chosen.json")


def in_channels(config: SteadyConfig) -> int:
    """The field and, on a part of the square, the mask."""
    return 1 if config.domain == SQUARE else 2


def unet(config: SteadyConfig) -> nn.Module:
    """PDEBench's plain U-Net."""
    kind = CHONNUNet3d if config.axes == 3 else CHONNUNet2d
    return kind(in_channels(config), 1, config.unet_features, ckb=PLAIN)


def fno(config: SteadyConfig) -> nn.Module:
    """PDEBench's plain FNO."""
    kind: Any = CHONNFNO3d if config.axes == 3 else CHONNFNO2d
    modes = (config.fno_modes,) * config.axes
    # As frames: channels are the same in and out.
    return GridFNO(kind(1, *modes, config.fno_width, initial_step=in_channels(config), ckb=PLAIN))


def neuralop_fno(config: SteadyConfig) -> nn.Module:
    """neuraloperator's FNO, which adds the coordinates."""
    from neuralop.models import FNO

    return Neuralop(
        FNO(
            (config.modes,) * config.axes,
            in_channels(config),
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
            in_channels(config),
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


def _own(kind: type[nn.Module]) -> Callable[[SteadyConfig], nn.Module]:
    """One of our implementations of a published model, of the sizes that it has."""
    sizes = [name for name in FAMILY_SIZES if name in inspect.signature(kind).parameters]
    return lambda config: kind(in_channels(config), **{n: getattr(config, n) for n in sizes})


def network(
    config: SteadyConfig, nodes: str, *, width: int | None = None, selective: bool = True
) -> nn.Module:
    """Networks as the only coupling between points, on every point of the grid."""
    kind = CHONNNetwork3d if config.axes == 3 else CHONNNetwork2d
    return kind(
        width=config.network_width if width is None else width,
        depth=config.network_depth,
        ckb=CKBOptions(cell="network", networks=config.networks, nodes=nodes, selective=selective),
    )


def without_cells(config: SteadyConfig, nodes: str) -> nn.Module:
    """The network model with its norms, convolutions, gates and residuals, and nothing solved; as
    wide as gives it the network's parameters."""

    def build(width: int) -> nn.Module:
        model = network(config, nodes, width=width)
        for block in model.modules():
            if isinstance(block, CKB):
                for place, cell in enumerate(block.cells):
                    block.cells[place] = NoCell(cast("int", cell.dim), cast("int", cell.networks))
        return model

    return _of_equal_size(build, config, nodes)


def constant_conductances(config: SteadyConfig, nodes: str) -> nn.Module:
    """The network model with conductances and leaks that do not depend on the input; as wide as
    gives it the network's parameters."""
    return _of_equal_size(
        lambda width: network(config, nodes, width=width, selective=False), config, nodes
    )


def _of_equal_size(
    build: Callable[[int], nn.Module], config: SteadyConfig, nodes: str
) -> nn.Module:
    """The model of the width from the network's upwards whose parameters are nearest to its."""
    first = config.network_width
    with torch.device("meta"):
        wanted = count_parameters(network(config, nodes))
        sizes = {
            width: abs(count_parameters(build(width)) - wanted)
            for width in range(first, first + 2 + first // 4)
        }
    return build(min(sizes, key=lambda width: sizes[width]))


def backbone(config: SteadyConfig, n_layers: int, n_res_neck: int, order: int) -> nn.Module:
    """The paper's CHONN: a CNO with CKBs in its deepest stages."""
    return CNOUNet(
        in_channels(config),
        n_layers=n_layers,
        n_res=config.n_res,
        n_res_neck=n_res_neck,
        channel_multiplier=config.channel_multiplier,
        latent=config.latent,
        ckb=_block(config, order),
        stages=config.stages or None,
    )


def mixer(config: SteadyConfig, depth: int, order: int, **block: Any) -> nn.Module:
    """CKBs as the only coupling between patches.

    Without a norm in them, unless `block` has it: one over the field hides the amplitude, in which
    Poisson's operator is linear. It doubled the error out of distribution, and changed none on
    Darcy flow.
    """
    return CHONNMixer2d(
        in_channels(config),
        width=config.mixer_width,
        depth=depth,
        patch=config.mixer_patch,
        ckb=dataclasses.replace(_block(config, order), **{"norm": "none", **block}),
    )


def _block(config: SteadyConfig, order: int) -> CKBOptions:
    return CKBOptions(order=order, d_state=config.d_state, selective_norm=config.selective_norm)


class Family(NamedTuple):
    """A kind of baseline.

    Attributes
    ----------
    label : str
    build : callable
    cost : float
        Seconds of a run relative to the other variants'.
    """

    label: str
    build: Callable[[SteadyConfig], nn.Module]
    cost: float


BASELINES: Mapping[str, Family] = {
    "unet": Family("U-Net", unet, 0.2),
    "fno": Family("FNO", fno, 0.45),
    "cno": Family("CNO", lambda c: backbone(c, c.cno_layers, c.cno_res_neck, 0), 0.95),
    "fno-neuralop": Family("FNO (neuraloperator)", neuralop_fno, 0.5),
    "uno": Family("UNO (neuraloperator)", uno, 0.5),
    "ffno": Family("F-FNO", _own(FFNO), 0.5),
    "transolver": Family("Transolver", _own(Transolver), 1.7),
    "galerkin": Family("Galerkin Transformer", _own(GalerkinTransformer), 1.1),
    "mgno": Family("MgNO", _own(MgNO), 0.3),
}
_FAST, _SLOW = {"learning_rate": 1e-2}, {"learning_rate": 5e-3}
# Fields of the config by hand, by model and number of axes. At "small", 67,000 to 75,000
# parameters; at "paper", the sizes that the papers or the libraries' examples have for Darcy flow.
SIZES: Mapping[tuple[str, int], Mapping[str, Mapping[str, Any]]] = {
    ("fno-neuralop", 2): {
        "smoke": {"width": 4, "depth": 2, "modes": 4, "padding": 0.125},
        "small": {"width": 11, "depth": 4, "modes": 16, "padding": 0.125, **_FAST},
        "paper": {"width": 64, "depth": 4, "modes": 32, "padding": 0.125},
    },
    ("uno", 2): {
        "smoke": {"width": 2, "modes": 4},
        "small": {"width": 8, "modes": 10, **_FAST},
        "paper": {"width": 32, "modes": 16},
    },
    ("ffno", 2): {
        "smoke": {"width": 4, "depth": 2, "modes": 4, "padding": 0.125},
        "small": {"width": 25, "depth": 4, "modes": 12, "padding": 0.125, **_FAST},
        "paper": {"width": 64, "depth": 24, "modes": 16, "padding": 0.125},
    },
    ("transolver", 2): {
        "smoke": {"width": 4, "depth": 1, "heads": 2, "slices": 4},
        "small": {"width": 32, "depth": 3, "heads": 4, "slices": 32, **_SLOW},
        "paper": {"width": 128, "depth": 8, "heads": 8, "slices": 64},
    },
    ("galerkin", 2): {
        "smoke": {"width": 4, "depth": 1, "heads": 2, "modes": 4, "coarsening": 2},
        "small": {"width": 20, "depth": 3, "heads": 4, "modes": 6, "coarsening": 1, **_SLOW},
        "paper": {"width": 128, "depth": 6, "heads": 4, "modes": 12, "coarsening": 3},
    },
    ("mgno", 2): {
        "smoke": {"width": 2, "depth": 2, "levels": 3},
        "small": {"width": 13, "depth": 3, "levels": 5, **_SLOW},
        "paper": {"width": 24, "depth": 5, "levels": 6},
    },
    ("fno-neuralop", 3): {
        "smoke": {"width": 4, "depth": 2, "modes": 4, "padding": 0.125},
        "small": {"width": 10, "depth": 4, "modes": 6, "padding": 0.125, **_FAST},
        "paper": {"width": 32, "depth": 4, "modes": 16, "padding": 0.125},
    },
}


def searches() -> Mapping[str, Any]:
    """What `CHOSEN` holds: by problem and budget the searches, one for each size of the data."""
    return json.loads(CHOSEN.read_text(encoding="utf-8"))


def chosen(config: SteadyConfig, *experiments: str) -> Mapping[str, Mapping[str, Any]]:
    """What the search chose for a config whose `sizes` is one of `BUDGETS`: fields by model.

    Parameters
    ----------
    config : SteadyConfig
    *experiments : str
        Whose search is asked for, the first that there is.

    Raises
    ------
    ValueError
        Without a search at this budget, number of samples and resolution; names the command.
    """
    found = searches()
    data = {"n_train": config.n_train, "resolution": config.resolution}
    for experiment in experiments:
        for entry in found.get(experiment, {}).get(config.sizes, []):
            if entry["data"] == data:
                return entry["models"]
    raise ValueError(
        f"sizes: expected a budget that was searched for {' or '.join(experiments)} with {data}, "
        f"got {config.sizes!r}; tools/search.py searches it"
    )
