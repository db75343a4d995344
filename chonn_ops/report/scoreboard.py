"""The scoreboard: every claim of the paper beside what the studies say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

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
from chonn_ops.report.tables import TITLES, full_label, title

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
DECIDED = (
    '"Decided by" says how many of the comparisons of a claim pass, and the one that speaks least '
    "for it, the claimed side first."
)
HEADER = ("claim", "models", "verdict", "decided by")
FULL = "paper"


class Entry(NamedTuple):
    """A claim and a study's judgement on it; no study where the experiment was not run."""

    claim: Claim
    study: Study | None
    judgement: Judgement


class Board(NamedTuple):
    """The verdicts on one study, or on an experiment that was not run."""

    heading: str
    study: Study | None
    entries: tuple[Entry, ...]

    def rows(self) -> list[tuple[str, str, Judgement, str]]:
        """As `HEADER` says: by claim, a row a setting, the paper's first."""
        claims: dict[str, list[Entry]] = {}
        for entry in self.entries:
            claims.setdefault(f'"{entry.claim.quote}" ({entry.claim.place})', []).append(entry)
        small = self.study is not None and scaled_down(self.study)
        papers = f"the paper's{', scaled down' if small else ''}"
        rows = []
        for text, group in claims.items():
            for entry in group:
                judged = entry.judgement
                rows.append((text, entry.claim.setting or papers, judged, judged.number))
                text = ""
        return rows


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
        study = group[0].study
        tested = {"", *(e.claim.setting for e in group if e.judgement.verdict != NOT_TESTED)}
        kept = tuple(entry for entry in group if entry.claim.setting in tested)
        heading = f"{title(experiment)}, {study.scale if study else 'not run'}"
        made.append(Board(heading, study, kept))
    return sorted(made, key=lambda board: board.study is None)


def summary(found: Sequence[Entry]) -> str:
    """How many of each verdict, for the paper's models."""
    counts = Counter(entry.judgement.verdict for entry in found if not entry.claim.setting)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)


def scaled_down(study: Study) -> bool:
    """Whether models and training are smaller than those of their publications."""
    scale, _, changes = study.scale.partition("+")
    known = study.experiment in (*TITLES, *FURTHER)
    return known and (scale != FULL or "sizes=" in changes)


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


def tested(found: Sequence[Entry]) -> list[Entry]:
    """Those of experiments that were run."""
    return [entry for entry in found if entry.study is not None]


def not_run(found: Sequence[Entry]) -> str:
    """The experiments behind claims that nobody tested; empty if there are none."""
    missing = Counter(title(entry.claim.experiment) for entry in found if entry.study is None)
    return ", ".join(f"{name} ({count})" for name, count in missing.items())


def how(studies: Sequence[Study]) -> str:
    """What to add to "its models" of these studies."""
    return " scaled down" if any(map(scaled_down, studies)) else ""
