"""The scan of fields, built from a scan of separate lines: walks, boundaries and their adjoints.

The boundaries of a line are as follows, with ``A = exp(-decay * sum_k delta_k)`` the factor by
which a state decays over the whole line:

- "matched": the scan starts from `initial_state`, or from rest.
- "periodic": the scan starts from the state that one period reproduces. A period maps ``v`` to
  ``A v + e``, where ``e`` is the final state from rest, so ``v = e / (1 - A)``. The adjoint is
  periodic too: if an adjoint scan that starts from `grad_state` ends with ``r``, the periodic
  adjoint starts from ``grad_state + r / (1 - A)``.
- "neumann", "dirichlet": the reverse scan starts from plus or minus the final state of the forward
  scan, as if the line continued as its even or odd mirror image. The adjoint of the reverse scan is
  computed first; plus or minus its final value is the initial one of the forward scan's adjoint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from chonn_ops._dtypes import compute_dtype
from chonn_ops.scan.arguments import Inputs, within_range
from chonn_ops.scan.walks import MIRROR, Walk, run_walks, split_checkpoints

_Coefficients = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]  # u, delta, decay, b, c
# (u, delta, decay, b, c, d, initial_state, reverse, checkpoints) -> (y, state) of (lines, L, D)
_LineScan = Callable[..., tuple[Tensor, Tensor]]


def scan_fields(
    scan: _LineScan,
    inputs: Inputs,
    walks: tuple[Walk, ...],
    boundary: str,
    checkpoints: Sequence[Tensor | None] | None = None,
) -> tuple[Tensor, Tensor]:
    """Mean of the walks' readouts plus ``d * u`` (B, P, D), and the last walk's final state.

    `checkpoints` are those of each walk, which `scan` writes.
    """
    u, delta, decay, b, c, d, initial_state = inputs
    c = c / len(walks) if len(walks) > 1 else c
    y: Any = None

    def run(index: int, walk: Walk, start: Tensor | None) -> Tensor:
        nonlocal y
        line, kept = _line(walk, u, delta, decay, b, c), checkpoints and checkpoints[index]
        if boundary == "periodic":
            start = _period_start(scan, walk, line)
        lines, state = scan(*line, None if index else d, start, walk.reverse, kept)
        y = _add(y, walk.to_field(lines))
        return state

    state = run_walks(walks, boundary, initial_state, run)
    return y, state


@dataclass(frozen=True)
class OverLines:
    """A backend built from a module whose `forward` and `backward` scan (lines, L, D) tensors.

    With `truth` it computes in float64 and recomputes states instead of reading checkpoints.
    """

    module: ModuleType
    truth: bool = False

    def forward(
        self, inputs: Inputs, walks: tuple[Walk, ...], boundary: str, checkpoints: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Output (B, P, D) and the last walk's final state."""
        inputs = self._widened(inputs)
        kept = self._kept(checkpoints, inputs, walks)
        if self.truth and checkpoints is not None:
            checkpoints.zero_()
        return scan_fields(self.module.forward, inputs, walks, boundary, kept)

    def backward(
        self,
        grad_y: Tensor,
        grad_state: Tensor | None,
        inputs: Inputs,
        walks: tuple[Walk, ...],
        boundary: str,
        checkpoints: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
        """Gradients of the inputs (None where the input is)."""
        inputs = self._widened(inputs)
        dtype = inputs.u.dtype
        kept = self._kept(checkpoints, inputs, walks)
        u, delta, decay, b, c, d, initial_state = inputs
        grad_y = grad_y.to(dtype)
        grad_state = None if grad_state is None else grad_state.to(dtype)
        c = c / len(walks) if len(walks) > 1 else c
        totals: list[Any] = [None] * 4
        grad_decay, grad_d = torch.zeros_like(decay), None

        def run(index: int, walk: Walk, grad_end: Tensor | None) -> Tensor | None:
            nonlocal totals, grad_decay, grad_d
            line, part = _line(walk, u, delta, decay, b, c), kept[index]
            start = initial_state if part is None else part[:, 0].mT
            if part is None and boundary == "periodic":
                start = _period_start(self.module.forward, walk, line)
            elif part is None and boundary in MIRROR and walk.reverse:
                end = self.module.forward(*line, None, None, False, None)[1]
                start = MIRROR[boundary] * end
            scan = (*line, None if index else d, start, walk.reverse, part)
            grad_lines = walk.to_lines(grad_y)
            if boundary == "periodic":
                around = self.module.backward(grad_lines, grad_end, *scan)[-1]
                grad_end = _add(grad_end, around / _lost(line[1], decay))
            *grads, grad_start = self.module.backward(grad_lines, grad_end, *scan)
            fields = (grads[0], grads[1], grads[3], grads[4])
            totals = [_add(x, walk.to_field(g)) for x, g in zip(totals, fields, strict=True)]
            grad_decay += grads[2]
            grad_d = grads[5] if index == 0 else grad_d
            return grad_start

        grad_start = run_walks(walks, boundary, grad_state, run, adjoint=True)
        grad_u, grad_delta, grad_b, grad_c = totals
        return (
            *(grad_u, grad_delta, grad_decay, grad_b, grad_c / len(walks), grad_d),
            None if initial_state is None else grad_start,
        )

    def _widened(self, inputs: Inputs) -> Inputs:
        """The inputs in the dtype of the computation."""
        dtype = compute_dtype(*inputs)
        inputs = inputs._replace(decay=within_range(inputs.decay, dtype))
        return inputs.to(torch.float64 if self.truth else dtype)

    def _kept(
        self, checkpoints: Tensor | None, inputs: Inputs, walks: tuple[Walk, ...]
    ) -> Sequence[Tensor | None]:
        """Checkpoints of each walk."""
        checkpoints = None if self.truth else checkpoints
        return split_checkpoints(checkpoints, inputs.u.shape[0], walks, *inputs.decay.shape)


def _period_start(scan: _LineScan, walk: Walk, line: _Coefficients) -> Tensor:
    """The state that one period reproduces."""
    return scan(*line, None, None, walk.reverse, None)[1] / _lost(line[1], line[2])


def _line(
    walk: Walk, u: Tensor, delta: Tensor, decay: Tensor, b: Tensor, c: Tensor
) -> _Coefficients:
    return walk.to_lines(u), walk.to_lines(delta), decay, walk.to_lines(b), walk.to_lines(c)


def _lost(delta: Tensor, decay: Tensor) -> Tensor:
    """``1 - exp(-decay * sum_k delta_k)``, the fraction that a state loses over a line."""
    return -torch.expm1(-delta.sum(1)[..., None] * decay)


def _add(total: Tensor | None, more: Tensor) -> Tensor:
    return more if total is None else total + more
