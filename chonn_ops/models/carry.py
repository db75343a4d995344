"""Limited fluxes of one channel, and their gradient, by the compiled kernel in `cpu`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from chonn_ops._library import Operator, operator, structure
from chonn_ops._pytorch import are_plain

AXES = 3
# Cells for which it pays to wake a thread.
CELLS_A_THREAD = 32768

_Arguments = structure("models/cpu/carry.h", "carry_args")


def _kernel() -> Operator | None:
    return operator("carry", _Arguments, ("forward", "backward", "fastest"))


def takes_kernels(z: Tensor, *others: Tensor) -> bool:
    """Whether z is on the CPU, and what these tensors ask for is at most a gradient."""
    if z.device.type != "cpu" or z.dtype not in (torch.float32, torch.float64):
        return False
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return False
    return z.numel() > 0 and are_plain(z, *others)


def has_kernel(z: Tensor, *others: Tensor) -> bool:
    """Whether the kernel carries the states z (B, \\*grid, C) of these numbers."""
    return z.shape[-1] == 1 and takes_kernels(z, *others) and _kernel() is not None


class Kernel:
    """The kernel for states (B, \\*grid, 1) whose speeds are ``speeds[:, 0] + speeds[:, 1] * u``.

    Speeds (axes, 2) stay constant where u is outside of the bounds; `scales` are the cells along
    each axis that a speed of 1 crosses in the time of all steps, and `rings` the periodic axes.
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
        self.call, self.kind = kernel.call, (kernel.isa("CHONN_CARRY_ISA"), z.dtype.itemsize == 8)
        self.speeds, self.scales, (batches, *grid, _) = speeds.tolist(), scales, z.shape
        self.arguments = a = _Arguments(batches, (*grid, *(1,) * (AXES - len(grid))))
        a.ring[: len(grid)], (a.low, a.high) = rings, bounds
        a.threads = min(torch.get_num_threads(), batches, 1 + z.numel() // CELLS_A_THREAD)
        self.work = z.new_empty(a.threads * kernel.workspace(*self.kind, a))
        # Several threads may go backward through one graph.
        self.lock = Lock()

    def run(
        self, name: str, states: Tensor, steps: int = 0, part: float = 1.0, **fields: Tensor
    ) -> None:
        """A call of the kernel, each of whose steps takes this part of the time."""
        a = self.arguments
        with self.lock:
            for axis, (pair, scale) in enumerate(zip(self.speeds, self.scales, strict=True)):
                a.first[axis], a.second[axis] = (c * scale * part for c in pair)
            a.steps = steps
            for field, x in {"states": states, "workspace": self.work, **fields}.items():
                setattr(a, field, x.data_ptr())
            self.call[name](*self.kind, a)

    def fastest(self, z: Tensor) -> float:
        """The most cells that a wave crosses in the time of all steps, all axes together."""
        most = torch.zeros(1, dtype=torch.float64)
        self.run("fastest", z.contiguous(), fastest=most)
        return most.item()


class Carried(torch.autograd.Function):
    """States after some steps. Arguments: z, speeds, their `Kernel`, steps, the part of the time of
    each, and a function that computes the same of z and speeds by PyTorch's operations."""

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
        ctx.options = kernel, steps, part, plain
        return states[-1].clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        z, speeds, states = ctx.saved_tensors
        (kernel, steps, part, plain), (grad,) = ctx.options, grads
        if torch.is_grad_enabled() or not are_plain(grad):
            with torch.enable_grad(), torch.autocast("cpu", enabled=False):
                leaves = [
                    x if x.requires_grad else x.detach().requires_grad_() for x in (z, speeds)
                ]
                gradients = torch.autograd.grad(plain(*leaves), leaves, grad, create_graph=True)
            return (*gradients, None, None, None, None)
        grad = grad.clone(memory_format=torch.contiguous_format)
        of_speeds = torch.zeros(len(z), AXES, 2, dtype=torch.float64)
        kernel.run("backward", states, steps, part, grad=grad, grad_speeds=of_speeds)
        scales = of_speeds.new_tensor(kernel.scales)[:, None] * part
        of_speeds = of_speeds.sum(0)[: len(scales)] * scales
        return grad, of_speeds.to(speeds.dtype), None, None, None, None
