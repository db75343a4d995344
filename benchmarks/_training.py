"""A training step, the same for blocks and models."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from _harness import Call
from torch import Tensor, nn


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


def inference(model: nn.Module, inputs: tuple[Tensor, ...]) -> Call:
    """Forward without autograd."""

    def call() -> None:
        with torch.no_grad():
            model(*inputs)

    return call


def parameter_count(model: nn.Module) -> int:
    """As PDEBench counts: a complex number is one parameter."""
    return sum(p.numel() for p in model.parameters())
