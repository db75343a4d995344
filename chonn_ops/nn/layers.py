"""Layers that blocks and models are made of, and what keeps them in bounds of size and memory.

All of them map channels-last fields (B, \\*grid, C).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

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


def gated(x: Tensor, gate: Tensor) -> Tensor:
    """x SiLU(gate), in the dtype of the gate."""
    # SiLU of a slice of few channels takes ten times as long on the CPU.
    return x.to(gate.dtype) * F.silu(gate.contiguous())


def channels_last(x: Tensor) -> Tensor:
    """``x.contiguous(memory_format=torch.channels_last)``, which `vmap` refuses."""
    return x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)


# Recomputation is for fields of so many elements: fewer take a few MiB at most. On a GPU it also
# launches kernels again, and a launch takes as long as `ON_GPU` times as many elements.
RECOMPUTE_FROM, ON_GPU = 2**19, 2**5


def recomputed(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function; for large fields autograd keeps its arguments only and calls it again in the
    backward pass.

    Everything the function depends on must be an argument: a module's attributes may have other
    values in the backward pass (`torch.func.functional_call`).

    Compilers choose themselves what to keep, and reverse mode under `torch.func` does not support
    checkpoints: there this is a plain call.
    """
    large = args[0].numel() >= RECOMPUTE_FROM * (1 if args[0].device.type == "cpu" else ON_GPU)
    if (
        not large
        or torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or not torch.is_grad_enabled()
    ):
        return function(*args)
    return checkpoint(function, *args, use_reentrant=False, preserve_rng_state=False)


def bounded(x: Tensor, most: float) -> Tensor:
    """Values between -most and most, which are x where it is small.

    The slope falls with a power of x, that of tanh exponentially. So gradients do not vanish after
    a step of an optimiser that was too large.
    """
    # Fourth powers of float16 end at 16.
    wide = x.float() if x.dtype == torch.float16 else x
    return recomputed(_bounded, wide, most).to(x.dtype)


def _bounded(x: Tensor, most: float) -> Tensor:
    # Beyond 1e5 the fourth power would overflow.
    factor = (1 + (x / most).clamp(-1e5, 1e5).square().square()).rsqrt().sqrt()
    return (x * factor).clamp(-most, most)


class Pointwise(nn.Module):
    """A two-layer network at every position: linear, SiLU, linear, with `hidden` channels inside.
    Called with a field and `most`, it returns the field plus the output, which is bounded to `most`
    (`bounded`).

    It has no norm. A norm over the field would remove the field's amplitude, in which a linear
    problem is linear.
    """

    def __init__(self, width: int, hidden: int, **factory: Unpack[Factory]) -> None:
        super().__init__()
        self.expand = nn.Linear(width, hidden, **factory)
        self.contract = nn.Linear(hidden, width, **factory)

    def forward(self, field: Tensor, most: float) -> Tensor:
        return field + bounded(self.contract(F.silu(self.expand(field))), most)


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
