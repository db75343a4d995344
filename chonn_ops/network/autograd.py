r"""Derivatives of the operator; each is one more solve of the same network.

A backward of one level uses the factors of a direct forward, and differences of potentials from the
solve, with digits of their own. Under transforms and for derivatives of derivatives, the networks
are solved again, in float64, for potentials and differences (`chonn_ops.network.levels`): four
solves for the gradients of conductances, two more for each further order. A backward that a
compiler records is one operator, which does what a backward of one level does.

With A v = s the nodal equations, A symmetric:

- backward: A w* = grad_v*, then grad_s = w, grad_l = -w v*, and for edges
  grad_g_pq = -(w_p - w_q) (v_p - v_q)*, where the star conjugates complex numbers: PyTorch's
  gradient of a real loss points where the loss rises. What is real has the real part as gradient;
- forward mode: A v' = s' - l' v - sum over q of g'_pq (v_p - v_q).

The solves are calls of operators, so they have derivatives, too: of any order and mix of modes.

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

from chonn_ops._dtypes import compute_dtype, to_dtype_of
from chonn_ops.network import derivatives
from chonn_ops.network.derivatives import edge_gradients, potentials
from chonn_ops.network.edges import differences
from chonn_ops.network.levels import BELOW, below_autograd
from chonn_ops.network.methods import lifted
from chonn_ops.network.operator import KEPT
from chonn_ops.network.torch import recording

_OPERATOR = torch.ops.chonn_ops.kirchhoff_network.default
_BATCHED = torch._C._dispatch_key_parse("Batched")
_DEFAULTS = ("auto", True)
# Last arguments of a second solve with a network that has passed its checks.
_AGAIN = (False,)


def _tangent(
    tangents: Sequence[Tensor | None], source: Tensor, network: tuple[Any, ...], v: Tensor
) -> Tensor:
    """The tangent of v; `tangents` are those of source, g0, g1, g2 and leak, `network` what the
    operator takes behind the source, up to `method`."""
    if any(g is not None for g in tangents[1:4]):
        changes = (tangents[0], None, *tangents[1:])
        found = potentials(source, None, network)
        return derivatives.tangents(*found, changes, network)[0].to(v.dtype)
    current = torch.zeros_like(v) if tangents[0] is None else tangents[0]
    if tangents[4] is not None:
        current = current - tangents[4] * v
    return _OPERATOR(current, *network, *_AGAIN)[0]


def _transformed(field: Tensor) -> bool:
    """Whether a transform, a compiler or another dispatch mode is at work."""
    return (
        _batched(field)
        or torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
    )


def _batched(field: Tensor) -> bool:
    """Whether this is one of the tensors of `is_grads_batched`."""
    return torch._C._dispatch_keys(field).has(_BATCHED)


def _packed() -> bool:
    """Whether saved tensors are handed to hooks: checkpoints, which forget them until the
    backward, or what moves them away. Factors would stay, and with them the memory."""
    hooks: Any = torch._C._autograd  # pyright: ignore[reportAttributeAccessIssue]
    return hooks._top_saved_tensors_default_hooks(True) is not None


class _Network(_SingleLevelFunction):
    """Reverse mode, and forward mode where both meet at one level."""

    @staticmethod
    def forward(ctx: Any, keyset: Any, *args: Any) -> tuple[Tensor, Tensor, Tensor]:
        # Other levels, of transforms around this one, go on differentiating.
        # Under a transform or a compiler the operator may run on other tensors than these.
        plain = not _transformed(args[0])
        drops = plain and any(ctx.needs_input_grad[2:5])
        with KEPT.requesting(factor=plain and not _packed(), drops=drops):
            with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True), below_autograd():
                v, iterations, residual = _OPERATOR.redispatch(keyset & BELOW, *args)
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
        saved = ctx.saved_tensors  # hooks may let them be read once only
        (source, *conductance, leak, v), over_v = saved[:6], saved[6:]
        needed, edges = ctx.needs_input_grad[1:], any(ctx.needs_input_grad[2:5])
        network = (*conductance, leak, *ctx.options)
        once = not (torch.is_grad_enabled() or _batched(grad_v))
        once = once and not torch._C._are_functorch_transforms_active()
        once = once and forward_ad.unpack_dual(grad_v, level=0).tangent is None
        products: Sequence[Tensor] = ()
        if edges and not once:
            v, conj_w, products = edge_gradients(source, grad_v, network)
        elif edges and _transformed(grad_v):  # a graph is recorded
            found = torch.ops.chonn_ops.network_gradients(grad_v, source, *network)
            conj_w, *products = found
        elif once and not _transformed(grad_v):
            conj_w, over_w = _solve_again(grad_v, network, ctx.factor, drops=edges)
            if edges:
                v, conj_w, products = _gradients_of_edges(
                    grad_v, source, network, (v, over_v), (conj_w, over_w)
                )
        else:
            conj_w = _OPERATOR(grad_v.conj(), *network, *_AGAIN)[0]
        grads: list[Tensor | None] = [None] * 3
        for axis, product in enumerate(products):
            if needed[axis + 1]:
                grads[axis] = to_dtype_of(product, conductance[axis])
        grad_leak = to_dtype_of((conj_w * v).neg().conj(), leak) if needed[4] else None
        grad_source = to_dtype_of(conj_w.conj(), source) if needed[0] else None
        return (None, grad_source, *grads, grad_leak, *[None] * 6)

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Tensor | None) -> Any:
        source, *network, v = ctx.saved_tensors[:6]
        tangent = _tangent(grad_inputs[1:6], source, (*network, *ctx.options), v)
        return tangent, None, None


def _solve_again(
    grad: Tensor, network: tuple[Any, ...], factor: Any, *, drops: bool
) -> tuple[Tensor, Sequence[Tensor]]:
    """conj(w) and, where they are wanted and the operator gives them, its drops."""
    if factor is not None:
        return factor.solve_all(grad.conj(), drops=drops)[:2]
    with KEPT.requesting(factor=False, drops=drops):
        conj_w = _OPERATOR(grad.conj(), *network, *_AGAIN)[0]
        return conj_w, KEPT.found


def _gradients_of_edges(
    grad: Tensor,
    source: Tensor,
    network: tuple[Any, ...],
    *solutions: tuple[Tensor, Sequence[Tensor]],
) -> tuple[Tensor, Tensor, Sequence[Tensor]]:
    """v, conj(w) and the gradients of conductances, of these two and their drops, which are
    overwritten; where they have none with digits, of solves in float64."""
    periodic, tol = network[4:6]
    fields = []
    for x, found in solutions:
        if not found:
            axes = enumerate(periodic, -1 - len(periodic))
            found = [differences(x, axis, closed) for axis, closed in axes]
            if not recording(x) and bool(lifted(x, found, tol).any()):
                with torch.no_grad():
                    return edge_gradients(source, grad, network)
        fields.append(found)
    products = []
    for over_v, over_w in zip(*fields, strict=True):
        product = over_w.mul_(over_v)
        product.real.neg_()  # less its conjugate, in one pass
        products.append(product)
    return solutions[0][0], solutions[1][0], products


torch.library.define(
    "chonn_ops::network_gradients",
    "(Tensor grad, Tensor source, Tensor g0, Tensor? g1, Tensor? g2, Tensor leak, bool[] periodic, "
    "float tol, int max_iterations, str backend, str method) -> Tensor[]",
    tags=torch.Tag.pt2_compliant_tag,
)


def _gradients(
    grad: Tensor,
    source: Tensor,
    g0: Tensor,
    g1: Tensor | None,
    g2: Tensor | None,
    leak: Tensor,
    *options: Any,
) -> list[Tensor]:
    """conj(w), and the gradient of each axis's conductances: a backward that a graph records."""
    network = (g0, g1, g2, leak, *options)
    with KEPT.requesting(factor=True, drops=True):
        v = _OPERATOR(source, *network, *_AGAIN)[0]
        factor, over_v = KEPT.factor, KEPT.found
    conj_w = _solve_again(grad, network, factor, drops=True)
    _, w, products = _gradients_of_edges(grad, source, network, (v, over_v), conj_w)
    return [x.to(v.dtype) for x in (w, *products)]


torch.library.impl("chonn_ops::network_gradients", "default", _gradients)


@torch.library.register_fake("chonn_ops::network_gradients")
def _(grad: Tensor, source: Tensor, *arguments: Any) -> list[Tensor]:
    del grad
    dtype = compute_dtype(source, *arguments[:4])
    return [source.new_empty(source.shape, dtype=dtype) for _ in range(source.dim() - 1)]


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
        with below_autograd():
            return _OPERATOR.redispatch(keyset & BELOW, *args)
    v, iterations, residual = _OPERATOR(*primals, *rest)
    tangent = _tangent(tangents, primals[0], (*primals[1:], *rest[:5]), v)
    return forward_ad.make_dual(v, tangent, level=0), iterations, residual


_LIBRARY = torch.library.Library("chonn_ops", "FRAGMENT")
_LIBRARY.impl("kirchhoff_network", torch._disable_dynamo(_kernel), "Autograd", with_keyset=True)
