"""All results as a page, in HTML with its pictures inside and in Markdown, beside the figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from chonn_lab.marks import own_file, refuse_foreign
from chonn_lab.report import claims
from chonn_lab.report.claims import Verdict
from chonn_lab.report.document import (
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
from chonn_lab.report.figures import draw_study, panels
from chonn_lab.report.results import Study, read_studies
from chonn_lab.report.tables import notes, settings, study_title, tables, title

HEADING = "Results"


def write_report(results: Path, output: Path, mixed: bool = False) -> Path:
    """Write tables, figures and the page.

    Parameters
    ----------
    results : Path
        Folder of ``chonn-lab run``: ``<experiment>/<scale>/*.json``.
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
    """The page of some studies: numbers, figures and claims of each, then all verdicts.

    Parameters
    ----------
    studies : sequence of Study
    pictures : callable
        The figures of a study.
    """
    found = claims.verdicts(studies)
    tested = [verdict for verdict in found if verdict.study is not None]
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
        own = [_finding(verdict) for verdict in found if verdict.study is study]
        blocks += [heading, *pictures(study), *_study(study, own)]
    if tested:
        blocks += [board, *_scoreboard(tested)]
        missing = Counter(title(v.claim.problem) for v in found if v.study is None)
        names = ", ".join(f"{name} ({count})" for name, count in missing.items())
        if names:
            text = f"Not run, with the number of claims on them: {names}."
            blocks.append(Paragraph(text, soft=True))
    return blocks


def _heading(study: Study) -> Heading:
    name = f"{study.experiment}-{study.scale}"
    anchor = "".join(c if c.isalnum() else "-" for c in name)
    return Heading(2, f"{study_title(study)}, {study.scale}", anchor)


def _study(study: Study, findings: Sequence[Finding]) -> Iterator[Block]:
    if claims.scaled_down(study):
        yield Paragraph("Models are scaled down from their publications.", soft=True)
    yield Heading(3, "Numbers")
    yield from tables(study)
    yield from (Paragraph(text, soft=True) for text in notes(study))
    if findings:
        yield Heading(3, "Claims")
        yield from findings
    yield Heading(3, "How it was run")
    yield Items([*settings(study).items()])


def _finding(verdict: Verdict) -> Finding:
    claim, judgement = verdict.claim, verdict.judgement
    details = [
        Paragraph(f"{claim.place}. Test: {claim.test}."),
        Paragraph(f"Evidence: {judgement.evidence}."),
    ]
    if judgement.models:
        details.append(Paragraph(f"Cost: {claims.costs(judgement.models)}.", soft=True))
    return Finding(judgement, claim.quote, details)


def _scoreboard(tested: Sequence[Verdict]) -> Iterator[Block]:
    """The verdicts, a table a study."""
    yield Paragraph(f"The paper's claims on these experiments: {claims.summary(tested)}.")
    yield Paragraph(f"{claims.RULE} {claims.DECIDED} {claims.SIGNS}", soft=True)
    for heading, group in claims.by_study(tested).items():
        link = _heading(group[0].study).anchor if group[0].study else ""
        yield Heading(3, heading, leads_to=link)
        yield Table(
            "",
            claims.HEADER,
            [
                [f'"{v.claim.quote}" ({v.claim.place})', v.judgement, v.judgement.number]
                for v in group
            ],
        )
