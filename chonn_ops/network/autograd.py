r"""Derivatives of the operator; each is one more solve of the same network.

A backward of one level uses the factors of a direct forward. Under transforms, compilers and for
derivatives of derivatives the networks are eliminated again: that costs one elimination a solve.
There gradients of edges between nearly equal potentials keep fewer digits: a backward of one level
has the potentials' differences from the solve, with digits of their own.

With A v = s the nodal equations, A symmetric:

- backward: A w* = grad_v*, then grad_s = w, grad_l = -w v*, and for edges
  grad_g_pq = -(w_p - w_q) (v_p - v_q)*, where the star conjugates complex numbers: PyTorch's
  gradient of a real loss points where the loss rises. What is real has the real part as gradient;
- forward mode: A v' = s' - l' v - sum over q of g'_pq (v_p - v_q).

The solves are calls of the operator, so they have derivatives, too: of any order and mix of modes.

PyTorch's own rule for custom operators knows neither forward mode, whose tangents it drops without
a word, nor reverse mode under `torch.func`. So the kernel of the dispatch key "Autograd" is here.
`torch.func` runs it once for each of its transforms, with that level's tensors, as it does for
PyTorch's own operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

from chonn_ops._dtypes import to_dtype_of
from chonn_ops.network.edges import drops, outflow, pad, used_edges
from chonn_ops.network.operator import KEPT

_OPERATOR = torch.ops.chonn_ops.kirchhoff_network.default
# What runs without the derivatives of this level: in the guard, of these dispatch keys.
_below_autograd = torch._C._AutoDispatchBelowAutograd
_BELOW = torch._C._after_autograd_keyset
_BATCHED = torch._C._dispatch_key_parse("Batched")
_DEFAULTS = ("auto", True)
# Last arguments of a second solve with a network that has passed its checks.
_AGAIN = (False,)


def _faces(v: Tensor, axis: int, periodic: Sequence[bool]) -> tuple[str, str]:
    word = "periodic" if periodic[axis] and v.shape[axis + 1] > 1 else "neumann"
    return (word, word)


def _edge_gradient(w: Tensor, v: Tensor, axis: int, periodic: Sequence[bool]) -> Tensor:
    faces = _faces(v, axis, periodic)
    product = (drops(w, axis, faces) * drops(v.conj(), axis, faces)).neg_()
    return product if faces[0] == "periodic" else pad(product, axis, 0, 1)


def _tangent(
    tangents: Sequence[Tensor | None],
    conductance: Sequence[Any],
    leak: Tensor,
    v: Tensor,
    options: Any,
) -> Tensor:
    """The tangent of v; `tangents` are those of source, g0, g1, g2 and leak, `options` the
    operator's from `periodic` to `method`."""
    periodic = options[0]
    current = torch.zeros_like(v) if tangents[0] is None else tangents[0]
    if tangents[4] is not None:
        current = current - tangents[4] * v
    for axis, g in enumerate(tangents[1:4]):
        if g is not None:
            faces = _faces(v, axis, periodic)
            flow = used_edges(g, axis, periodic[axis]) * drops(v, axis, faces)
            current = current - outflow(flow, axis, faces)
    return _OPERATOR(current, *conductance, leak, *options, *_AGAIN)[0]


def _transformed(field: Tensor) -> bool:
    """Whether a transform, a compiler or another dispatch mode is at work."""
    batched = torch._C._dispatch_keys(field).has(_BATCHED)
    return (
        batched  # by `is_grads_batched`
        or torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
    )


class _Network(_SingleLevelFunction):
    """Reverse mode, and forward mode where both meet at one level."""

    @staticmethod
    def forward(ctx: Any, keyset: Any, *args: Any) -> tuple[Tensor, Tensor, Tensor]:
        # Other levels, of transforms around this one, go on differentiating.
        # Under a transform or a compiler the operator may run on other tensors than these.
        plain = not _transformed(args[0])
        with KEPT.requesting(factor=plain, drops=plain and any(ctx.needs_input_grad[2:5])):
            with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True), _below_autograd():
                v, iterations, residual = _OPERATOR.redispatch(keyset & _BELOW, *args)
            ctx.factor, found = KEPT.factor, KEPT.found
        ctx.save_for_backward(*args[:5], v, *found)
        ctx.save_for_forward(*args[:5], v)
        ctx.options = args[5:10]
        ctx.mark_non_differentiable(iterations, residual)
        ctx.set_materialize_grads(False)
        return v, iterations, residual

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor | None) -> tuple[Any, ...]:
        grad_v = grad_outputs[0]
        if grad_v is None:
            return (None,) * 12
        source, *conductance, leak, v = ctx.saved_tensors[:6]
        needed, periodic = ctx.needs_input_grad[1:], ctx.options[0]
        over_v, over_w = ctx.saved_tensors[6:], []
        plain = not (torch.is_grad_enabled() or _transformed(grad_v))
        plain = plain and forward_ad.unpack_dual(grad_v, level=0).tangent is None
        if plain and ctx.factor is not None:
            conj_w, over_w, _ = ctx.factor.solve_all(grad_v.conj(), drops=any(needed[1:4]))
        else:
            with KEPT.requesting(factor=False, drops=plain and any(needed[1:4])):
                conj_w = _OPERATOR(grad_v.conj(), *conductance, leak, *ctx.options, *_AGAIN)[0]
                over_w = KEPT.found
        w = conj_w.conj()
        grads: list[Tensor | None] = [None] * 3
        for axis, g in enumerate(conductance):
            if needed[axis + 1] and over_v and over_w:
                product = over_w[axis].mul_(over_v[axis])
                product.real.neg_()  # less its conjugate, in one pass
                grads[axis] = to_dtype_of(product, g)
            elif needed[axis + 1]:
                grads[axis] = to_dtype_of(_edge_gradient(w, v, axis, periodic), g)
        grad_leak = to_dtype_of((conj_w * v).neg_().conj(), leak) if needed[4] else None
        grad_source = to_dtype_of(w, source) if needed[0] else None
        return (None, grad_source, *grads, grad_leak, *[None] * 6)

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Tensor | None) -> Any:
        _, *conductance, leak, v = ctx.saved_tensors[:6]
        return _tangent(grad_inputs[1:6], conductance, leak, v, ctx.options), None, None


def _kernel(keyset: Any, *given: Any) -> tuple[Tensor, Tensor, Tensor]:
    """What the dispatch key "Autograd" runs, once for each level of differentiation."""
    # The dispatcher leaves out last arguments that equal their defaults.
    args: tuple[Any, ...] = (*given, *_DEFAULTS[len(given) - 11 + len(_DEFAULTS) :])
    tensors, rest = args[:5], args[5:]
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors):
        with enable_single_level_autograd_function():
            outputs: Any = _Network.apply(  # pyright: ignore[reportAttributeAccessIssue]
                keyset, *args
            )
        return outputs
    # Levels are numbered by PyTorch, which has only one, and enters it without Python's knowing.
    duals = [(None, None) if x is None else forward_ad.unpack_dual(x, level=0) for x in tensors]
    primals, tangents = zip(*duals, strict=True)
    if all(tangent is None for tangent in tangents):
        with _below_autograd():
            return _OPERATOR.redispatch(keyset & _BELOW, *args)
    v, iterations, residual = _OPERATOR(*primals, *rest)
    tangent = _tangent(tangents, primals[1:4], primals[4], v, rest[:5])
    return forward_ad.make_dual(v, tangent, level=0), iterations, residual


_LIBRARY = torch.library.Library("chonn_ops", "FRAGMENT")
_LIBRARY.impl("kirchhoff_network", torch._disable_dynamo(_kernel), "Autograd", with_keyset=True)
