"""Markdown of pages: tables, and the macros of ``pages.md.j2``, which `TEMPLATES` has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from chonn_lab.report import claims
from chonn_lab.report.comparison import LEVEL

ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
ENVIRONMENT.globals |= {"claims": claims, "level": f"{LEVEL:.0%}"}
TEMPLATES: Any = ENVIRONMENT.get_template("pages.md.j2").module


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
