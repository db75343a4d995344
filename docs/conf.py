"""Sphinx settings: ``make docs``. The pages need no network, fonts or scripts of others."""

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
exclude_patterns = ["results"]
default_role = "py:obj"
myst_heading_anchors = 3
# The README is the front page; links of it to files that are no pages stay links to files.
suppress_warnings = ["myst.xref_missing"]

napoleon_google_docstring = False
napoleon_use_rtype = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_default_options = {"members": True, "show-inheritance": True}
html_math_renderer = "mathml"


def _mathml(display: str):
    def visit(self, node: nodes.Element) -> None:
        self.body.append(convert(node.astext(), display=display))
        raise nodes.SkipNode

    return visit


def setup(app) -> None:
    """Formulas as MathML, which browsers draw by themselves."""
    app.add_html_math_renderer("mathml", (_mathml("inline"), None), (_mathml("block"), None))
