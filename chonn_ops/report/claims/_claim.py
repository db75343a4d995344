"""A claim of the paper, its verdict on a study, and the comparisons that verdicts are made of."""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from chonn_ops.report.comparison import (
    Estimate,
    Statistic,
    against,
    average,
    difference,
    gap,
    sign,
)
from chonn_ops.report.results import Group, Study

SUPPORTED = "supported"
CONTRADICTED = "contradicted"
INCONCLUSIVE = "inconclusive"
NOT_TESTED = "not tested"
VERDICTS = (SUPPORTED, CONTRADICTED, INCONCLUSIVE, NOT_TESTED)
SINGLE = "one seed has no spread"


@dataclasses.dataclass(frozen=True)
class Judgement:
    """What a study says about a claim.

    Parameters
    ----------
    verdict : str
        One of `VERDICTS`.
    evidence : str
        The numbers, in words.
    compared : tuple of Group
        The models they are of.
    detectable : float, optional
        If inconclusive: the smallest relative difference that the seeds would have shown, in every
        comparison that is open, with a probability of `chonn_ops.report.comparison.POWER`.
    deciding : str
        Of the evidence what decides, such as the comparison that speaks least for the claim; empty
        where it is all of it.
    """

    verdict: str
    evidence: str
    compared: tuple[Group, ...] = ()
    detectable: float | None = None
    deciding: str = ""

    @property
    def number(self) -> str:
        """What decides."""
        return self.deciding or self.evidence

    def __str__(self) -> str:
        """The verdict, with what could have been shown."""
        return self.verdict + (f" ({self.detectable:.0%})" if self.detectable is not None else "")


@dataclasses.dataclass(frozen=True)
class Claim:
    """A quantitative or comparative statement of the paper.

    Parameters
    ----------
    experiment : str
        Whose studies it is judged on.
    quote, place : str
        The paper's words and where they stand.
    test : str
        What must hold for "supported".
    judge : callable
        Verdict on a study.
    setting : str
        How the models differ from the paper's; empty where they do not.
    """

    experiment: str
    quote: str
    place: str
    test: str
    judge: Callable[[Study], Judgement]
    setting: str = ""

    def verdict(self, study: Study) -> Judgement:
        """`judge`, except for studies that only check that everything runs."""
        try:
            if study.scale.startswith("smoke"):
                raise Untested("a smoke run only checks that everything works")
            return self.judge(study)
        except Untested as reason:
            return Judgement(NOT_TESTED, str(reason))


class Untested(Exception):
    """A study has not what a claim is about; the message says what is missing."""

    def __init__(self, reason: str = "no results for it") -> None:
        super().__init__(reason)


def claims(
    experiment: str,
    rows: Iterable[tuple[str, str, str, Callable[..., Judgement]]],
    setting: str = "",
    **options: Any,
) -> tuple[Claim, ...]:
    """Claims of (quote, place, test, judge), which all judge with the same options."""
    return tuple(
        Claim(experiment, quote, place, test, functools.partial(judge, **options), setting)
        for quote, place, test, judge in rows
    )


class Pair(NamedTuple):
    """A number that the claim says is lower than another."""

    name: str
    ours: Statistic
    other: Statistic

    @property
    def gap(self) -> Estimate:
        return gap(self.ours, self.other)

    @property
    def detectable(self) -> float:
        """Relative to the other number."""
        return self.gap.detectable / abs(self.other.mean) if self.other.mean else math.inf

    def __str__(self) -> str:
        return f"{self.name} {against(self.ours, self.other)}"

    @property
    def plain(self) -> str:
        """Both numbers and the sign between them."""
        return f"{self.ours} {sign(self.ours, self.other)} {self.other}"


def flat(pairs: Iterable[Iterable[Group]]) -> tuple[Group, ...]:
    """Each variant once."""
    return tuple({group.variant: group for pair in pairs for group in pair}.values())


def lower_in(
    cases: Iterable[tuple[str, Group, Group, str]], compared: Iterable[Group] = ()
) -> Judgement:
    """Whether the first model is lower in every case: its name, two models and a metric.

    `compared` are those that the judgement names, by default the cases' own.
    """
    listed = list(cases)
    pairs = [Pair(name, a.metric(metric), b.metric(metric)) for name, a, b, metric in listed]
    return all_lower(pairs, tuple(compared) or flat(case[1:3] for case in listed))


def all_lower(pairs: Iterable[Pair], compared: tuple[Group, ...]) -> Judgement:
    """Whether every first number is lower."""
    listed = list(pairs)
    if not listed:
        return Judgement(NOT_TESTED, "no results for it")
    evidence = "; ".join(map(str, listed))
    deciding = listed[0].plain
    if len(listed) > 1:
        count = f"{sum(bool(pair.gap.above()) for pair in listed)} of {len(listed)}"
        evidence = f"{count}: {evidence}"
        weakest = min(listed, key=lambda pair: pair.gap.distance)
        deciding = f"{count}; {weakest.name} {weakest.plain}"
    details = [pair.detectable for pair in listed]
    return judged([pair.gap for pair in listed], evidence, compared, details, deciding)


def judged(
    gaps: Sequence[Estimate],
    evidence: str,
    compared: tuple[Group, ...] = (),
    detectable: Sequence[float] | None = None,
    deciding: str = "",
) -> Judgement:
    """Whether all of some numbers are above zero.

    Supported if each passes its one-sided test, since all of them must; contradicted if any is
    below zero by a one-sided test at the level divided by how many could be (Bonferroni).

    Parameters
    ----------
    gaps : sequence of Estimate
    evidence, compared
        Of the judgement.
    detectable : sequence of float, optional
        What each could have shown, relative to something; by default those of the numbers.
    deciding
        Of the judgement.
    """
    if any(math.isnan(one.error) for one in gaps):
        return Judgement(NOT_TESTED, f"{SINGLE}: {evidence}", compared, deciding=SINGLE)
    if all(one.above() for one in gaps):
        return Judgement(SUPPORTED, evidence, compared, deciding=deciding)
    if any(one.below(len(gaps)) for one in gaps):
        return Judgement(CONTRADICTED, evidence, compared, deciding=deciding)
    sizes = detectable or [one.detectable for one in gaps]
    still_open = [
        size for one, size in zip(gaps, sizes, strict=True) if not one.above() and size < math.inf
    ]
    return Judgement(INCONCLUSIVE, evidence, compared, max(still_open, default=None), deciding)


def mostly(
    parts: Sequence[Sequence[Pair]], evidence: str, compared: tuple[Group, ...], deciding: str = ""
) -> Judgement:
    """Whether in every part more than half of the first numbers are lower.

    Contradicted if in any part more than half are higher, both by one-sided tests.
    """
    gaps = [[pair.gap for pair in part] for part in parts]
    if any(math.isnan(one.error) for part in gaps for one in part):
        return Judgement(NOT_TESTED, f"{SINGLE}: {evidence}", compared, deciding=SINGLE)
    if all(sum(bool(one.above()) for one in part) > len(part) / 2 for part in gaps):
        return Judgement(SUPPORTED, evidence, compared, deciding=deciding)
    if any(sum(bool(one.below()) for one in part) > len(part) / 2 for part in gaps):
        return Judgement(CONTRADICTED, evidence, compared, deciding=deciding)
    # What is found in half of a part's comparisons.
    sizes = [statistics.median(pair.detectable for pair in part) for part in parts]
    found = max(filter(math.isfinite, sizes), default=None)
    return Judgement(INCONCLUSIVE, evidence, compared, found, deciding)


def most_in(
    special: Iterable[str],
    gains: Mapping[str, Estimate],
    evidence: str,
    compared: tuple[Group, ...],
) -> Judgement:
    """Whether the mean gain in some metrics is positive and larger than in the others.

    The evidence is of these gains; their difference comes behind it.
    """
    chosen = [gains[name] for name in special if name in gains]
    rest = [gain for name, gain in gains.items() if name not in special]
    if not chosen or not rest:
        raise Untested
    gain = average(chosen)
    gap = difference(gain, average(rest))
    deciding = f"mean gain {gain}, less that of the others {gap}"
    return judged([gap, gain], f"{evidence} {gap}", compared, deciding=deciding)


def diverged(compared: tuple[Group, ...]) -> Judgement:
    return Judgement(INCONCLUSIVE, "a run diverged", compared)


def decided(holds: bool, evidence: str, compared: tuple[Group, ...] = ()) -> Judgement:
    """What has no spread, such as numbers of parameters."""
    return Judgement(SUPPORTED if holds else CONTRADICTED, evidence, compared)
