"""All private names of PyTorch that the package uses. They serve derivatives of
`torch.autograd.Function`, nested as `torch.func` nests them, and of operators in programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor, is_legacy_batchedtensor
from torch.autograd import forward_ad

transforms_are_active = torch._C._are_functorch_transforms_active
without_transforms = torch._C._DisableFuncTorch
below_autograd = torch._C._AutoDispatchBelowAutograd
is_mapped = is_legacy_batchedtensor  # by `is_grads_batched`


@contextmanager
def at_lower_levels(*fields: Tensor | None) -> Iterator[list[Any]]:
    """The fields without the tangents of this level; other levels go on differentiating.

    PyTorch turns forward mode off while it runs `torch.autograd.Function.jvp`, so that forward mode
    over forward mode is silently wrong without this (seen in PyTorch 2.15).
    """
    with forward_ad._set_fwd_grad_enabled(True):
        # PyTorch has one level, number 0, which a compiler enters without Python's knowing.
        yield [None if x is None else forward_ad.unpack_dual(x, level=0).primal for x in fields]


def has_tangents(*fields: Tensor | None) -> bool:
    """Whether forward mode differentiates through one of the fields."""
    # Outside of `dual_level` there is none, unless a compiler entered a level of its own.
    if forward_ad._current_level < 0 and not torch.compiler.is_compiling():
        return False
    duals = (forward_ad.unpack_dual(x) for x in fields if x is not None)
    return any(dual.tangent is not None for dual in duals)


def needs_graph(*fields: Tensor | None) -> bool:
    """Whether a backward pass for these fields has to be differentiable or mapped over itself."""
    return torch.is_grad_enabled() or transforms_are_active() or has_tangents(*fields)


def are_plain(*fields: Tensor | None) -> bool:
    """Whether nothing but values is asked of functions of these fields: no derivative, no transform
    and no mode that watches operators. Then a Python function may take an operator's place, which
    saves 40 microseconds."""
    if torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack():
        return False
    if forward_ad._current_level >= 0 or transforms_are_active():
        return False
    tensors = [x for x in fields if x is not None]
    if any(x.is_meta or type(x) not in (Tensor, torch.nn.Parameter) for x in tensors):
        return False
    return not any(is_functorch_wrapped_tensor(x) or is_mapped(x) for x in tensors)


def differentiate(
    library: torch.library.Library,
    operator: Any,
    apply: Callable[..., Any],
    transformed: Callable[..., Any],
) -> None:
    """Differentiate an operator where a compiled or an exported program calls it.

    PyTorch's public rule (`torch.library.register_autograd`) drops forward-mode tangents in silence
    and does not know `torch.func` (seen in PyTorch 2.15).

    `library` holds the rule as long as it lives. `apply` is a `torch.autograd.Function` with the
    operator's arguments and outputs; `transformed` is what `torch.func` sees instead, because no
    Function can be applied where it calls operators.
    """

    def rule(keyset: Any, *args: Any) -> Any:
        if transforms_are_active():
            return transformed(*args)
        tensors = [x for x in args if isinstance(x, Tensor)]
        needed = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
        if needed or has_tangents(*tensors):
            return apply(*args)
        with below_autograd():
            return operator.redispatch(keyset & torch._C._after_autograd_keyset, *args)

    # torch.compile must not trace the rule where a graph break calls the operator.
    library.impl(operator, torch._disable_dynamo(rule), "Autograd", with_keyset=True)
