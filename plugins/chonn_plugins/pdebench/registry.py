"""The models that PDEBench's runner can train: its own and those of the entry points."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from importlib.metadata import entry_points

from chonn_plugins._entry_points import origins, points_named
from chonn_plugins.pdebench.contract import HostModel, JobError

GROUP = "pdebench.models"
CLOSE = 0.75
HOST_MODELS = {"FNO": "fno", "Unet": "unet", "PINN": "pinn"}


def is_registered(name: object) -> bool:
    """Whether an entry point has this name; it is not imported."""
    return bool(points_named(GROUP, name))


def known_names() -> list[str]:
    """All names that ``args.model_name`` may take, PDEBench's own first."""
    return [*HOST_MODELS, *sorted({p.name for p in entry_points(group=GROUP)} - set(HOST_MODELS))]


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name closest to this one, if about three letters in four agree."""
    spelled = {k.lower(): k for k in known}
    close = difflib.get_close_matches(name.lower(), spelled, 1, CLOSE)
    return spelled[close[0]] if close else None


def load(name: object) -> HostModel:
    """Load the registered model of this name, without importing other entry points.

    Raises
    ------
    JobError
        If the name is unknown, registered twice or one of PDEBench's own, or if the entry point
        cannot be imported or is not a `HostModel`.
    """
    points = points_named(GROUP, name)
    if not points:
        close = closest(str(name), known_names())
        raise JobError(
            f"args.model_name: expected one of {', '.join(known_names())}; "
            f"got {name!r}{f' (did you mean {close}?)' if close else ''}. "
            f"Packages add names through the entry-point group {GROUP!r}."
        )
    where = origins(points)
    if len(points) > 1 or name in HOST_MODELS:
        owners = f"PDEBench itself; {where}" if name in HOST_MODELS else where
        raise JobError(
            f"args.model_name: expected one provider of {name!r} in the entry-point group "
            f"{GROUP!r}, got several: {owners}. Uninstall all but one."
        )
    try:
        model = points[0].load()
    except Exception as error:
        raise JobError(
            f"the entry point of model {name!r}, {where}, cannot be imported: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not isinstance(model, HostModel):
        raise JobError(
            f"the entry point of model {name!r}, {where}: expected a "
            f"chonn_plugins.pdebench.HostModel, got {type(model).__name__}"
        )
    return model
