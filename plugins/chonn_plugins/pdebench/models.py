"""The models of chonn-ops under PDEBench's runner."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

import torch
from torch import Tensor, nn

import chonn_ops
from chonn_ops import CKBOptions
from chonn_ops.checks import check_choice, json_value
from chonn_ops.models.geometry import Box, grid_geometry
from chonn_ops.models.pretrained import options_of
from chonn_plugins.fields import MODELS
from chonn_plugins.pdebench.contract import HostModel

UNETS, FNOS, NETWORKS = MODELS["chonn_unet"], MODELS["chonn_fno"], MODELS["chonn_network"]
# `chonn_network` solves one circuit an output for steady problems, and one circuit a frame for time
# series.
STEPS = {1: chonn_ops.CHONNStep1d, 2: chonn_ops.CHONNStep2d, 3: chonn_ops.CHONNStep3d}
# No series in space was measured.
AUTO = {1: "step", 2: "step"}
# The most frames that a model of series looks at.
FRAMES = 2
CLASSES = {"steady": NETWORKS[1], "step": STEPS[1]}
OPTIONS = {
    "steady": ("width", "depth", "boundary", "inner", "nodes"),
    "step": ("width", "depth", "boundary", "nodes"),
}


def default_of(model: type[nn.Module], name: str) -> Any:
    """Default of a keyword of a model's constructor."""
    return inspect.signature(model).parameters[name].default


def has_blocks(options: Mapping[str, Any]) -> bool:
    """Whether the options of `chonn_unet` or `chonn_fno` ask for blocks, of order 0 for none."""
    return any(options.get(name) is not None for name in ("cell", "order"))


def axes_that_fit(options: Mapping[str, Any]) -> int:
    """A number of axes that fits the options, to check them by building a tiny model."""
    boundary = options.get("boundary")
    return len(boundary) if isinstance(boundary, list) and len(boundary) in UNETS else 1


class Hosted:
    """A host's model that is the trunk of a circuit head, or has blocks if `cell` or `order` is
    set, a class for each number of axes: builds it, checks its options, knows their defaults.
    `head` has keywords of the head, `places` those that say where blocks stand, with defaults."""

    def __init__(
        self, models: Mapping[int, Any], head: Sequence[str], places: Mapping[str, Any]
    ) -> None:
        self.models, self.places = models, places
        self.head = {name: default_of(NETWORKS[1], name) for name in head}

    def defaults(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """All options with their defaults, see `HostModel`: None for `cell`, which decides what
        the others are, and for options of the other form."""
        kinds = {cell: CKBOptions(cell).to_mapping() for cell in ("network", "scan")}
        defaults = dict.fromkeys([*self.head, *self.places, *kinds["network"], *kinds["scan"]])
        if not has_blocks(options):
            return defaults | self.head
        cell = CKBOptions.from_mapping({"cell": options.get("cell") or "network"}).cell.name
        return {**defaults, **kinds[cell], **self.places, "cell": None}

    def build(self, ndim: int, host: Mapping[str, Any], options: Mapping[str, Any]) -> nn.Module:
        """The model for so many axes, see `HostModel`."""
        # A checkpoint records all options, with None for those of the other form.
        chosen = {name: x for name, x in options.items() if x is not None}
        if has_blocks(chosen):
            host = {name: x for name, x in host.items() if name not in ("lengths", "nodes", "box")}
            keywords = {name: chosen.pop(name) for name in self.places if name in chosen}
            keywords["ckb"] = CKBOptions.from_mapping(chosen)
        elif unknown := sorted(chosen.keys() - self.head.keys()):
            raise ValueError(
                f"{', '.join(unknown)}: expected to be left out without cell='scan' or order=0; "
                f"the options are then {', '.join(self.head)}"
            )
        else:
            keywords = options_of(chosen)
        model = self.models[ndim](**{**keywords, **host})
        model.decays = model.network is None  # see `AsFNO`
        return model

    def host_model(self, family: Literal["unet", "fno"]) -> HostModel:
        """The model as PDEBench's runner knows it; a tiny one checks the options."""

        def check(options: Mapping[str, Any]) -> None:
            axes = axes_that_fit(options)
            tiny: dict[str, Any] = {"in_channels": 1, "out_channels": 1, "init_features": 1}
            if family == "fno":
                modes = ("modes",) if axes == 1 else ("modes1", "modes2", "modes3")[:axes]
                tiny = {"num_channels": 1, "width": 4, "initial_step": 1, **dict.fromkeys(modes, 1)}
            self.build(axes, tiny, options)

        return HostModel(
            family=family,
            build=self.build,
            defaults=self.defaults({}),
            check=check,
            defaults_beside=self.defaults,
        )


class AsFNO(nn.Module):
    """A model of channels-first fields that is called as PDEBench calls its FNOs. It sees the last
    `channels` of the input; `box` has the coordinates of the walls, see `grid_geometry`. `recorded`
    are the options that made it, for its checkpoint."""

    def __init__(
        self, model: Any, channels: int, box: Box | None, recorded: Mapping[str, Any]
    ) -> None:
        super().__init__()
        # PDEBench adds 1e-4 of each weight to its gradient, which of a small error is smaller yet.
        # Errors after 15 epochs at 1e-3 with this and without: Darcy flow 0.0038 and 0.0034,
        # log-normal media 0.0046 and 0.0014, an unknown law 0.245 and 0.202.
        self.decays = False
        self.series = recorded["model"] == "step"
        self.model, self.channels, self.box, self.recorded = model, channels, box, recorded

    def _seen(self, x: Tensor, grid: Tensor) -> tuple[Tensor, dict[str, Any]]:
        geometry, _ = grid_geometry(grid, self.recorded["nodes"], self.box)
        return x[..., -self.channels :].movedim(-1, 1), geometry

    def forward(self, x: Tensor, grid: Tensor) -> Tensor:
        """(B, \\*grid, frames * C) and coordinates (B, \\*grid, axes) to (B, \\*grid, 1, C)."""
        seen, geometry = self._seen(x, grid)
        return self.model(seen, **geometry).movedim(1, -1).unsqueeze(-2)

    def calibrate(self, x: Tensor, y: Tensor, grid: Tensor) -> Tensor | None:
        """What the model's own `calibrate` returns, of inputs and outputs as those of `forward`;
        None if it has none."""
        if not hasattr(self.model, "calibrate"):
            return None
        seen, geometry = self._seen(x, grid)
        if self.series:
            frames = torch.cat((x.unflatten(-1, (-1, y.shape[-1])), y), -2)
            return self.model.calibrate(frames.movedim((-2, -1), (1, 2)), **geometry)
        return self.model.calibrate(seen, y.squeeze(-2).movedim(-1, 1), **geometry)


def kind_of(ndim: int, host: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """Which model `chonn_network` is for these data: "steady" or "step"."""
    kind = options.get("model", "auto")
    check_choice("model", kind, ("auto", *OPTIONS))
    if kind == "auto":
        return AUTO.get(ndim, "steady") if host["initial_step"] > 1 else "steady"
    return kind


def build_network(ndim: int, host: Mapping[str, Any], options: Mapping[str, Any]) -> nn.Module:
    """`chonn_network` for so many axes, see `HostModel`; ValueError for options of others."""
    kind = kind_of(ndim, host, options)
    # A checkpoint records all options, with None where the kind decides.
    chosen = {name: x for name, x in options.items() if x is not None and name != "model"}
    if unknown := sorted(chosen.keys() - set(OPTIONS[kind])):
        raise ValueError(
            f"{', '.join(unknown)}: expected to be left out with model={kind!r}, whose options "
            f"are {', '.join(OPTIONS[kind])}"
        )
    channels, frames = host["num_channels"], host["initial_step"]
    if kind == "steady":
        model = NETWORKS[ndim](frames * channels, channels, **options_of(chosen))
    else:
        frames = min(frames, FRAMES)
        model = STEPS[ndim](channels, **chosen)
    recorded = {name: json_value(name, model.options[name]) for name in OPTIONS[kind]}
    return AsFNO(model, frames * channels, host.get("box"), {**recorded, "model": kind})


def network_defaults(options: Mapping[str, Any]) -> dict[str, Any]:
    """All options of `chonn_network` with the defaults of the kind that is set, and None for
    options of other kinds; where the data choose the kind, for all that kinds do not share."""
    kinds = [kind] if (kind := options.get("model", "auto")) in OPTIONS else list(OPTIONS)
    defaults = dict.fromkeys(name for names in OPTIONS.values() for name in names)
    for name in defaults:
        values = [default_of(CLASSES[k], name) for k in kinds if name in OPTIONS[k]]
        if len(values) == len(kinds) and values.count(values[0]) == len(values):
            defaults[name] = values[0]
    return {**defaults, "model": "auto"}


def check_network(options: Mapping[str, Any]) -> None:
    """Check the options of `chonn_network`, see `HostModel`. The data, which are not known, may be
    series or not."""
    axes = axes_that_fit(options)
    with suppress(ValueError):
        build_network(axes, {"num_channels": 1, "initial_step": FRAMES}, options)
        return
    build_network(axes, {"num_channels": 1, "initial_step": 1}, options)


STAGES = {"stages": default_of(UNETS[1], "stages")}
chonn_unet = Hosted(UNETS, ("boundary", "inner", "nodes"), STAGES).host_model("unet")
chonn_fno = Hosted(FNOS, ("boundary", "nodes"), {"downsample": 1}).host_model("fno")
chonn_network = HostModel(
    family="fno",
    build=build_network,
    defaults=network_defaults({}),
    check=check_network,
    defaults_beside=network_defaults,
)
