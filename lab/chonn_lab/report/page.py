"""All results as a page in Markdown, beside its figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from chonn_lab.marks import MARKS, own_file, refuse_foreign
from chonn_lab.report import claims
from chonn_lab.report.claims import Verdict
from chonn_lab.report.document import markdown
from chonn_lab.report.figures import draw_study, panels
from chonn_lab.report.results import Study, read_studies
from chonn_lab.report.tables import notes, settings, study_title, tables, title


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

    drawn = [figures(study) / panel.name for study in studies for panel in panels(study.experiment)]
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
    lines = [
        f"- {_heading(study)}: {len(study.groups)} models, {len(study.runs)} runs"
        for study in studies
    ]
    lines += ["- Scoreboard: the paper's claims"] if tested else []
    blocks = ["# Results", MARKS[".md"].decode(), "\n".join(lines)]
    for study in studies:
        own = [verdict for verdict in found if verdict.study is study]
        blocks += [f"## {_heading(study)}", *pictures(study), *_study(study, own)]
    if tested:
        blocks += ["## Scoreboard", *_scoreboard(tested)]
        missing = Counter(title(v.claim.problem) for v in found if v.study is None)
        names = ", ".join(f"{name} ({count})" for name, count in missing.items())
        if names:
            blocks.append(f"Not run, with the number of claims on them: {names}.")
    return "\n\n".join(blocks) + "\n"


def _heading(study: Study) -> str:
    return f"{study_title(study)}, {study.scale}"


def _study(study: Study, found: Sequence[Verdict]) -> Iterator[str]:
    if claims.scaled_down(study):
        yield "Models are scaled down from their publications."
    yield "### Numbers"
    for table in tables(study):
        yield f"{table.caption}:\n\n{markdown(table.header, table.rows).rstrip()}"
    yield from notes(study)
    if found:
        yield "### Claims"
        yield from map(_finding, found)
    yield "### How it was run"
    yield "\n".join(f"- {name}: {text}" for name, text in settings(study).items())


def _finding(verdict: Verdict) -> str:
    claim, judgement = verdict.claim, verdict.judgement
    lines = [f"**{judgement}**: {claim.quote}", f"{claim.place}. Test: {claim.test}."]
    lines.append(f"Evidence: {judgement.evidence}.")
    if judgement.models:
        lines.append(f"Cost: {claims.costs(judgement.models)}.")
    return "  \n".join(lines)


def _scoreboard(tested: Sequence[Verdict]) -> Iterator[str]:
    """The verdicts, a table a study."""
    yield f"The paper's claims on these experiments: {claims.summary(tested)}."
    yield f"{claims.RULE} {claims.DECIDED} {claims.SIGNS}"
    for heading, group in claims.by_study(tested).items():
        yield f"### {heading}"
        yield markdown(claims.HEADER, [verdict.row() for verdict in group], range(3)).rstrip()
