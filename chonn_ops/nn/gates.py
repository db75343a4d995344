"""How many stages a cascade needs: gates of its later stages, which training may close for good."""

from __future__ import annotations

import copy
from typing import Any, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ADAPTIVE = "adaptive"
ModuleT = TypeVar("ModuleT", bound=nn.Module)


class StageGates(nn.Module):
    """Factors >= 0 of the outputs of stages, with a sparsity prior in their gradients.

    The first stage has none, or all could shrink while a readout grows; the others' are
    G_r = g_2 ... g_r, so that a stage that closes takes all later ones with it. With the loss's
    gradient e at the gated output G y, G follows ::

        <e, y> + sparsity |e| |y|

    so it falls unless the cosine between -e, which the loss asks for, and the stage's output
    exceeds `sparsity`. That needs no term in a host's loss and does not depend on the loss's scale.
    At 0 a gate stays: what it closed can be taken away, with equal outputs. The prior works in
    training mode only, and not in TorchScript.

    Parameters
    ----------
    count : int
        Stages.
    sparsity : float
        0 to below 1; 0 is no prior.
    """

    def __init__(
        self,
        count: int,
        sparsity: float,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.sparsity = sparsity
        self.gate_param = nn.Parameter(torch.ones(count - 1, device=device, dtype=dtype))

    def values(self) -> Tensor:
        """The gates G, (count,), in float32 at least; 1 at the start."""
        wide = torch.promote_types(self.gate_param.dtype, torch.float32)
        later = torch.cumprod(F.relu(self.gate_param.to(wide)), 0)
        return torch.cat((torch.ones(1, dtype=wide, device=later.device), later))

    def forward(self, y: Tensor, stage: int) -> Tensor:
        """The output of a stage times its gate."""
        if stage == 0:
            return y
        gate = self.values()[stage].to(y.dtype)
        if torch.jit.is_scripting():
            return y * gate
        else:
            if self.training and torch.is_grad_enabled():
                return _Gated.apply(y, gate, self.sparsity)
            return y * gate

    def open_stages(self) -> int:
        """How many stages are before the first closed gate."""
        return int(torch.count_nonzero(self.values().detach()))

    @torch.no_grad()
    def keep(self, count: int) -> None:
        """Take the gates of all stages after so many away."""
        kept = nn.Parameter(self.gate_param[: count - 1].clone())
        self.gate_param = kept.requires_grad_(self.gate_param.requires_grad)

    def extra_repr(self) -> str:
        return f"{len(self.gate_param) + 1}, sparsity={self.sparsity:g}"


class _Gated(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(y: Tensor, gate: Tensor, sparsity: float) -> Tensor:  # noqa: ARG004
        return y * gate

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ARG004
        y, gate, ctx.sparsity = inputs
        ctx.save_for_backward(y, gate)
        ctx.save_for_forward(y, gate)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, Tensor, None]:
        (grad,) = grads
        y, gate = ctx.saved_tensors
        wide = torch.promote_types(y.dtype, torch.float32)
        e, output = grad.to(wide), y.to(wide)
        asked = (e * output).sum()
        prior = ctx.sparsity * torch.linalg.vector_norm(e) * torch.linalg.vector_norm(output)
        return grad * gate, (asked + prior).to(gate.dtype), None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        y, gate = ctx.saved_tensors
        of_y, of_gate = tangents[:2]
        found = torch.zeros_like(y)
        if of_y is not None:
            found = found + of_y * gate
        return found if of_gate is None else found + y * of_gate


def prune(model: ModuleT) -> ModuleT:
    """A copy of a model without the stages and layers whose gates training has closed.

    Parameters
    ----------
    model : Module
        With blocks of ``order="adaptive"``, or network models of ``depth="adaptive"``, anywhere in
        it.

    Returns
    -------
    Module
        Of equal outputs. Its state dict fits the same model with a `max_order` or `max_depth` of
        what is left, if that is the same everywhere in it.

    Raises
    ------
    ValueError
        For a model without either.
    """
    pruned = copy.deepcopy(model)
    gated = [m for m in pruned.modules() if isinstance(getattr(m, "gates", None), StageGates)]
    if not gated:
        raise ValueError(
            f"model: expected blocks of order={ADAPTIVE!r}, or network models of "
            f"depth={ADAPTIVE!r}, got {type(model).__name__} without"
        )
    for module in cast("list[Any]", gated):
        module.take_closed_away()
    return pruned
