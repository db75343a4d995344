"""Layers that blocks and models are made of, and how fast they learn.

All of them map channels-last fields (B, \\*grid, C).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops.checks import check_above, plain
from chonn_ops.nn.bounded import bounded
from chonn_ops.nn.memory import recomputed

if TYPE_CHECKING:
    from typing_extensions import Unpack


# The buffer that holds a module's gain, by PyTorch's name for what a state dict has beside weights.
GAIN_KEY = "_extra_state"


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
        found = {}
        for name, value in self.stated().items():
            with contextlib.suppress(ValueError):  # a condition that only its author knows
                found[name] = plain(name, value)
        return found

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
        found = local_metadata.get("options", {})
        for name, own in self._stated().items():
            if found.get(name, own) != own:  # no key: only keys depend on `strict`
                unexpected_keys.append(f"{prefix}{name}={found[name]}, the model has {own}")


class Gained(Stated):
    """Base of modules whose own parameters count `gain` times: `forward` computes with
    `effective` values, and `parameters` and `state_dict` hold the values before the gain.

    Where a gain was set by `learn_faster`, even of 1, a state dict holds it, and loading sets it:
    it means one function whatever the gains of the model are. A dict without it lacks a key."""

    gain: float = 1.0

    def set_gain(self, gain: float) -> None:
        """Set the gain, which state dicts then hold."""
        self.gain = gain
        # A buffer, because tools for state dicts of wrapped models, as those of DDP, know the names
        # of parameters and buffers. Not by `get_extra_state`, which would add keys to plain models,
        # whose dicts are a host's.
        like = next(self.parameters(recurse=False), torch.empty(0))
        self.register_buffer(GAIN_KEY, torch.full((), gain, device=like.device, dtype=like.dtype))

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if "gain" in vars(self):  # exact, whatever the buffer's dtype is
            gain = torch.tensor(self.gain, device="cpu", dtype=torch.float32)
            destination[prefix + GAIN_KEY] = gain

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
        key = prefix + GAIN_KEY
        if key in state_dict and "gain" not in vars(self):
            self.set_gain(self.gain)
        lists = missing_keys, unexpected_keys, error_msgs
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, *lists)
        if key in state_dict:
            try:
                gain = float(state_dict[key])
            except (TypeError, ValueError, RuntimeError):  # no number, or a tensor without values
                gain = math.nan
            if 0 < gain < math.inf:
                self.set_gain(gain)
            else:
                got = state_dict[key]
                error_msgs.append(f"{key}: expected a finite gain above 0, got {got!r}")
        if key in unexpected_keys:
            unexpected_keys.remove(key)

    def effective(self, name: str) -> Any:
        """The parameter of this name times the gain; None where the module has none."""
        stored: Tensor | None = getattr(self, name)
        return stored if stored is None or self.gain == 1 else self.gain * stored


@torch.no_grad()
def divide_by_gains(*modules: nn.Module) -> None:
    """Turn values that modules should compute with into those before their gains; other modules
    stay as they are."""
    for module in modules:
        if isinstance(module, Gained):
            for parameter in module.parameters(recurse=False):
                parameter.div_(module.gain)


class _Layer(Gained):
    """Base of PyTorch's layers with a gain."""

    def reset_parameters(self) -> None:
        """Draw fresh parameters, whose values after the gain are distributed as PyTorch's."""
        layer: Any = super()
        layer.reset_parameters()
        divide_by_gains(self)


def learn_faster(module: nn.Module, gain: float) -> None:
    """Let a module learn `gain` times as fast at an optimiser's learning rate.

    Hosts train all parameters at one rate, usually 1e-3, which suits their wide layers and is ten
    times too small for networks of a few channels. This multiplies the gain of every submodule and
    divides its parameters, so the module still computes the same. Steps of Adam, whose size is the
    learning rate, become `gain` times as large in the values that the module uses, and an L2
    penalty of the host becomes ``gain**2`` times as weak (equalised learning rates: Karras et al.,
    "Progressive growing of GANs", ICLR 2018).

    A state dict holds the stored values and the gains, which loading brings along (`Gained`).

    Parameters
    ----------
    module : Module
        Whose submodules with parameters are all `Gained`.
    gain : float
        Above 0. A module has the nearest gain in single precision, in which state dicts hold it.

    Raises
    ------
    ValueError
        For a gain that is no finite number above 0.
    TypeError
        For a submodule with parameters that is not `Gained`.
    """
    check_above(0, gain=gain)
    for part in module.modules():
        parameters = list(part.parameters(recurse=False))
        if not parameters:
            continue
        if not isinstance(part, Gained):
            raise TypeError(f"module: expected modules with a gain, got {type(part).__name__}")
        before = part.gain
        part.set_gain(float(np.float32(before * gain)))
        with torch.no_grad():
            for parameter in parameters:
                parameter.div_(part.gain / before)


class _Convolution(_Layer):
    def forward(self, input: Tensor) -> Tensor:
        layer: Any = self
        return layer._conv_forward(input, self.effective("weight"), self.effective("bias"))


class Conv1d(_Convolution, nn.Conv1d):
    """`torch.nn.Conv1d` with a gain."""


class Conv2d(_Convolution, nn.Conv2d):
    """`torch.nn.Conv2d` with a gain."""


class Conv3d(_Convolution, nn.Conv3d):
    """`torch.nn.Conv3d` with a gain."""


CONV = {1: Conv1d, 2: Conv2d, 3: Conv3d}


class PositionLinear(_Layer, nn.Linear):
    """`torch.nn.Linear` with the same parameters, computed as one matrix product a sample where
    that is faster.

    A weight gradient of few channels over 10^5 positions is a product so tall and thin that BLAS
    spends longer on it than on all the rest; one sample at a time it is several times faster.
    Batched products also read a channels-first field in place, where `Linear` would copy it. They
    store the weight gradients of all samples at once, so they are used only where activations are
    larger than that.
    """

    def forward(self, input: Tensor) -> Tensor:
        return position_linear(input, self.effective("weight"), self.effective("bias"))


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
    hooks = (
        layer._forward_pre_hooks,
        layer._forward_hooks,
        layer._backward_pre_hooks,
        layer._backward_hooks,
    )
    return type(layer) is PositionLinear and "forward" not in layer.__dict__ and not any(hooks)


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
        used = [layer.effective(name) for layer in layers for name in ("weight", "bias")]
        return recomputed(_pointwise, field, most, *used)


def _pointwise(field: Tensor, most: float, *layers: Any) -> Tensor:
    hidden = F.silu(position_linear(field, *layers[:2]))
    return field + bounded(position_linear(hidden, *layers[2:]), most)


class FieldNorm(_Layer, nn.GroupNorm):
    """One mean and one variance a sample, over channels and positions."""

    def __init__(self, dim: int, **factory: Unpack[Factory]) -> None:
        super().__init__(1, dim, **factory)

    def forward(self, input: Tensor) -> Tensor:
        field = input.movedim(-1, 1)
        weight, bias = self.effective("weight"), self.effective("bias")
        return F.group_norm(field, 1, weight, bias, self.eps).movedim(1, -1)


class LayerNorm(_Layer, nn.LayerNorm):
    """`torch.nn.LayerNorm` with a gain."""

    def forward(self, input: Tensor) -> Tensor:
        weight, bias = self.effective("weight"), self.effective("bias")
        return F.layer_norm(input, self.normalized_shape, weight, bias, self.eps)


NORMS: dict[str, Callable[..., nn.Module]] = {
    "group": FieldNorm,
    "layer": LayerNorm,
    "none": nn.Identity,
}
