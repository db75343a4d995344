"""The models that PDEBench's runner can train: its own and those of the entry points."""

from __future__ import annotations

from chonn_plugins import _entry_points
from chonn_plugins.pdebench.contract import HostModel, JobError

GROUP = "pdebench.models"
HOST_MODELS = {"FNO": "fno", "Unet": "unet", "PINN": "pinn"}


def is_registered(name: object) -> bool:
    """Whether an entry point has this name; it is not imported."""
    return bool(_entry_points.points_named(GROUP, name))


def load(name: object) -> HostModel:
    """The registered model of this name; JobError where there is none, see `_entry_points.load`."""
    setting, expected = "args.model_name", "a chonn_plugins.pdebench.HostModel"
    try:
        return _entry_points.load(
            GROUP, setting, name, lambda model: isinstance(model, HostModel), expected, HOST_MODELS
        )
    except ValueError as error:
        raise JobError(str(error)) from error
