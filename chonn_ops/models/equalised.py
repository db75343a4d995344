"""Modules that train at the learning rate of their host: equalised learning rates, and gradients
without spikes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


class Equalised(nn.Module):
    """A module that learns `gain` times as fast at an optimiser's learning rate.

    Hosts train all parameters at one rate, usually 1e-3, which suits their wide layers and is ten
    times too small for networks of a few channels. This wrapper stores the module's parameters
    divided by their gains. Steps of Adam, whose size is the learning rate, are then `gain` times as
    large in the values that the module uses, and an L2 penalty of the host is ``gain**2`` times as
    weak (equalised learning rates: Karras et al., "Progressive growing of GANs", ICLR 2018).

    The state dict has the names and values of the module itself: its checkpoints load without this
    wrapper, and those of the module with it. A gain that belongs to a model, such as that of
    `chonn_ops.nn.layers.Pointwise`, is a part of its parameters and stays in its state dict.

    Parameters
    ----------
    module : Module
    gain : float or dict of str to float
        A power of 2, so that values survive the division. A dict gives the gain of the parameters
        whose names contain its keys; the others have a gain of 1.

    Raises
    ------
    ValueError
        For other gains.
    """

    def __init__(self, module: nn.Module, gain: float | Mapping[str, float] = 8.0) -> None:
        super().__init__()
        self.module = module
        self.gain = dict(gain) if isinstance(gain, Mapping) else {"": gain}
        for value in self.gain.values():
            if value <= 0 or math.frexp(value)[0] != 0.5:
                raise ValueError(f"gain: expected a power of 2, got {value!r}")
        with torch.no_grad():
            for name, parameter in self.module.named_parameters():
                parameter.div_(self.gain_of(name))
        self.register_state_dict_post_hook(_multiply)
        self.register_load_state_dict_pre_hook(_divide)

    def gain_of(self, name: str) -> float:
        """The gain of a parameter, by its name in the module."""
        return next((gain for word, gain in self.gain.items() if word in name), 1.0)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module returns."""
        values = {
            name: gain * value
            for name, value in self.module.named_parameters()
            if (gain := self.gain_of(name)) != 1
        }
        return torch.func.functional_call(self.module, values, args, kwargs)

    def extra_repr(self) -> str:
        return f"gain={self.gain}"


def _multiply(wrapper: Equalised, state: dict[str, Any], prefix: str, _: Any) -> None:
    """Stored parameters to those of the module, in a state dict."""
    parameters = dict(wrapper.module.named_parameters())
    for key in [key for key in state if key.startswith(f"{prefix}module.")]:
        name = key.removeprefix(f"{prefix}module.")
        value = state.pop(key)
        state[prefix + name] = value * wrapper.gain_of(name) if name in parameters else value


def _divide(wrapper: Equalised, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """The inverse of `_multiply`."""
    parameters = dict(wrapper.module.named_parameters())
    for key in [key for key in state if key.startswith(prefix)]:
        name = key.removeprefix(prefix)
        value = state.pop(key)
        value = value / wrapper.gain_of(name) if name in parameters else value
        state[f"{prefix}module.{name}"] = value


class HostedNetwork(Equalised):
    """A `CHONNNetwork*` that is trained at a host's rate, from 5e-4 to 2e-2.

    Its pointwise networks learn twice as fast, the projections into and out of its blocks four
    times, and its gradients are clipped (`clip_gradients`).

    Parameters
    ----------
    module : Module
        The model.
    """

    def __init__(self, module: nn.Module) -> None:
        # With a gain of 2 for pointwise networks alone, errors at a rate of 5e-4 were 0.022, 0.041
        # and 0.034 (seeds 11, 13, 14), with these 0.014, 0.023 and 0.026; at 2e-2 0.025 and 0.026
        # (means of eight and seven seeds). At 2e-2 a gain of 8 for the projections was worse (0.037
        # and 0.033), and 4 for the first and the last layer as well failed (0.23). Without gains,
        # errors at 5e-4 were 0.04 and 0.13.
        super().__init__(module, {"pointwise.": 2.0, "in_proj.": 4.0, "out_proj.": 4.0})
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
