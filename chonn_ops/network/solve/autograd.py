r"""Solves with derivatives; each derivative is one more solve of the same network.

- Backward: `chonn_ops.network.solve.derivatives.adjoint` of w with A w = grad_v*, which the
  operator or the elimination of the networks solves, once;
- forward mode: A v' = s' - l' v - sum over q of g'_pq (v_p - v_q).

A backward that is not differentiated itself is one operator, ``network_gradients``. It takes the
state of an eliminated forward, and differences of potentials with digits of their own, as tensors
that the forward has returned; autograd saves them as it saves all tensors. Derivatives of
derivatives, those of `torch.func` among them, are solved in float64, for potentials and differences
(`chonn_ops.network.solve.derivatives`): two solves for the gradients of conductances, more for each
further order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from chonn_ops import _in_graph
from chonn_ops._dtypes import compute_dtype, without_autocast
from chonn_ops._pytorch import are_plain, at_lower_levels, differentiate, is_mapped, needs_graph
from chonn_ops.checks import recording
from chonn_ops.network.direct.elimination import Elimination
from chonn_ops.network.layout import beside
from chonn_ops.network.solve.derivatives import adjoint, fold, potentials, tangents
from chonn_ops.network.solve.ground import at_limits, labels_of, without
from chonn_ops.network.solve.methods import Networks, lifted
from chonn_ops.network.solve.operator import direct_backend, run_network


@dataclass(frozen=True)
class _Call:
    """What a solve needs beside tensors that have derivatives."""

    options: tuple[Any, ...]  # `Networks.arguments` behind the leak
    check: bool = True  # whether the operator checks values
    keep: bool = False  # whether to keep what a backward can use
    drops: bool = False  # whether to keep drops, too
    elimination: Any = None  # solves instead of the operator


class _Solve(torch.autograd.Function):
    """The arguments are source, g0, g1, g2 and leak, the `rates` of `ground` or None, and the call.

    Returns potentials, iterations and residuals, how many of the next tensors are drops, the drops
    and the state of the operator's elimination. A given elimination has neither iterations nor
    residuals.
    """

    @staticmethod
    def forward(*inputs: Any) -> Any:
        """Solve by the elimination, where there is one, or else by the operator."""
        source, *fields, _, call = inputs
        if call.elimination is not None:
            with without_autocast(source):
                v, drops, _ = call.elimination.solve_all(source, drops=call.drops)
            # A copy, because forward mode refuses views of other tensors.
            return (v.clone(), None, None, len(drops), *drops)
        arguments = (source, *fields, *call.options, call.check)
        if not call.keep:
            return (*torch.ops.chonn_ops.kirchhoff_network(*arguments), 0)
        operator = torch.ops.chonn_ops.kirchhoff_network_kept
        *solved, drops, state = operator(*arguments, drops=call.drops)
        return (*solved, len(drops), *drops, *state)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        *tensors, ctx.call = inputs
        v, iterations, residual, ctx.num_drops, *saved = output
        ctx.save_for_backward(*tensors, v, *saved)
        ctx.save_for_forward(*tensors, v)
        ctx.num_outputs = len(output)
        plain = () if iterations is None else (iterations, residual)
        ctx.mark_non_differentiable(*plain, *saved)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        """Return the gradients of the inputs, None for rates and the call."""
        return (*([None] * 5 if grads[0] is None else _gradients(ctx, grads[0])), None, None)

    @staticmethod
    def jvp(ctx: Any, *changes: Any) -> tuple[Any, ...]:
        with at_lower_levels(*ctx.saved_tensors[:7]) as (source, *fields, rates, v):
            change, *of_edges, of_leak = changes[:5]
            networks = Networks.of(*fields, *ctx.call.options)
            if any(x is not None for x in of_edges):
                values = potentials(source, None, networks)
                every = (change, None, *of_edges, of_leak)
                tangent = tangents(*values, every, networks, rates)[0].to(v.dtype)
            else:
                change = torch.zeros_like(v) if change is None else change
                if of_leak is not None:
                    change = change - beside(of_leak, v) * v
                change = without(change, labels_of(networks))
                elimination = ctx.call.elimination
                tangent = solve_network(change, networks, check=False, elimination=elimination)[0]
        return tangent, *[None] * (ctx.num_outputs - 1)

    @staticmethod
    def vmap(info: Any, in_dims: Sequence[Any], *inputs: Any) -> Any:
        # Drops and factors belong to unmapped networks, so none are wanted.
        call = _Call(inputs[-1].options, inputs[-1].check)
        outputs, dims = fold(_solved, info, in_dims, *inputs[:-1], call)
        return (*outputs, 0), (*dims, None)


# PyTorch asks for this at every call, and Python works it out anew where it is no attribute: 10 us.
_Solve.forward.__signature__ = signature(_Solve.forward)  # pyright: ignore[reportFunctionMemberAccess]


def _solved(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Apply `_Solve`, for its potentials, iterations and residuals."""
    outputs: Any = _Solve.apply(*inputs)
    return outputs[:3]


def apply_network(source: Tensor, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Solve in a program that is traced. It keeps nothing, because what there is to keep depends on
    values. `arguments`: those of `Networks.of`, whether the operator checks values, and rates."""
    *fields_and_options, check, rates = arguments
    call = _Call(tuple(fields_and_options[4:]), check)
    return _solved(source, *fields_and_options[:4], rates, call)


def solve_network(
    source: Tensor,
    network: Networks,
    *,
    check: bool = True,
    elimination: Any = None,
    rates: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Solve networks, differentiably in every mode.

    Sources are (B, \\*grid, C) or (B, S, \\*grid, C). `check` says whether the operator checks
    values. `elimination`, of these networks, solves for potentials alone. `rates`: as in
    `chonn_ops.network.solve.ground`. Returns what the operator returns.
    """
    if torch.compiler.is_compiling():
        return _in_graph.apply_network(source, *network.arguments(), check, rates)
    # `is_grads_batched` maps over fields, which the operator takes and an elimination does not.
    if elimination is not None and is_mapped(source):
        elimination = None
    keep = drops = False
    if torch.is_grad_enabled():
        drops = any(g.requires_grad for g in network.conductance)
        keep = drops or source.requires_grad or network.leak.requires_grad
    if elimination is None and not keep and are_plain(source, *network.conductance, network.leak):
        return run_network(source, network, check)[:3]
    arguments = network.arguments()
    call = _Call(arguments[4:], check, keep, drops, elimination)
    return _solved(source, *arguments[:4], rates, call)


def _gradients(ctx: Any, grad: Tensor) -> Sequence[Tensor | None]:
    """Compute the gradients of source, g0, g1, g2 and leak from that of the potentials."""
    source, *fields, rates, v = (saved := ctx.saved_tensors)[:7]  # hooks may let them be read once
    drops, state = saved[7 : 7 + ctx.num_drops], saved[7 + ctx.num_drops :]
    needed = list(ctx.needs_input_grad[:5])
    elimination, solved = ctx.call.elimination, (grad, source, v)
    arguments = (*fields, *ctx.call.options)  # a compiler does not read the graph that is in them
    # What transforms a backward without a graph is `torch.vmap` over `torch.autograd.grad`.
    if needs_graph(grad, source, *fields):
        return _differentiable(*solved, Networks.of(*arguments), needed, rates, elimination)
    if elimination is not None and not is_mapped(grad):
        networks = Networks.of(*arguments)
        return by_elimination(*solved, drops, elimination, networks, needed, rates)
    traced = not ctx.call.keep
    gradients = torch.ops.chonn_ops.network_gradients(
        *solved, drops, state, *arguments, needed, traced, rates
    )
    return [x if wanted else None for x, wanted in zip(gradients, needed, strict=True)]


def _differentiable(
    grad: Tensor,
    source: Tensor,
    v: Tensor,
    networks: Networks,
    needed: Sequence[bool],
    rates: Tensor | None,
    elimination: Any = None,
) -> list[Tensor | None]:
    """Gradients by operations that have derivatives themselves; in float64 for conductances."""
    label = labels_of(networks)
    of_w = without(grad, label).conj().resolve_conj()  # see `adjoint`
    drops_v: Sequence[Tensor] = ()
    drops_w: Sequence[Tensor] = ()
    if any(needed[1:4]):
        v, stacked_v = potentials(source, None, networks)
        w, stacked_w = potentials(of_w, None, networks)
        drops_v, drops_w = stacked_v.unbind(-1), stacked_w.unbind(-1)
    else:
        w = solve_network(of_w, networks, check=False, elimination=elimination)[0]
    v, drops_v = at_limits(networks, label, rates, v, drops_v)
    w, drops_w = at_limits(networks, label, rates, w, drops_w, walls=False)
    return adjoint(w, drops_w, v, drops_v, (source, *networks.fields), needed)


def by_elimination(
    grad: Tensor,
    source: Tensor,
    v: Tensor,
    drops_v: Sequence[Tensor],
    elimination: Any,
    networks: Networks,
    needed: Sequence[bool],
    rates: Tensor | None,
) -> list[Tensor | None]:
    """Gradients by one solve with the elimination, or with the operator where it is None."""
    edges, label = any(needed[1:4]), labels_of(networks)
    of_w = without(grad, label).conj().resolve_conj()  # see `adjoint`
    if elimination is None:
        operator = torch.ops.chonn_ops.kirchhoff_network_kept
        w, _, _, drops_w, _ = operator(of_w, *networks.arguments(), False, drops=edges)
    else:
        with without_autocast(source):
            w, drops_w, _ = elimination.solve_all(of_w, drops=edges)
    pairs: list[Any] = []
    for x, drops, walls in ((w, drops_w, False), (v, drops_v, True)):
        if edges and not drops:
            drops = networks.layout.drops(x)
            if not recording(x) and bool(lifted(x, drops, networks.tol).any()):
                return _differentiable(grad, source, v, networks, needed, rates)
        pairs.append(at_limits(networks, label, rates, x, drops, walls=walls))
    (w, drops_w), (v, drops_v) = pairs
    return adjoint(w, drops_w, v, drops_v, (source, *networks.fields), needed)


def _recorded(*args: Any) -> tuple[Tensor, ...]:
    """Solve as the operator does, for compiled and exported programs."""
    left_out = ("auto", None, True)[len(args) - 9 :]  # method, graph, check
    return apply_network(*args, *left_out, None)


def _refused(*_: Any) -> Any:
    raise NotImplementedError(
        "torch.func differentiates no networks of exported programs; differentiate these by "
        "torch.autograd, or the module that was exported by torch.func"
    )


torch.library.define(
    "chonn_ops::network_gradients",
    "(Tensor grad, Tensor source, Tensor v, Tensor[] drops, Tensor[] state, Tensor g0, "
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

    `again`: the forward was traced, so that it could keep neither drops nor a state; both are found
    once more.
    """
    *flat, needed, again, rates = arguments
    if again and any(needed[1:4]):
        operator = torch.ops.chonn_ops.kirchhoff_network_kept
        v, _, _, drops, state = operator(source, *flat, False, drops=True)
    networks, eliminated = Networks.of(*flat), None
    if state:
        name = direct_backend(networks.backend, source.device)
        dtype = compute_dtype(source, *networks.fields)
        # Real networks with negative numbers have been eliminated in a wider dtype.
        options: Any = {"dtype": dtype if dtype.is_complex else state[1].dtype, "backend": name}
        eliminated = Elimination(*networks.detached, tol=networks.tol, state=state, **options)
    return _or_empty(v, by_elimination(grad, source, v, drops, eliminated, networks, needed, rates))


def _or_empty(like: Tensor, gradients: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
    """Gradients as the operator returns them, which has no word for None."""
    return tuple(like.new_empty(0) if x is None else x.contiguous() for x in gradients)


@torch.library.register_fake("chonn_ops::network_gradients")
def _(
    grad: Tensor, source: Tensor, v: Tensor, drops: Any, state: Any, *arguments: Any
) -> tuple[Tensor, ...]:
    del grad, drops, state
    inputs = zip((source, *arguments[:4]), arguments[-3], strict=True)
    return _or_empty(v, [x.new_empty(x.shape) if needed else None for x, needed in inputs])


def _batched_gradients(
    grad: Tensor, source: Tensor, v: Tensor, drops: Any, state: Any, *arguments: Any
) -> tuple[Tensor, ...]:
    """Compute gradients for `is_grads_batched`, by operators without lists of tensors: PyTorch
    batches only these."""
    del drops, state
    *flat, needed, _, rates = arguments
    return _or_empty(v, _differentiable(grad, source, v, Networks.of(*flat), needed, rates))


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
