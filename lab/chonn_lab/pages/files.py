"""The result files behind a page, and its blocks, which are made of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from chonn_lab.paths import RESULTS
from chonn_lab.results_file import has_origin

Build = Callable[[], str]
# The files that the current page has read.
LOADED: dict[str, dict[str, Any]] = {}


def load(name: str) -> dict[str, Any]:
    """A file of `RESULTS`; empty if there is none."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return {}
    LOADED[name] = json.loads(path.read_text())
    return LOADED[name]


def rewritten(page: str, text: str, blocks: Mapping[str, Build]) -> tuple[str, set[str]]:
    """Make everything between ``<!-- name -->`` and ``<!-- /name -->`` anew, lines or words.

    The block "origin" names the result files of the page that lack a record of data and code.

    Returns
    -------
    str
        The page.
    set of str
        The names of its blocks.

    Raises
    ------
    SystemExit
        For a block that nothing makes.
    """
    LOADED.clear()
    names = dict.fromkeys(re.findall(r"<!-- /(.+?) -->", text))
    for name in sorted(names, key=lambda name: name == "origin"):
        build = without_origin if name == "origin" else blocks.get(name)
        if build is None:
            raise SystemExit(f"{page}: expected a block out of {sorted(blocks)}, got {name!r}")
        made = build()
        text = re.sub(
            rf"(<!-- {re.escape(name)} -->\n?).*?(<!-- /{re.escape(name)} -->)",
            lambda found, made=made: found[1] + made + found[2],
            text,
            flags=re.S,
        )
    return text, set(names) - {"origin"}


def without_origin() -> str:
    """The results files of a page that lack a record of data and code."""
    names = [f"`{name}.json`" for name, record in LOADED.items() if not has_origin(record)]
    if not names:
        return "Every number on this page has a record of its data and code in `lab/results`.\n"
    return (
        "† These files record at most a commit, but neither data nor code: "
        f"{', '.join(sorted(names))}.\n"
    )
