"""Two vocabularies for what happens at the ends of an axis: circuits', and boundary conditions'."""

from __future__ import annotations

from collections.abc import Mapping

# A plain dictionary: PyTorch 2.5 compiles no other mapping.
ALIASES: Mapping[str, str] = {"periodic": "ring", "neumann": "open", "dirichlet": "short"}


def canonical(end: str) -> str:
    """The circuits' word of an end; all else, known or not, stays."""
    return ALIASES.get(end, end) if isinstance(end, str) else end


def expected(ends: tuple[str, ...]) -> str:
    """The known words, for messages."""
    known = ", ".join(f"{alias!r} is {end!r}" for alias, end in ALIASES.items() if end in ends)
    return f"one of {ends} ({known})"
