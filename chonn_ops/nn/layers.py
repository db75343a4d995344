"""Layers that blocks and models are made of.

All of them map channels-last fields (B, \\*grid, C).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops.checks import plain
from chonn_ops.nn.bounded import bounded
from chonn_ops.nn.memory import recomputed

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
                options[name] = plain(name, value)
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


class PositionLinear(nn.Linear):
    """`torch.nn.Linear` with the same parameters, computed as one matrix product a sample where
    that is faster.

    A weight gradient of few channels over 10^5 positions is a product so tall and thin that BLAS
    spends longer on it than on all the rest; one sample at a time it is several times faster.
    Batched products also read a channels-first field in place, where `Linear` would copy it. They
    store the weight gradients of all samples at once, so they are used only where activations are
    larger than that.
    """

    def forward(self, input: Tensor) -> Tensor:
        return position_linear(input, self.weight, self.bias)


def position_linear(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`F.linear`, as one product a sample where that is faster: see `PositionLinear`."""
    if input.dim() < 3 or input.device.type != "cpu" or torch.compiler.is_compiling():
        return F.linear(input, weight, bias)
    positions = math.prod(input.shape[1:-1])
    if weight.numel() > positions * sum(weight.shape):
        return F.linear(input, weight, bias)
    lines = input.flatten(1, -2)
    weights = weight.mT.expand(input.shape[0], *weight.mT.shape)
    output = torch.bmm(lines, weights) if bias is None else torch.baddbmm(bias, lines, weights)
    return output.unflatten(1, input.shape[1:-1])


def gated(x: Tensor, gate: Tensor) -> Tensor:
    """x SiLU(gate), in the dtype of the gate."""
    # SiLU of a slice of few channels takes ten times as long on the CPU.
    return x.to(gate.dtype) * F.silu(gate.contiguous())


def _is_plain(layer: nn.Module) -> bool:
    """Whether the layer computes nothing else. Hooks, by which `torch.nn.utils.prune` makes its
    weight, run where it is called, and so does a `forward` of its own, by which libraries fetch
    weights from other devices."""
    names = ("forward_pre", "forward", "backward_pre", "backward")
    hooked = any(getattr(layer, f"_{name}_hooks") for name in names)
    return type(layer) is PositionLinear and "forward" not in layer.__dict__ and not hooked


def channels_last(x: Tensor) -> Tensor:
    """``x.contiguous(memory_format=torch.channels_last)``, which `vmap` refuses."""
    return x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)


class Pointwise(nn.Module):
    """A two-layer network at every position: linear, SiLU, linear, with `hidden` channels inside.
    Called with a field and `most`, it returns the field plus the output, which is bounded to `most`
    (`bounded`).

    It has no norm. A norm over the field would remove the field's amplitude, in which a linear
    problem is linear.
    """

    def __init__(self, width: int, hidden: int, **factory: Unpack[Factory]) -> None:
        super().__init__()
        self.expand = PositionLinear(width, hidden, **factory)
        self.contract = PositionLinear(hidden, width, **factory)

    def forward(self, field: Tensor, most: float) -> Tensor:
        layers = (self.expand, self.contract)
        if not all(map(_is_plain, layers)):
            return field + bounded(self.contract(F.silu(self.expand(field))), most)
        used = [x for layer in layers for x in (layer.weight, layer.bias)]
        return recomputed(_pointwise, field, most, *used)


def _pointwise(field: Tensor, most: float, *layers: Any) -> Tensor:
    hidden = F.silu(position_linear(field, *layers[:2]))
    return field + bounded(position_linear(hidden, *layers[2:]), most)


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
