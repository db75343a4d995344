"""Multiply-adds of a forward pass.

Counted by PyTorch's counter (`torch.utils.flop_counter`), halved: convolutions and matrix products,
with a formula of ours for scans. Norms, activations and other elementwise work are left out, as in
published counts; so are fast Fourier transforms and solves of networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from chonn_ops.scan.arguments import split
from chonn_ops.scan.walks import plan


def multiply_adds(model: nn.Module, inputs: Sequence[Tensor]) -> int:
    """Those of ``model(*inputs)`` in evaluation mode; the meta device does."""
    formulas = {torch.ops.chonn_ops.kirchhoff_scan: _scan_flops}
    counter = FlopCounterMode(display=False, custom_mapping=formulas)
    with torch.no_grad(), counter:
        model.eval()(*inputs)
    return counter.get_total_flops() // 2


def _scan_flops(*arguments: Any, **outputs: object) -> int:  # noqa: ARG001
    """Operations of a scan, two for a multiply-add, as PyTorch's formulas count.

    A state of a channel takes, at each position, four products for all walks (exponent and
    injection ``(1 - alpha) * (1 / decay) * b * u``), and for each walk one multiply-add to relax
    and inject and one to read out. The skip and the mean over walks take one each a channel.
    """
    inputs, modes = split(arguments)  # shapes
    batch, positions, channels = cast("Any", inputs.u)
    states = cast("Any", inputs.decay)[1]
    walks = len(plan(tuple(modes.grid), modes.directions))
    return 2 * batch * positions * channels * (states * (4 + 2 * walks) + 2)
