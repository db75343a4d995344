"""Rebuilds models from checkpoints of the hosts and of other packages, and from state dicts.

Nothing in a checkpoint is executed: `torch.load` reads tensors and plain settings only.

A package with checkpoints of its own registers a reader under the entry point group
``chonn_ops.checkpoints``: a function of the path and the loaded dictionary that returns a
`TrainedModel`, or None for a checkpoint that it did not write.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from chonn_ops import models
from chonn_ops._optional import import_optional
from chonn_ops.checks import error
from chonn_ops.inspect.reading import CELLS
from chonn_ops.models import pretrained
from chonn_ops.network.laws import Monotone

READERS = "chonn_ops.checkpoints"
# Plain settings that hosts store beside the weights. No other class or function is loaded.
_HARMLESS = {
    "argparse.Namespace": argparse.Namespace,
    "pathlib.PosixPath": Path,
    "pathlib._local.PosixPath": Path,
    "torch._C._nn.gelu": torch.nn.functional.gelu,
    "torch.nn.functional.relu": torch.nn.functional.relu,
    "torch.nn.functional.silu": torch.nn.functional.silu,
}
# Imported only for a file that names them.
_OF_NEURALOPERATOR = ("neuralop.layers.spectral_convolution.SpectralConv",)
_STATE_SUFFIX = "_state_dict.pt"
_HOW = "pass --model NAME, and its options as --set NAME=VALUE"
_LINE = 160  # Longest part of an error of PyTorch that is repeated, in characters.


@dataclass(frozen=True)
class TrainedModel:
    """A model with the weights of a checkpoint, in evaluation mode.

    Parameters
    ----------
    model : Module
    title : str
        Its name and where the checkpoint comes from.
    options : mapping
        Its constructor's options, as JSON has them.
    in_channels : int, optional
        Number of input channels, earlier frames included. Default: the channels of one frame.
    coordinates : bool
        Whether it is called with fields (B, \\*grid, C) and coordinates (B, \\*grid, axes), as
        PDEBench calls its FNOs, and not with (B, C, \\*grid).
    image_transform : callable, optional
        Makes its input (C, H, W) from a PIL image.
    every_frame, every_point : int
        The model was trained on every n-th frame of a file and every m-th point along each axis: n
        and m.
    """

    model: nn.Module
    title: str
    options: Mapping[str, Any]
    in_channels: int | None = None
    coordinates: bool = False
    image_transform: Callable[[Any], Tensor] | None = None
    every_frame: int = 1
    every_point: int = 1


def load_checkpoint(
    checkpoint: str | Path, *, name: str | None = None, options: Mapping[str, Any] | None = None
) -> TrainedModel:
    """Rebuild the model of a checkpoint.

    Parameters
    ----------
    checkpoint : path
        A folder of `save_pretrained`; written by PDEBench's runner, by neuraloperator's Trainer
        (the folder or its weights), by timm's train.py, or by a package with a registered reader;
        or a state dict, written by ``torch.save`` or safetensors.
    name, options : optional
        For a state dict: the model's class in `chonn_ops` or its name in timm, and its options,
        with the options of its blocks as ``ckb.order`` and so on. Default: what the card beside the
        weights says, a JSON file as `chonn_ops.models.pretrained` describes it.

    Returns
    -------
    TrainedModel

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is damaged, contains code, holds no model with cells of this package, or weights
        that are not finite.
    ImportError
        If the host is not installed.
    """
    path = _weights_file(Path(checkpoint))
    content = _read_weights(path)
    settings = dict(options or {})
    trained = _described(path, content)
    if trained is None:
        trained = _of_state_dict(path, content, name, settings)
    elif name is not None or settings:
        wanted = "no model and no options, as the checkpoint has its own"
        raise error(path, wanted, name or ", ".join(settings))
    _check_cells(path, trained.model, trained.title)
    state = trained.model.state_dict()
    weights = {key: value for key, value in state.items() if isinstance(value, Tensor)}
    damaged = [key for key, value in weights.items() if not bool(value.isfinite().all())]
    if damaged:
        of_all = f"{len(damaged)} of {len(weights)} tensors, the first one {damaged[0]}"
        raise error(path, "finite weights", f"NaN or infinity in {of_all}")
    trained.model.eval()
    return trained


def _check_cells(path: Path, model: nn.Module, title: str) -> None:
    kinds = (*CELLS, Monotone)
    if not any(isinstance(x, kinds) or hasattr(x, "equation") for x in model.modules()):
        raise error(path, "a model with cells of this package", f"{title} without any")


def load_weights(path: Path, model: nn.Module, state: Any) -> nn.Module:
    """The model with these weights; ValueError if they do not match."""
    try:
        model.load_state_dict(_weights_by_name(path, state))
    except RuntimeError as failure:
        lines = [line.strip()[:_LINE] for line in str(failure).splitlines()]
        raise ValueError(
            f"{path}: weights do not match {type(model).__name__}: "
            f"{' '.join(lines[1:3]) or lines[0]}"
        ) from failure
    return model


def _weights_by_name(path: Path, state: Any) -> Mapping[str, Any]:
    if not isinstance(state, Mapping):
        raise error(path, "weights by name", type(state).__name__)
    return state


def _weights_file(path: Path) -> Path:
    """The file of a checkpoint, which may be a folder of neuraloperator's Trainer."""
    if (path / pretrained.WEIGHTS).is_file():
        return path / pretrained.WEIGHTS
    if path.is_dir():
        files = sorted(path.glob(f"*{_STATE_SUFFIX}"))
        if len(files) != 1:
            names = ", ".join(file.name for file in files) or "none"
            raise error(path, f"one file *{_STATE_SUFFIX} in the folder", names)
        return files[0]
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    return path


def _read_weights(path: Path) -> dict[str, Any]:
    if path.suffix == ".safetensors":
        safetensors = import_optional("safetensors.torch", "pretrained")
        with _readable(path):
            return safetensors.load_file(path)
    with _readable(path):
        unsafe = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    refused = sorted(set(unsafe) - set(_HARMLESS) - set(_OF_NEURALOPERATOR))
    if refused:
        pickle = f"a pickle that runs {', '.join(refused[:5])}; it was not loaded"
        raise error(path, "weights and plain settings", pickle)
    allowed: list[Any] = [(_HARMLESS[name], name) for name in unsafe if name in _HARMLESS]
    for name in set(unsafe) & set(_OF_NEURALOPERATOR):
        module, _, attribute = name.rpartition(".")
        allowed.append((getattr(import_optional(module, "neuralop"), attribute), name))
    with _readable(path), torch.serialization.safe_globals(allowed):
        content = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(content, dict):
        raise error(path, "a dictionary", type(content).__name__)
    return content


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn errors into a ValueError that names the file: PyTorch and safetensors raise many classes
    for other bytes."""
    try:
        yield
    except Exception as failure:
        if isinstance(failure, OSError) and failure.filename is not None:
            raise
        line = next(iter(str(failure).splitlines()), "") or type(failure).__name__
        actual = f"a damaged or different file ({line})"
        raise error(path, "a checkpoint", actual) from failure


def _read_card(path: Path) -> dict[str, Any] | None:
    """The card beside weights, None if there is none."""
    path = path.with_suffix(".json")
    if not path.is_file():
        return None
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as failure:  # JSONDecodeError or UnicodeDecodeError
        raise ValueError(f"{path}: expected JSON ({failure})") from failure
    return card if isinstance(card, dict) and {"model", "options"} <= card.keys() else None


def _described(path: Path, content: dict[str, Any]) -> TrainedModel | None:
    """The model of a checkpoint that says how to build it; None for a state dict."""
    if "model_state_dict" in content:
        return _of_pdebench(path, content)
    if isinstance(content.get("_metadata"), dict) and "_name" in content["_metadata"]:
        return _of_neuraloperator(path, content)
    if {"arch", "state_dict"} <= content.keys():
        settings = content.get("args", {})
        if isinstance(settings, argparse.Namespace):
            settings = vars(settings)
        options = settings.get("model_kwargs") or {} if isinstance(settings, Mapping) else None
        if not isinstance(options, Mapping):
            wanted = "timm's settings as args, a Namespace or a dictionary with the model's options"
            raise error(path, f"{wanted} as model_kwargs", f"{settings!r:.{_LINE}}")
        return _of_timm(path, str(content["arch"]), content["state_dict"], dict(options), settings)
    readers = (point.load() for point in entry_points(group=READERS))
    return next((trained for reader in readers if (trained := reader(path, content))), None)


def _of_pdebench(path: Path, content: dict[str, Any]) -> TrainedModel:
    described = content.get("model")
    needed = {"name", "ndim", "host", "options"}
    if not isinstance(described, Mapping) or not described.keys() >= needed:
        wanted = "a description of the model, as the runner of chonn-ops writes it"
        raise error(path, wanted, "none")
    name, host = described["name"], described["host"]
    points = entry_points(group="pdebench.models", name=name)
    if len(points) != 1:
        wanted = "a model with one entry point in the group pdebench.models"
        raise error(path, wanted, f"{name!r} with {len(points)}")
    (point,) = points
    entry = point.load()
    model = entry.build(described["ndim"], host, described["options"])
    fno = entry.family == "fno"
    return TrainedModel(
        load_weights(path, model, content["model_state_dict"]),
        f"{name} (PDEBench)",
        dict(described["options"]),
        host["num_channels"] * host["initial_step"] if fno else host["in_channels"],
        coordinates=fno,
        # Older checkpoints do not say it.
        every_frame=described.get("every_frame", 1),
        every_point=described.get("every_point", 1),
    )


def _of_neuraloperator(path: Path, content: dict[str, Any]) -> TrainedModel:
    import_optional("neuralop.models", "neuralop")
    known = import_optional("neuralop.models.base_model", "neuralop").BaseModel._models
    described = dict(content["_metadata"])
    name, args = str(described.pop("_name")), described.pop("args", ())
    described.pop("_version", None)
    if name.lower() not in known:
        raise error(path, f"one of the models {sorted(known)}", repr(name))
    model = _built(path, name, "", known[name.lower()], *args, **described)
    plain = (str, int, float, bool, tuple, list, dict, type(None))
    shown = {key: value for key, value in described.items() if isinstance(value, plain)}
    return TrainedModel(load_weights(path, model, content), f"{name} (neuraloperator)", shown)


def _of_timm(
    path: Path,
    name: str,
    state: Any,
    options: dict[str, Any],
    settings: Mapping[str, Any] | None = None,
) -> TrainedModel:
    timm, data = (import_optional(module, "timm") for module in ("timm", "timm.data"))
    if not timm.is_model(name):
        raise error(path, f"a class out of {models.__all__} or a model of timm", repr(name))
    named = _weights_by_name(path, state)
    state = {key.removeprefix("module."): value for key, value in named.items()}
    # train.py stores neither the number of classes nor that of channels with the model's options.
    head, stem = state.get("head.fc.weight"), state.get("stem.conv1.weight")
    sizes = {"num_classes": 0 if head is None else head.shape[0]}
    if stem is not None:
        sizes["in_chans"] = stem.shape[1]
    options = {**sizes, **options}
    model = _built(path, name, "", timm.create_model, name, **options)
    _check_cells(path, model, f"{name} (timm)")  # Before weights, which only ours are sure to fit.
    # As train.py: its settings may have another size, mean and deviation than the model's own.
    config = data.resolve_data_config(dict(settings or {}), model=model)
    transform = data.create_transform(**config, is_training=False)
    return TrainedModel(
        load_weights(path, model, state), f"{name} (timm)", options, image_transform=transform
    )


def _of_state_dict(
    path: Path, content: dict[str, Any], name: str | None, options: dict[str, Any]
) -> TrainedModel:
    for key in ("state_dict", "model"):
        if isinstance(content.get(key), dict):
            content = content[key]
    if not content or not all(isinstance(value, Tensor) for value in content.values()):
        keys = ", ".join(map(str, list(content)[:6])) or "nothing"
        wanted = "a checkpoint of PDEBench, neuraloperator or timm, or a state dict"
        raise error(path, wanted, f"a dictionary of {keys}")
    if name is None:
        card = _read_card(path)
        if card is None and (laws := _laws_of(path, content)) is not None:
            return TrainedModel(laws, "learned laws", {})
        if card is None:
            beside = f"neither a card {path.with_suffix('.json').name} beside them nor a name"
            raise error(path, "to know the model of these weights", f"{beside}: {_HOW}")
        name, stated = str(card["model"]), dict(card["options"])
        block = stated.pop("ckb", None) or {}
        options = {**stated, **{f"ckb.{key}": value for key, value in block.items()}, **options}
    if name not in models.__all__:
        return _of_timm(path, name, content, options)
    # The options of its blocks are `ckb.order` and so on.
    blocks = {k.removeprefix("ckb."): v for k, v in options.items() if k.startswith("ckb.")}
    keywords = {k: v for k, v in options.items() if not k.startswith("ckb.")}
    keywords = pretrained.options_of(keywords | ({"ckb": blocks} if blocks else {}))
    model = _built(path, name, f"; {_HOW}", getattr(models, name), **keywords)
    return TrainedModel(
        load_weights(path, model, pretrained.weights_of(model, content)),
        name,
        options,
        model.in_channels,
        coordinates=name.startswith("CHONNFNO"),
    )


def _laws_of(path: Path, content: Mapping[str, Tensor]) -> nn.Module | None:
    """The learned laws whose weights are among these, which say how to build them."""
    laws = nn.Module()
    for key in content:
        start = key.removesuffix("rate")
        weight, rate = content.get(f"{start}weight"), content[key]
        if start == key or weight is None or weight.dim() != 1 or len(weight) != len(rate) + 1:
            continue
        names = ("weight", "rate", "shift", "features", "of_features.weight")
        state = {name: content[start + name] for name in names if start + name in content}
        law = Monotone(len(rate), odd="shift" not in state, features=state.get("features"))
        laws.add_module(start.strip(".").replace(".", "_") or "law", load_weights(path, law, state))
    return laws if list(laws.children()) else None


def _built(path: Path, name: str, hint: str, build: Any, /, *args: Any, **options: Any) -> Any:
    """A model; a ValueError for options that it does not have here."""
    try:
        return build(*args, **options)
    except TypeError as failure:
        raise ValueError(f"{path}: {name} cannot be built: {failure}{hint}") from failure
