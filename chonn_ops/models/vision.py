"""Sizes and layers of the vision backbones, channels-last (NHWC) throughout."""

# No `from __future__ import annotations` here: fx would write their strings into its code.

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor, nn

from chonn_ops.checks import as_field, check_choice
from chonn_ops.nn import CKBBranch, CKBOptions
from chonn_ops.nn.layers import channels_last

SIZES: dict[str, dict[str, Any]] = {
    "chonn_tiny": {"depths": (2, 2, 6, 2), "dims": (96, 192, 384, 768)},
    "chonn_small": {"depths": (2, 2, 4, 2), "dims": (128, 256, 512, 1024)},
    "chonn_base": {"depths": (2, 2, 9, 2), "dims": (128, 256, 512, 1024)},
    "test_chonn": {"depths": (1, 1, 2, 1), "dims": (16, 32, 48, 64)},
}


# Where vision backbones differ from the defaults of a block: as in the paper, but for networks,
# which the paper does not have. Pixels are the centres of cells.
PAPER = {"cell": "scan", "norm": "layer", "stage_input": "inject"}
PAPER_CELL = {"scan": {"d_state": 1, "directions": "cross"}, "network": {"nodes": "centres"}}


def ckb_options(given: Mapping[str, Any]) -> CKBOptions:
    """Options of every CKB of a backbone, out of a flat mapping.

    Raises
    ------
    TypeError
        For an unknown name: timm expects it of keywords that a model does not have.
    ValueError
        For values that do not fit.
    """
    options = {**PAPER, **given}
    options = {**PAPER_CELL.get(options["cell"], {}), **options}
    try:
        return CKBOptions.from_mapping(options)
    except ValueError as error:
        known = CKBOptions.from_mapping({"cell": options["cell"]}).to_mapping()
        if given.keys() <= known.keys():
            raise
        raise TypeError(str(error)) from None


def pixels(x: Tensor, weight: Tensor) -> Tensor:
    """Images as a layer with this weight takes them, see `as_field`."""
    return as_field("x", x, (weight,))


torch.fx.wrap("pixels")  # fx sees one node, as it cannot follow a choice by dtype


class Stem(nn.Module):
    """Two 3 x 3 convolutions of stride 2, each with a norm over channels; (B, C, H, W) to NHWC."""

    def __init__(self, in_chans: int, dim: int, device=None, dtype=None) -> None:
        super().__init__()
        dd: dict[str, Any] = {"device": device, "dtype": dtype}
        self.conv1 = nn.Conv2d(in_chans, dim // 2, 3, stride=2, padding=1, **dd)
        self.norm1 = nn.LayerNorm(dim // 2, **dd)
        self.conv2 = nn.Conv2d(dim // 2, dim, 3, stride=2, padding=1, **dd)
        self.norm2 = nn.LayerNorm(dim, **dd)

    def forward(self, x: Tensor) -> Tensor:
        x = channels_last(pixels(x, self.conv1.weight))
        x = F.gelu(self.norm1(self.conv1(x).permute(0, 2, 3, 1)))
        return self.norm2(self.conv2(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1))


class Downsample(nn.Module):
    """A 3 x 3 convolution of stride 2 and a norm over channels, NHWC."""

    def __init__(self, dim: int, dim_out: int, device=None, dtype=None) -> None:
        super().__init__()
        dd: dict[str, Any] = {"device": device, "dtype": dtype}
        self.conv = nn.Conv2d(dim, dim_out, 3, stride=2, padding=1, **dd)
        self.norm = nn.LayerNorm(dim_out, **dd)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1))


class Mlp(nn.Module):
    """Linear, GELU, linear."""

    def __init__(self, dim: int, hidden: int, device=None, dtype=None) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden, device=device, dtype=dtype)
        self.fc2 = nn.Linear(hidden, dim, device=device, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class Block(nn.Module):
    """Mix positions by a cascade of Kirchhoff cells, then channels by an MLP; NHWC.

    Parameters
    ----------
    dim, hidden : int
        Channels of the block, and inside the MLP.
    ckb : CKBOptions
    drop_path1, drop_path2 : Module
        Between the branches and their residuals.
    """

    def __init__(
        self,
        dim: int,
        hidden: int,
        ckb: CKBOptions,
        drop_path1: nn.Module,
        drop_path2: nn.Module,
        device=None,
        dtype=None,
    ) -> None:
        super().__init__()
        dd: dict[str, Any] = {"device": device, "dtype": dtype}
        self.mixer = CKBBranch(dim, 2, **vars(ckb), **dd)  # has its norm inside
        self.drop_path1 = drop_path1
        self.norm = nn.LayerNorm(dim, **dd)
        self.mlp = Mlp(dim, hidden, **dd)
        self.drop_path2 = drop_path2

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path1(self.mixer(x))
        return x + self.drop_path2(self.mlp(self.norm(x)))


class Stage(nn.Module):
    """A downsampling, or none, and blocks of one width, NHWC."""

    def __init__(self, downsample: nn.Module, blocks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.grad_checkpointing = False
        self.downsample = downsample
        self.blocks = nn.Sequential(*blocks)

    def forward(self, x: Tensor) -> Tensor:
        x = self.downsample(x)
        if self.grad_checkpointing:
            for block in self.blocks:
                x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
            return x
        return self.blocks(x)


class Head(nn.Module):
    """Norm over channels, global pooling ("avg", "max" or none, ""), dropout, classifier."""

    def __init__(
        self,
        dim: int,
        classifier: nn.Module,
        pool_type: str = "avg",
        drop_rate: float = 0.0,
        device=None,
        dtype=None,
    ) -> None:
        super().__init__()
        self.norm: nn.Module = nn.LayerNorm(dim, device=device, dtype=dtype)
        self.drop = nn.Dropout(drop_rate)
        self.reset(classifier, pool_type)

    def reset(self, classifier: nn.Module, pool_type: str | None) -> None:
        """Another classifier, put into the head's mode (train or eval); other pooling if given."""
        if pool_type is not None:
            check_choice("global_pool", pool_type, ("avg", "max", ""))
            self.pool_type = pool_type
        self.fc = classifier.train(self.training)

    def forward(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        x = self.norm(x)
        if self.pool_type == "avg":
            x = x.mean((1, 2))
        elif self.pool_type == "max":
            x = x.amax((1, 2))
        x = self.drop(x)
        return x if pre_logits else self.fc(x)


def classifier_of(dim: int, num_classes: int, device=None, dtype=None) -> nn.Module:
    """A linear layer to so many classes; none for 0 and for the -1 of timm's configurations."""
    if num_classes <= 0:
        return nn.Identity()
    return nn.Linear(dim, num_classes, device=device, dtype=dtype)


def init_weights(module: nn.Module, truncated_normal: Callable[..., Any]) -> None:
    """Fresh weights of a convolution or a linear layer, as vision transformers have them."""
    if isinstance(module, (nn.Conv2d, nn.Linear)):
        truncated_normal(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
