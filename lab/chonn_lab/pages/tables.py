"""Rewrite the tables of README.md and docs/, from the result files and from calls of the code.

python -m chonn_lab.pages.tables           # rewrite
python -m chonn_lab.pages.tables --check   # exit 1 if a table is out of date
"""

from __future__ import annotations

import functools
import sys

from chonn_lab.pages import blocks, results
from chonn_lab.pages.files import Build, rewritten
from chonn_lab.paths import DOCS, ROOT
from chonn_lab.report.claims import counted
from chonn_ops.files import write_whole

CHECK = "--check"
BLOCKS: dict[str, Build] = {
    "equal wall-clock": lambda: results.summary(results.kept()),
    "search": results.trials,
    "kernel speed": results.kernel_speed,
    "verdicts": lambda: counted(results.judged(results.kept())),
    "all problems": lambda: results.problems(results.kept()),
    "problems": lambda: results.sections(results.kept()),
    "claims": lambda: results.verdicts(results.kept()),
    **{name: functools.partial(blocks.build, name) for name in blocks.TABLES},
}


def main() -> None:
    check = CHECK in sys.argv[1:]
    shown: set[str] = set()
    for path in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]:
        before, page = path.read_text(), str(path.relative_to(ROOT))
        text, names = rewritten(page, before, BLOCKS)
        shown |= names
        if check and text != before:
            raise SystemExit(f"{page} is out of date: run `make tables`")
        if not check:
            write_whole(path, text)
    if unshown := BLOCKS.keys() - shown:
        raise SystemExit(f"no page shows the blocks {sorted(unshown)}")
    if not check:
        results.draw_figures(results.kept())


if __name__ == "__main__":
    main()
