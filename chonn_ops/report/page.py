"""All results as one HTML page with its pictures inside, beside the figures and tables as files."""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from chonn_ops._files import own_file, refuse_foreign
from chonn_ops.report import scoreboard
from chonn_ops.report._html import frame, paragraph, picture
from chonn_ops.report.claims import Judgement
from chonn_ops.report.figures import draw_study, panels
from chonn_ops.report.results import Study, read_studies
from chonn_ops.report.scoreboard import Board, Entry
from chonn_ops.report.tables import markup, notes, settings, study_title, tables, title

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
    entries = scoreboard.entries(studies)
    sections = [_study(study, entries, _folder(output, study)) for study in studies]
    body = "\n".join([_head(studies), *sections, *_scoreboard(studies, entries)])
    _write(text, scoreboard.results(studies))
    return _write(page, frame(HEADING, body))


def _folder(output: Path, study: Study) -> Path:
    return output / "figures" / study.experiment / study.scale


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with own_file(path) as staged:
        staged.write_text(text, encoding="utf-8")
    return path


def _anchor(study: Study) -> str:
    kept = (c if c.isalnum() else "-" for c in f"{study.experiment}-{study.scale}")
    return "".join(kept)


def _name(study: Study) -> str:
    return f"{study_title(study)}, {study.scale}"


def _head(studies: Sequence[Study]) -> str:
    links = "\n".join(
        f'<li><a href="#{_anchor(study)}">{html.escape(_name(study))}</a>: '
        f"{len(study.groups)} models, {len(study.runs)} runs</li>"
        for study in studies
    )
    if scoreboard.tested(scoreboard.entries(studies)):
        links += '\n<li><a href="#scoreboard">Scoreboard</a>: the paper\'s claims</li>'
    return f"<header><h1>{HEADING}</h1></header>\n<nav><ul>\n{links}\n</ul></nav>"


def _scoreboard(studies: Sequence[Study], entries: Sequence[Entry]) -> Iterator[str]:
    """The claims on what was run, and last what was not."""
    if tested := scoreboard.tested(entries):
        yield '<h2 id="scoreboard">Scoreboard</h2>'
        yield paragraph(
            f"Of the paper's claims on these experiments, with its models{scoreboard.how(studies)}:"
            f" {scoreboard.summary(tested)}."
        )
        yield paragraph(f"{scoreboard.RULE} {scoreboard.SIGNS}", "soft")
        yield from map(_board, scoreboard.boards(tested))
    if seen := scoreboard.observations(studies):
        yield "<h2>Beyond the claims</h2>"
        yield paragraph("Statements of ours, judged by the same rule.", "soft")
        yield from _observations(seen)
    if tested and (missing := scoreboard.not_run(entries)):
        yield paragraph(f"Not run, with the number of claims on them: {missing}.", "soft")


def _observations(entries: Sequence[Entry]) -> Iterator[str]:
    for experiment, group in itertools.groupby(entries, lambda entry: entry.claim.experiment):
        yield f"<h3>{html.escape(title(experiment))}</h3>"
        yield from map(_claim, group)


def _verdict(judgement: Judgement | None) -> str:
    if judgement is None:
        return ""
    return f'<span class="{judgement.verdict.replace(" ", "-")}">{judgement}</span>'


def _board(board: Board) -> str:
    rows = []
    for claim, judged in board.rows:
        cells = [html.escape(claim.quote), html.escape(claim.place), *map(_verdict, judged)]
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    columns = ["claim", "where", *(scoreboard.column(board, name) for name in board.settings)]
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    name = html.escape(scoreboard.heading(board))
    if board.study:
        name = f'<a href="#{_anchor(board.study)}">{name}</a>'
    return (
        f'<h3>{name}</h3>\n<div class="table"><table class="claims">'
        f"<thead><tr>{head}</tr></thead>\n"
        "<tbody>\n" + "\n".join(rows) + "\n</tbody></table></div>"
    )


def _study(study: Study, entries: Iterable[Entry], figures: Path) -> str:
    claims = [_claim(entry) for entry in entries if entry.study is study]
    facts = "\n".join(
        f"<dt>{name}</dt><dd>{html.escape(text)}</dd>" for name, text in settings(study).items()
    )
    return "\n".join(
        [
            f'<section id="{_anchor(study)}">',
            f"<h2>{html.escape(_name(study))}</h2>",
            *(picture(path, panel.caption) for panel, path in draw_study(study, figures)),
            "<h3>Numbers</h3>",
            *(markup(table) for table in tables(study)),
            *(paragraph(text, "soft") for text in notes(study)),
            *(["<h3>Claims</h3>", *claims] if claims else []),
            "<h3>How it was run</h3>",
            f"<dl>\n{facts}\n</dl>",
            "</section>",
        ]
    )


def _claim(entry: Entry) -> str:
    claim, judgement = entry.claim, entry.judgement
    setting = f" ({claim.setting})" if claim.setting else ""
    parts = [
        paragraph(f"{claim.place}. Test: {claim.test}."),
        paragraph(f"Evidence: {judgement.evidence}."),
    ]
    if judgement.compared:
        parts.append(paragraph(f"Cost: {scoreboard.costs(judgement.compared)}.", "soft"))
    return (
        f"<details><summary>{_verdict(judgement)}: {html.escape(claim.quote + setting)}"
        f"</summary>{''.join(parts)}</details>"
    )
