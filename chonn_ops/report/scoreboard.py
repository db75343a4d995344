"""The scoreboard: every claim of the paper beside what the studies say, as a Markdown page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from chonn_ops._files import MARKS
from chonn_ops.experiments import FURTHER
from chonn_ops.report.claims import (
    CLAIMS,
    CONTRADICTED,
    INCONCLUSIVE,
    NOT_TESTED,
    OBSERVATIONS,
    SUPPORTED,
    VERDICTS,
    Claim,
    Judgement,
)
from chonn_ops.report.comparison import LEVEL, POWER, number
from chonn_ops.report.results import Group, Study
from chonn_ops.report.tables import (
    TITLES,
    full_label,
    markdown,
    notes,
    settings,
    study_title,
    tables,
    title,
)

RULE = (
    f"Verdicts come from Welch's t-test over the seeds, one-sided at {LEVEL:.0%} in the direction "
    f'that a claim states. "{SUPPORTED}": each comparison of the claim passes. "{CONTRADICTED}": '
    f"one of them passes in the other direction, at {LEVEL:.0%} divided by their number. "
    f'"{INCONCLUSIVE}": neither; the number behind it is the smallest relative difference that '
    f"these seeds would have shown with a probability of {POWER:.0%}, in each comparison left "
    f'open. "{NOT_TESTED}": nobody ran it, or with one seed, which has no spread. A diverged run '
    "counts as an infinite error."
)
SIGNS = (
    "Numbers are means ± standard deviations over the seeds; < and > mark differences that pass "
    f"the one-sided test at {LEVEL:.0%} in that direction, so that both together are two-sided at "
    f"{2 * LEVEL:.0%}; ≈ is between them, and what would have been detectable behind it. Each "
    "comparison is marked by itself: of many equal ones some are marked."
)
FULL = "paper"


class Entry(NamedTuple):
    """A claim and a study's judgement on it; no study where the experiment was not run."""

    claim: Claim
    study: Study | None
    judgement: Judgement


class Board(NamedTuple):
    """The verdicts of one study: a row a claim, a column a setting, the paper's first."""

    experiment: str
    study: Study | None
    settings: tuple[str, ...]
    rows: tuple[tuple[Claim, tuple[Judgement | None, ...]], ...]


def entries(studies: Sequence[Study]) -> list[Entry]:
    """Every claim with every study of its experiment, in the paper's order."""
    found = []
    for claim in CLAIMS:
        matching = [study for study in studies if study.experiment == claim.experiment]
        found += [Entry(claim, study, claim.verdict(study)) for study in matching]
        if not matching:
            found.append(Entry(claim, None, Judgement(NOT_TESTED, "not run")))
    return found


def observations(studies: Sequence[Study]) -> list[Entry]:
    """What the studies show beyond the paper's claims."""
    return [
        Entry(claim, study, claim.verdict(study))
        for claim in OBSERVATIONS
        for study in studies
        if study.experiment == claim.experiment
    ]


def boards(found: Sequence[Entry]) -> list[Board]:
    """The entries by study, what was not run last; settings that no model has are left out."""
    studies: dict[tuple[str, int], list[Entry]] = {}
    for entry in found:
        studies.setdefault((entry.claim.experiment, id(entry.study)), []).append(entry)
    made = []
    for (experiment, _), group in studies.items():
        tested = {e.claim.setting for e in group if e.judgement.verdict != NOT_TESTED}
        columns = [s for s in dict.fromkeys(e.claim.setting for e in group) if not s or s in tested]
        rows: dict[tuple[str, str], dict[str, Entry]] = {}
        for entry in group:
            claim = entry.claim
            rows.setdefault((claim.quote, claim.place), {})[claim.setting] = entry
        lines = tuple(
            (
                next(iter(row.values())).claim,
                tuple(row[c].judgement if c in row else None for c in columns),
            )
            for row in rows.values()
        )
        made.append(Board(experiment, group[0].study, tuple(columns), lines))
    return sorted(made, key=lambda board: board.study is None)


def summary(found: Sequence[Entry]) -> str:
    """How many of each verdict, for the paper's models."""
    counts = Counter(entry.judgement.verdict for entry in found if not entry.claim.setting)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)


def heading(board: Board) -> str:
    name = title(board.experiment)
    return f"{name}, {board.study.scale}" if board.study else f"{name}, not run"


def scaled_down(study: Study) -> bool:
    """Whether models and training are smaller than those of their publications."""
    scale, _, changes = study.scale.partition("+")
    known = study.experiment in (*TITLES, *FURTHER)
    return known and (scale != FULL or "sizes=" in changes)


def column(board: Board, setting: str) -> str:
    """What the models of a column are."""
    if setting:
        return setting
    small = board.study is not None and scaled_down(board.study)
    return "the paper's models, scaled down" if small else "as in the paper"


def costs(groups: Sequence[Group]) -> str:
    """Parameters, multiply-adds and training seconds of compared models."""
    return "; ".join(
        f"{full_label(group)}: {group.parameters:,} parameters, {_work(group)}"
        f"{number(group.seconds.mean)} s"
        for group in groups
    )


def _work(group: Group) -> str:
    """Not all results have it."""
    millions = group.multiply_adds / 1e6
    return f"{number(millions)} M multiply-adds, " if millions else ""


def overview(found: Sequence[Entry]) -> str:
    """The verdicts, a table a study."""
    parts = []
    for board in boards(found):
        columns = [column(board, setting) for setting in board.settings]
        lines = [f"| claim | where | {' | '.join(columns)} |", "| --- " * (2 + len(columns)) + "|"]
        lines += [
            f"| {claim.quote} | {claim.place} | {' | '.join(str(j or '') for j in judged)} |"
            for claim, judged in board.rows
        ]
        parts.append(f"### {heading(board)}\n\n" + "\n".join(lines))
    return "\n\n".join(parts)


def tested(found: Sequence[Entry]) -> list[Entry]:
    """Those of experiments that were run."""
    return [entry for entry in found if entry.study is not None]


def not_run(found: Sequence[Entry]) -> str:
    """The experiments behind claims that nobody tested; empty if there are none."""
    missing = Counter(title(entry.claim.experiment) for entry in found if entry.study is None)
    return ", ".join(f"{name} ({count})" for name, count in missing.items())


def results(studies: Sequence[Study]) -> str:
    """The page of somebody's own runs: what they gave, then the claims on these experiments."""
    found = entries(studies)
    parts = ["# Results", MARKS[".md"].decode()]
    for study in studies:
        parts += [study_heading(study), *numbers(study)]
        parts += [claim_text(entry) for entry in found if entry.study is study]
    if tested(found):
        parts += ["## Scoreboard", f"{RULE} {SIGNS}"]
        parts.append(
            f"Of the claims on these experiments, with the paper's models{how(studies)}: "
            f"{summary(tested(found))}."
        )
        parts.append(overview(tested(found)))
        parts += beyond(studies)
    if tested(found) and (missing := not_run(found)):
        parts.append(f"Not run, with the number of claims on them: {missing}.")
    return joined(parts)


def beyond(studies: Sequence[Study]) -> list[str]:
    """Section of what the studies show beyond the paper's claims; empty without."""
    if shown := [_observation(entry) for entry in observations(studies)]:
        return ["## Beyond the claims", "Statements of ours, judged by the same rule.", *shown]
    return []


def how(studies: Sequence[Study]) -> str:
    return " scaled down" if any(map(scaled_down, studies)) else ""


def study_heading(study: Study) -> str:
    """Of the part of a study."""
    how = ", models scaled down from their publications" if scaled_down(study) else ""
    return f"## {study_title(study)}, scale `{study.scale}`{how}"


def numbers(study: Study) -> list[str]:
    """Tables, notes and settings of a study."""
    facts = [f"- {name}: {text}" for name, text in settings(study).items()]
    return [*map(markdown, tables(study)), *notes(study), "\n".join(facts)]


def joined(parts: Sequence[str]) -> str:
    """Paragraphs as a page."""
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _observation(entry: Entry) -> str:
    claim, judgement = entry.claim, entry.judgement
    return (
        f"**{judgement}**: {claim.quote} ({title(claim.experiment)}).  \n"
        f"Evidence: {judgement.evidence}."
    )


def claim_text(entry: Entry) -> str:
    """A claim with its verdict, test and evidence."""
    claim, judgement = entry.claim, entry.judgement
    setting = f", with {claim.setting}" if claim.setting else ""
    lines = [
        f'**{judgement}**: "{claim.quote}" ({claim.place}{setting})  ',
        f"Test: {claim.test}.  ",
        f"Evidence: {judgement.evidence}.",
    ]
    if judgement.compared:
        lines[-1] += "  "
        lines.append(f"Cost: {costs(judgement.compared)}.")
    return "\n".join(lines)
