"""Settings by name: what Hydra composes from conf/, and the objects that they describe.

A model's and a problem's YAML state values for several sizes side by side: ``${scale:a,b,c}`` is
a, b or c for smoke, small and paper data, ``${size:a,b,c}`` the same for the sizes of models.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import hydra
from omegaconf import DictConfig, OmegaConf
from torch import nn

from chonn_lab.experiments.base import Problem

CONF = "chonn_lab.conf"
SIZES = ("smoke", "small", "paper")
# Entries of a model's YAML that its function does not take.
TEXTS = ("name", "label", "tags")
# What describes a run.
PARTS = ("scale", "problem", "model", "train", "seed")


def _of_role(baseline: Any, other: Any, *, _root_: DictConfig) -> Any:
    return baseline if _root_.model.tags.get("role") == "baseline" else other


def _folder(scale: str, overrides: str) -> str:
    """Name such as ``small+train.epochs=1``: results of different settings stay apart."""
    marks = re.sub(r"[^\w.+=,-]", "_", overrides)
    return f"{scale}+{marks}" if marks else scale


for _name, _resolver in {
    "scale": lambda *values, _root_: values[SIZES.index(_root_.scale.data)],
    "size": lambda *values, _root_: values[SIZES.index(_root_.scale.models)],
    "baseline": _of_role,
    "times": lambda *factors: factors[0] * factors[1],
    "number": lambda value: format(value, ",.0f"),
    "folder": _folder,
}.items():
    OmegaConf.register_new_resolver(_name, _resolver, replace=True)


def compose(overrides: Sequence[str] = (), name: str = "run") -> DictConfig:
    """The configuration that ``chonn-lab run`` has for these overrides."""
    with hydra.initialize_config_module(CONF, version_base="1.3"):
        return hydra.compose(name, overrides=list(overrides))


def resolved(config: DictConfig) -> dict[str, Any]:
    """Everything that describes a run, as plain values; ValueError for a setting in the wrong
    place, as ``+epochs=3`` is, which nothing would read."""
    for part in ("train", "model", "problem"):
        for name in config[part]:
            if name in config:
                raise ValueError(f"{name}: expected it in its part, {part}.{name}={config[name]}")
    settings: Any = OmegaConf.to_container(config, resolve=True)
    if settings["train"]["seconds"] is not None:
        settings["train"]["epochs"] = None  # as many as fit
    return {name: settings[name] for name in PARTS}


def flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of problem, training and model under one name each, as a result file has them."""
    left_out = ("_target_", "units", *TEXTS, "title")
    parts = [settings[name] for name in ("problem", "train", "model")]
    return {name: value for part in parts for name, value in part.items() if name not in left_out}


def build_problem(settings: Mapping[str, Any]) -> Problem:
    """The problem of a resolved configuration; ValueError for settings that it refuses."""
    return _made(settings["problem"])


def build_model(settings: Mapping[str, Any], problem: Problem) -> nn.Module:
    """The model of a resolved configuration, with the interface of the problem."""
    sizes = {name: value for name, value in settings["model"].items() if name not in TEXTS}
    return problem.wrap(_made(sizes, problem))


def _made(settings: Mapping[str, Any], *arguments: object) -> Any:
    options = dict(settings)
    make = hydra.utils.get_object(options.pop("_target_"))
    try:
        return make(*arguments, **options)
    except TypeError as error:
        # A setting that is missing, unknown or of another type.
        raise ValueError(f"{make.__name__}: {error}") from error
