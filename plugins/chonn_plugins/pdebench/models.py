"""The backbones of chonn-ops as PDEBench models."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

import chonn_ops
from chonn_ops import CKBOptions
from chonn_plugins.pdebench.contract import HostModel

UNETS = {1: chonn_ops.CHONNUNet1d, 2: chonn_ops.CHONNUNet2d, 3: chonn_ops.CHONNUNet3d}
FNOS = {1: chonn_ops.CHONNFNO1d, 2: chonn_ops.CHONNFNO2d, 3: chonn_ops.CHONNFNO3d}
CKB_DEFAULTS = dataclasses.asdict(CKBOptions())
PLACEMENT_DEFAULTS = {"mode": "replace", "downsample": 1}


def _ckb(options: Mapping[str, Any]) -> CKBOptions:
    return CKBOptions(**{k: v for k, v in options.items() if k in CKB_DEFAULTS})


def _placement(options: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in options.items() if k in PLACEMENT_DEFAULTS}


def _build_unet(ndim: int, host: Mapping[str, Any], options: Mapping[str, Any]) -> nn.Module:
    return UNETS[ndim](**host, ckb=_ckb(options))


def _build_fno(ndim: int, host: Mapping[str, Any], options: Mapping[str, Any]) -> nn.Module:
    return FNOS[ndim](**host, ckb=_ckb(options), **_placement(options))


def _check_unet(options: Mapping[str, Any]) -> None:
    _ckb(options)


def _check_fno(options: Mapping[str, Any]) -> None:
    _ckb(options)
    # The constructor checks where the block goes; a tiny network on one axis is enough for that.
    chonn_ops.CHONNFNO1d(1, modes=1, width=4, initial_step=1, **_placement(options))


def _model(
    family: Any, build: Callable[..., nn.Module], check: Callable[..., None], **more: object
) -> HostModel:
    return HostModel(family=family, build=build, defaults={**CKB_DEFAULTS, **more}, check=check)


chonn_unet = _model("unet", _build_unet, _check_unet)
chonn_fno = _model("fno", _build_fno, _check_fno, **PLACEMENT_DEFAULTS)
