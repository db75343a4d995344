"""Layers that blocks and models are made of, and what keeps them in bounds of size and memory.

All of them map channels-last fields (B, \\*grid, C).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from chonn_ops._pytorch import at_lower_levels, transforms_are_active
from chonn_ops.checks import plain

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


# Below so many elements recomputation is switched off: a batch keeps a few MiB at most. On a GPU
# recomputation also launches kernels again, and a launch takes as long as many elements.
RECOMPUTE_FROM, ON_GPU = 2**19, 2**5


def is_large(field: Tensor) -> bool:
    """Whether to compute again in the backward pass what would take as much memory as a field."""
    return field.numel() >= RECOMPUTE_FROM * (1 if field.device.type == "cpu" else ON_GPU)


def recomputed(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function; for large fields autograd keeps its arguments only and calls it again in the
    backward pass.

    Everything the function depends on must be an argument: a module's attributes may have other
    values in the backward pass (`torch.func.functional_call`).

    Compilers choose themselves what to keep, and reverse mode under `torch.func` does not support
    checkpoints: there this is a plain call.
    """
    if (
        torch.compiler.is_compiling()
        or transforms_are_active()
        or not torch.is_grad_enabled()
        or not is_large(args[0])
    ):
        return function(*args)
    return checkpoint(function, *args, use_reentrant=False, preserve_rng_state=False)


def bounded(x: Tensor, most: float) -> Tensor:
    """Values between -most and most, which are x where it is small.

    The slope falls with a power of x, that of tanh exponentially. So gradients do not vanish after
    a step of an optimiser that was too large.
    """
    if x.dtype == torch.float16:  # whose fourth powers end at 16
        return bounded(x.float(), most).to(x.dtype)
    if torch.compiler.is_compiling():
        return (x * _factor(x, most)).clamp(-most, most)
    return cast("Tensor", _Bounded.apply(x, most)[0])


def _factor(x: Tensor, most: float) -> Tensor:
    """(1 + (x / most)^4)^(-1/4) in functions that are fast; as at 10^5 where x / most is more,
    whose fourth power would overflow."""
    if torch.is_grad_enabled():
        return (1 + (x / most).clamp(-1e5, 1e5).square().square()).rsqrt().sqrt()
    return (x / most).clamp_(-1e5, 1e5).square_().square_().add_(1).rsqrt_().sqrt_()


def _slope(factor: Tensor) -> Tensor:
    return factor.square().square() * factor


class _Bounded(torch.autograd.Function):
    """x times its factor, whose fifth power is the slope. Returns the factor, too, which large
    fields do not keep.

    Autograd's own graph of these operations would keep all of them and take twice as long.
    """

    @staticmethod
    def forward(x: Tensor, most: float) -> tuple[Tensor, Tensor]:
        factor = _factor(x, most)
        return (x * factor).clamp_(-most, most), factor

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        x, ctx.most = inputs
        ctx.save_for_backward(x, *([] if is_large(x) else output[1:]))
        ctx.save_for_forward(x)
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> tuple[Any, Any]:
        del info
        return _Bounded.apply(*inputs), (in_dims[0], in_dims[0])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, None]:
        x, *kept = ctx.saved_tensors
        if grads[0] is None:
            return None, None
        again = torch.is_grad_enabled() or not kept
        return grads[0] * _slope(_factor(x, ctx.most) if again else kept[0]), None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, None]:
        with at_lower_levels(ctx.saved_tensors[0]) as (x,):
            return tangents[0] * _slope(_factor(x, ctx.most)), None


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
