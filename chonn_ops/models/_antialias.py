"""Filters between grids, and an activation that does not alias.

A pointwise non-linearity creates frequencies that its grid cannot resolve; they fold back onto
lower ones, and the layer acts differently on every grid. If the non-linearity is applied on a grid
twice as fine and low-passed before the return, most of them are gone (Raonic et al. 2023; Karras et
al. 2021 for images).

All layers use one filter: a Kaiser-windowed sinc that cuts at the coarse grid's Nyquist frequency,
half way up the fine grid's band. Every second coefficient is zero except the middle one, so
upsampling keeps the given samples and interpolates those between. Coefficients that reach beyond
the domain are dropped and the others scaled to sum 1: constants stay constants up to the walls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chonn_ops.nn.layers import Factory

if TYPE_CHECKING:
    from typing_extensions import Unpack

ATTENUATION = 40.0  # dB, of the stop band
SAMPLES = 6  # coarse samples that an interpolated value depends on; even


def half_band_taps() -> Tensor:
    """Coefficients of the low-pass filter on the fine grid, (2 * SAMPLES - 1,): symmetric, sum 1.

    The response is 1/2 at a quarter of the sampling rate, within 2% of 1 below 0.138 of the rate
    and under 2% above 0.362.
    """
    beta = 0.5842 * (ATTENUATION - 21) ** 0.4 + 0.07886 * (ATTENUATION - 21)
    # On the CPU whatever the default device is: the meta device has no numbers.
    numbers: Any = {"dtype": torch.float64, "device": "cpu"}
    position = torch.arange(1 - SAMPLES, SAMPLES, **numbers)
    window = torch.kaiser_window(2 * SAMPLES - 1, periodic=False, beta=beta, **numbers)
    taps = torch.sinc(position / 2) * window
    between = position % 2 == 1
    taps = torch.where(between, taps, 0.0)
    taps = taps / taps.sum()
    taps[SAMPLES - 1] = 1.0
    return (taps / 2).to(torch.get_default_dtype())


class Resample(nn.Module):
    """A filter between two grids for fields (B, C, H, W): low-pass and every second point of each
    axis or, with `up`, band-limited interpolation to a grid twice as fine, where old points keep
    their values."""

    taps: Tensor

    def __init__(self, up: bool, **factory: Unpack[Factory]) -> None:
        super().__init__()
        self.up = up
        device = factory.get("device") or torch.get_default_device()
        taps = half_band_taps().to(device, factory.get("dtype"))
        self.register_buffer("taps", taps, persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Resample:
        """Compute the coefficients again: they are in no state dict, and `Module.to_empty` leaves
        them without values."""
        super()._apply(fn, recurse)
        self.taps = half_band_taps().to(self.taps)
        return self

    def forward(self, x: Tensor) -> Tensor:
        if self.taps.is_meta and not x.is_meta:  # as `load_state_dict(assign=True)` leaves them
            self.taps = half_band_taps().to(x)
        height, width = x.shape[2:]
        # The sum of the coefficients that lie inside the domain.
        seen = self._along(x.new_ones(1, 1, height, 1), 0)
        seen = seen * self._along(x.new_ones(1, 1, 1, width), 1)
        for axis in (0, 1) if self.up else (1, 0):
            x = self._along(x, axis)
        return x / seen

    def _along(self, x: Tensor, axis: int) -> Tensor:
        """The filter along H (0) or W (1)."""
        channels, chosen = x.shape[1], (1 - axis, axis)
        weight = self.taps.to(x.dtype).view(1, 1, *((-1, 1) if axis == 0 else (1, -1)))
        weight = weight.expand(channels, *weight.shape[1:]).contiguous()
        stride, padding = [1 + on for on in chosen], [(SAMPLES - 1) * on for on in chosen]
        if self.up:
            return F.conv_transpose2d(x, weight, None, stride, padding, chosen, channels)
        return F.conv2d(x, weight, None, stride, padding, 1, channels)


class AntialiasedLeakyReLU(nn.Module):
    """Leaky ReLU on a grid twice as fine: upsample, activate, low-pass, downsample."""

    def __init__(self, **factory: Unpack[Factory]) -> None:
        super().__init__()
        self.up, self.down = (Resample(up, **factory) for up in (True, False))

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.leaky_relu(self.up(x), 0.01))
