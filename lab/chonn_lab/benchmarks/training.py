"""Training steps of models side by side: time, memory and profile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_lab.baselines.fields import count_parameters
from chonn_lab.benchmarks.harness import Call, Turns, fill, fresh_peak, scan_share

# Model, inputs, target; a value that another process can call, too.
Make = Callable[[], tuple[nn.Module, tuple[Tensor, ...], Tensor]]


def measure(
    makes: Mapping[str, Make],
    turns: Turns,
    evaluate: bool = False,
) -> dict[str, dict[str, Any]]:
    """A row for each: ``forward_ms``, ``step_ms``, parameters, peak memory, share of scans.

    Parameters
    ----------
    evaluate
        Whether the forward pass is one in evaluation mode.

    Raises
    ------
    FloatingPointError
        If a gradient is not finite: other numbers may take another time.
    """
    rows: dict[str, dict[str, Any]] = {}
    calls: dict[tuple[str, str], Call] = {}
    for name, make in makes.items():
        model, inputs, target = make()
        forward = inference(make()[0].eval() if evaluate else model, inputs)
        calls[name, "forward"] = forward
        calls[name, "step"] = step = training_step(model, inputs, target)
        step()
        if not all(p.grad is None or p.grad.isfinite().all() for p in model.parameters()):
            raise FloatingPointError(f"{name}: expected finite gradients")
        rows[name] = {
            "name": name,
            "parameters": count_parameters(model),
            "peak_bytes": fresh_peak(prepare_steps, make),
            "scan_share": scan_share(step),
        }
    fill(rows, turns.times(calls))
    return rows


def prepare_steps(make: Make) -> Call:
    """Build and train two steps: everything that training holds, the optimizer's state too."""

    def call() -> None:
        step = training_step(*make())
        step()
        step()

    return call


def training_step(model: nn.Module, inputs: tuple[Tensor, ...], target: Tensor) -> Call:
    """Forward, mean squared error, backward, Adam; one call is one step.

    The learning rate is 0: Adam does all its work, and every step is one on the same numbers, how
    many there may be.
    """
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0)

    def step() -> None:
        optimizer.zero_grad()
        F.mse_loss(model(*inputs), target).backward()
        optimizer.step()

    return step


def inference(model: Callable[..., Any], inputs: Sequence[Tensor]) -> Call:
    """Forward without autograd."""

    def call() -> None:
        with torch.no_grad():
            model(*inputs)

    return call
