"""Tables of pages, in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def markdown(
    header: Sequence[str], rows: Iterable[Sequence[Any]], texts: Sequence[int] = (0,)
) -> str:
    """A table; columns in `texts` are left-aligned, the others hold numbers."""
    align = ["---" if place in texts else "---:" for place in range(len(header))]
    lines = (f"| {' | '.join(map(str, line))} |\n" for line in (header, align, *rows))
    return "".join(lines)
