"""The result files behind a page, and its blocks, which are made of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from chonn_lab.paths import RESULTS

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
    """The page with everything between ``<!-- name -->`` and ``<!-- /name -->`` made anew, lines or
    words, and the names of its blocks.

    The block "origin" names the result files of the page that lack a record of data and code. A
    block that nothing makes is a SystemExit.
    """
    LOADED.clear()
    names = dict.fromkeys(re.findall(r"<!-- /(.+?) -->", text))
    for name in sorted(names, key=lambda name: name == "origin"):
        build = without_origin if name == "origin" else blocks.get(name)
        if build is None:
            raise SystemExit(f"{page}: expected a block out of {sorted(blocks)}, got {name!r}")
        block = rf"(<!-- {re.escape(name)} -->\n?).*?(<!-- /{re.escape(name)} -->)"
        made = build()
        text = re.sub(block, lambda x, made=made: x[1] + made + x[2], text, flags=re.S)
    return text, set(names) - {"origin"}


def without_origin() -> str:
    """The results files of a page that lack a record of data and code."""
    names = sorted(f"`{name}.json`" for name, record in LOADED.items() if not has_origin(record))
    if names:
        what = "These files record at most a commit, but neither data nor code"
        return f"† {what}: {', '.join(names)}.\n"
    return "Every number on this page has a record of its data and code in `lab/results`.\n"


def has_origin(record: Mapping[str, Any]) -> bool:
    """Whether a results file records the data and code behind each of its numbers.

    Timings have no data; published numbers of other people have neither.
    """
    if "values" in record:
        return True
    if "runs" in record:  # of `chonn-lab run`, kept
        runs = [{**record["shared"], **run} for run in record["runs"]]
        return all(run.get("code") or run.get("commit") for run in runs)
    if "results" not in record:
        return "code" in record.get("environment", {})
    return all(
        "sha256" in str(run.get("data", record.get("data"))) and "code" in run
        for run in record["results"]
    )
