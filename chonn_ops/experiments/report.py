"""All results as one HTML page with its pictures inside, beside the figures and tables as files."""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from chonn_ops.experiments import scoreboard
from chonn_ops.experiments._page import frame, paragraph, picture
from chonn_ops.experiments.figures import draw_study
from chonn_ops.experiments.results import Study, read_studies
from chonn_ops.experiments.scoreboard import Board, Entry
from chonn_ops.experiments.tables import markup, settings, tables, title
from chonn_ops.problems._files import whole_file

HEADING = "The paper's experiments"


def write(results: Path, output: Path) -> Path:
    """Write tables, figures and the page.

    Parameters
    ----------
    results : Path
        Folder of ``chonn run``: ``<experiment>/<scale>/*.json``.
    output : Path
        Folder to write ``index.html``, ``results.md`` and ``figures/`` to, made if needed.

    Returns
    -------
    Path
        ``index.html``: it needs no other file and no network.

    Raises
    ------
    FileNotFoundError, ValueError
        If there are no results, or a result file is damaged.
    """
    studies = read_studies(results)
    entries = scoreboard.entries(studies)
    sections = [_study(study, entries, output / "figures") for study in studies]
    body = "\n".join([_head(studies, entries), *sections])
    _write(output / "results.md", scoreboard.page(studies))
    return _write(output / "index.html", frame(HEADING, body))


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path, force=True) as staged:
        staged.write_text(text, encoding="utf-8")
    return path


def _anchor(study: Study) -> str:
    kept = (c if c.isalnum() else "-" for c in f"{study.experiment}-{study.scale}")
    return "".join(kept)


def _name(study: Study) -> str:
    return f"{title(study.experiment)}, {study.scale}"


def _head(studies: Sequence[Study], entries: Sequence[Entry]) -> str:
    links = "\n".join(
        f'<li><a href="#{_anchor(study)}">{html.escape(_name(study))}</a>: '
        f"{len(study.groups)} models, {len(study.runs)} runs</li>"
        for study in studies
    )
    return "\n".join(
        [
            f"<header><h1>{HEADING}</h1></header>",
            f"<nav><ul>\n{links}\n</ul></nav>",
            "<h2>Scoreboard</h2>",
            paragraph(
                f"Of the claims, with models as in the paper: {scoreboard.summary(entries)}."
            ),
            paragraph(f"{scoreboard.RULE} {scoreboard.SIGNS}", "soft"),
            *(_board(board) for board in scoreboard.boards(entries)),
            "<h2>Beyond the claims</h2>",
            paragraph("Statements of ours, judged by the same rule.", "soft"),
            *_observations(scoreboard.observations(studies)),
        ]
    )


def _observations(entries: Sequence[Entry]) -> Iterator[str]:
    for experiment, group in itertools.groupby(entries, lambda entry: entry.claim.experiment):
        yield f"<h3>{html.escape(title(experiment))}</h3>"
        yield from map(_claim, group)


def _verdict(word: str) -> str:
    return f'<span class="{word.replace(" ", "-")}">{word}</span>'


def _board(board: Board) -> str:
    rows = []
    for claim, verdicts in board.rows:
        cells = [html.escape(claim.quote), html.escape(claim.place), *map(_verdict, verdicts)]
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    columns = ["claim", "where", *(setting or "as in the paper" for setting in board.settings)]
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
    folder = figures / study.experiment / study.scale
    facts = "\n".join(
        f"<dt>{name}</dt><dd>{html.escape(text)}</dd>" for name, text in settings(study).items()
    )
    return "\n".join(
        [
            f'<section id="{_anchor(study)}">',
            f"<h2>{html.escape(_name(study))}</h2>",
            *(picture(path, panel.caption) for panel, path in draw_study(study, folder)),
            "<h3>Claims</h3>",
            *(_claim(entry) for entry in entries if entry.study is study),
            "<h3>Numbers</h3>",
            *(markup(table) for table in tables(study)),
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
        f"<details><summary>{_verdict(judgement.verdict)}: {html.escape(claim.quote + setting)}"
        f"</summary>{''.join(parts)}</details>"
    )
