"""Claims on rollouts of Navier-Stokes by the length of the history."""

from __future__ import annotations

import functools
import math
import statistics

from chonn_ops.report.claims._claim import (
    Judgement,
    Pair,
    Untested,
    all_lower,
    claims,
    flat,
    lower_in,
    mostly,
)
from chonn_ops.report.comparison import Estimate, Statistic
from chonn_ops.report.results import Group, Study
from chonn_ops.report.roles import Role

ROLLOUT = "rollout_relative_l2"
HISTORIES = (10, 5, 3)
PAPER = "paper"


def _pairs(study: Study, ours: bool) -> dict[int, tuple[Group, Group]]:
    """By history the paper's CHONN or ours, and FNO trained the same way, else as in the paper."""
    pairs = {}
    for history in HISTORIES:
        chosen = study.find(family="chonn", history=history, role=Role.BEST if ours else Role.PAPER)
        recipes = (chosen[0].tags.recipe or PAPER, PAPER) if chosen else ()
        fnos = (study.find(family="fno", history=history, recipe=recipe) for recipe in recipes)
        if other := next(filter(None, fnos), None):
            pairs[history] = chosen[0], other[0]
    return pairs


def rollout_lower(study: Study, ours: bool, history: int) -> Judgement:
    pair = _pairs(study, ours).get(history)
    if pair is None:
        raise Untested
    return lower_in([(f"{history} to 1", *pair, ROLLOUT)])


def milder(study: Study, ours: bool) -> Judgement:
    """Ratio of the errors from the shortest and the longest history, seed by seed."""
    pairs = _pairs(study, ours)
    if not {3, 10} <= pairs.keys():
        raise Untested("needs histories of 3 and 10 frames")
    first, second = map(_ratio, pairs[3], pairs[10])
    name = "rollout error from 3 frames over that from 10:"
    return all_lower([Pair(name, first, second)], (*pairs[3], *pairs[10]))


def _ratio(short: Group, long: Group) -> Statistic:
    errors = {run.seed: run.metrics["test"].get(ROLLOUT) for run in long.runs}
    ratios = []
    for run in short.runs:
        error, base = run.metrics["test"].get(ROLLOUT), errors.get(run.seed)
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
        raise Untested("no rollout curves")
    return mostly(parts, "; ".join(texts), flat(pairs.values()))


def gap_widens(study: Study, ours: bool) -> Judgement:
    """Distance to FNO in the last quarter of the rollout against that in the first."""
    pairs = _pairs(study, ours)
    growths = {history: tuple(map(_growth, pair)) for history, pair in pairs.items()}
    parts = [
        Pair(f"error of the last quarter less that of the first, {history} to 1:", *both)
        for history, both in growths.items()
        if all(growth.values for growth in both)
    ]
    if not parts:
        raise Untested("no rollout curves")
    return all_lower(parts, flat(pairs.values()))


def _growth(group: Group) -> Statistic:
    growths = []
    for run in group.runs:
        curve = [math.nan if v is None else v for v in run.curves.get(ROLLOUT) or [None]]
        quarter = max(len(curve) // 4, 1)
        growth = statistics.fmean(curve[-quarter:]) - statistics.fmean(curve[:quarter])
        growths.append(growth if math.isfinite(sum(curve)) else None)
    return Statistic.of(growths)


_SECTION = "Text on Fig. 5e, f"
_ROWS = (
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
CLAIMS = (
    *claims("navier_stokes", _ROWS, ours=False),
    *claims("navier_stokes", _ROWS, "CHONN beyond the paper", ours=True),
)
