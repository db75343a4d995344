"""Entry points by which packages register what they bring to a host."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any


def names_in(group: str) -> list[str]:
    """All registered names of a group."""
    return sorted({point.name for point in entry_points(group=group)})


def points_named(group: str, name: object) -> list[EntryPoint]:
    """All providers of a name in a group, not imported."""
    # A distribution may be seen twice on the path: the same target is the same provider.
    return list({p.value: p for p in entry_points(group=group) if p.name == name}.values())


def closest(name: str, known: Iterable[str], share: float) -> str | None:
    """The known name closest to this one, if this share of their letters agrees."""
    spelled = {k.lower(): k for k in known}
    close = difflib.get_close_matches(name.lower(), spelled, 1, share)
    return spelled[close[0]] if close else None


def load(
    group: str,
    setting: str,
    name: object,
    fits: Callable[[Any], bool],
    expected: str,
    reserved: Collection[str] = (),
) -> Any:
    """The object of this name in a group; entry points of other names are not imported.

    `setting` is the user's setting that holds the name, for messages; `fits` says whether an object
    is `expected`, such as "a callable"; `reserved` are names of the host itself. A
    ValueError if the name is unknown, registered twice or the host's own, or if its entry point
    cannot be imported or does not fit. Never KeyError: `neuralop.models.get_model` takes it for an
    unknown model.
    """
    points = points_named(group, name)
    if not points:
        known = [*reserved, *(n for n in names_in(group) if n not in reserved)]
        close = closest(str(name), known, 0.6)
        hint = f" (did you mean {close}?)" if close else ""
        raise ValueError(
            f"{setting}: expected one of {', '.join(known) or 'none'}; got {name!r}{hint}. "
            f"Packages add names through the entry-point group {group!r}."
        )
    where = "; ".join(f"{p.value} ({p.dist.name if p.dist else 'no package'})" for p in points)
    if len(points) > 1 or name in reserved:
        raise ValueError(
            f"{setting}: expected one provider of {name!r} in the entry-point group {group!r}, "
            f"got several: {'the host itself; ' if name in reserved else ''}{where}. "
            f"Uninstall all but one."
        )
    try:
        provided = points[0].load()
    except Exception as error:
        raise ValueError(
            f"{setting}: the entry point of {name!r}, {where}, cannot be imported: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not fits(provided):
        raise ValueError(
            f"{setting}: the entry point of {name!r}, {where}: expected {expected}, "
            f"got {type(provided).__name__}"
        )
    return provided
