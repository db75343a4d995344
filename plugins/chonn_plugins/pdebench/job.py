"""One job of PDEBench's runner: its model, its options and the names of its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chonn_plugins.pdebench import registry
from chonn_plugins.pdebench.contract import HostModel, JobError

# The setting that keeps the user's name of the model once `args.model_name` is the host's.
TAG = "registered_model"
HOST_NAME = {"unet": "Unet", "fno": "FNO"}


@dataclass(frozen=True)
class Job:
    """A job whose model is resolved."""

    name: str  # the user's name of the model
    family: str  # "unet", "fno" or "pinn": PDEBench's trainer that runs
    model: HostModel | None  # None for PDEBench's own models
    args: Mapping[str, Any]  # the node `args` of the job's config, in plain containers
    options: Mapping[str, Any] = field(default_factory=dict)  # of the model, that the user set

    @property
    def training(self) -> bool:
        return bool(self.args.get("if_training", True))

    @property
    def replaces(self) -> bool:
        """Whether a training may replace a checkpoint, as those of PDEBench's own models do."""
        wanted = self.args.get("continue_training") or self.args.get("overwrite")
        return self.model is None or bool(wanted)

    @property
    def seed(self) -> int | None:
        # PDEBench's PINN uses this key for the name of a sample.
        return None if self.family == "pinn" else self.args.get("seed")

    @property
    def host_suffix(self) -> str:
        """The suffix that PDEBench's trainer appends to the name of the data."""
        return "_" + HOST_NAME[self.family]

    @property
    def suffix(self) -> str:
        """The suffix of this job's results, in the place of `host_suffix`.

        It has one underscore, the leading one, because PDEBench's analysis splits names there.
        """
        if self.model is None:
            return self.host_suffix
        defaults = self.model.defaults_of(self.options)
        changed = {
            k: _plain(v)
            for k, v in self.options.items()
            if k not in defaults or _plain(v) != _plain(defaults[k])
        }
        parts = [self.name, *(f"{k.replace('_', '')}{changed[k]}" for k in sorted(changed))]
        if self.seed is not None:
            parts.append(f"seed{self.seed}")
        return "_" + "-".join(part.replace("_", "-").replace("/", "-") for part in parts)

    @property
    def label(self) -> str:
        """The model with its options, for messages."""
        shown = dict(self.options)
        if self.model is not None:
            order = self.model.complete(self.options).get("order")
            shown = shown if order is None else {"order": order, **shown}
        if self.seed is not None:
            shown["seed"] = self.seed
        options = ", ".join(f"{k} {v}" for k, v in shown.items())
        return f"{self.name} ({options})" if options else self.name

    def settings(self, points: Sequence[int]) -> dict[str, Any]:
        """The settings as plain values, and the points of a frame, for the job's checkpoint."""
        plain = (str, int, float, bool, type(None))
        kept = {key: value for key, value in self.args.items() if isinstance(value, plain)}
        return {**kept, "points": list(points)}

    @property
    def stem(self) -> str:
        """The name of the data without its suffix.

        PDEBench removes five characters (".hdf5") from the name of any single file. The results of
        its own models therefore lose two more characters of the name of a ".h5" file.
        """
        filename = self.args["filename"]
        if not self.args["single_file"]:
            return filename
        if self.model is not None and filename.endswith(".h5"):
            return filename.removesuffix(".h5")
        return filename[:-5]

    def result_name(self, frames: int) -> str:
        """Name of the results without extension, for data with this number of frames.

        The U-Net trainer appends its mode of training: ``-1-step``, ``-AR`` or ``-PF-<steps>``.
        """
        name = self.stem + self.suffix
        if self.family == "fno":
            return name
        if not self.args["ar_mode"]:
            return f"{name}-1-step"
        if not self.args["pushforward"]:
            return f"{name}-AR"
        last = min(self.args["t_train"], frames) - 1
        return f"{name}-PF-{min(self.args['unroll_step'], last)}"

    def checkpoint(self, frames: int) -> Path:
        """Path of the trainer's checkpoint, relative to the working directory."""
        return Path(self.result_name(frames) + ".pt")


def _plain(value: Any) -> str:
    """An option as part of a file's name: lists and mappings without brackets, spaces, quotes."""
    if isinstance(value, Mapping):
        value = [entry for pair in value.items() for entry in pair]
    return "-".join(map(_plain, value)) if isinstance(value, (list, tuple)) else str(value)


def resolve(args: Mapping[str, Any]) -> Job:
    """The job that these arguments describe; a JobError for an unknown model, and for options that
    the model does not have or rejects."""
    name = args.get(TAG) or args.get("model_name")
    if name in registry.HOST_MODELS and not registry.is_registered(name):
        return Job(str(name), registry.HOST_MODELS[name], None, args)
    model = registry.load(name)
    key = model.options_key
    options = args.get(key) or {}
    known = ", ".join(model.defaults) or "none"
    if not isinstance(options, Mapping):
        raise JobError(f"args.{key}: expected options (known: {known}), got {options!r}")
    unknown = [str(option) for option in options if option not in model.defaults]
    if unknown:
        raise JobError(
            f"args.{key}: unknown option {', '.join(unknown)} for {name}. Known options: {known}."
        )
    if model.check is not None:
        try:
            model.check(options)
        except (ValueError, TypeError) as error:
            raise JobError(f"args.{key}: {error}. Known options: {known}.") from error
    return Job(str(name), model.family, model, args, options)


class DataName(str):
    """The name of the data file, a string that names the results after the job's model.

    PDEBench's trainers compute ``filename[:-5] + "_Unet"`` (or ``filename + "_Unet"``) inside one
    function, and use that name for saving, loading, evaluating and a pickle. A string with its own
    slice and sum replaces four patches, one for each of these uses. Every other use of the name,
    such as the path of the data, sees the plain string.
    """

    job: Job

    @classmethod
    def of(cls, job: Job) -> DataName:
        name = cls(job.args["filename"])
        name.job = job
        return name

    def __getitem__(self, key: Any) -> str:
        if key != slice(None, -5):
            return str(self)[key]
        name = DataName(self.job.stem)
        name.job = self.job
        return name

    def __add__(self, other: str) -> str:
        return str(self) + (self.job.suffix if other == self.job.host_suffix else other)
