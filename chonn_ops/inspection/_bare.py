"""What weights without settings tell of their model, by their names and shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

import chonn_ops

# Options of a network model that leave no trace in its weights.
UNSEEN = ("ckb.nodes", "lengths")


def classes() -> dict[str, type[nn.Module]]:
    """The models that this package exports, by name."""
    return {name: getattr(chonn_ops, name) for name in chonn_ops.__all__ if name[:5] == "CHONN"}


def network_options(
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


def timm_name(path: Path, state: Mapping[str, Tensor]) -> str:
    """Which of our models in timm has weights of these widths and depths.

    Raises
    ------
    ValueError
        For others.
    """
    from chonn_ops.models.chonn import _SIZES

    stages = _count(state, "stages.")
    depths = tuple(_count(state, f"stages.{i}.blocks.") for i in range(stages))
    dims = tuple(state[f"stages.{i}.blocks.0.norm.weight"].shape[0] for i in range(stages))
    for name, sizes in _SIZES.items():
        if (sizes["depths"], sizes["dims"]) == (depths, dims):
            return name
    raise ValueError(
        f"{path}: expected weights of {list(_SIZES)}, got depths {depths}, dims {dims}"
    )


def timm_sizes(state: Mapping[str, Tensor]) -> dict[str, int]:
    """Channels in and classes out."""
    head = state.get("head.fc.weight")
    found = {"num_classes": 0 if head is None else head.shape[0]}
    if "stem.conv1.weight" in state:
        found["in_chans"] = state["stem.conv1.weight"].shape[1]
    return found


def _count(state: Mapping[str, Any], prefix: str) -> int:
    numbers = {key[len(prefix) :].partition(".")[0] for key in state if key.startswith(prefix)}
    return len(numbers)
