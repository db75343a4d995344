"""Check that a checkpoint is whole, and that its model fits the data of the job that uses it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from chonn_plugins.pdebench.contract import JobError
from chonn_plugins.pdebench.data import Layout
from chonn_plugins.pdebench.job import Job


def check(job: Job, layout: Layout, path: Path) -> None:
    """Read the checkpoint that the job begins with. A JobError for a damaged file, and where it was
    trained on other frames than those of the job, or frames at other times; on another grid, too,
    for models that belong to one: U-Nets, and those with scans; and PDEBench's own models of other
    sizes."""
    needed = ["model_state_dict"]
    if job.training:
        needed += ["optimizer_state_dict", "epoch", "loss"]
    content = _read(path)
    missing = [key for key in needed if key not in content]
    if missing:
        raise JobError(
            f"{path.resolve()}: expected a checkpoint of PDEBench's trainer; missing "
            f"{', '.join(missing)}"
        )
    trained, now = content.get("settings") or {}, job.settings(layout.space)
    keys = ["initial_step"]
    if job.args["single_file"]:  # the reader of groups keeps all frames
        keys.append("reduced_resolution_t")
    if job.family == "unet" or job.options.get("cell") == "scan":
        keys.append("points")
    if job.model is None:
        keys += ["width", "modes"]
    if wrong := _differences(trained, now, keys):
        raise JobError(
            f"{path.resolve()}: expected the settings of its training, because {job.name} belongs "
            f"to them: {wrong}"
        )


def _read(path: Path) -> Mapping[str, Any]:
    try:
        content = torch.load(path, map_location="cpu")
    # PyTorch raises errors of many classes for other bytes.
    except Exception as error:
        line = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise JobError(
            f"{path.resolve()}: expected a checkpoint, got {path.stat().st_size} bytes that cannot "
            f"be read, a file that was cut short or is something else ({line})"
        ) from None
    return content if isinstance(content, Mapping) else {}


def _differences(trained: Mapping[str, Any], now: Mapping[str, Any], keys: list[str]) -> str:
    """Settings that differ, where the checkpoint has them."""
    return "; ".join(
        f"expected {key}={trained[key]}, got {now.get(key)}"
        for key in keys
        if key in trained and trained[key] != now.get(key)
    )
