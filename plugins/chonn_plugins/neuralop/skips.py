"""Where mixers stand in a model: modules (B, in, \\*grid) -> (B, out, \\*grid)."""

from __future__ import annotations

from torch import Tensor, nn


class ProjectedMixer(nn.Module):
    """A mixer of the input channels, then a linear map to the output channels."""

    def __init__(self, mixer: nn.Module, projection: nn.Module) -> None:
        super().__init__()
        self.mixer, self.projection = mixer, projection

    def forward(self, x: Tensor) -> Tensor:
        # neuraloperator's linear skip takes a `view` over the grid.
        return self.projection(self.mixer(x).contiguous())


class MixedSkip(nn.Module):
    """The sum of a layer's own skip and a mixer."""

    def __init__(self, skip: nn.Module, mixer: nn.Module) -> None:
        super().__init__()
        self.skip, self.mixer = skip, mixer

    def forward(self, x: Tensor) -> Tensor:
        return self.skip(x) + self.mixer(x)


class MixedLifting(nn.Module):
    """A model's lifting, then a mixer."""

    def __init__(self, lifting: nn.Module, mixer: nn.Module) -> None:
        super().__init__()
        self.lifting, self.mixer = lifting, mixer

    def forward(self, x: Tensor) -> Tensor:
        return self.mixer(self.lifting(x))


class NoSkip(nn.Module):
    """Zeros: a layer without skip in a list where other layers have one."""

    def __init__(self, out_channels: int) -> None:
        super().__init__()
        self.out_channels = out_channels

    def forward(self, x: Tensor) -> Tensor:
        return x.new_zeros(x.shape[0], self.out_channels, *x.shape[2:])
