"""Limited fluxes of one channel by the compiled kernel, the C files in `cpu`, with their gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from chonn_ops._forward_mode import are_plain
from chonn_ops._library import Operator, operator, structure

_HEADER = "models/cpu/carry.h"
AXES = 3
# Cells of a step for which it pays to wake a thread.
CELLS_A_THREAD = 32768

_Arguments = structure(_HEADER, "carry_args")


def _kernel() -> Operator | None:
    return operator("carry", _Arguments, ("forward", "backward", "fastest"))


class Kernel:
    """The kernel for states (B, \\*grid, 1).

    Parameters
    ----------
    z : Tensor, shape (B, \\*grid, 1)
    speeds : Tensor, shape (axes, 2)
        Speeds along the axes are ``speeds[:, 0] + speeds[:, 1] * u``.
    scales : sequence of float, one an axis
        Cells that a speed of 1 crosses in the time of all steps.
    bounds : (float, float)
        Speeds stay constant where u is outside of these.
    rings : sequence of bool
        Which axes are periodic.
    """

    def __init__(
        self,
        z: Tensor,
        speeds: Tensor,
        scales: Sequence[float],
        bounds: tuple[float, float],
        rings: Sequence[bool],
    ) -> None:
        kernel = _kernel()
        assert kernel is not None
        self.call, self.isa = kernel.call, kernel.isa("CHONN_CARRY_ISA")
        self.double, self.axes = z.dtype == torch.float64, z.dim() - 2
        self.scales = [*scales]
        self.speeds = [[x * scale for x in row] for row, scale in zip(speeds.tolist(), scales)]
        batches, *grid, _ = z.shape
        self.arguments = a = _Arguments(batches)
        a.grid[:] = [*grid, *(1,) * (AXES - self.axes)]
        a.ring[: self.axes] = rings
        a.low, a.high = bounds
        a.threads = min(torch.get_num_threads(), batches, 1 + z.numel() // CELLS_A_THREAD)
        self.size = kernel.workspace(self.isa, self.double, a)

    def run(self, name: str, states: Tensor, steps: int, part: float) -> None:
        """A call of the kernel, each of whose steps takes this part of the time."""
        a = self.arguments
        for axis, (first, second) in enumerate(self.speeds):
            a.first[axis], a.second[axis] = first * part, second * part
        a.steps, a.states = steps, states.data_ptr()
        work = states.new_empty(a.threads * self.size)
        a.workspace = work.data_ptr()
        self.call[name](self.isa, self.double, a)

    def fastest(self, z: Tensor) -> float:
        """The most cells that any wave crosses, along all axes together."""
        self.run("fastest", z.contiguous(), 0, 1.0)
        return self.arguments.fastest


def has_kernel(z: Tensor, *others: Tensor) -> bool:
    """Whether the kernel may compute what these tensors ask for, but for derivatives by it."""
    if z.shape[-1] != 1 or z.device.type != "cpu" or z.dtype not in (torch.float32, torch.float64):
        return False
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or not are_plain(z, *others):
        return False
    return z.numel() > 0 and _kernel() is not None


class Carried(torch.autograd.Function):
    """States after some steps. Arguments: z, speeds, the `Kernel`, steps, the part of the time that
    each takes, and a function of z and speeds that computes the same by operations that have further
    derivatives."""

    @staticmethod
    def forward(
        ctx: Any,
        z: Tensor,
        speeds: Tensor,
        kernel: Kernel,
        steps: int,
        part: float,
        plain: Callable[[Tensor, Tensor], Tensor],
    ) -> Tensor:
        states = z.new_empty(steps + 1, *z.shape)
        states[0] = z
        kernel.run("forward", states, steps, part)
        ctx.save_for_backward(z, speeds, states)
        ctx.given = kernel, steps, part, plain
        return states[-1].clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        z, speeds, states = ctx.saved_tensors
        kernel, steps, part, plain = ctx.given
        (grad,) = grads
        if torch.is_grad_enabled() or not are_plain(grad):
            with torch.enable_grad():
                inputs = [x if x.requires_grad else x.detach().requires_grad_() for x in (z, speeds)]
                found = torch.autograd.grad(plain(*inputs), inputs, grad, create_graph=True)
            return (*found, None, None, None, None)
        grad = grad.to(z.dtype, memory_format=torch.contiguous_format, copy=True)
        of_speeds = torch.zeros(len(z), AXES, 2, dtype=torch.float64)
        kernel.arguments.grad, kernel.arguments.grad_speeds = grad.data_ptr(), of_speeds.data_ptr()
        kernel.run("backward", states, steps, part)
        scales = of_speeds.new_tensor(kernel.scales)[:, None] * part
        of_speeds = (of_speeds[:, : kernel.axes].sum(0) * scales).to(speeds.dtype)
        return grad, of_speeds, None, None, None, None
