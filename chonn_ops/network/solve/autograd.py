r"""Solves with derivatives; each derivative is one more solve of the same network.

- Backward: `chonn_ops.network.solve.derivatives.adjoint` of w with A w = grad_v*, which the
  operator or the factor of the networks solves, once;
- forward mode: A v' = s' - l' v - sum over q of g'_pq (v_p - v_q).

A backward that is not differentiated itself is one operator, ``network_gradients``. It takes the
factor of an eliminated forward, and differences of potentials with digits of their own, as tensors
that the forward has returned; autograd saves them as it saves all tensors. Derivatives of
derivatives, those of `torch.func` among them, are solved in float64, for potentials and differences
(`chonn_ops.network.solve.derivatives`): two solves for the gradients of conductances, more for each
further order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor

from chonn_ops import _in_graph
from chonn_ops._dtypes import compute_dtype, without_autocast
from chonn_ops._forward_mode import are_plain, at_lower_levels, differentiate, has_tangents
from chonn_ops.checks import recording
from chonn_ops.network.direct import Factor
from chonn_ops.network.layout import beside
from chonn_ops.network.solve.derivatives import adjoint, fold, potentials, tangents
from chonn_ops.network.solve.ground import at_limits, labels_of, without
from chonn_ops.network.solve.methods import Network, lifted
from chonn_ops.network.solve.operator import direct_backend, run_network


class _Network(torch.autograd.Function):
    """The arguments are those of the operator; whether to keep what a backward can use, and whether
    that has differences; a factor that solves instead of the operator, or None; and the `rates` of
    `chonn_ops.network.solve.ground`, or None.

    Returns potentials, iterations and residuals, how many of the next tensors are differences, the
    differences and the state of the operator's factor. A factor has no iterations and residuals.
    """

    @staticmethod
    def forward(*args: Any) -> Any:
        """Solve by the factor, where there is one, or else by the operator."""
        *given, keep, drops, factor, _ = args
        if factor is not None:
            with without_autocast(given[0]):
                v, over_v, _ = factor.solve_all(given[0], drops=drops)
            # A copy, because forward mode refuses views of other tensors.
            return (v.clone(), None, None, len(over_v), *over_v)
        if not keep:
            return (*torch.ops.chonn_ops.kirchhoff_network(*given), 0)
        *solved, over_v, state = torch.ops.chonn_ops.kirchhoff_network_kept(*given, drops=drops)
        return (*solved, len(over_v), *over_v, *state)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        v, iterations, residual, ctx.num_drops, *kept = output
        ctx.save_for_backward(*inputs[:5], v, inputs[15], *kept)
        ctx.save_for_forward(*inputs[:5], v, inputs[15])
        ctx.options, ctx.traced, ctx.factor = inputs[5:11], not inputs[12], inputs[14]
        ctx.num_outputs = len(output)
        plain = () if iterations is None else (iterations, residual)
        ctx.mark_non_differentiable(*plain, *kept)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        """Return the gradients of the inputs, None for options."""
        needed = ctx.needs_input_grad
        others = (None,) * (len(needed) - 5)
        return (*([None] * 5 if grads[0] is None else _gradients(ctx, grads[0])), *others)

    @staticmethod
    def jvp(ctx: Any, *changes: Any) -> tuple[Any, ...]:
        with at_lower_levels(*ctx.saved_tensors[:7]) as (source, *network, v, rates):
            change, *of_edges, of_leak = changes[:5]
            network = Network.of(*network, *ctx.options)
            if any(x is not None for x in of_edges):
                found = potentials(source, None, network)
                every = (change, None, *of_edges, of_leak)
                tangent = tangents(*found, every, network, rates)[0].to(v.dtype)
            else:
                change = torch.zeros_like(v) if change is None else change
                if of_leak is not None:
                    change = change - beside(of_leak, v) * v
                change = without(change, labels_of(network))
                tangent = solve_network(change, network, check=False, factor=ctx.factor)[0]
        return tangent, *[None] * (ctx.num_outputs - 1)

    @staticmethod
    def vmap(info: Any, in_dims: Sequence[Any], *args: Any) -> Any:
        # Differences and factors belong to unmapped networks, so none are wanted.
        given = (*args[:12], False, False, None, args[15])
        outputs, dims = fold(apply_network, info, in_dims, *given)
        return (*outputs, 0), (*dims, None)


# PyTorch asks for this at every call, and Python works it out anew where it is no attribute: 10 us.
_Network.forward.__signature__ = signature(_Network.forward)  # pyright: ignore[reportFunctionMemberAccess]


def apply_network(*args: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Apply `_Network`, for its potentials, iterations and residuals."""
    outputs: Any = _Network.apply(*args)
    return outputs[:3]


def solve_network(
    source: Tensor,
    network: Network,
    *,
    check: bool = True,
    factor: Any = None,
    rates: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Solve networks, differentiably in every mode.

    Sources are (B, \\*grid, C) or (B, S, \\*grid, C). `check` says whether the operator checks
    values. `factor`, of these networks, solves for potentials alone. `rates`: as in
    `chonn_ops.network.solve.ground`. Returns what the operator returns.
    """
    if torch.compiler.is_compiling():
        # A traced program keeps nothing, because what there is to keep depends on values.
        options = (check, False, False, None, rates)
        return _in_graph.apply_network(source, *network.arguments(), *options)
    if factor is not None and _is_mapped(source):
        factor = None
    keep = drops = False
    if torch.is_grad_enabled():
        drops = any(g.requires_grad for g in network.conductance)
        keep = drops or source.requires_grad or network.leak.requires_grad
    if factor is None and not keep and are_plain(source, *network.conductance, network.leak):
        return run_network(source, network, check)[:3]
    return apply_network(source, *network.arguments(), check, keep, drops, factor, rates)


def _is_mapped(field: Tensor) -> bool:
    """Whether `is_grads_batched`, or `vectorize` of `torch.autograd.functional`, maps over a field.
    The operator takes it then, a factor does not."""
    return is_legacy_batchedtensor(field)


def _gradients(ctx: Any, grad: Tensor) -> Sequence[Tensor | None]:
    """Compute the gradients of source, g0, g1, g2 and leak from that of the potentials."""
    saved = ctx.saved_tensors  # hooks may let them be read once only
    inputs, v, rates, kept = saved[:5], saved[5], saved[6], saved[7:]
    needed = list(ctx.needs_input_grad[:5])
    over_v, state = kept[: ctx.num_drops], kept[ctx.num_drops :]
    network = Network.of(*inputs[1:], *ctx.options)
    given = (grad, inputs[0], v)
    # What transforms a backward without a graph is `torch.vmap` over `torch.autograd.grad`.
    transformed = torch._C._are_functorch_transforms_active()
    if torch.is_grad_enabled() or transformed or has_tangents(grad, *inputs):
        return _differentiable(*given, network, needed, rates, ctx.factor)
    if ctx.factor is not None and not _is_mapped(grad):
        return by_factor(*given, over_v, ctx.factor, network, needed, rates)
    found = torch.ops.chonn_ops.network_gradients(
        *given, over_v, state, *network.arguments(), needed, ctx.traced, rates
    )
    return [x if wanted else None for x, wanted in zip(found, needed, strict=True)]


def _differentiable(
    grad: Tensor,
    source: Tensor,
    v: Tensor,
    network: Network,
    needed: Sequence[bool],
    rates: Tensor | None,
    factor: Any = None,
) -> list[Tensor | None]:
    """Gradients by operations that have derivatives themselves; in float64 for conductances."""
    label = labels_of(network)
    of_w = without(grad, label).conj().resolve_conj()  # see `adjoint`
    over_v: Sequence[Tensor] = ()
    over_w: Sequence[Tensor] = ()
    if any(needed[1:4]):
        v, drops_v = potentials(source, None, network)
        w, drops_w = potentials(of_w, None, network)
        over_v, over_w = drops_v.unbind(-1), drops_w.unbind(-1)
    else:
        w = solve_network(of_w, network, check=False, factor=factor)[0]
    v, over_v = at_limits(network, label, rates, v, over_v)
    w, over_w = at_limits(network, label, rates, w, over_w, walls=False)
    return adjoint(w, over_w, v, over_v, (source, *network.fields), needed)


def by_factor(
    grad: Tensor,
    source: Tensor,
    v: Tensor,
    over_v: Sequence[Tensor],
    factor: Any,
    network: Network,
    needed: Sequence[bool],
    rates: Tensor | None,
) -> list[Tensor | None]:
    """Gradients by one solve with the factor, or with the operator where it is None."""
    edges, label = any(needed[1:4]), labels_of(network)
    of_w = without(grad, label).conj().resolve_conj()  # see `adjoint`
    if factor is None:
        operator = torch.ops.chonn_ops.kirchhoff_network_kept
        w, _, _, over_w, _ = operator(of_w, *network.arguments(), False, drops=edges)
    else:
        with without_autocast(source):
            w, over_w, _ = factor.solve_all(of_w, drops=edges)
    pairs: list[Any] = []
    for x, over_x, walls in ((w, over_w, False), (v, over_v, True)):
        if edges and not over_x:
            over_x = network.layout.drops(x)
            if not recording(x) and bool(lifted(x, over_x, network.tol).any()):
                return _differentiable(grad, source, v, network, needed, rates)
        pairs.append(at_limits(network, label, rates, x, over_x, walls=walls))
    (w, over_w), (v, over_v) = pairs
    return adjoint(w, over_w, v, over_v, (source, *network.fields), needed)


def _recorded(*args: Any) -> tuple[Tensor, ...]:
    """Solve as the operator does, for compiled and exported programs, and keep nothing."""
    left_out = ("auto", None, True)[len(args) - 9 :]  # method, graph, check
    return apply_network(*args, *left_out, False, False, None, None)


def _refused(*_: Any) -> Any:
    raise NotImplementedError(
        "torch.func differentiates no networks of exported programs; differentiate these by "
        "torch.autograd, or the module that was exported by torch.func"
    )


torch.library.define(
    "chonn_ops::network_gradients",
    "(Tensor grad, Tensor source, Tensor v, Tensor[] drops, Tensor[] factor, Tensor g0, "
    "Tensor? g1, Tensor? g2, Tensor leak, bool[] periodic, float tol, int max_iterations, "
    "str backend, str method, Tensor? graph, bool[] needed, bool again, Tensor? rates) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    tags=torch.Tag.pt2_compliant_tag,
)


@torch.library.impl("chonn_ops::network_gradients", "default")
def _network_gradients(
    grad: Tensor,
    source: Tensor,
    v: Tensor,
    drops: Sequence[Tensor],
    state: Sequence[Tensor],
    *arguments: Any,
) -> tuple[Tensor, ...]:
    """Compute the gradients of source, g0, g1, g2 and leak; empty tensors for those not `needed`.

    `again`: the forward was traced, so that it could keep neither differences nor a factor; both
    are found once more.
    """
    *network, needed, again, rates = arguments
    if again and any(needed[1:4]):
        operator = torch.ops.chonn_ops.kirchhoff_network_kept
        v, _, _, drops, state = operator(source, *network, False, drops=True)
    network, factor = Network.of(*network), None
    if state:
        name = direct_backend(network.backend, source.device)
        options: Any = {"dtype": compute_dtype(source, *network.fields), "backend": name}
        factor = Factor(*network.plain, tol=network.tol, state=state, **options)
    found = by_factor(grad, source, v, drops, factor, network, needed, rates)
    return _or_empty(v, found)


def _or_empty(like: Tensor, gradients: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
    """Gradients as the operator returns them, which has no word for None."""
    return tuple(like.new_empty(0) if x is None else x.contiguous() for x in gradients)


@torch.library.register_fake("chonn_ops::network_gradients")
def _(
    grad: Tensor, source: Tensor, v: Tensor, drops: Any, factor: Any, *arguments: Any
) -> tuple[Tensor, ...]:
    del grad, drops, factor
    inputs = zip((source, *arguments[:4]), arguments[-3], strict=True)
    return _or_empty(v, [x.new_empty(x.shape) if needed else None for x, needed in inputs])


def _batched_gradients(
    grad: Tensor, source: Tensor, v: Tensor, drops: Any, factor: Any, *arguments: Any
) -> tuple[Tensor, ...]:
    """Compute gradients for `is_grads_batched`, by operators without lists of tensors: PyTorch
    batches only these."""
    del drops, factor
    *network, needed, _, rates = arguments
    return _or_empty(v, _differentiable(grad, source, v, Network.of(*network), needed, rates))


_LIBRARY = torch.library.Library("chonn_ops", "IMPL")
differentiate(_LIBRARY, torch.ops.chonn_ops.kirchhoff_network.default, _recorded, _refused)
_LIBRARY.impl("network_gradients", _batched_gradients, "Batched")
# `torch.vmap` of the bare operator; the functions above have rules of their own.
torch.library.register_vmap(
    "chonn_ops::kirchhoff_network", partial(fold, torch.ops.chonn_ops.kirchhoff_network)
)


def _mapped_labels(info: Any, in_dims: Sequence[Any], *args: Any) -> tuple[Tensor, int]:
    (label,), _ = fold(lambda *x: (torch.ops.chonn_ops.cut_off(*x),), info, in_dims, *args)
    return label, 0


torch.library.register_vmap("chonn_ops::cut_off", _mapped_labels)
