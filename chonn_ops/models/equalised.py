"""Modules that train at the learning rate of their host: equalised learning rates, and gradients
without spikes."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn


class Equalised(nn.Module):
    """A module that learns `gain` times as fast at an optimiser's learning rate.

    Hosts train all parameters at one rate, usually 1e-3, which suits their wide layers and is ten
    times too small for networks of a few channels. This wrapper stores the module's parameters
    divided by the gain. Steps of Adam, whose size is the learning rate, are then `gain` times as
    large in the values that the module uses, and an L2 penalty of the host is ``gain**2`` times as
    weak (equalised learning rates: Karras et al., "Progressive growing of GANs", ICLR 2018).

    The state dict has the names and values of the module itself: its checkpoints load without this
    wrapper, and those of the module with it. A gain that belongs to a model, such as that of
    `chonn_ops.nn.layers.Pointwise`, is a part of its parameters and stays in its state dict.

    Parameters
    ----------
    module : Module
    gain : float
        A power of 2, so that values survive the division.
    part : str
        Only parameters whose names begin with it learn faster; all by default.

    Raises
    ------
    ValueError
        For other gains.
    """

    def __init__(self, module: nn.Module, gain: float = 8.0, part: str = "") -> None:
        super().__init__()
        if gain <= 0 or math.frexp(gain)[0] != 0.5:
            raise ValueError(f"gain: expected a power of 2, got {gain!r}")
        self.module, self.gain, self.part = module, gain, part
        with torch.no_grad():
            for parameter in self.faster().values():
                parameter.div_(gain)
        self.register_state_dict_post_hook(_multiply)
        self.register_load_state_dict_pre_hook(_divide)

    def faster(self) -> dict[str, nn.Parameter]:
        """The stored parameters that learn faster, by their names in the module."""
        named = self.module.named_parameters()
        return {name: value for name, value in named if name.startswith(self.part)}

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module returns."""
        values = {name: self.gain * value for name, value in self.faster().items()}
        return torch.func.functional_call(self.module, values, args, kwargs)

    def extra_repr(self) -> str:
        return f"gain={self.gain:g}, part={self.part!r}"


def _multiply(wrapper: Equalised, state: dict[str, Any], prefix: str, _: Any) -> None:
    """Stored parameters to those of the module, in a state dict."""
    faster = wrapper.faster()
    for key in [key for key in state if key.startswith(f"{prefix}module.")]:
        name = key.removeprefix(f"{prefix}module.")
        value = state.pop(key)
        state[prefix + name] = value * wrapper.gain if name in faster else value


def _divide(wrapper: Equalised, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """The inverse of `_multiply`."""
    faster = wrapper.faster()
    for key in [key for key in state if key.startswith(prefix)]:
        name = key.removeprefix(prefix)
        value = state.pop(key)
        state[f"{prefix}module.{name}"] = value / wrapper.gain if name in faster else value


class HostedNetwork(Equalised):
    """A `CHONNNetwork*` that is trained at a host's rate, from 5e-4 to 2e-2.

    Its pointwise networks learn twice as fast, and its gradients are clipped (`clip_gradients`).

    Parameters
    ----------
    module : Module
        The model.
    """

    def __init__(self, module: nn.Module) -> None:
        # Before gradients were clipped, errors at 5e-4 were 0.04 and 0.13 without this gain (two
        # seeds; 0.02 and 0.04 with it), and at 2e-2 0.07 and 0.08 with a gain of 2 for all
        # parameters (0.03 and 0.05 with it).
        super().__init__(module, 2.0, "pointwise.")
        clip_gradients(module)


def clip_gradients(module: nn.Module) -> None:
    """Clip the gradient of each parameter to twice its usual norm, the running mean of the last ten
    or so, whenever a backward pass has added to ``parameter.grad``.

    The first steps at a large rate overshoot, and gradients are a hundred times as large as later.
    Adam divides its steps by a mean that remembers them for a thousand steps, often for the rest of
    the training (adaptive clipping: Seetharaman et al., "AutoClip", MLSP 2020). What
    `torch.autograd.grad` and `torch.func` return is not clipped, nor are gradients that are
    differentiated in turn (``create_graph=True``).

    Parameters
    ----------
    module : Module
        A deep copy of it does not clip.
    """
    for parameter in module.parameters():
        parameter.register_post_accumulate_grad_hook(_Clip())


class _Clip:
    """Clips one parameter's gradient; nothing waits for a GPU."""

    # Limits of 1 to 1.5 and longer memories trained no better at 1e-2 and 2e-2.
    MOST, MEMORY = 2.0, 0.9

    def __init__(self) -> None:
        self.usual: Tensor | None = None

    @torch.no_grad()
    def __call__(self, parameter: Tensor) -> None:
        assert parameter.grad is not None
        if parameter.grad.requires_grad:
            return
        norm = torch.linalg.vector_norm(parameter.grad, dtype=torch.float32)
        if self.usual is None:
            self.usual = norm
            return
        most = self.MOST * self.usual
        # A usual norm of 0 is that of a parameter which nothing depended on so far.
        large = (norm > most) & (most > 0)
        parameter.grad.mul_(torch.where(large, most / norm, 1).to(parameter.grad.dtype))
        norm = torch.where(large, most, norm)
        mean = self.MEMORY * self.usual + (1 - self.MEMORY) * norm
        self.usual = torch.where(self.usual > 0, mean, norm)
