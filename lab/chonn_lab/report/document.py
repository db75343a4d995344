"""Documents made of blocks, as Markdown and as one HTML page that needs no other file."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from chonn_lab.marks import MARKS

if TYPE_CHECKING:
    from chonn_lab.report.claims import Judgement

STYLE = """
:root {
  color-scheme: light dark;
  --text: #1d1f23; --soft: #5b616b; --back: #ffffff; --panel: #f5f6f8; --line: #dcdfe4;
  --link: #0b5cad; --yes: #0a6b3d; --no: #a8320a; --open: #5b616b;
}
@media (prefers-color-scheme: dark) {
  :root {
    --text: #e6e8eb; --soft: #a3aab5; --back: #15171a; --panel: #1e2125; --line: #363b42;
    --link: #7cb8ff; --yes: #5fd39a; --no: #ff9a6b; --open: #a3aab5;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 66rem; color: var(--text);
  background: var(--back); font: 16px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif;
}
h1 { font-size: 1.7rem; margin: 0.5rem 0; }
h2 {
  font-size: 1.3rem; margin: 3rem 0 0.5rem; padding-top: 1rem;
  border-top: 1px solid var(--line);
}
h3 { font-size: 1.05rem; margin: 2rem 0 0.5rem; }
a { color: var(--link); }
p.soft, caption, figcaption, dl { color: var(--soft); font-size: 0.9rem; }
ul { padding-left: 1.2rem; margin: 0.5rem 0; overflow-wrap: anywhere; }
.table { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: 0.85rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: 0.4rem; }
th, td { padding: 0.3rem 0.7rem; border-bottom: 1px solid var(--line); text-align: right; }
th { background: var(--panel); font-weight: 600; }
td { white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
table.claims { width: 100%; }
table.claims th, table.claims td { text-align: left; white-space: normal; vertical-align: top; }
table.claims th:first-child { width: 34%; }
table.claims td:nth-child(2) { white-space: nowrap; }
table.claims span { white-space: nowrap; }
.supported { color: var(--yes); font-weight: 600; }
.contradicted { color: var(--no); font-weight: 600; }
.inconclusive, .not-tested { color: var(--open); }
figure { margin: 1.5rem 0; }
figure img {
  display: block; width: 100%; max-width: 58rem; height: auto; padding: 0.5rem;
  background: #ffffff; border: 1px solid var(--line); border-radius: 6px;
}
figcaption { max-width: 58rem; padding-top: 0.4rem; }
details { margin: 0.6rem 0; padding: 0.5rem 0.8rem; background: var(--panel); border-radius: 6px; }
summary { cursor: pointer; }
details p { margin: 0.5rem 0; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.2rem 1rem; margin: 1rem 0; }
dd { margin: 0; overflow-wrap: anywhere; }
"""
KINDS = {".svg": "image/svg+xml", ".png": "image/png"}


def markdown(
    header: Sequence[str], rows: Iterable[Sequence[Any]], texts: Sequence[int] = (0,)
) -> str:
    """A Markdown table; columns in `texts` are left-aligned, the others hold numbers."""
    align = ["---" if place in texts else "---:" for place in range(len(header))]
    lines = (f"| {' | '.join(map(str, line))} |\n" for line in (header, align, *rows))
    return "".join(lines)


class Heading(NamedTuple):
    """A heading of level 1 to 3, with the anchor that links lead to and the one it leads to."""

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
    """A list: names, or headings as links, each with a text."""

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
        attribute = ' class="soft"' if self.soft else ""
        return f"<p{attribute}>{html.escape(self.text)}</p>"


class Table(NamedTuple):
    """A table of numbers behind a first column of text; one of verdicts where it has no caption."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def markdown(self) -> str:
        """With the caption as a line above."""
        texts = (0,) if self.caption else range(len(self.header))
        text = markdown(self.header, self.rows, texts).rstrip()
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
        data = base64.b64encode(self.path.read_bytes()).decode("ascii")
        text, kind = html.escape(self.caption), KINDS[self.path.suffix]
        return (
            f'<figure><img alt="{text}" src="data:{kind};base64,{data}">'
            f"<figcaption>{text}</figcaption></figure>"
        )


class Finding(NamedTuple):
    """A statement with its verdict and the evidence."""

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
    body = "\n".join(block.html() for block in blocks)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"{MARKS['.html'].decode()}\n<title>{html.escape(title)}</title>\n"
        f"<style>{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _link(text: str, anchor: str) -> str:
    return f'<a href="#{anchor}">{html.escape(text)}</a>'


def _cell(cell: Any) -> str:
    """A cell of a table; verdicts are coloured."""
    text, verdict = html.escape(str(cell)), getattr(cell, "verdict", "")
    return f'<span class="{verdict.replace(" ", "-")}">{text}</span>' if verdict else text
