"""Models of weights without settings: what is said of them, and what names and shapes tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

import chonn_ops
from chonn_ops.inspection._files import read_json
from chonn_ops.inspection._hosts import Trained, loaded, of_timm_named

_HOW = "give --model NAME, and options as --set NAME=VALUE"
# Options of a network model that leave no trace in its weights.
_UNSEEN = ("ckb.nodes", "lengths")


def _classes() -> dict[str, type[nn.Module]]:
    """The models that this package exports, by name."""
    return {name: getattr(chonn_ops, name) for name in chonn_ops.__all__ if name[:5] == "CHONN"}


def bare_model(
    path: Path,
    content: dict[str, Any],
    frame: Sequence[int] | None,
    name: str | None,
    options: dict[str, Any],
) -> Trained:
    """The model of a state dict: the one named, else what its card or its weights say."""
    for key in ("state_dict", "model"):
        if isinstance(content.get(key), dict):
            content = content[key]
    if not content or not all(isinstance(value, Tensor) for value in content.values()):
        raise ValueError(
            f"{path}: expected a checkpoint of PDEBench, neuraloperator, timm or chonn run, or a "
            f"state dict, got a dictionary of {', '.join(map(str, list(content)[:6])) or 'nothing'}"
        )
    card = read_json(path.with_suffix(".json")) if name is None else None
    if card is not None and {"model", "options"} <= card.keys():
        ckb = {f"ckb.{key}": value for key, value in card["options"].get("ckb", {}).items()}
        rest = {key: value for key, value in card["options"].items() if key != "ckb"}
        return _of_ours(path, content, str(card["model"]), {**rest, **ckb, **options}, ())
    if name is None and frame is not None and {"lift.weight", "head.weight"} <= content.keys():
        name, read = _network_options(path, content, frame)
        assumed = sorted(set(_UNSEEN) - set(options))
        note = f"taken for defaults, which weights do not tell: {', '.join(assumed)}; else {_HOW}"
        return _of_ours(path, content, name, {**read, **options}, (note,))
    if name is None and "stem.conv1.weight" in content:
        return of_timm_named(path, _timm_name(path, content), content, options)
    if name is None:
        keys = ", ".join(list(content)[:4])
        raise ValueError(
            f"{path}: weights do not tell which model they are of ({keys}, ...): {_HOW}"
        )
    if name in _classes():
        return _of_ours(path, content, name, options, ())
    return of_timm_named(path, name, content, options)


def _of_ours(
    path: Path,
    state: Mapping[str, Tensor],
    name: str,
    options: Mapping[str, Any],
    notes: tuple[str, ...],
) -> Trained:
    classes = _classes()
    if name not in classes:
        raise ValueError(f"{path}: expected a model out of {sorted(classes)}, got {name!r}")
    block = {k.removeprefix("ckb."): v for k, v in options.items() if k.startswith("ckb.")}
    rest = {key: value for key, value in options.items() if not key.startswith("ckb.")}
    if name.startswith("CHONNNetwork"):
        block = {"cell": "network", **block}
    try:
        model = classes[name](**rest, ckb=chonn_ops.CKBOptions(**block))
    except TypeError as error:
        raise ValueError(f"{path}: {name} cannot be built: {error}; {_HOW}") from error
    takes_coordinates = name.startswith("CHONNFNO")
    return Trained(
        loaded(path, model, state),
        name,
        dict(options),
        rest.get("in_channels", 1) if not takes_coordinates else None,
        coordinates=takes_coordinates,
        notes=notes,
    )


def _network_options(
    path: Path, state: Mapping[str, Tensor], frame: Sequence[int]
) -> tuple[str, dict[str, Any]]:
    """Class and options of a `CHONNNetwork2d`'s weights, or of its kin.

    Parameters
    ----------
    path : Path
    state : mapping
    frame : sequence of int, (T, C, \\*grid)
        The shape of a sample, which tells the axes.

    Raises
    ------
    ValueError
        For weights of another model, or that do not take such samples.
    """
    axes = len(frame) - 2
    try:
        width, inputs = state["lift.weight"].shape
        outputs = state["head.weight"].shape[0]
        found: dict[str, Any] = {
            "width": width,
            "depth": _count(state, "pointwise."),
            "mlp_ratio": state["pointwise.0.expand.weight"].shape[0] // width,
        }
        patches = _patches(path, inputs, frame)
        points = patches["patch"] ** axes
        found |= {**patches, "out_channels": outputs // points}
        block = {key.removeprefix("blocks.0."): w for key, w in state.items() if ".0." in key}
        networks = block["cells.0.source_proj.weight"].shape[0]
        found["ckb.networks"] = networks
        found["ckb.order"] = _count(block, "cells.")
        found["ckb.expand"] = (block["in_proj.weight"].shape[0] - networks) // width
        found["ckb.selective"] = "cells.0.coefficient_proj.weight" in block
        if "cells.0.wall_param" not in block:
            found["ckb.termination"] = "open"
        if "norm.weight" in block:
            found["ckb.norm"] = "group" if "norm.bias" in block else "rms"
        if "depthwise.weight" in block:
            found["ckb.kernel_size"] = block["depthwise.weight"].shape[-1]
        if found["ckb.order"] > 1:
            later = block["cells.1.source_proj.weight"].shape[1]
            inner = found["ckb.expand"] * width
            kinds = {networks: {}, inner + networks: {"ckb.stage_input": "inject"}}
            found |= kinds.get(later, {"ckb.topology": "parallel"})
    except KeyError as error:
        raise ValueError(f"{path}: expected weights of a network model, got others") from error
    return f"CHONNNetwork{axes}d", found


def _patches(path: Path, inputs: int, frame: Sequence[int]) -> dict[str, Any]:
    """Which patches, channels and coordinates make so many inputs of a node."""
    frames, channels, *grid = frame
    axes = len(grid)
    for patch in range(1, min(grid) + 1):
        for coordinates in (True, False):
            taken, rest = divmod(inputs - axes * coordinates, patch**axes)
            if not rest and taken in range(channels, frames * channels + 1, channels):
                return {"in_channels": taken, "patch": patch, "coordinates": coordinates}
    raise ValueError(
        f"{path}: expected weights for {frames} frames of {channels} channels on {axes} axes, got "
        f"{inputs} inputs a node"
    )


def _timm_name(path: Path, state: Mapping[str, Tensor]) -> str:
    """Which of our models in timm has weights of these widths and depths.

    Raises
    ------
    ValueError
        For others.
    """
    from chonn_ops.models._vision import SIZES

    stages = _count(state, "stages.")
    depths = tuple(_count(state, f"stages.{i}.blocks.") for i in range(stages))
    dims = tuple(state[f"stages.{i}.blocks.0.norm.weight"].shape[0] for i in range(stages))
    for name, sizes in SIZES.items():
        if (sizes["depths"], sizes["dims"]) == (depths, dims):
            return name
    raise ValueError(f"{path}: expected weights of {list(SIZES)}, got depths {depths}, dims {dims}")


def _count(state: Mapping[str, Any], prefix: str) -> int:
    numbers = {key[len(prefix) :].partition(".")[0] for key in state if key.startswith(prefix)}
    return len(numbers)
