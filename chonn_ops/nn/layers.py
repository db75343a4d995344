"""Layers that blocks and models are made of.

All of them map channels-last fields (B, \\*grid, C).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

import torch
from torch import Tensor, nn

from chonn_ops.checks import json_value

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Factory(TypedDict, total=False):
    """Keywords of `torch.nn` modules that say where and in which type parameters are made."""

    device: torch.device | str | None
    dtype: torch.dtype | None


class Stated(nn.Module):
    """Base of modules whose parameters mean another function with other options.

    A state dict holds the options that `stated` names in its `_metadata`, where PyTorch has the
    versions of modules, and loading compares them: another one counts as an unexpected key, which
    ``strict=False`` returns. A dict of parameters alone, without metadata, is loaded as it is."""

    def stated(self) -> Mapping[str, Any]:
        """The options, which no parameter's shape tells, in one form for all spellings."""
        return {}

    def _stated(self) -> dict[str, Any]:
        options = {}
        for name, value in self.stated().items():
            with contextlib.suppress(ValueError):  # a condition that only its author knows
                options[name] = json_value(name, value)
        return options

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if (stated := self._stated()) and hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]]["options"] = stated

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        lists = missing_keys, unexpected_keys, error_msgs
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, *lists)
        stored = local_metadata.get("options", {})
        for name, value in self._stated().items():
            if stored.get(name, value) != value:  # no key: only keys depend on `strict`
                unexpected_keys.append(f"{prefix}{name}={stored[name]}, the model has {value}")


CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


def channels_last(x: Tensor) -> Tensor:
    """``x.contiguous(memory_format=torch.channels_last)``, which `vmap` refuses."""
    return x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)


class FieldNorm(nn.GroupNorm):
    """One mean and one variance a sample, over channels and positions."""

    def __init__(self, dim: int, **factory: Unpack[Factory]) -> None:
        super().__init__(1, dim, **factory)

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.movedim(-1, 1)).movedim(1, -1)


NORMS: dict[str, Callable[..., nn.Module]] = {
    "group": FieldNorm,
    "layer": nn.LayerNorm,
    "none": nn.Identity,
}
