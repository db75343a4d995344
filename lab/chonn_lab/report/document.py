"""Pages in Markdown: tables, and the templates that pages are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jinja2

import chonn_lab
from chonn_lab.report.comparison import LEVEL, POWER

_LAB = Path(chonn_lab.__file__).parent
ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader([_LAB / "report", _LAB / "pages"]),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def markdown(
    header: Sequence[str], rows: Iterable[Sequence[Any]], texts: Sequence[int] = (0,)
) -> str:
    """A table; columns in `texts` are left-aligned, the others hold numbers."""
    align = ["---" if place in texts else "---:" for place in range(len(header))]
    lines = (f"| {' | '.join(map(str, line))} |\n" for line in (header, align, *rows))
    return "".join(lines)


def render(template: str, **values: Any) -> str:
    """A template of the folders of reports and pages, with these values and `markdown`."""
    levels = {"level": f"{LEVEL:.0%}", "two_sided": f"{2 * LEVEL:.0%}", "power": f"{POWER:.0%}"}
    return ENVIRONMENT.get_template(template).render(markdown=markdown, **levels, **values)
