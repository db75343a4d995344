"""Models of checkpoints: of PDEBench's runner, neuraloperator, timm, ``chonn run``; of weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from torch import Tensor, nn

import chonn_ops
from chonn_ops.inspection import _bare
from chonn_ops.inspection._files import read_json, read_weights, weights_file
from chonn_ops.nn import KirchhoffCell, NetworkCell

_CELLS = (KirchhoffCell, NetworkCell)
_LINE = 160  # characters of an error's line
_HOW = "give --model NAME, and options as --set NAME=VALUE"


@dataclass(frozen=True)
class Trained:
    """A model with the weights of a checkpoint, in evaluation mode.

    Parameters
    ----------
    model : Module
    title : str
        Its name and host.
    options : mapping
        What it was built with, as JSON has it.
    in_channels : int, optional
        That it takes, frames in time included; None for those of one frame.
    coordinates : bool
        Called with fields (B, \\*grid, C) and coordinates (B, \\*grid, axes), as PDEBench calls its
        FNOs, and not with (B, C, \\*grid).
    images : callable, optional
        Makes its input (C, H, W) of a PIL image.
    notes : tuple of str
        What was assumed.
    """

    model: nn.Module
    title: str
    options: Mapping[str, Any]
    in_channels: int | None = None
    coordinates: bool = False
    images: Callable[[Any], Tensor] | None = None
    notes: tuple[str, ...] = ()


def load(
    checkpoint: str | Path,
    frame: Sequence[int] | None = None,
    *,
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Trained:
    """The model of a checkpoint.

    Parameters
    ----------
    checkpoint : path
        Of PDEBench's runner, neuraloperator's Trainer (the folder, or its weights), timm's train.py
        or ``chonn run``; or the state dict of a model, as ``torch.save`` or safetensors wrote it.
    frame : sequence of int, (T, C, \\*grid), optional
        The shape of a sample; needed for a network model's state dict alone.
    name, options : optional
        Of a state dict: the model's class in `chonn_ops` or its name in timm, and its keywords,
        those of the blocks as ``ckb.order`` and the like. Without, of a `CHONNNetwork2d` and of
        timm's models they are read off the weights, or off the card beside them as
        `chonn_ops.models.pretrained` describes.

    Raises
    ------
    FileNotFoundError, ValueError
        If there is no such file, it is damaged, would run code, or is no checkpoint of a model with
        cells of this package.
    ImportError
        Without the host.
    """
    path = weights_file(Path(checkpoint))
    content = read_weights(path)
    given = dict(options or {})
    reader = _reader(content)
    if reader is None:
        trained = _bare_model(path, content, frame, name, given)
    elif name is not None or given:
        raise ValueError(
            f"{path}: expected no model and no options, the checkpoint has its own; "
            f"got {name or ', '.join(given)}"
        )
    else:
        trained = reader(path, content)
    if not any(isinstance(module, _CELLS) for module in trained.model.modules()):
        raise ValueError(
            f"{path}: expected a model with cells of this package, got {trained.title} without"
        )
    trained.model.eval()
    return trained


def _reader(content: Mapping[str, Any]) -> Callable[[Path, dict[str, Any]], Trained] | None:
    if "model_state_dict" in content:
        return _of_pdebench
    if isinstance(content.get("_metadata"), dict) and "_name" in content["_metadata"]:
        return _of_neuraloperator
    if "state_dict" in content and "chonn_ops" in content:
        return _of_chonn_run
    if "arch" in content and "state_dict" in content:
        return _of_timm
    return None


def _loaded(path: Path, model: nn.Module, state: Mapping[str, Any]) -> nn.Module:
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        lines = [line.strip()[:_LINE] for line in str(error).splitlines()]
        raise ValueError(
            f"{path}: weights do not fit {type(model).__name__}: {' '.join(lines[1:3]) or lines[0]}"
        ) from error
    return model


def _of_pdebench(path: Path, content: dict[str, Any]) -> Trained:
    described = content.get("model") or _described_beside(path)
    if not isinstance(described, Mapping) or not described.keys() >= {
        "name",
        "ndim",
        "host",
        "options",
    }:
        raise ValueError(
            f"{path}: expected what the model is in the checkpoint, or in "
            f"{_report(path).name} beside it, got neither; evaluate it once with "
            "++args.if_training=False"
        )
    name, host = described["name"], described["host"]
    points = entry_points(group="pdebench.models", name=name)
    if len(points) != 1:
        raise ValueError(
            f"{path}: expected a model of one entry point of the group pdebench.models, got "
            f"{name!r} of {len(points)}"
        )
    (point,) = points
    entry = point.load()
    model = _loaded(
        path,
        entry.build(described["ndim"], host, described["options"]),
        content["model_state_dict"],
    )
    fno = entry.family == "fno"
    channels = host["num_channels"] * host["initial_step"] if fno else host["in_channels"]
    return Trained(
        model, f"{name} (PDEBench)", dict(described["options"]), channels, coordinates=fno
    )


def _report(path: Path) -> Path:
    return path.with_name(f"{path.stem}_metrics.json")


def _described_beside(path: Path) -> dict[str, Any] | None:
    """The model of a checkpoint that does not say it, from the table of its evaluation."""
    report = read_json(_report(path))
    if report is None:
        return None
    try:
        args, ndim = report["args"], len(report["spacing"])
        host = {name: args[name] for name in ("num_channels", "width", "initial_step")}
        many = ["modes"] if ndim == 1 else [f"modes{axis + 1}" for axis in range(ndim)]
        host |= dict.fromkeys(many, args["modes"])
        if "unet" in report["model"].lower():
            frames = args["initial_step"] if args["training_type"] == "autoregressive" else 1
            host = {"in_channels": args["in_channels"] * frames}
            host["out_channels"] = args["out_channels"]
        return {
            "name": report["model"],
            "ndim": ndim,
            "host": host,
            # Before there were networks, tables named no cell.
            "options": {"cell": "scan", **report["options"]},
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{_report(path)}: expected a table of PDEBench's plugin, got none"
        ) from error


def _of_neuraloperator(path: Path, content: dict[str, Any]) -> Trained:
    try:
        models = import_module("neuralop.models.base_model").BaseModel._models
        import_module("neuralop.models")
    except ImportError:
        raise ImportError(
            f"{path}: this needs neuraloperator: pip install 'chonn-ops[neuralop]'"
        ) from None
    described = dict(content["_metadata"])
    name, args = str(described.pop("_name")), described.pop("args", ())
    described.pop("_version", None)
    if name.lower() not in models:
        raise ValueError(f"{path}: expected a model out of {sorted(models)}, got {name!r}")
    try:
        model = models[name.lower()](*args, **described)
    except TypeError as error:  # keywords of another version
        raise ValueError(f"{path}: {name} cannot be built: {error}") from error
    shown = {key: value for key, value in described.items() if _is_plain(value)}
    return Trained(_loaded(path, model, content), f"{name} (neuraloperator)", shown)


def _of_timm(path: Path, content: dict[str, Any]) -> Trained:
    settings = vars(content["args"]) if "args" in content else {}
    options = dict(settings.get("model_kwargs") or {})
    return _of_timm_named(path, str(content["arch"]), content["state_dict"], options)


def _of_timm_named(
    path: Path, name: str, state: Mapping[str, Any], options: dict[str, Any]
) -> Trained:
    try:
        timm = import_module("timm")
        data = import_module("timm.data")
    except ImportError:
        raise ImportError(f"{path}: this needs timm: pip install 'chonn-ops[timm]'") from None
    if not timm.is_model(name):
        raise ValueError(f"{path}: expected a model of timm, got {name!r}")
    state = {key.removeprefix("module."): value for key, value in state.items()}
    options = {**_bare.timm_sizes(state), **options}
    try:
        model = timm.create_model(name, **options)
    except TypeError as error:
        raise ValueError(f"{path}: {name} cannot be built: {error}") from error
    seen = data.create_transform(**data.resolve_data_config({}, model=model), is_training=False)
    return Trained(_loaded(path, model, state), f"{name} (timm)", options, images=seen)


def _of_chonn_run(path: Path, content: dict[str, Any]) -> Trained:
    from chonn_ops.experiments import EXPERIMENTS, get

    result = path.parent.with_name(f"{path.parent.name}.json")
    record = read_json(result)
    try:
        if record is None or record["experiment"] not in EXPERIMENTS:
            raise KeyError("experiment")
        experiment = get(record["experiment"])
        kind = type(experiment.scales["smoke"])
        config = kind(
            **{
                name: tuple(value) if isinstance(value, list) else value
                for name, value in record["config"].items()
            }
        )
        variant = next(v for v in experiment.variants(config) if v.name == record["variant"])
    except (KeyError, TypeError, StopIteration) as error:
        raise ValueError(
            f"{path}: expected the result of this run of chonn run in {result}, got none"
        ) from error
    state = {
        key.removeprefix("model."): value
        for key, value in content["state_dict"].items()
        if key.startswith("model.")
    }
    title = f"{variant.label} (chonn run {experiment.name}, {record.get('scale')})"
    model = _loaded(path, variant.build(config), state)
    return Trained(model, title, {**record["config"], "seed": record["seed"]})


def _bare_model(
    path: Path,
    content: dict[str, Any],
    frame: Sequence[int] | None,
    name: str | None,
    options: dict[str, Any],
) -> Trained:
    for key in ("state_dict", "model"):
        if isinstance(content.get(key), dict):
            content = content[key]
    if not content or not all(isinstance(value, Tensor) for value in content.values()):
        raise ValueError(
            f"{path}: expected a checkpoint of PDEBench, neuraloperator, timm or chonn run, or a "
            f"state dict, got a dictionary of {', '.join(map(str, list(content)[:6])) or 'nothing'}"
        )
    card = read_json(path.with_suffix(".json")) if name is None else None
    if card is not None and {"model", "options"} <= card.keys():
        ckb = {f"ckb.{key}": value for key, value in card["options"].get("ckb", {}).items()}
        rest = {key: value for key, value in card["options"].items() if key != "ckb"}
        return _of_ours(path, content, str(card["model"]), {**rest, **ckb, **options}, ())
    if name is None and frame is not None and {"lift.weight", "head.weight"} <= content.keys():
        name, read = _bare.network_options(path, content, frame)
        assumed = sorted(set(_bare.UNSEEN) - set(options))
        note = f"taken for defaults, which weights do not tell: {', '.join(assumed)}; else {_HOW}"
        return _of_ours(path, content, name, {**read, **options}, (note,))
    if name is None and "stem.conv1.weight" in content:
        return _of_timm_named(path, _bare.timm_name(path, content), content, options)
    if name is None:
        keys = ", ".join(list(content)[:4])
        raise ValueError(
            f"{path}: weights do not tell which model they are of ({keys}, ...): {_HOW}"
        )
    if name in _bare.classes():
        return _of_ours(path, content, name, options, ())
    return _of_timm_named(path, name, content, options)


def _of_ours(
    path: Path,
    state: Mapping[str, Tensor],
    name: str,
    options: Mapping[str, Any],
    notes: tuple[str, ...],
) -> Trained:
    classes = _bare.classes()
    if name not in classes:
        raise ValueError(f"{path}: expected a model out of {sorted(classes)}, got {name!r}")
    block = {k.removeprefix("ckb."): v for k, v in options.items() if k.startswith("ckb.")}
    rest = {key: value for key, value in options.items() if not key.startswith("ckb.")}
    if name.startswith("CHONNNetwork"):
        block = {"cell": "network", **block}
    try:
        model = classes[name](**rest, ckb=chonn_ops.CKBOptions(**block))
    except TypeError as error:
        raise ValueError(f"{path}: {name} cannot be built: {error}; {_HOW}") from error
    takes_coordinates = name.startswith("CHONNFNO")
    return Trained(
        _loaded(path, model, state),
        name,
        dict(options),
        rest.get("in_channels", 1) if not takes_coordinates else None,
        coordinates=takes_coordinates,
        notes=notes,
    )


def _is_plain(value: Any) -> bool:
    return isinstance(value, (str, int, float, bool, tuple, list, dict, type(None)))
