"""Rewrite the tables of README.md and docs/, from the result files and from calls of the code.

python -m chonn_lab.pages.tables           # rewrite
python -m chonn_lab.pages.tables --check   # exit 1 if a table is out of date
"""

from __future__ import annotations

import functools
import re
import sys

from chonn_lab.pages import blocks, results, rows
from chonn_lab.pages.files import Build, rewritten
from chonn_lab.pages.walks import WALKS
from chonn_lab.paths import DOCS, ROOT
from chonn_ops.files import write_whole

CHECK = "--check"
BLOCKS: dict[str, Build] = {
    "equal wall-clock": lambda: results.summary(results.kept()),
    "search": results.caption,
    "kernel speed": rows.kernel_speed,
    "verdicts": lambda: results.claims_sentence(results.kept()),
    **{name: functools.partial(blocks.build, name) for name in blocks.TABLES},
    **WALKS,
}


def main() -> None:
    check = CHECK in sys.argv[1:]
    whole = {"results": results.results_page, "claims": results.claims_page}
    pages = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    shown: set[str] = set()
    made = {}
    for path in pages:
        if path.parent.name == "lab" and path.stem in whole:
            made[path] = whole[path.stem](results.kept())
        else:
            made[path], names = rewritten(str(path.relative_to(ROOT)), path.read_text(), BLOCKS)
            shown |= names
    if unshown := BLOCKS.keys() - shown:
        raise SystemExit(f"no page shows the blocks {sorted(unshown)}")
    for path, text in made.items():
        if not check:
            write_whole(path, text)
        elif text != path.read_text():
            raise SystemExit(f"{path.relative_to(ROOT)} is out of date: run `make tables`")
    if not check:
        results.draw_figures(results.kept())
    for path, text in made.items():
        for picture in re.findall(r"!\[[^]]*\]\((?!https?:)([^)]+)\)", text):
            if not (path.parent / picture).is_file():
                raise SystemExit(f"{path.relative_to(ROOT)}: no picture {picture}")


if __name__ == "__main__":
    main()
