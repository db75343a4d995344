"""All results as a page in Markdown, beside its figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from chonn_lab.marks import MARKS, own_file, refuse_foreign
from chonn_lab.report import claims, tables
from chonn_lab.report.document import render
from chonn_lab.report.figures import PANELS, draw_study
from chonn_lab.report.results import Study, read_studies


def write_report(results: Path, output: Path, mixed: bool = False) -> Path:
    """Write tables, figures and the page.

    Parameters
    ----------
    results : Path
        Folder of ``chonn-lab run``: ``<experiment>/<scale>/*.json``.
    output : Path
        Folder to write ``results.md`` and ``figures/`` to, made if needed.
    mixed : bool
        Take results of different data, settings or model code into one table, and say so.

    Returns
    -------
    Path
        ``results.md``.

    Raises
    ------
    FileNotFoundError, ValueError
        If there are no results, a result file is damaged, or results are mixed.
    FileExistsError
        Before anything is drawn, if another program's file would be replaced.
    """
    studies = read_studies(results, mixed)
    page = output / "results.md"

    def figures(study: Study) -> Path:
        return output / "figures" / study.experiment / study.scale

    drawn = [figures(study) / panel.name for study in studies for panel in PANELS]
    refuse_foreign([page, *drawn])
    text = content(
        studies,
        lambda study: [
            f"![{panel.caption}]({path.relative_to(output).as_posix()})"
            for panel, path in draw_study(study, figures(study))
        ],
    )
    page.parent.mkdir(parents=True, exist_ok=True)
    with own_file(page) as staged:
        staged.write_text(text, encoding="utf-8")
    return page


def content(
    studies: Sequence[Study], pictures: Callable[[Study], Sequence[str]] = lambda _: ()
) -> str:
    """The page of some studies: numbers, figures and claims of each, then all verdicts.

    Parameters
    ----------
    studies : sequence of Study
    pictures : callable
        The figures of a study, as Markdown.
    """
    found = claims.verdicts(studies)
    tested = [verdict for verdict in found if verdict.study is not None]
    missing = Counter(tables.title(v.claim.problem) for v in found if v.study is None)
    return render(
        "page.md.j2",
        mark=MARKS[".md"].decode(),
        studies=studies,
        pictures=pictures,
        tested=tested,
        boards=claims.boards(tested),
        missing=", ".join(f"{name} ({count})" for name, count in missing.items()),
        claims=claims,
        tables=tables,
    )
