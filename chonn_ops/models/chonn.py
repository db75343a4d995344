"""CHONN vision backbones for timm: ``timm.create_model("chonn_tiny")``.

Importing this module registers the models; timm names a model's family after its file. It is the
only module here that imports timm. `install` does it again for a timm that was imported anew.

References
----------
The CHONN paper, Methods, "Large-scale visual recognition benchmark".
"""

import importlib
import sys
from collections.abc import Sequence
from typing import Any

import torch
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.layers import DropPath, trunc_normal_
from timm.models import (
    build_model_with_cfg,
    generate_default_cfgs,
    register_model,
    register_notrace_module,
)
from timm.models._features import feature_take_indices
from torch import Tensor, nn

from chonn_ops.models import vision
from chonn_ops.nn import CKBBranch

__all__ = ["CHONN", "ROUTINGS", "chonn_base", "chonn_small", "chonn_tiny", "test_chonn"]

# No `from __future__ import annotations` here: fx would write their strings into its code.


def install() -> None:
    """Register the models with the timm that is loaded; where that is done, this does nothing.

    A timm that was purged from `sys.modules` and imported again has a new registry and new layers.
    """
    if sys.modules["timm.models"].register_model is not register_model:
        importlib.reload(sys.modules[__name__])


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
        options = vision.ckb_options(ckb)
        self.num_classes, self.in_chans, self.output_fmt = num_classes, in_chans, "NHWC"
        rates = torch.linspace(0, drop_path_rate, sum(depths), device="cpu").split(list(depths))
        self.stem = vision.Stem(in_chans, dims[0], **dd)
        stages = []
        for i, dim in enumerate(dims):
            downsample = vision.Downsample(dims[i - 1], dim, **dd) if i else nn.Identity()
            hidden = int(mlp_ratio * dim)
            blocks = [
                vision.Block(dim, hidden, options, _drop_path(rate), _drop_path(rate), **dd)
                for rate in rates[i].tolist()
            ]
            stages.append(vision.Stage(downsample, blocks))
        self.stages = nn.Sequential(*stages)
        self.feature_info = [
            {"num_chs": dim, "reduction": 4 * 2**i, "module": f"stages.{i}"}
            for i, dim in enumerate(dims)
        ]
        self.num_features = self.head_hidden_size = dims[-1]
        classifier = vision.classifier_of(dims[-1], num_classes, **dd)
        vision.init_weights(classifier, trunc_normal_)
        self.head = vision.Head(dims[-1], classifier, global_pool, drop_rate, **dd)
        for name, module in self.named_modules():
            if ".mixer." not in name:  # CKBs start as CKBs do
                vision.init_weights(module, trunc_normal_)

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
            assert isinstance(stage, vision.Stage)
            stage.grad_checkpointing = enable

    def get_classifier(self) -> nn.Module:
        """The last linear layer."""
        return self.head.fc

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """A fresh classifier; pooling stays as it is unless given."""
        like = self.stem.conv1.weight
        classifier = vision.classifier_of(self.num_features, num_classes, like.device, like.dtype)
        vision.init_weights(classifier, trunc_normal_)
        self.head.reset(classifier, global_pool)
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


def _drop_path(rate: float) -> nn.Module:
    return DropPath(rate) if rate else nn.Identity()


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
    {name: _cfg() for name in vision.SIZES}
    | {"test_chonn": _cfg(input_size=(3, 96, 96), pool_size=(3, 3))}
)


def _create(variant: str, pretrained: bool, kwargs: dict[str, Any]) -> CHONN:
    features = {"out_indices": (0, 1, 2, 3), "feature_cls": "getter"}
    options = {**vision.SIZES[variant], **kwargs}
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
