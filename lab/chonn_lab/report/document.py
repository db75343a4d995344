"""Pages in Markdown: tables, and the templates that pages are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

import chonn_lab
from chonn_lab.report import claims
from chonn_lab.report.comparison import LEVEL

_LAB = Path(chonn_lab.__file__).parent
ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader([_LAB / "report", _LAB / "pages"]),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
ENVIRONMENT.globals |= {"claims": claims, "level": f"{LEVEL:.0%}"}


def markdown(
    header: Sequence[str], rows: Iterable[Sequence[Any]], texts: Sequence[int] = (0,)
) -> str:
    """A table; columns in `texts` are left-aligned, the others hold numbers."""
    align = ["---" if place in texts else "---:" for place in range(len(header))]
    lines = (f"| {' | '.join(map(str, line))} |\n" for line in (header, align, *rows))
    return "".join(lines)


def table_of(frame: pd.DataFrame, texts: Sequence[int] = (0,)) -> str:
    """`markdown` of a table with texts or numbers; nothing of an empty one."""
    return "" if frame.empty else markdown([*frame], frame.to_numpy().tolist(), texts)


def render(template: str, **values: Any) -> str:
    """A page by a template of the folders of reports and pages."""
    return ENVIRONMENT.get_template(template).render(**values).strip() + "\n"
