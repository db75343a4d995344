"""One job of PDEBench's runner: which model, which options, and the names of its results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chonn_plugins.pdebench import registry
from chonn_plugins.pdebench.contract import HostModel, JobError

# Where the name that the user gave is kept once `args.model_name` holds the host's.
TAG = "registered_model"
HOST_NAME = {"unet": "Unet", "fno": "FNO"}


@dataclass(frozen=True)
class Job:
    """A job after its names are resolved.

    Parameters
    ----------
    name : str
        The model as the user named it.
    family : {"unet", "fno", "pinn"}
        Whose trainer runs.
    model : HostModel or None
        None for PDEBench's own models.
    args : mapping
        The node ``args`` of the job's config, as plain containers.
    options : mapping
        What the user set for the model.
    """

    name: str
    family: str
    model: HostModel | None
    args: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def training(self) -> bool:
        return bool(self.args.get("if_training", True))

    @property
    def seed(self) -> int | None:
        # PDEBench's PINN uses the same key for the name of a sample.
        return None if self.family == "pinn" else self.args.get("seed")

    @property
    def host_suffix(self) -> str:
        """What PDEBench's trainer appends to the name of the data."""
        return "_" + HOST_NAME[self.family]

    @property
    def suffix(self) -> str:
        """What the results of this job carry instead.

        PDEBench's analysis splits names at underscores, so there is only the leading one.
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
        if self.model is not None and "order" in self.model.defaults:
            shown = {"order": self.model.complete(self.options)["order"], **shown}
        if self.seed is not None:
            shown["seed"] = self.seed
        return (
            f"{self.name} ({', '.join(f'{k} {v}' for k, v in shown.items())})"
            if shown
            else self.name
        )

    @property
    def stem(self) -> str:
        """The name of the data without its suffix.

        PDEBench cuts five characters (".hdf5") off any single file, so that its own models' names
        lose two more of a ".h5" file.
        """
        filename = self.args["filename"]
        if not self.args["single_file"]:
            return filename
        if self.model is not None and filename.endswith(".h5"):
            return filename.removesuffix(".h5")
        return filename[:-5]

    def result_name(self, frames: int) -> str:
        """Name of the results, without extension, for data with this many frames.

        The U-Net trainer appends how it trained: ``-1-step``, ``-AR`` or ``-PF-<steps>``.
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
        """Where the trainer reads and writes its checkpoint: below the working directory."""
        return Path(self.result_name(frames) + ".pt")


def _plain(value: Any) -> str:
    """An option as it stands in a file's name: lists without brackets, spaces and quotes."""
    return "-".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def resolve(args: Mapping[str, Any]) -> Job:
    """The job that these arguments describe.

    Raises
    ------
    JobError
        For an unknown model, and for options that the model does not have or refuses.
    """
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
    """The name of the data, which names its results after the job's own model.

    PDEBench's trainers form ``filename[:-5] + "_Unet"`` (or ``filename + "_Unet"``); every other
    use of the name, the path of the data above all, sees the plain string.
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
