"""The models of chonn-ops under PDEBench's runner."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Literal

from torch import Tensor, nn

import chonn_ops
from chonn_ops import CKBOptions, Network, Scan
from chonn_ops.checks import check_choice
from chonn_ops.models.geometry import Box, grid_geometry
from chonn_ops.models.hosted import learn_faster
from chonn_plugins.fields import MODELS
from chonn_plugins.pdebench.contract import HostModel

UNETS, FNOS, NETWORKS = MODELS["chonn_unet"], MODELS["chonn_fno"], MODELS["chonn_network"]
# `chonn_network` solves networks alone for steady problems. For time series it is a model that
# carries the last two frames on, as a flow or as waves.
SERIES = {
    "flow": {1: chonn_ops.CHONNRollout1d, 2: chonn_ops.CHONNRollout2d},
    "waves": {1: chonn_ops.CHONNWaves1d, 2: chonn_ops.CHONNWaves2d},
}
KINDS = ("auto", "steady", *SERIES)
FRAMES = 2
CELL = CKBOptions().cell.name
SIZES = ("width", "depth", "mlp_ratio", "patch", "coordinates")
SERIES_SIZES = ("width", "depth", "mlp_ratio", "nodes")
# Options whose defaults differ between the models of time series and the steady one.
SERIES_OPTIONS = ("boundary", "num_networks", "coordinates")


def default_of(model: type[nn.Module], name: str) -> Any:
    """Default of a keyword of a model's constructor."""
    return inspect.signature(model).parameters[name].default


def block_defaults(cell: str) -> dict[str, Any]:
    """The block's options with their defaults for a cell; `cell` itself keeps its own default."""
    return {**CKBOptions(cell).to_mapping(), "cell": CELL}


def all_block_options() -> dict[str, Any]:
    """The options of the blocks of every cell, with the default cell's defaults."""
    return {**block_defaults(Scan.name), **block_defaults(Network.name)}


def axes_that_fit(options: Mapping[str, Any]) -> int:
    """A number of axes that fits the options, to check them by building a tiny model."""
    boundary = options.get("boundary", "")
    return 1 if isinstance(boundary, str) or len(boundary) not in UNETS else len(boundary)


class Placed:
    """A host's model with blocks, a class for each number of axes: builds it, checks its options,
    knows their defaults. `places` are keywords of these classes that say where the blocks go,
    beside ``mode``, and their defaults."""

    def __init__(self, models: Mapping[int, Any], places: Mapping[str, Any]) -> None:
        self.models, self.places = models, places

    def defaults(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """All options with the defaults of the cell that is set, see `HostModel`."""
        cell = CKBOptions.from_mapping({"cell": options.get("cell", CELL)}).cell.name
        return {**block_defaults(cell), **self.places, "mode": self.models[1].default_mode[cell]}

    def build(self, ndim: int, host: Mapping[str, Any], options: Mapping[str, Any]) -> nn.Module:
        """The model for so many axes, see `HostModel`."""
        keywords = {name: options[name] for name in ("mode", *self.places) if name in options}
        block = {name: value for name, value in options.items() if name not in keywords}
        keywords_of_host = {name: value for name, value in host.items() if name != "nodes"}
        if "nodes" in host and options.get("cell", CELL) == Network.name:
            block["nodes"] = host["nodes"]
        return self.models[ndim](**keywords_of_host, ckb=CKBOptions.from_mapping(block), **keywords)

    def host_model(self, family: Literal["unet", "fno"], smallest: Any) -> HostModel:
        """The model as PDEBench's runner knows it; ``smallest(axes)`` are keywords of a tiny one,
        by which options are checked."""

        def check(options: Mapping[str, Any]) -> None:
            axes = axes_that_fit(options)
            self.build(axes, smallest(axes), options)

        return HostModel(
            family=family,
            build=self.build,
            defaults={**all_block_options(), **self.defaults({})},
            check=check,
            defaults_beside=self.defaults,
        )


def small_unet(axes: int) -> dict[str, Any]:  # noqa: ARG001 - the same for all
    """Keywords of a tiny U-Net."""
    return {"in_channels": 1, "out_channels": 1, "init_features": 1}


def small_fno(axes: int) -> dict[str, Any]:
    """Keywords of a tiny FNO."""
    modes = ("modes",) if axes == 1 else ("modes1", "modes2", "modes3")[:axes]
    return {"num_channels": 1, "width": 4, "initial_step": 1, **dict.fromkeys(modes, 1)}


# A step of the optimiser acts once a frame. Advection over 31 frames at PDEBench's rate and
# schedule, two seeds: 0.057 and 0.14; without clipping 0.065 and 0.18, with a gain of 2 and without
# clipping 0.10 and 0.31, with one of 8 0.081.
SERIES_GAIN = 4.0


class AsFNO(nn.Module):
    """A model of channels-first fields with networks that is called as PDEBench calls its FNOs. It
    sees the last `channels` of the input; `box` has the coordinates of the walls, see
    `grid_geometry`."""

    def __init__(self, model: Any, channels: int, box: Box | None) -> None:
        super().__init__()
        self.model, self.channels, self.box = model, channels, box

    def forward(self, x: Tensor, grid: Tensor) -> Tensor:
        """(B, \\*grid, frames * C) and coordinates (B, \\*grid, axes) to (B, \\*grid, 1, C)."""
        seen = x[..., -self.channels :].movedim(-1, 1)
        geometry, _ = grid_geometry(grid, self.model.nodes, self.box)
        y = self.model(seen, **geometry)
        return y.movedim(1, -1).unsqueeze(-2)


def kind_of(ndim: int, host: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """Which model `chonn_network` is for these data: "steady", "flow" or "waves"."""
    kind = options.get("model", "auto")
    check_choice("model", kind, KINDS)
    if kind == "auto":
        return "flow" if host["initial_step"] > 1 and ndim in SERIES["flow"] else "steady"
    if kind in SERIES and ndim not in SERIES[kind]:
        axes = tuple(SERIES[kind])
        raise ValueError(f"model={kind!r}: expected data of {axes} axes, got {ndim}")
    return kind


def series_defaults(kind: str) -> dict[str, Any]:
    """All options of a model of time series, with their defaults."""
    return {name: default_of(SERIES[kind][1], name) for name in (*SERIES_SIZES, *SERIES_OPTIONS)}


def build_series(
    kind: str, ndim: int, host: Mapping[str, Any], options: Mapping[str, Any]
) -> nn.Module:
    """A model of time series; ValueError for options that it does not have."""
    known = series_defaults(kind)
    # A checkpoint records all options, those of the steady model too, at their defaults.
    recorded = {**network_defaults(options), "model": options.get("model")}
    unknown = sorted(
        name for name, value in options.items() if name not in known and value != recorded.get(name)
    )
    if unknown:
        raise ValueError(
            f"{', '.join(unknown)}: expected to be left out with model={kind!r}, whose options "
            f"are {', '.join(known)}; or model='steady'"
        )
    chosen = {**known, **{name: value for name, value in options.items() if name in known}}
    history = min(host["initial_step"], FRAMES)
    model = SERIES[kind][ndim](host["num_channels"], history, **chosen)
    learn_faster(model, SERIES_GAIN)
    return AsFNO(model, history * host["num_channels"], host.get("box"))


def build_network(ndim: int, host: Mapping[str, Any], options: Mapping[str, Any]) -> nn.Module:
    """`chonn_network` for so many axes, see `HostModel`."""
    kind = kind_of(ndim, host, options)
    options = {name: value for name, value in options.items() if value is not None}
    if kind in SERIES:
        return build_series(kind, ndim, host, options)
    sizes = {name: options[name] for name in SIZES if name in options}
    block = {name: value for name, value in options.items() if name not in (*SIZES, "model")}
    channels = host["num_channels"]
    seen = host["initial_step"] * channels
    network = NETWORKS[ndim](seen, channels, ckb=CKBOptions.from_mapping(block), **sizes)
    return AsFNO(network, seen, host.get("box"))


def network_defaults(options: Mapping[str, Any]) -> dict[str, Any]:
    """All options of `chonn_network` with the defaults of the model that is set.

    Where the data choose the model, options whose defaults differ between models have None.
    """
    kind = options.get("model", "auto")
    sizes = {name: default_of(NETWORKS[1], name) for name in SIZES}
    series: dict[str, Any] = {}
    if kind in SERIES:
        series = series_defaults(kind)
    elif kind == "auto":
        series = dict.fromkeys(SERIES_OPTIONS)
    return {**block_defaults(Network.name), **sizes, "model": "auto", **series}


def check_network(options: Mapping[str, Any]) -> None:
    """Check the options of `chonn_network`, see `HostModel`."""
    steps = 1 if options.get("model", "auto") in ("auto", "steady") else FRAMES
    build_network(axes_that_fit(options), {"num_channels": 1, "initial_step": steps}, options)


chonn_unet = Placed(UNETS, {"stages": UNETS[1].default_stages}).host_model("unet", small_unet)
chonn_fno = Placed(FNOS, {"downsample": 1}).host_model("fno", small_fno)
chonn_network = HostModel(
    family="fno",
    build=build_network,
    defaults=network_defaults({}),
    check=check_network,
    defaults_beside=network_defaults,
    clip=True,
)
