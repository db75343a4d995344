"""Models of the checkpoints that hosts write: PDEBench's runner, neuraloperator, timm, ``chonn
run``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from chonn_ops.inspection._files import read_json

_LINE = 160  # characters of an error's line


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


def reader_of(content: Mapping[str, Any]) -> Callable[[Path, dict[str, Any]], Trained] | None:
    """What reads the model of a checkpoint by its keys; None for bare weights."""
    if "model_state_dict" in content:
        return _of_pdebench
    if isinstance(content.get("_metadata"), dict) and "_name" in content["_metadata"]:
        return _of_neuraloperator
    if "state_dict" in content and "chonn_ops" in content:
        return _of_chonn_run
    if "arch" in content and "state_dict" in content:
        return _of_timm
    return None


def loaded(path: Path, model: nn.Module, state: Mapping[str, Any]) -> nn.Module:
    """The model with these weights; ValueError where they do not fit."""
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
    model = loaded(
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
    return Trained(loaded(path, model, content), f"{name} (neuraloperator)", shown)


def _of_timm(path: Path, content: dict[str, Any]) -> Trained:
    settings = vars(content["args"]) if "args" in content else {}
    options = dict(settings.get("model_kwargs") or {})
    return of_timm_named(path, str(content["arch"]), content["state_dict"], options)


def of_timm_named(
    path: Path, name: str, state: Mapping[str, Any], options: dict[str, Any]
) -> Trained:
    """A model of timm by its name, with these weights and keywords."""
    try:
        timm = import_module("timm")
        data = import_module("timm.data")
    except ImportError:
        raise ImportError(f"{path}: this needs timm: pip install 'chonn-ops[timm]'") from None
    if not timm.is_model(name):
        raise ValueError(f"{path}: expected a model of timm, got {name!r}")
    state = {key.removeprefix("module."): value for key, value in state.items()}
    options = {**_timm_sizes(state), **options}
    try:
        model = timm.create_model(name, **options)
    except TypeError as error:
        raise ValueError(f"{path}: {name} cannot be built: {error}") from error
    seen = data.create_transform(**data.resolve_data_config({}, model=model), is_training=False)
    return Trained(loaded(path, model, state), f"{name} (timm)", options, images=seen)


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
    model = loaded(path, variant.build(config), state)
    return Trained(model, title, {**record["config"], "seed": record["seed"]})


def _is_plain(value: Any) -> bool:
    return isinstance(value, (str, int, float, bool, tuple, list, dict, type(None)))


def _timm_sizes(state: Mapping[str, Tensor]) -> dict[str, int]:
    """Channels in and classes out."""
    head = state.get("head.fc.weight")
    found = {"num_classes": 0 if head is None else head.shape[0]}
    if "stem.conv1.weight" in state:
        found["in_chans"] = state["stem.conv1.weight"].shape[1]
    return found
