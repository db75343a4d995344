"""Parameters and multiply-adds of a forward pass.

Counted by PyTorch's counter (`torch.utils.flop_counter`), halved: convolutions and matrix products,
those of complex numbers as four real ones, with formulas of ours for scans, for fast Fourier
transforms and for the iterations that solves of networks took. Norms, activations and other
elementwise work are left out, as in published counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from chonn_lab.baselines.fields import count_parameters
from chonn_ops.network.direct import flops
from chonn_ops.network.graph import joined
from chonn_ops.scan.arguments import split
from chonn_ops.scan.walks import plan

aten = torch.ops.aten


class Cost(NamedTuple):
    """Size of a model and the real multiply-adds of a forward pass."""

    parameters: int
    multiply_adds: int


def measure(model: nn.Module, inputs: Sequence[Tensor]) -> Cost:
    """Cost of ``model(*inputs)``; the meta device does."""
    training = model.training
    counter = FlopCounterMode(display=False, custom_mapping=_FORMULAS)
    with torch.no_grad(), counter:
        model.eval()(*inputs)
    model.train(training)
    return Cost(count_parameters(model), counter.get_total_flops() // 2)


# Formulas count two operations for a multiply-add, as those of PyTorch do.


def _scan_flops(*arguments: Any, **outputs: object) -> int:  # noqa: ARG001
    """Operations of a scan.

    A state of a channel takes, at each position, four products for all walks (exponent and
    injection ``(1 - alpha) * (1 / decay) * b * u``), and for each walk one multiply-add to relax
    and inject and one to read out. The skip and the mean over walks take one each a channel.
    """
    inputs, modes = split(arguments)  # shapes
    batch, positions, channels = cast("Any", inputs.u)
    states = cast("Any", inputs.decay)[1]
    walks = len(plan(tuple(modes.grid), modes.directions))
    return 2 * batch * positions * channels * (states * (4 + 2 * walks) + 2)


def _network_flops(source: Tensor, *rest: Any, out_val: tuple[Tensor, ...]) -> int:
    """Operations of a solve, by elimination or by conjugate gradients with a W-cycle.

    A product with the matrix takes ``2 axes + 1`` multiply-adds a node, a cycle four of them and 12
    more on each of its grids, which are together ``1 / (1 - 2 / 2^axes)`` of the finest, and an
    iteration beside these one product and 6. To make the grids takes about a cycle. A line is
    eliminated in 8. Networks that took no iterations were eliminated.
    """
    # Under `torch.func.vmap` there are further axes in front.
    iterations, periodic = out_val[1], tuple(rest[4])
    axes = len(periodic) or 1
    grid = tuple(source.shape[-1 - axes : -1])
    nodes = math.prod(grid)
    networks = source.numel() // nodes
    if len(rest) > 9 and rest[9] is not None:  # a graph
        return round(networks * flops(grid, joined(periodic, rest[9])))
    if axes == 1:
        return 2 * networks * nodes * 8
    eliminated, total = networks, 0
    # Without values, on the meta device, networks count as eliminated, as those of planes are.
    if not iterations.is_meta:
        eliminated, total = int((iterations == 0).sum()), int(iterations.sum())
    elimination = flops(grid, periodic) if eliminated else 0.0
    product = 2 * axes + 1
    cycle = (4 * product + 12) / (1 - 2 / 2**axes)
    iterated = (networks - eliminated) * cycle + total * (cycle + product + 6)
    return round(2 * nodes * iterated + eliminated * elimination)


def _fft_flops(x: Tensor, dim: Sequence[int], *rest: object, out_val: Tensor) -> int:  # noqa: ARG001
    """An FFT of n points has 5/2 n log2 n multiply-adds, half of it between real and complex."""
    # The longer side: the complex one of a real transform keeps n // 2 + 1 points.
    full = max(x, out_val, key=Tensor.numel)
    points = math.prod(full.shape[axis] for axis in dim)
    both = x.is_complex() and out_val.is_complex()
    return round(5 * full.numel() * math.log2(points) / (1 if both else 2))


def _product_flops(*tensors: Tensor, **options: object) -> int:  # noqa: ARG001
    """Of (..., m, k) times (..., k, n), real or complex, perhaps behind what is added to it."""
    left, right = tensors[-2:]
    return 2 * left.numel() * right.shape[-1] * (4 if left.is_complex() else 1)


_FORMULAS: dict[Any, Callable[..., int]] = {
    torch.ops.chonn_ops.kirchhoff_network: _network_flops,
    **dict.fromkeys((aten._fft_r2c, aten._fft_c2r, aten._fft_c2c), _fft_flops),
    **dict.fromkeys((aten.mm, aten.bmm, aten.addmm, aten.baddbmm), _product_flops),
}
for _formula in _FORMULAS.values():
    _formula._get_raw = True  # pyright: ignore[reportFunctionMemberAccess]  # tensors, not shapes
_FORMULAS[torch.ops.chonn_ops.kirchhoff_scan] = _scan_flops
