"""What a backward pass has left."""

from __future__ import annotations

import torch


def without_gradient(model: torch.nn.Module) -> list[str]:
    """Parameters that the last backward pass left without a gradient, or with a useless one."""

    def useful(gradient):
        return gradient is not None and gradient.isfinite().all() and gradient.any()

    return [name for name, value in model.named_parameters() if not useful(value.grad)]
