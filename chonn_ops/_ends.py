"""Two vocabularies for what happens at the ends of an axis: circuits', and boundary conditions'."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

# A plain dictionary: PyTorch 2.5 compiles no other mapping.
ALIASES: Mapping[str, str] = {"periodic": "ring", "neumann": "open", "dirichlet": "short"}


def canonical(end: str) -> str:
    """The circuits' word of an end; all else, known or not, stays."""
    return ALIASES.get(end, end) if isinstance(end, str) else end


def expected(ends: tuple[str, ...]) -> str:
    """The known words, for messages."""
    known = ", ".join(f"{alias!r} is {end!r}" for alias, end in ALIASES.items() if end in ends)
    return f"one of {ends} ({known})"


def of_axes(
    ends: str | Sequence[str], axes: int | None, known: tuple[str, ...], name: str = "ends"
) -> tuple[str, ...]:
    """One of the known words an axis, of one for all axes or of one each; of any number of axes
    with `axes` None.

    Raises
    ------
    ValueError
        For other words, or another number of them.
    """
    words = (ends,) * (axes or 1) if isinstance(ends, str) else tuple(ends or ())
    words = tuple(canonical(word) for word in words)
    if len(words) != (axes or max(len(words), 1)) or not all(word in known for word in words):
        several = "several" if axes is None else axes
        raise ValueError(f"{name}: expected {expected(known)}, or {several} of them, got {ends!r}")
    return words
