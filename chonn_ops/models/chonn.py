"""CHONN vision backbones for timm: ``timm.create_model("chonn_tiny")``.

Importing this module registers the models; timm names a model's family after its file. It is the
only module here that imports timm. `install` does it again for a timm that was imported anew.

References
----------
The CHONN paper, Methods, "Large-scale visual recognition benchmark".
"""

import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F
import torch.utils.checkpoint
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.layers import DropPath, Mlp, trunc_normal_
from timm.models import (
    build_model_with_cfg,
    generate_default_cfgs,
    register_model,
    register_notrace_module,
)
from timm.models._features import feature_take_indices
from torch import Tensor, nn

from chonn_ops.checks import as_field, check_choice
from chonn_ops.nn import CKBBranch, CKBOptions
from chonn_ops.nn.layers import channels_last

__all__ = ["CHONN", "ROUTINGS", "chonn_base", "chonn_small", "chonn_tiny", "test_chonn"]

# No `from __future__ import annotations` here: fx would write their strings into its code.


def install() -> None:
    """Register the models with the timm that is loaded; where that is done, this does nothing.

    A timm that was purged from `sys.modules` and imported again has a new registry and new layers.
    """
    if sys.modules["timm.models"].register_model is not register_model:
        importlib.reload(sys.modules[__name__])


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


def ckb_options(chosen: Mapping[str, Any]) -> CKBOptions:
    """Options of every CKB of a backbone, out of a flat mapping.

    Raises
    ------
    TypeError
        For an unknown name: timm expects it of keywords that a model does not have.
    ValueError
        For values that do not fit.
    """
    options = {**PAPER, **chosen}
    options = {**PAPER_CELL.get(options["cell"], {}), **options}
    try:
        return CKBOptions.from_mapping(options)
    except ValueError as error:
        known = CKBOptions.from_mapping({"cell": options["cell"]}).to_mapping()
        if chosen.keys() <= known.keys():
            raise
        raise TypeError(str(error)) from None


def pixels(x: Tensor, weight: Tensor) -> Tensor:
    """Images as a layer with this weight takes them, see `as_field`."""
    return as_field("x", x, (weight,))


torch.fx.wrap("pixels")  # fx sees one node, as it cannot follow a choice by dtype


class Stem(nn.Module):
    """Two 3 x 3 convolutions of stride 2, each with a norm over channels; (B, C, H, W) to NHWC."""

    def __init__(self, in_chans: int, dim: int, **dd: Any) -> None:
        super().__init__()
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

    def __init__(self, dim: int, dim_out: int, **dd: Any) -> None:
        super().__init__()
        self.conv = nn.Conv2d(dim, dim_out, 3, stride=2, padding=1, **dd)
        self.norm = nn.LayerNorm(dim_out, **dd)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1))


class Block(nn.Module):
    """Mix positions by a cascade of Kirchhoff cells, then channels by an MLP with `hidden` channels
    inside; NHWC. `drop_path` is the stochastic depth of both branches."""

    def __init__(
        self, dim: int, hidden: int, ckb: CKBOptions, drop_path: float = 0.0, **dd: Any
    ) -> None:
        super().__init__()
        self.mixer = CKBBranch(dim, 2, **vars(ckb), **dd)  # has its norm inside
        self.drop_path1 = DropPath(drop_path) if drop_path else nn.Identity()
        self.norm = nn.LayerNorm(dim, **dd)
        self.mlp = Mlp(dim, hidden).to(**dd)  # timm 1.0.20 takes neither device nor dtype
        self.drop_path2 = DropPath(drop_path) if drop_path else nn.Identity()

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
        self, dim: int, classifier: nn.Module, pool_type: str, drop_rate: float = 0.0, **dd: Any
    ) -> None:
        super().__init__()
        self.norm: nn.Module = nn.LayerNorm(dim, **dd)
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


def classifier_of(dim: int, num_classes: int, **dd: Any) -> nn.Module:
    """A linear layer to so many classes; none for 0 and for the -1 of timm's configurations."""
    classifier = nn.Linear(dim, num_classes, **dd) if num_classes > 0 else nn.Identity()
    _init_weights(classifier)
    return classifier


def _init_weights(module: nn.Module) -> None:
    """Fresh weights of a convolution or a linear layer, as vision transformers have them."""
    if isinstance(module, (nn.Conv2d, nn.Linear)):
        trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


# The paper's routing ablation: each row changes one thing.
ROUTINGS: dict[str, dict[str, Any]] = {
    "baseline": {"order": 1, "constrained": False},
    "parallel": {"topology": "parallel", "constrained": False},
    "serial": {"constrained": False},
    "serial+constraints": {},
}

register_notrace_module(CKBBranch)  # fx sees one node: shapes decide how cells scan


class CHONN(nn.Module):
    """Four stages of Kirchhoff blocks, channels-last inside.

    A stem of two convolutions to stride 4; stages of blocks
    ``x + CKB-branch(norm x)``, ``x + MLP(norm x)``, both with stochastic depth; strided
    convolutions with norms between stages; a norm, global pooling and a linear classifier. A CKB
    has two cells; the second receives the block input plus the first one's response.

    Choices the paper leaves open: norms are LayerNorms, activations GELU but in the CKB (SiLU, the
    paper's); lines run as in visual state-space models ("cross", one state a channel); the
    depthwise convolution keeps the pointwise half that the paper's equations give it ("DSConv"):
    with it Tiny has 28.7 M parameters and 4.5 G multiply-adds at 224 x 224, near VMamba-T (30 M,
    4.9 G) and beside Swin-T and ConvNeXt-T; without it 26.5 M and 4.2 G.

    Parameters
    ----------
    in_chans, num_classes : int
        0 classes: no classifier.
    global_pool : {"avg", "max", ""}
    depths, dims : tuple of int
        Blocks and channels of each stage.
    mlp_ratio : float
    drop_rate : float
        Dropout before the classifier.
    drop_path_rate : float
        Stochastic depth of the last block; grows linearly from 0 in the first.
    **ckb
        Options of every CKB, as in `chonn_ops.CKBOptions.from_mapping`. The defaults differ from
        those of a `chonn_ops.CKB`, since these are the paper's backbones: scans of one state on
        "cross" lines, LayerNorm, ``stage_input="inject"``. ``cell="network"`` puts networks in the
        place of scans. `ROUTINGS` has the paper's routing ablation, as in
        ``create_model("chonn_tiny", **ROUTINGS["parallel"])``.

    Raises
    ------
    ValueError
        For unfit options.
    """

    def __init__(
        self,
        in_chans: int = 3,
        num_classes: int = 1000,
        global_pool: str = "avg",
        depths: Sequence[int] = (2, 2, 6, 2),
        dims: Sequence[int] = (96, 192, 384, 768),
        mlp_ratio: float = 4.0,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.2,
        device=None,
        dtype=None,
        **ckb: Any,
    ) -> None:
        super().__init__()
        if len(depths) != len(dims):
            raise ValueError(f"depths, dims: expected equal lengths, got {depths} and {dims}")
        dd: dict[str, Any] = {"device": device, "dtype": dtype}
        options = ckb_options(ckb)
        self.num_classes, self.in_chans, self.output_fmt = num_classes, in_chans, "NHWC"
        rates = torch.linspace(0, drop_path_rate, sum(depths), device="cpu").split(list(depths))
        self.stem = Stem(in_chans, dims[0], **dd)
        stages = []
        for i, dim in enumerate(dims):
            downsample = Downsample(dims[i - 1], dim, **dd) if i else nn.Identity()
            hidden = int(mlp_ratio * dim)
            blocks = [Block(dim, hidden, options, rate, **dd) for rate in rates[i].tolist()]
            stages.append(Stage(downsample, blocks))
        self.stages = nn.Sequential(*stages)
        self.feature_info = [
            {"num_chs": dim, "reduction": 4 * 2**i, "module": f"stages.{i}"}
            for i, dim in enumerate(dims)
        ]
        self.num_features = self.head_hidden_size = dims[-1]
        classifier = classifier_of(dims[-1], num_classes, **dd)
        self.head = Head(dims[-1], classifier, global_pool, drop_rate, **dd)
        for name, module in self.named_modules():
            if ".mixer." not in name:  # CKBs start as CKBs do
                _init_weights(module)

    def no_weight_decay(self) -> set[str]:
        """Circuit parameters: decay rates, skips, initial steps, walls."""
        circuit = ("decay_param", "skip_param", "dt_proj.bias", "wall_param")
        return {name for name, _ in self.named_parameters() if name.endswith(circuit)}

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Parameters by depth, for layer-wise learning rates."""
        stage = r"^stages\.(\d+)"
        fine = [(rf"{stage}\.downsample", (0,)), (rf"{stage}\.blocks\.(\d+)", None)]
        return {"stem": r"^stem", "blocks": stage if coarse else fine}

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute blocks in the backward instead of keeping their activations."""
        for stage in self.stages.children():
            assert isinstance(stage, Stage)
            stage.grad_checkpointing = enable

    def get_classifier(self) -> nn.Module:
        """The last linear layer."""
        return self.head.fc

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """A fresh classifier; pooling stays as it is unless given."""
        like = self.stem.conv1.weight
        dd: dict[str, Any] = {"device": like.device, "dtype": like.dtype}
        self.head.reset(classifier_of(self.num_features, num_classes, **dd), global_pool)
        self.num_classes = num_classes

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | list[int] | None = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> list[Tensor] | tuple[Tensor, list[Tensor]]:
        """Outputs of the last n stages, of the stages listed, or of all (timm's interface).

        Returns
        -------
        features : Tensor, NHWC
            Output of the last stage that ran; left out if `intermediates_only`.
        intermediates : list of Tensor, in `output_fmt`
            The last stage's after the head's norm if `norm`.
        """
        if output_fmt not in ("NCHW", "NHWC"):
            raise ValueError(f"output_fmt: expected 'NCHW' or 'NHWC', got '{output_fmt}'")
        take, last = feature_take_indices(len(self.stages), indices)
        x = self.stem(x)
        stages = self.stages[: last + 1] if stop_early else self.stages
        intermediates: list[Tensor] = []
        for index, stage in enumerate(stages):
            x = stage(x)
            if index in take:
                y = self.head.norm(x) if norm and index == len(self.stages) - 1 else x
                intermediates.append(y.permute(0, 3, 1, 2) if output_fmt == "NCHW" else y)
        if intermediates_only:
            return intermediates
        return x, intermediates

    def prune_intermediate_layers(
        self, indices: int | list[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Drop the stages after the last of `indices`; then, or if asked, the head."""
        take, last = feature_take_indices(len(self.stages), indices)
        shortened = last < len(self.stages) - 1
        self.stages = self.stages[: last + 1]
        self.num_features = self.head_hidden_size = self.feature_info[last]["num_chs"]
        if prune_norm or shortened:
            self.head.norm = nn.Identity().train(self.training)
        if prune_head or shortened:
            self.reset_classifier(0, "")
        return take

    def forward_features(self, x: Tensor) -> Tensor:
        """Output of the last stage, (B, H / 32, W / 32, num_features), before the norm."""
        return self.stages(self.stem(x))

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Norm, pooling and, unless `pre_logits`, the classifier."""
        return self.head(x, pre_logits)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, num_classes) of images (B, in_chans, H, W) of any size."""
        return self.forward_head(self.forward_features(x))


def _cfg(**changes: Any) -> Any:
    """The paper's evaluation: resized to 256 and cropped to 224, bicubic."""
    return {
        "url": "",
        "num_classes": 1000,
        "input_size": (3, 224, 224),
        "pool_size": (7, 7),
        "crop_pct": 224 / 256,
        "interpolation": "bicubic",
        "mean": IMAGENET_DEFAULT_MEAN,
        "std": IMAGENET_DEFAULT_STD,
        "first_conv": "stem.conv1",
        "classifier": "head.fc",
        "license": "mit",
        **changes,
    }


default_cfgs = generate_default_cfgs(
    {name: _cfg() for name in SIZES}
    | {"test_chonn": _cfg(input_size=(3, 96, 96), pool_size=(3, 3))}
)


def _create(variant: str, pretrained: bool, kwargs: dict[str, Any]) -> CHONN:
    features = {"out_indices": (0, 1, 2, 3), "feature_cls": "getter"}
    options = {**SIZES[variant], **kwargs}
    return build_model_with_cfg(CHONN, variant, pretrained, feature_cfg=features, **options)


@register_model
def chonn_tiny(pretrained: bool = False, **kwargs: Any) -> CHONN:
    """CHONN-Tiny."""
    return _create("chonn_tiny", pretrained, kwargs)


@register_model
def chonn_small(pretrained: bool = False, **kwargs: Any) -> CHONN:
    """CHONN-Small."""
    return _create("chonn_small", pretrained, kwargs)


@register_model
def chonn_base(pretrained: bool = False, **kwargs: Any) -> CHONN:
    """CHONN-Base."""
    return _create("chonn_base", pretrained, kwargs)


@register_model
def test_chonn(pretrained: bool = False, **kwargs: Any) -> CHONN:  # noqa: PT028 - not a test
    """A CHONN for tests."""
    return _create("test_chonn", pretrained, kwargs)
