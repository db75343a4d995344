"""The backbones of chonn-ops as PDEBench models."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

import chonn_ops
from chonn_ops import CKBOptions
from chonn_plugins.pdebench.contract import HostModel

UNETS = {1: chonn_ops.CHONNUNet1d, 2: chonn_ops.CHONNUNet2d, 3: chonn_ops.CHONNUNet3d}
FNOS = {1: chonn_ops.CHONNFNO1d, 2: chonn_ops.CHONNFNO2d, 3: chonn_ops.CHONNFNO3d}
NETWORKS = {
    1: chonn_ops.CHONNNetwork1d,
    2: chonn_ops.CHONNNetwork2d,
    3: chonn_ops.CHONNNetwork3d,
}
CKB_FIELDS = tuple(field.name for field in dataclasses.fields(CKBOptions))
CELL = "network"
# Where the blocks go, by their cell: networks where they have the lowest error, scans as the paper.
_DEEPEST = ("encoder4", "bottleneck", "decoder4")
UNET_PLACES = {
    "network": {"mode": "correction", "stages": _DEEPEST},
    "scan": {"mode": "stages", "stages": _DEEPEST},
}
FNO_PLACES = {
    "network": {"mode": "lift", "downsample": 1},
    "scan": {"mode": "replace", "downsample": 1},
}
SIZES = {"width": 24, "depth": 2, "mlp_ratio": 2, "patch": 1, "coordinates": True, "max_depth": 4}
# What `chonn_network` is: solves alone for steady problems; for time series what carries the last
# two frames on, as a flow or as waves.
SERIES = {
    "flow": {1: chonn_ops.CHONNRollout1d, 2: chonn_ops.CHONNRollout2d},
    "waves": {1: chonn_ops.CHONNWaves1d, 2: chonn_ops.CHONNWaves2d},
}
KINDS = ("auto", "steady", *SERIES)
FRAMES = 2
SERIES_ENDS = {"flow": "ring", "waves": "wall"}
SERIES_SIZES = {"width": 24, "depth": 2, "mlp_ratio": 2, "coordinates": False, "networks": 4}


class Network(chonn_ops.Equalised):
    """A network model that is called as PDEBench calls its FNOs."""

    def forward(self, x: Tensor, grid: Tensor) -> Tensor:
        """(B, \\*grid, C) and coordinates (B, \\*grid, axes) to (B, \\*grid, 1, C')."""
        spacing, nodes = chonn_ops.grid_spacing(grid), chonn_ops.grid_nodes(grid)
        model: Any = self.module
        if nodes is not None and model.patch == 1:
            model.place(nodes)
        return super().forward(x.movedim(-1, 1), spacing=spacing).movedim(1, -1).unsqueeze(-2)


def _block_defaults(cell: str) -> dict[str, Any]:
    """Defaults of the block's options, of those of one kind of cell; `cell` is ours for a host."""
    return {**dataclasses.asdict(CKBOptions(cell=cell)), "cell": CELL}


def _ckb(options: Mapping[str, Any]) -> CKBOptions:
    given = {name: value for name, value in options.items() if name in CKB_FIELDS}
    return CKBOptions(**{"cell": CELL, **given})


def _rest(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in CKB_FIELDS}


def _axes(options: Mapping[str, Any]) -> int:
    """A number of axes that fits the options, to check them by building a tiny model."""
    ends = options.get("termination", "")
    return 1 if isinstance(ends, str) or len(ends) not in UNETS else len(ends)


def _placed(
    family: Any,
    models: Mapping[int, Callable[..., nn.Module]],
    places: Mapping[str, Mapping[str, Any]],
    smallest: Callable[[int], Mapping[str, Any]],
) -> HostModel:
    """A backbone with blocks, whose defaults are those of the chosen cell.

    The constructor checks the options: ``smallest(axes)`` are keywords of a tiny model.
    """

    def defaults(options: Mapping[str, Any]) -> dict[str, Any]:
        cell = _ckb({"cell": options.get("cell", CELL)}).cell
        return {**_block_defaults(cell), **places[cell]}

    def build(ndim: int, host: Mapping[str, Any], options: Mapping[str, Any]) -> nn.Module:
        ckb = _ckb(options)
        return models[ndim](**host, ckb=ckb, **{**places[ckb.cell], **_rest(options)})

    def check(options: Mapping[str, Any]) -> None:
        axes = _axes(options)
        build(axes, smallest(axes), options)

    return HostModel(
        family=family, build=build, defaults=defaults({}), check=check, defaults_beside=defaults
    )


class Series(chonn_ops.Equalised):
    """A model of time series that is called as PDEBench calls its FNOs; it sees the last frames."""

    def forward(self, x: Tensor, grid: Tensor) -> Tensor:
        """(B, \\*grid, frames * C) and coordinates (B, \\*grid, axes) to (B, \\*grid, 1, C)."""
        model: Any = self.module
        seen = x[..., -model.history * model.channels :].movedim(-1, 1)
        spacing = chonn_ops.grid_spacing(grid)
        return super().forward(seen, spacing=spacing).movedim(1, -1).unsqueeze(-2)


def _kind(ndim: int, host: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    kind = options.get("model", "auto")
    if kind not in KINDS:
        raise ValueError(f"model: expected one of {KINDS}, got {kind!r}")
    if kind == "auto":
        return "flow" if host["initial_step"] > 1 and ndim in SERIES["flow"] else "steady"
    if kind in SERIES and ndim not in SERIES[kind]:
        axes = tuple(SERIES[kind])
        raise ValueError(f"model={kind!r}: expected data of {axes} axes, got {ndim}")
    return kind


def _build_series(
    kind: str, ndim: int, host: Mapping[str, Any], options: Mapping[str, Any]
) -> nn.Module:
    known = {**SERIES_SIZES, "termination": SERIES_ENDS[kind]}
    given = {name: value for name, value in options.items() if name in known}
    # Those of the steady model, too, are among the options that a checkpoint keeps.
    listed = {**_network_defaults(options), "model": options.get("model")}
    unknown = sorted(
        name for name, value in options.items() if name not in known and value != listed.get(name)
    )
    if unknown:
        raise ValueError(
            f"{', '.join(unknown)}: expected to be left out with model={kind!r}, whose options "
            f"are {', '.join(known)}; or model='steady'"
        )
    sizes = {**known, **given}
    ends = sizes.pop("termination")
    history = min(host["initial_step"], FRAMES)
    model = SERIES[kind][ndim](
        host["num_channels"], history, heads=2, ends=ends, nodes="centres", **sizes
    )
    return Series(model)


def _build_network(ndim: int, host: Mapping[str, Any], options: Mapping[str, Any]) -> nn.Module:
    kind = _kind(ndim, host, options)
    options = {name: value for name, value in options.items() if value is not None}
    if kind in SERIES:
        return _build_series(kind, ndim, host, options)
    sizes = {**SIZES, **_rest(options)}
    sizes.pop("model", None)
    channels = host["num_channels"]
    model = NETWORKS[ndim](host["initial_step"] * channels, channels, ckb=_ckb(options), **sizes)
    return Network(model)


def _network_defaults(options: Mapping[str, Any]) -> dict[str, Any]:
    kind = options.get("model", "auto")
    series: dict[str, Any] = {}
    if kind in SERIES:
        series = {**SERIES_SIZES, "termination": SERIES_ENDS[kind]}
    elif kind == "auto":  # that of the model that it comes to
        series = dict.fromkeys(("coordinates", "networks", "termination"))
    return {**_block_defaults(CELL), **SIZES, "model": "auto", **series}


def _check_network(options: Mapping[str, Any]) -> None:
    steps = 1 if options.get("model", "auto") in ("auto", "steady") else FRAMES
    _build_network(_axes(options), {"num_channels": 1, "initial_step": steps}, options)


def _small_unet(axes: int) -> dict[str, Any]:  # noqa: ARG001 - the same on any
    return {"in_channels": 1, "out_channels": 1, "init_features": 1}


def _small_fno(axes: int) -> dict[str, Any]:
    modes = ("modes",) if axes == 1 else ("modes1", "modes2", "modes3")[:axes]
    return {"num_channels": 1, "width": 4, "initial_step": 1, **dict.fromkeys(modes, 1)}


chonn_unet = _placed("unet", UNETS, UNET_PLACES, _small_unet)
chonn_fno = _placed("fno", FNOS, FNO_PLACES, _small_fno)
chonn_network = HostModel(
    family="fno",
    build=_build_network,
    defaults=_network_defaults({}),
    check=_check_network,
    defaults_beside=_network_defaults,
)
