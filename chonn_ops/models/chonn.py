"""CHONN vision backbones for timm: ``timm.create_model("chonn_tiny")``.

Importing this module registers the models; timm names a model's family after its file. It is the
only module here that imports timm.

References
----------
The CHONN paper, Methods, "Large-scale visual recognition benchmark".
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.layers import DropPath, trunc_normal_
from timm.models import (
    build_model_with_cfg,
    checkpoint_seq,
    generate_default_cfgs,
    register_model,
    register_notrace_module,
)
from timm.models._features import feature_take_indices
from torch import Tensor, nn

from chonn_ops.nn import CKB

__all__ = ["CHONN", "ROUTINGS", "chonn_base", "chonn_small", "chonn_tiny", "test_chonn"]

# No `from __future__ import annotations` here: fx would write their strings into its code.

# The paper's routing ablation: each row changes one thing.
ROUTINGS: dict[str, dict[str, Any]] = {
    "baseline": {"order": 1, "constrained": False},
    "parallel": {"topology": "parallel", "constrained": False},
    "serial": {"constrained": False},
    "serial+constraints": {},
}


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
        x = x.contiguous(memory_format=torch.channels_last)
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


@register_notrace_module  # fx sees one node: shapes decide how cells scan
class Mixer(CKB):
    """A Cascaded Kirchhoff Block without its residual, NHWC."""

    def forward(self, x: Tensor) -> Tensor:
        return self.branch(x)


class Mlp(nn.Module):
    """Linear, GELU, linear."""

    def __init__(self, dim: int, hidden: int, device=None, dtype=None) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden, device=device, dtype=dtype)
        self.fc2 = nn.Linear(hidden, dim, device=device, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class Block(nn.Module):
    """Mix positions by a cascade of Kirchhoff cells, then channels by an MLP; NHWC."""

    def __init__(
        self,
        dim: int,
        mlp_ratio: float,
        drop_path: float,
        ckb: dict[str, Any],
        device=None,
        dtype=None,
    ) -> None:
        super().__init__()
        dd: dict[str, Any] = {"device": device, "dtype": dtype}
        self.mixer = Mixer(dim, 2, norm="layer", **ckb, **dd)  # has the norm inside
        self.drop_path1 = DropPath(drop_path) if drop_path else nn.Identity()
        self.norm = nn.LayerNorm(dim, **dd)
        self.mlp = Mlp(dim, int(mlp_ratio * dim), **dd)
        self.drop_path2 = DropPath(drop_path) if drop_path else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path1(self.mixer(x))
        return x + self.drop_path2(self.mlp(self.norm(x)))


class Stage(nn.Module):
    """An optional downsampling and blocks of one width, NHWC."""

    def __init__(self, downsample: nn.Module, blocks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.grad_checkpointing = False
        self.downsample = downsample
        self.blocks = nn.Sequential(*blocks)

    def forward(self, x: Tensor) -> Tensor:
        x = self.downsample(x)
        if self.grad_checkpointing and not torch.jit.is_scripting():
            return checkpoint_seq(self.blocks, x)
        return self.blocks(x)


class Head(nn.Module):
    """Norm over channels, global pooling, linear classifier; each may be taken away."""

    def __init__(
        self,
        dim: int,
        num_classes: int,
        pool_type: str = "avg",
        drop_rate: float = 0.0,
        device=None,
        dtype=None,
    ) -> None:
        super().__init__()
        self.pool_type = _checked_pool(pool_type)
        self.norm: nn.Module = nn.LayerNorm(dim, device=device, dtype=dtype)
        self.drop = nn.Dropout(drop_rate)
        self.fc = _classifier(dim, num_classes, device, dtype)

    def reset(
        self, dim: int, num_classes: int, pool_type: str | None, device=None, dtype=None
    ) -> None:
        """A fresh classifier of `dim` features, in the mode (train or eval) of the head."""
        if pool_type is not None:
            self.pool_type = _checked_pool(pool_type)
        self.fc = _classifier(dim, num_classes, device, dtype).train(self.training)

    def forward(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        x = self.norm(x)
        if self.pool_type == "avg":
            x = x.mean((1, 2))
        elif self.pool_type == "max":
            x = x.amax((1, 2))
        x = self.drop(x)
        return x if pre_logits else self.fc(x)


def _checked_pool(pool_type: str) -> str:
    if pool_type not in ("avg", "max", ""):
        raise ValueError(f"global_pool: expected one of ('avg', 'max', ''), got {pool_type!r}")
    return pool_type


def _classifier(dim: int, num_classes: int, device, dtype) -> nn.Module:
    if not num_classes:
        return nn.Identity()
    layer = nn.Linear(dim, num_classes, device=device, dtype=dtype)
    _init_weights(layer)
    return layer


def _init_weights(module: nn.Module) -> None:
    if isinstance(module, (nn.Conv2d, nn.Linear)):
        trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


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
    order, d_state, directions, termination, topology, stage_input, constrained
        Of every CKB, see `chonn_ops.CKBOptions`. The paper's routing ablation: `ROUTINGS`, as in
        ``create_model("chonn_tiny", **ROUTINGS["parallel"])``.
    drop_rate : float
        Dropout before the classifier.
    drop_path_rate : float
        Stochastic depth of the last block; grows linearly from 0 in the first.

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
        order: int = 2,
        d_state: int = 1,
        directions: str = "cross",
        termination: str = "matched",
        topology: str = "series",
        stage_input: str = "inject",
        constrained: bool = True,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.2,
        device=None,
        dtype=None,
    ) -> None:
        super().__init__()
        if len(depths) != len(dims):
            raise ValueError(f"depths, dims: expected equal lengths, got {depths} and {dims}")
        dd: dict[str, Any] = {"device": device, "dtype": dtype}
        ckb: dict[str, Any] = {
            "order": order,
            "d_state": d_state,
            "directions": directions,
            "termination": termination,
            "topology": topology,
            "stage_input": stage_input,
            "constrained": constrained,
        }
        self.num_classes, self.in_chans = num_classes, in_chans
        self.output_fmt = "NHWC"
        rates = [r.tolist() for r in _drop_path_rates(drop_path_rate, depths)]
        self.stem = Stem(in_chans, dims[0], **dd)
        stages = []
        for i, dim in enumerate(dims):
            downsample = Downsample(dims[i - 1], dim, **dd) if i else nn.Identity()
            blocks = [Block(dim, mlp_ratio, rate, ckb, **dd) for rate in rates[i]]
            stages.append(Stage(downsample, blocks))
        self.stages = nn.Sequential(*stages)
        self.feature_info = [
            {"num_chs": dim, "reduction": 4 * 2**i, "module": f"stages.{i}"}
            for i, dim in enumerate(dims)
        ]
        self.num_features = self.head_hidden_size = dims[-1]
        self.head = Head(dims[-1], num_classes, global_pool, drop_rate, **dd)
        for name, module in self.named_modules():
            if ".mixer." not in name:  # CKBs start as CKBs do
                _init_weights(module)

    @torch.jit.ignore()
    def no_weight_decay(self) -> set[str]:
        """Circuit parameters: decay rates, skips, initial steps."""
        circuit = ("decay_param", "skip_param", "dt_proj.bias")
        return {name for name, _ in self.named_parameters() if name.endswith(circuit)}

    @torch.jit.ignore()
    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Parameters by depth, for layer-wise learning rates."""
        stage = r"^stages\.(\d+)"
        fine = [(rf"{stage}\.downsample", (0,)), (rf"{stage}\.blocks\.(\d+)", None)]
        return {"stem": r"^stem", "blocks": stage if coarse else fine}

    @torch.jit.ignore()
    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute blocks in the backward instead of keeping their activations."""
        for stage in self.stages.children():
            assert isinstance(stage, Stage)
            stage.grad_checkpointing = enable

    @torch.jit.ignore()
    def get_classifier(self) -> nn.Module:
        """The last linear layer."""
        return self.head.fc

    @torch.jit.ignore()
    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """A fresh classifier; pooling stays as it is unless given."""
        weight = self.stem.conv1.weight
        self.num_classes = num_classes
        self.head.reset(
            self.num_features, num_classes, global_pool, device=weight.device, dtype=weight.dtype
        )

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | list[int] | None = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> list[Tensor] | tuple[Tensor, list[Tensor]]:
        """Outputs of stages.

        Parameters
        ----------
        x : Tensor, shape (B, in_chans, H, W)
        indices : int or list of int, optional
            The last n stages, or these; default all.
        norm : bool
            Apply the head's norm to the last stage's output.
        stop_early : bool
            Skip stages that no index asks for.
        output_fmt : {"NCHW", "NHWC"}
        intermediates_only : bool
            Leave out the first of the results.

        Returns
        -------
        features : Tensor, NHWC
            Output of the last stage that ran.
        intermediates : list of Tensor
        """
        if output_fmt not in ("NCHW", "NHWC"):
            raise ValueError(f"output_fmt: expected 'NCHW' or 'NHWC', got '{output_fmt}'")
        take, last = feature_take_indices(len(self.stages), indices)
        x = self.stem(x)
        if torch.jit.is_scripting() or not stop_early:  # TorchScript cannot slice modules
            stages = self.stages
        else:
            stages = self.stages[: last + 1]
        intermediates: list[Tensor] = []
        for index, stage in enumerate(stages):
            x = stage(x)
            if index in take:
                y = self.head.norm(x) if norm and index == len(self.stages) - 1 else x
                intermediates.append(y.permute(0, 3, 1, 2) if output_fmt == "NCHW" else y)
        if intermediates_only:
            return intermediates
        return x, intermediates

    @torch.jit.ignore()
    def prune_intermediate_layers(
        self, indices: int | list[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Drop the stages after the last one asked for; then also, or if asked, the head."""
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


def _drop_path_rates(most: float, depths: Sequence[int]) -> tuple[Tensor, ...]:
    return torch.linspace(0, most, sum(depths), device="cpu").split(list(depths))


def _cfg(**changes: Any) -> dict[str, Any]:
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
    {
        "chonn_tiny": _cfg(),
        "chonn_small": _cfg(),
        "chonn_base": _cfg(),
        "test_chonn": _cfg(input_size=(3, 96, 96), pool_size=(3, 3)),
    }
)


def _create(variant: str, pretrained: bool, kwargs: dict[str, Any], **sizes: Any) -> CHONN:
    return build_model_with_cfg(
        CHONN,
        variant,
        pretrained,
        feature_cfg={"out_indices": (0, 1, 2, 3), "feature_cls": "getter"},
        **{**sizes, **kwargs},
    )


@register_model
def chonn_tiny(pretrained: bool = False, **kwargs: Any) -> CHONN:
    """CHONN-Tiny."""
    return _create("chonn_tiny", pretrained, kwargs, depths=(2, 2, 6, 2), dims=(96, 192, 384, 768))


@register_model
def chonn_small(pretrained: bool = False, **kwargs: Any) -> CHONN:
    """CHONN-Small."""
    return _create(
        "chonn_small", pretrained, kwargs, depths=(2, 2, 4, 2), dims=(128, 256, 512, 1024)
    )


@register_model
def chonn_base(pretrained: bool = False, **kwargs: Any) -> CHONN:
    """CHONN-Base."""
    return _create(
        "chonn_base", pretrained, kwargs, depths=(2, 2, 9, 2), dims=(128, 256, 512, 1024)
    )


@register_model
def test_chonn(pretrained: bool = False, **kwargs: Any) -> CHONN:  # noqa: PT028 - not a test
    """A CHONN for tests."""
    return _create("test_chonn", pretrained, kwargs, depths=(1, 1, 2, 1), dims=(16, 32, 48, 64))
