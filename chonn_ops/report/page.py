"""All results as a page, in HTML with its pictures inside and in Markdown, beside the figures."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from chonn_ops._files import own_file, refuse_foreign
from chonn_ops.report import scoreboard
from chonn_ops.report._document import (
    Block,
    Finding,
    Heading,
    Items,
    Paragraph,
    Picture,
    Table,
    as_html,
    as_markdown,
)
from chonn_ops.report.figures import draw_study, panels
from chonn_ops.report.results import Study, read_studies
from chonn_ops.report.scoreboard import Entry
from chonn_ops.report.tables import notes, settings, study_title, tables, title

HEADING = "Results"


def write_report(results: Path, output: Path, mixed: bool = False) -> Path:
    """Write tables, figures and the page.

    Parameters
    ----------
    results : Path
        Folder of ``chonn run``: ``<experiment>/<scale>/*.json``.
    output : Path
        Folder to write ``index.html``, ``results.md`` and ``figures/`` to, made if needed.
    mixed : bool
        Take results of different data, settings or model code into one table, and say so.

    Returns
    -------
    Path
        ``index.html``: it needs no other file and no network.

    Raises
    ------
    FileNotFoundError, ValueError
        If there are no results, a result file is damaged, or results are mixed.
    FileExistsError
        Before anything is drawn, if another program's file would be replaced.
    """
    studies = read_studies(results, mixed)
    page, text = output / "index.html", output / "results.md"
    pictures = [
        _folder(output, study) / panel.name
        for study in studies
        for panel in panels(study.experiment)
    ]
    refuse_foreign([page, text, *pictures])
    blocks = content(
        studies,
        lambda study: [
            Picture(output, path, panel.caption)
            for panel, path in draw_study(study, _folder(output, study))
        ],
    )
    _write(text, as_markdown(blocks))
    return _write(page, as_html(HEADING, blocks))


def _folder(output: Path, study: Study) -> Path:
    return output / "figures" / study.experiment / study.scale


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with own_file(path) as staged:
        staged.write_text(text, encoding="utf-8")
    return path


def content(
    studies: Sequence[Study], pictures: Callable[[Study], Sequence[Picture]] = lambda _: ()
) -> list[Block]:
    """The page of somebody's own runs: what they gave, then the claims on these experiments.

    Parameters
    ----------
    studies : sequence of Study
    pictures : callable
        Those of a study.
    """
    found = scoreboard.entries(studies)
    tested = scoreboard.tested(found)
    headings = [_heading(study) for study in studies]
    entries = [
        (heading, f"{len(study.groups)} models, {len(study.runs)} runs")
        for heading, study in zip(headings, studies, strict=True)
    ]
    board = Heading(2, "Scoreboard", "scoreboard")
    blocks: list[Block] = [
        Heading(1, HEADING),
        Items([*entries, *([(board, "the paper's claims")] if tested else [])]),
    ]
    for heading, study in zip(headings, studies, strict=True):
        own = [_finding(entry) for entry in found if entry.study is study]
        blocks += [heading, *pictures(study), *_study(study, own)]
    if tested:
        blocks += [board, *_scoreboard(studies, tested)]
    if seen := scoreboard.observations(studies):
        blocks.append(Heading(2, "Beyond the claims"))
        blocks.append(Paragraph("Statements of ours, judged by the same rule.", soft=True))
        for experiment, group in itertools.groupby(seen, lambda entry: entry.claim.experiment):
            blocks += [Heading(3, title(experiment)), *map(_finding, group)]
    if tested and (missing := scoreboard.not_run(found)):
        text = f"Not run, with the number of claims on them: {missing}."
        blocks.append(Paragraph(text, soft=True))
    return blocks


def _heading(study: Study) -> Heading:
    name = f"{study.experiment}-{study.scale}"
    anchor = "".join(c if c.isalnum() else "-" for c in name)
    return Heading(2, f"{study_title(study)}, {study.scale}", anchor)


def _study(study: Study, findings: Sequence[Finding]) -> Iterator[Block]:
    if scoreboard.scaled_down(study):
        yield Paragraph("Models are scaled down from their publications.", soft=True)
    yield Heading(3, "Numbers")
    yield from tables(study)
    yield from (Paragraph(text, soft=True) for text in notes(study))
    if findings:
        yield Heading(3, "Claims")
        yield from findings
    yield Heading(3, "How it was run")
    yield Items([*settings(study).items()])


def _finding(entry: Entry) -> Finding:
    claim, judgement = entry.claim, entry.judgement
    details = [
        Paragraph(f"{claim.place}. Test: {claim.test}."),
        Paragraph(f"Evidence: {judgement.evidence}."),
    ]
    if judgement.compared:
        details.append(Paragraph(f"Cost: {scoreboard.costs(judgement.compared)}.", soft=True))
    setting = f" ({claim.setting})" if claim.setting else ""
    return Finding(judgement, claim.quote + setting, details)


def _scoreboard(studies: Sequence[Study], tested: Sequence[Entry]) -> Iterator[Block]:
    """The verdicts, a table a study."""
    yield Paragraph(
        f"Of the paper's claims on these experiments, with its models{scoreboard.how(studies)}: "
        f"{scoreboard.summary(tested)}."
    )
    yield Paragraph(f"{scoreboard.RULE} {scoreboard.DECIDED} {scoreboard.SIGNS}", soft=True)
    for board in scoreboard.boards(tested):
        link = _heading(board.study).anchor if board.study else ""
        yield Heading(3, board.heading, leads_to=link)
        yield Table("", scoreboard.HEADER, board.rows())
