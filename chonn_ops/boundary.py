"""Boundary conditions: one vocabulary for operators, cells and models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

BOUNDARIES = ("neumann", "dirichlet", "periodic", "matched", "robin")

Boundary = str | Sequence[str | tuple[str, str]]


def per_axis(
    boundary: str | Sequence[str],
    axes: int | None,
    known: Sequence[str] = BOUNDARIES,
    name: str = "boundary",
) -> tuple[str, ...]:
    """Normalise boundary conditions to one word an axis.

    Parameters
    ----------
    boundary : str or sequence of str
        One word for all axes, or one for each axis.
    axes : int or None
        Number of axes. With None, a sequence may have any length and a single word gives one entry.
    known : sequence of str
        The words that the caller accepts.
    name : str
        Name of the caller's argument, for the message.

    Raises
    ------
    ValueError
        For another word, or another number of words.
    """
    words = (boundary,) * (axes or 1) if isinstance(boundary, str) else _entries(boundary)
    if len(words) != (axes or max(len(words), 1)) or not _all_known(words, known):
        count = "several" if axes is None else axes
        expected = f"one of {tuple(known)}, or {count} of them"
        raise ValueError(f"{name}: expected {expected}, got {boundary!r}")
    return words


def _entries(boundary: Any) -> tuple[Any, ...]:
    """The entries of a sequence; none of anything else."""
    return tuple(boundary) if isinstance(boundary, Sequence) else ()


def _all_known(words: Sequence[Any], known: Sequence[str]) -> bool:
    return all(isinstance(word, str) and word in known for word in words)


def _pair(entry: Any) -> tuple[Any, ...]:
    return tuple(entry) if isinstance(entry, (tuple, list)) else (entry, entry)


def per_face(
    boundary: Boundary, axes: int, known: Sequence[str] = BOUNDARIES
) -> tuple[tuple[str, str], ...]:
    """Normalise boundary conditions to two words an axis, for its low and its high face.

    Parameters
    ----------
    boundary : str or sequence of str or pair of str
        One word for all axes, or for each axis one word or a pair (low face, high face).
    axes : int
        Number of axes.
    known : sequence of str
        The words that the caller accepts.

    Raises
    ------
    ValueError
        For another word, another number of axes, or "periodic" at only one face of an axis.
    """
    entries = (boundary,) * axes if isinstance(boundary, str) else _entries(boundary)
    faces = tuple(_pair(entry) for entry in entries)
    right = all(len(pair) == 2 and _all_known(pair, known) for pair in faces)
    if len(faces) != axes or not right:
        raise ValueError(
            f"boundary: expected one of {tuple(known)}, or {axes} of them or of pairs "
            f"(low face, high face) of them, got {boundary!r}"
        )
    for low, high in faces:
        if low != high and "periodic" in (low, high):
            raise ValueError(
                f"boundary: expected 'periodic' at both faces of an axis, got {(low, high)!r}"
            )
    return tuple((low, high) for low, high in faces)


def is_periodic(faces: Sequence[tuple[str, str]]) -> list[bool]:
    """Which axes are periodic, given what `per_face` returned."""
    return [low == "periodic" for low, _ in faces]
