"""Sphinx settings: ``make docs``. The pages load no scripts, styles or fonts from the network."""

import re
import sys
from pathlib import Path

from docutils import nodes
from latex2mathml.converter import convert

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "plugins")]

import chonn_ops  # noqa: E402

project = "chonn-ops"
author = "The chonn-ops authors"
copyright = author
version = release = chonn_ops.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
html_theme = "furo"
html_title = f"chonn-ops {release}"
# Code lines of 96 characters fit the page.
html_theme_options = {"light_css_variables": {"code-font-size": "var(--font-size--small--3)"}}
default_role = "py:obj"
myst_heading_anchors = 3
# The README is the front page, and some of its links lead to files that are not pages.
suppress_warnings = ["myst.xref_missing", "ref.citation"]

napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True  # each field of a NamedTuple gets an entry
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_default_options = {"members": True, "show-inheritance": True}
html_math_renderer = "mathml"


def _mathml(display: str):
    def visit(self, node: nodes.Element) -> None:
        self.body.append(convert(node.astext(), display=display))
        raise nodes.SkipNode

    return visit


def _own_references(app, what, name, obj, options, lines) -> None:  # noqa: ARG001 - Sphinx's
    """Put the module's name into numbered references, because several modules share a page."""
    own = name.rpartition(".")[2]
    lines[:] = [
        re.sub(r"\[(\d+)\](?=_)|(?<=^\.\. )\[(\d+)\]", lambda m: f"[{own}{m[1] or m[2]}]", line)
        for line in lines
    ]


def setup(app) -> None:
    """Render formulas as MathML, which browsers draw without scripts."""
    app.connect("autodoc-process-docstring", _own_references)
    app.add_html_math_renderer("mathml", (_mathml("inline"), None), (_mathml("block"), None))
