"""The mixers of the entry-point group ``neuralop.spectral_mixers``, found when a model asks."""

from __future__ import annotations

import difflib
from importlib.metadata import entry_points
from typing import cast

from chonn_plugins._entry_points import origins, points_named
from chonn_plugins.neuralop.contract import SpectralMixer

GROUP = "neuralop.spectral_mixers"


def known_names() -> list[str]:
    """All names that ``spectral_mixer`` may take."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def load(name: object) -> SpectralMixer:
    """The mixer of this name; entry points of other names are not imported.

    Raises
    ------
    ValueError
        If the name is unknown or registered twice, or if its entry point cannot be imported or
        called. Never KeyError: `neuralop.models.get_model` takes it for an unknown model.
    """
    points = points_named(GROUP, name)
    if not points:
        known = known_names()
        close = difflib.get_close_matches(str(name), known, 1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(
            f"spectral_mixer: expected one of {known}, got {name!r}{hint}. "
            f"Packages add names through the entry-point group {GROUP!r}."
        )
    where = origins(points)
    if len(points) > 1:
        raise ValueError(
            f"spectral_mixer: expected one provider of {name!r} in the entry-point group "
            f"{GROUP!r}, got several: {where}. Uninstall all but one."
        )
    try:
        mixer = points[0].load()
    except Exception as error:
        raise ValueError(
            f"spectral_mixer: the entry point of {name!r}, {where}, cannot be imported: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not callable(mixer):
        raise ValueError(
            f"spectral_mixer: the entry point of {name!r}, {where}: expected a callable, "
            f"got {type(mixer).__name__}"
        )
    return cast(SpectralMixer, mixer)
