"""The models that the Navier-Stokes experiment compares: FNOs, plain and with a block, and ours."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from torch import nn

from chonn_ops.experiments._rollout import PLAIN, Forecaster, GridFNO, RolloutConfig
from chonn_ops.experiments.base import Variant
from chonn_ops.models import CHONNRollout2d
from chonn_ops.nn import CKBOptions

HISTORIES = (10, 5, 3)


def _none(d_state: int) -> CKBOptions:  # noqa: ARG001
    return PLAIN


def _raster(d_state: int) -> CKBOptions:
    """The paper's letter: the flattened field, one way, from rest."""
    return CKBOptions(order=2, d_state=d_state, directions="raster")


def _rings(d_state: int) -> CKBOptions:
    """Every row and column a line of its own, both ways, closed as the domain is."""
    return CKBOptions(order=2, d_state=d_state, directions="axial", termination="ring")


def _lines(d_state: int) -> CKBOptions:
    """The same, from rest at both ends."""
    return CKBOptions(order=2, d_state=d_state, directions="axial")


def _unnormed(d_state: int) -> CKBOptions:
    return dataclasses.replace(_rings(d_state), norm="none")


# Name, label, block, relative cost, tags; for every history. The flow amplifies early errors of
# wavenumber 1 sixteenfold from t = 10 to 50; those of models of increments start far smaller.
_MODELS = (
    ("fno", "FNO", _none, 1.0, {"family": "fno", "role": "baseline", "recipe": "paper"}),
    (
        "chonn",
        "CHONN",
        _raster,
        1.6,
        {"family": "chonn", "order": 2, "role": "paper", "recipe": "paper"},
    ),
    (
        "fno-increment",
        "FNO, increments",
        _none,
        1.0,
        {"family": "fno", "role": "baseline", "recipe": "increment"},
    ),
    (
        "chonn-increment",
        "CHONN rings, increments",
        _rings,
        2.0,
        {"family": "chonn", "order": 2, "role": "best", "recipe": "increment"},
    ),
)


# The two models of increments in other ways, for the longest history: do their rollouts get better?
_NOISE = {"noise": 0.003}
_PUSHFORWARD = {"unroll": 2, "pushforward": True}
_PROBES = (
    ("fno-noise", "FNO, increments, noise", _none, 1.0, _NOISE),
    ("chonn-noise", "CHONN rings, increments, noise", _rings, 2.0, _NOISE),
    ("fno-pushforward", "FNO, increments, pushforward", _none, 1.4, _PUSHFORWARD),
    (
        "fno-cosine",
        "FNO, increments, cosine from 2e-3",
        _none,
        1.0,
        {"schedule": "cosine", "learning_rate": 2e-3},
    ),
    ("chonn-pushforward", "CHONN rings, increments, pushforward", _rings, 2.6, _PUSHFORWARD),
    ("chonn-lines", "CHONN axial lines from rest, increments", _lines, 2.0, {}),
    ("chonn-unnormed", "CHONN rings without norm, increments", _unnormed, 2.0, {}),
    (
        "chonn-both",
        "CHONN rings without norm, increments, pushforward",
        _unnormed,
        2.6,
        _PUSHFORWARD,
    ),
)


def _variant(
    name: str,
    label: str,
    block: Callable[[int], CKBOptions],
    cost: float,
    tags: Mapping[str, Any],
    history: int,
    **changes: Any,
) -> Variant[Any]:
    def build(config: RolloutConfig) -> nn.Module:
        # The field is periodic: no padding.
        model = GridFNO(config, block(config.d_state), padding=0)
        return Forecaster(model, config.increment)

    return Variant(
        f"{name}-{history}",
        label,
        build,
        MappingProxyType({**tags, "history": history}),
        {"history": history, "increment": tags["recipe"] != "paper", **changes},
        cost,
    )


def _probe(
    name: str, label: str, block: Callable[[int], CKBOptions], cost: float, changes: dict[str, Any]
) -> Variant[Any]:
    tags = {"family": name.partition("-")[0], "role": "probe", "recipe": name}
    return _variant(name, label, block, cost, tags, HISTORIES[0], **changes)


# Steps with their gradient: without them its rollouts diverge within the horizon; docs/rollouts.md.
_UNROLLED = {"unroll": 3, "schedule": "cosine", "learning_rate": 5e-3}


def _rollout(history: int) -> Variant[Any]:
    def build(config: RolloutConfig) -> nn.Module:
        # It predicts the frame, out of the last one.
        return Forecaster(CHONNRollout2d(1, config.history, conservative=True), increment=False)

    tags = {"family": "chonn", "role": "probe", "recipe": "rollout", "history": history}
    return Variant(
        f"rollout-{history}",
        "CHONN rollout",
        build,
        MappingProxyType(tags),
        {"history": history, **_UNROLLED},
        5.0,
    )


VARIANTS = (
    *(_variant(*model, history) for history in HISTORIES for model in _MODELS),
    *(_probe(*probe) for probe in _PROBES),
    _rollout(HISTORIES[0]),
)
