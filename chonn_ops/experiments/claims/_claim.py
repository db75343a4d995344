"""A claim of the paper, its verdict on a study, and the comparisons that verdicts are made of."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import NamedTuple

from chonn_ops.experiments.comparison import against, lower
from chonn_ops.experiments.results import Group, Study
from chonn_ops.experiments.statistic import Statistic

SUPPORTED = "supported"
NOT_SUPPORTED = "not supported"
NOT_TESTED = "not tested at this scale"
VERDICTS = (SUPPORTED, NOT_SUPPORTED, NOT_TESTED)


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
    """

    verdict: str
    evidence: str
    compared: tuple[Group, ...] = ()


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
        if study.scale.startswith("smoke"):
            return untested("a smoke run only checks that everything works")
        return self.judge(study)


class Pair(NamedTuple):
    """A number that the claim says is lower than another."""

    name: str
    ours: Statistic
    other: Statistic

    def __str__(self) -> str:
        return f"{self.name} {against(self.ours, self.other)}"


def unique(groups: Iterable[Group]) -> tuple[Group, ...]:
    """Each variant once."""
    return tuple({group.variant: group for group in groups}.values())


def untested(reason: str) -> Judgement:
    return Judgement(NOT_TESTED, reason)


def all_lower(pairs: Iterable[Pair], compared: tuple[Group, ...]) -> Judgement:
    """Supported if every first number is lower beyond the spread."""
    listed = list(pairs)
    if not listed:
        return untested("no results for it")
    outcomes = [lower(pair.ours, pair.other) for pair in listed]
    evidence = "; ".join(map(str, listed))
    if None in outcomes:
        return Judgement(NOT_TESTED, f"one seed has no spread: {evidence}", compared)
    if len(listed) > 1:
        evidence = f"{sum(map(bool, outcomes))} of {len(listed)}: {evidence}"
    return Judgement(SUPPORTED if all(outcomes) else NOT_SUPPORTED, evidence, compared)


def decided(holds: bool | None, evidence: str, compared: tuple[Group, ...] = ()) -> Judgement:
    if holds is None:
        return Judgement(NOT_TESTED, f"one seed has no spread: {evidence}", compared)
    return Judgement(SUPPORTED if holds else NOT_SUPPORTED, evidence, compared)
