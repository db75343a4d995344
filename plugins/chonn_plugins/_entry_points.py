"""Entry points by which packages register what they bring to a host."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points


def points_named(group: str, name: object) -> list[EntryPoint]:
    """All providers of a name in a group, not imported."""
    # A distribution may be seen twice on the path: the same target is the same provider.
    return list({p.value: p for p in entry_points(group=group) if p.name == name}.values())


def origins(points: Sequence[EntryPoint]) -> str:
    """Targets and packages of providers, for messages."""
    return "; ".join(f"{p.value} ({p.dist.name if p.dist else 'no package'})" for p in points)
