"""Claims on rollouts of Navier-Stokes by the length of the history."""

from __future__ import annotations

import functools
import math

from chonn_ops.report.claims._claim import (
    Claim,
    Judgement,
    Pair,
    all_lower,
    mostly,
    untested,
)
from chonn_ops.report.comparison import Estimate, Statistic
from chonn_ops.report.results import Group, Study
from chonn_ops.report.roles import Role

ROLLOUT = "rollout_relative_l2"
HISTORIES = (10, 5, 3)
PAPER = "paper"


def _pair(study: Study, history: int, ours: bool) -> tuple[Group, Group] | None:
    """The paper's CHONN or ours, and FNO trained the same way, else FNO as in the paper."""
    chosen = study.find(family="chonn", history=history, role=Role.BEST if ours else Role.PAPER)
    if not chosen:
        return None
    trained = chosen[0].tags.recipe or PAPER
    for recipe in (trained, PAPER):
        other = study.find(family="fno", history=history, recipe=recipe)
        if other:
            return chosen[0], other[0]
    return None


def _pairs(study: Study, ours: bool) -> dict[int, tuple[Group, Group]]:
    return {h: pair for h in HISTORIES if (pair := _pair(study, h, ours))}


def rollout_lower(study: Study, ours: bool, history: int) -> Judgement:
    pair = _pair(study, history, ours)
    if pair is None:
        return untested("no results for it")
    return all_lower([Pair(f"{history} to 1", *(g.metric(ROLLOUT) for g in pair))], pair)


def milder(study: Study, ours: bool) -> Judgement:
    """Ratio of the errors from the shortest and the longest history, seed by seed."""
    pairs = _pairs(study, ours)
    if not {3, 10} <= pairs.keys():
        return untested("needs histories of 3 and 10 frames")
    first, second = (_ratio(pairs[3][side], pairs[10][side]) for side in (0, 1))
    return all_lower(
        [Pair("rollout error from 3 frames over that from 10:", first, second)],
        (*pairs[3], *pairs[10]),
    )


def _ratio(short: Group, long: Group) -> Statistic:
    ratios = []
    for run in short.runs:
        other = next((r for r in long.runs if r.seed == run.seed), None)
        error = run.metrics["test"].get(ROLLOUT)
        base = other and other.metrics["test"].get(ROLLOUT)
        ratios.append(error / base if error and base else None)
    return Statistic.of(ratios)


def below_mostly(study: Study, ours: bool) -> Judgement:
    """Steps of the rollout at which the error is lower."""
    pairs = _pairs(study, ours)
    parts, texts = [], []
    for history, (first, second) in pairs.items():
        curves = zip(first.curve(ROLLOUT), second.curve(ROLLOUT), strict=False)
        if steps := [Pair("", a, b) for a, b in curves]:
            below, above = (
                sum(bool(test(step.gap)) for step in steps)
                for test in (Estimate.above, Estimate.below)
            )
            texts.append(
                f"{history} to 1: below at {below}, above at {above} of {len(steps)} steps"
            )
            parts.append(steps)
    if not parts:
        return untested("no rollout curves")
    return mostly(parts, "; ".join(texts), _flat(pairs))


def gap_widens(study: Study, ours: bool) -> Judgement:
    """Distance to FNO in the last quarter of the rollout against that in the first."""
    pairs = _pairs(study, ours)
    parts = []
    for history, (first, second) in pairs.items():
        growths = [_growth(group) for group in (first, second)]
        if all(growth.values for growth in growths):
            name = f"error of the last quarter less that of the first, {history} to 1:"
            parts.append(Pair(name, *growths))
    return all_lower(parts, _flat(pairs)) if parts else untested("no rollout curves")


def _growth(group: Group) -> Statistic:
    growths = []
    for run in group.runs:
        curve = run.curves.get(ROLLOUT) or [None]
        quarter = max(len(curve) // 4, 1)
        if any(value is None or not math.isfinite(value) for value in curve):
            growths.append(None)
        else:
            growths.append(_mean(curve[-quarter:]) - _mean(curve[:quarter]))
    return Statistic.of(growths)


def _mean(values) -> float:
    return sum(values) / len(values)


def _flat(pairs: dict[int, tuple[Group, Group]]) -> tuple[Group, ...]:
    return tuple(group for pair in pairs.values() for group in pair)


_SECTION = "Text on Fig. 5e, f"


def _claims(ours: bool, setting: str) -> tuple[Claim, ...]:
    rows = (
        *(
            (
                "CHONN consistently yields lower rollout error than FNO",
                f"Fig. 5e, {history} to 1",
                "the mean error of the rollout is lower",
                functools.partial(rollout_lower, history=history),
            )
            for history in HISTORIES
        ),
        (
            "When fewer historical frames are available, the performance degradation of CHONN is "
            "milder than that of FNO",
            _SECTION,
            "the ratio of the rollout errors from 3 and from 10 frames is lower",
            milder,
        ),
        (
            "CHONN remains consistently below FNO through most of the 40-step rollout",
            _SECTION,
            "lower at more than half of the steps for every history",
            below_mostly,
        ),
        (
            "FNO accumulates error more rapidly, whereas CHONN maintains a flatter trajectory",
            _SECTION,
            "the error rises less from the first to the last quarter, for every history",
            gap_widens,
        ),
    )
    return tuple(
        Claim("navier_stokes", quote, place, test, functools.partial(judge, ours=ours), setting)
        for quote, place, test, judge in rows
    )


CLAIMS = (*_claims(False, ""), *_claims(True, "CHONN beyond the paper"))
