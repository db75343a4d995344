"""The blocks that a report is made of, each of which can be Markdown and HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from chonn_ops._files import MARKS
from chonn_ops.report._html import frame, paragraph, picture

if TYPE_CHECKING:
    from chonn_ops.report.claims import Judgement


class Heading(NamedTuple):
    """Of level 1 to 3; on the HTML page links lead to its anchor, and it leads to another one."""

    level: int
    text: str
    anchor: str = ""
    leads_to: str = ""

    def markdown(self) -> str:
        return f"{'#' * self.level} {self.text}"

    def html(self) -> str:
        name = f' id="{self.anchor}"' if self.anchor else ""
        text = _link(self.text, self.leads_to) if self.leads_to else html.escape(self.text)
        return f"<h{self.level}{name}>{text}</h{self.level}>"


class Items(NamedTuple):
    """Names, or headings to which they lead, and what there is to say of each."""

    entries: Sequence[tuple[str | Heading, str]]

    def markdown(self) -> str:
        return "\n".join(f"- {getattr(name, 'text', name)}: {text}" for name, text in self.entries)

    def html(self) -> str:
        links = (
            (
                _link(name.text, name.anchor) if isinstance(name, Heading) else html.escape(name),
                text,
            )
            for name, text in self.entries
        )
        items = "\n".join(f"<li>{name}: {html.escape(text)}</li>" for name, text in links)
        return f"<ul>\n{items}\n</ul>"


class Paragraph(NamedTuple):
    text: str
    soft: bool = False

    def markdown(self) -> str:
        return self.text

    def html(self) -> str:
        return paragraph(self.text, "soft" if self.soft else "")


class Table(NamedTuple):
    """The first column is text, the others are numbers; `Judgement`s where there is no caption."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def markdown(self) -> str:
        """With the caption as a line above."""
        align = ["---", *["---:" if self.caption else "---"] * (len(self.header) - 1)]
        lines = [self.header, align, *self.rows]
        text = "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
        return f"{self.caption}:\n\n{text}" if self.caption else text

    def html(self) -> str:
        """Wide tables scroll inside their box."""

        def row(cells: Sequence[Any], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{_cell(cell)}</{tag}>" for cell in cells) + "</tr>"

        start = '<table class="claims">'
        if self.caption:
            start = f"<table><caption>{html.escape(self.caption)}</caption>\n"
        body = "\n".join(row(cells, "td") for cells in self.rows)
        return (
            f'<div class="table">{start}<thead>{row(self.header, "th")}</thead>\n'
            f"<tbody>\n{body}\n</tbody></table></div>"
        )


class Picture(NamedTuple):
    """A file below the report's folder."""

    folder: Path
    path: Path
    caption: str

    def markdown(self) -> str:
        return f"![{self.caption}]({self.path.relative_to(self.folder).as_posix()})"

    def html(self) -> str:
        return picture(self.path, self.caption)


class Finding(NamedTuple):
    """A statement with its verdict, and what is behind it."""

    judgement: Judgement
    statement: str
    details: Sequence[Paragraph]

    def markdown(self) -> str:
        lines = [f"**{self.judgement}**: {self.statement}", *(d.text for d in self.details)]
        return "  \n".join(lines)

    def html(self) -> str:
        details = "".join(detail.html() for detail in self.details)
        summary = f"{_cell(self.judgement)}: {html.escape(self.statement)}"
        return f"<details><summary>{summary}</summary>{details}</details>"


Block = Heading | Items | Paragraph | Table | Picture | Finding


def as_markdown(blocks: Sequence[Block]) -> str:
    """A whole page; the first block is its title."""
    title, *others = (block.markdown() for block in blocks)
    return "\n\n".join([title, MARKS[".md"].decode(), *others]) + "\n"


def as_html(title: str, blocks: Sequence[Block]) -> str:
    """A whole page, which needs no other file."""
    return frame(title, "\n".join(block.html() for block in blocks))


def _link(text: str, anchor: str) -> str:
    return f'<a href="#{anchor}">{html.escape(text)}</a>'


def _cell(cell: Any) -> str:
    """A cell of a table; verdicts have their colours."""
    text, verdict = html.escape(str(cell)), getattr(cell, "verdict", "")
    return f'<span class="{verdict.replace(" ", "-")}">{text}</span>' if verdict else text
