"""Parts of the HTML page: frame, style sheet, pictures inside the page."""

from __future__ import annotations

import base64
import html
from pathlib import Path

from chonn_ops._files import MARKS

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


def frame(title: str, body: str) -> str:
    """A whole page."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"{MARKS['.html'].decode()}\n<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def picture(path: Path, caption: str) -> str:
    """A figure whose picture is part of the page."""
    return embedded(path.read_bytes(), path.suffix, caption)


def embedded(picture: bytes, suffix: str, caption: str) -> str:
    """A figure of the bytes of a picture file, whose kind its suffix tells."""
    data = base64.b64encode(picture).decode("ascii")
    text = html.escape(caption)
    return (
        f'<figure><img alt="{text}" src="data:{KINDS[suffix]};base64,{data}">'
        f"<figcaption>{text}</figcaption></figure>"
    )


def paragraph(text: str, kind: str = "") -> str:
    attribute = f' class="{kind}"' if kind else ""
    return f"<p{attribute}>{html.escape(text)}</p>"
