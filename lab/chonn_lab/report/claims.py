"""The paper's claims as a table, and the function that judges a row on a study.

A row quotes the paper, names the models to compare and the metrics, and the relation that must hold
between them. `verdicts` judges every row on the studies of its problem, by Welch's one-sided t-test
over the seeds (`chonn_lab.report.comparison`).
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from chonn_lab.experiments import FURTHER
from chonn_lab.report.comparison import (
    LEVEL,
    POWER,
    Estimate,
    Statistic,
    against,
    average,
    difference,
    gap,
    number,
    reduction,
    share,
    sign,
)
from chonn_lab.report.results import Group, Study
from chonn_lab.report.tables import TITLES, full_label, metric_label, title

SUPPORTED = "supported"
CONTRADICTED = "contradicted"
INCONCLUSIVE = "inconclusive"
NOT_TESTED = "not tested"
VERDICTS = (SUPPORTED, CONTRADICTED, INCONCLUSIVE, NOT_TESTED)
SINGLE = "one seed has no spread"
BASELINES = ("unet", "fno")
ROLLOUT = "rollout_relative_l2"
HISTORIES = (10, 5, 3)
MODERATE = 1.5
RULE = (
    f"Verdicts come from Welch's t-test over the seeds, one-sided at {LEVEL:.0%} in the direction "
    f'that the claim states. "{SUPPORTED}": every comparison of the claim passes. '
    f'"{CONTRADICTED}": one comparison passes in the opposite direction, at {LEVEL:.0%} divided by '
    f'the number of comparisons. "{INCONCLUSIVE}": neither; the percentage is the smallest '
    f"relative difference that these seeds would have shown with a probability of {POWER:.0%} in "
    f'every open comparison. "{NOT_TESTED}": not run, or a single seed, which has no spread. A '
    "diverged run counts as an infinite error."
)
SIGNS = (
    "Numbers are means ± standard deviations over the seeds. < and > mark differences that pass "
    f"the one-sided test at {LEVEL:.0%}; ≈ marks the others. Each comparison is tested by itself, "
    "so some of many equal ones are marked."
)
DECIDED = (
    '"Decided by" counts the comparisons that pass and shows the one that supports the claim '
    "least, the model that the claim favours first."
)
HEADER = ("claim", "verdict", "decided by")


class Pair(NamedTuple):
    """Two numbers of which the claim says that the first is lower.

    `part` names the group of comparisons that it belongs to, for relations that need groups.
    """

    name: str
    ours: Statistic
    other: Statistic
    part: str = ""
    models: tuple[Group, ...] = ()

    @property
    def gap(self) -> Estimate:
        return gap(self.ours, self.other)

    @property
    def detectable(self) -> float:
        """Detectable difference relative to the other number."""
        return self.gap.detectable / abs(self.other.mean) if self.other.mean else math.inf

    def __str__(self) -> str:
        return f"{self.name} {against(self.ours, self.other)}"

    @property
    def plain(self) -> str:
        return f"{self.ours} {sign(self.ours, self.other)} {self.other}"


@dataclasses.dataclass(frozen=True)
class Judgement:
    """What a study says about a claim.

    Parameters
    ----------
    verdict : str
        One of `VERDICTS`.
    evidence : str
        All comparisons, in words.
    deciding : str
        The comparison that decides; empty where it is all of the evidence.
    detectable : float, optional
        For an inconclusive verdict, the smallest relative difference that the seeds would have
        shown in every open comparison with a probability of `POWER`.
    models : tuple of Group
        The models that were compared.
    """

    verdict: str
    evidence: str
    deciding: str = ""
    detectable: float | None = None
    models: tuple[Group, ...] = ()

    @property
    def number(self) -> str:
        return self.deciding or self.evidence

    def __str__(self) -> str:
        return self.verdict + (f" ({self.detectable:.0%})" if self.detectable is not None else "")


class Untested(Exception):
    """A study lacks what a claim is about; the message says what."""


# Relations ---------------------------------------------------------------------------------------


def lower(pairs: Sequence[Pair]) -> Judgement:
    """Every first number is lower."""
    evidence, deciding = "; ".join(map(str, pairs)), pairs[0].plain
    if len(pairs) > 1:
        count = f"{sum(bool(pair.gap.above()) for pair in pairs)} of {len(pairs)}"
        weakest = min(pairs, key=lambda pair: pair.gap.distance)
        evidence, deciding = f"{count}: {evidence}", f"{count}; {weakest.name} {weakest.plain}"
    return _decide([p.gap for p in pairs], evidence, deciding, [p.detectable for p in pairs])


def mostly_lower(pairs: Sequence[Pair]) -> Judgement:
    """In every part, more than half of the first numbers are lower.

    Contradicted if in any part more than half are higher, both by one-sided tests.
    """
    parts: dict[str, list[Pair]] = {}
    for pair in pairs:
        parts.setdefault(pair.part, []).append(pair)
    below, above = (
        {name: sum(bool(test(pair.gap)) for pair in part) for name, part in parts.items()}
        for test in (Estimate.above, Estimate.below)
    )
    counts = "; ".join(
        f"{name + ': ' if name else ''}lower in {below[name]}, higher in {above[name]} of "
        f"{len(part)}"
        for name, part in parts.items()
    )
    if any(math.isnan(pair.gap.error) for pair in pairs):
        return Judgement(NOT_TESTED, f"{SINGLE}: {counts}", SINGLE)
    if all(below[name] > len(part) / 2 for name, part in parts.items()):
        return Judgement(SUPPORTED, counts)
    if any(above[name] > len(part) / 2 for name, part in parts.items()):
        return Judgement(CONTRADICTED, counts)
    # Half of the comparisons of a part would have shown this difference.
    sizes = [statistics.median(pair.detectable for pair in part) for part in parts.values()]
    return Judgement(
        INCONCLUSIVE, counts, detectable=max(filter(math.isfinite, sizes), default=None)
    )


def larger_gain(pairs: Sequence[Pair]) -> Judgement:
    """The mean relative reduction of the error is larger in part "first" than in the others."""
    return _gains(pairs, positive=False)


def largest_gain(pairs: Sequence[Pair]) -> Judgement:
    """The mean reduction in part "first" is positive and larger than in the others."""
    return _gains(pairs, positive=True)


def _gains(pairs: Sequence[Pair], positive: bool) -> Judgement:
    if any(pair.ours.diverged for pair in pairs):
        return Judgement(INCONCLUSIVE, "a run diverged")
    found = [(pair, gain) for pair in pairs if (gain := reduction(pair.ours, pair.other))]
    first = [gain for pair, gain in found if pair.part == "first"]
    rest = [gain for pair, gain in found if pair.part != "first"]
    if not first or not rest:
        raise Untested("no results for it")
    gain = average(first)
    more = difference(gain, average(rest))
    evidence = ", ".join(f"{pair.name} {gain}" for pair, gain in found)
    deciding = f"mean gain {gain}, less that of the others {more}"
    gaps = [more, gain] if positive else [more]
    return _decide(gaps, f"reduction of the error: {evidence}; {deciding}", deciding)


def lower_more_often(pairs: Sequence[Pair]) -> Judgement:
    """A larger share of the first numbers is lower in part "first" than in part "second"."""
    shares, counts = [], []
    for name in ("first", "second"):
        steps = [pair.gap.above() for pair in pairs if pair.part == name]
        if not steps:
            raise Untested("needs every order and every depth from 1 to 4")
        if None in steps:
            raise Untested(SINGLE)
        shares.append(share(sum(map(bool, steps)), len(steps)))
        counts.append(f"{sum(map(bool, steps))} of {len(steps)}")
    more = difference(*shares)
    text = f"steps that lower the error: order {counts[0]}, depth {counts[1]}; shares differ by"
    return _decide([more], f"{text} {more}")


def at_most_moderate(pairs: Sequence[Pair]) -> Judgement:
    """The first number is at most `MODERATE` times the second; both are known exactly."""
    (pair,) = pairs
    ratio = pair.ours.mean / pair.other.mean
    verdict = SUPPORTED if ratio <= MODERATE else CONTRADICTED
    return Judgement(verdict, f"{pair.name} {number(ratio)} times")


def on_other_data(pairs: Sequence[Pair]) -> Judgement:
    """Comparisons on data that are not the claim's decide nothing."""
    return Judgement(NOT_TESTED, f"on digits: {'; '.join(map(str, pairs))}")


def _decide(
    gaps: Sequence[Estimate],
    evidence: str,
    deciding: str = "",
    detectable: Sequence[float] | None = None,
) -> Judgement:
    """Whether all estimates are above zero.

    Supported if each passes its one-sided test, since all of them must; contradicted if any is
    below zero by a one-sided test at the level divided by their number (Bonferroni).
    """
    if any(math.isnan(one.error) for one in gaps):
        return Judgement(NOT_TESTED, f"{SINGLE}: {evidence}", SINGLE)
    if all(one.above() for one in gaps):
        return Judgement(SUPPORTED, evidence, deciding)
    if any(one.below(len(gaps)) for one in gaps):
        return Judgement(CONTRADICTED, evidence, deciding)
    sizes = detectable or [one.detectable for one in gaps]
    still_open = [
        size for one, size in zip(gaps, sizes, strict=True) if not one.above() and size < math.inf
    ]
    return Judgement(INCONCLUSIVE, evidence, deciding, max(still_open, default=None))


# Models ------------------------------------------------------------------------------------------

Sides = Iterator[tuple[str, Group, Group]]
Models = Callable[[Study, str], Sides]


def baselines(study: Study) -> list[Group]:
    """U-Net and FNO, those that the study has."""
    return [group for family in BASELINES for group in study.find(family=family)[:1]]


def papers(study: Study) -> Group | None:
    """CHONN as the paper describes it for the problem: blocks of order 2 in its backbone."""
    found = study.find(family="chonn", order=2)
    return next((group for group in found if group.tags.role in ("paper", "ablation")), None)


def orders(study: Study) -> dict[int, Group]:
    """The models of the paper's backbone that differ in the order of their blocks, by order."""
    found = study.find(family="chonn", role="ablation")
    return {group.tags.order: group for group in sorted(found, key=lambda g: g.tags.order)}


def blocks(study: Study, target: int) -> dict[int, Group]:
    """One block by its order, on a target of the order-defined benchmark."""
    found = study.find(family="chonn", target=target)
    return {group.tags.order: group for group in found}


def stacks(study: Study, target: int) -> dict[int, Group]:
    """Stacks of first-order blocks by their depth; one such block is the block of order 1."""
    found = {group.tags.depth: group for group in study.find(family="depth", target=target)}
    if found and (first := blocks(study, target).get(1)):
        found[1] = first
    return dict(sorted(found.items()))


def against_family(*families: str) -> Models:
    """The paper's CHONN beside baselines; missing ones leave the claim untested."""

    def models(study: Study, metric: str) -> Sides:  # noqa: ARG001
        ours = papers(study)
        others = {family: study.find(family=family)[:1] for family in families}
        if ours and all(others.values()):
            for (other,) in others.values():
                name = f"against {other.label}:" if len(families) > 1 else ""
                yield name, ours, other

    return models


def against_stronger(study: Study, metric: str) -> Sides:
    """The paper's CHONN beside U-Net or FNO, whichever has the lower mean in the metric."""
    ours, others = papers(study), baselines(study)
    scored = [group for group in others if group.metric(metric).values]
    if ours and len(others) == len(BASELINES) and scored:
        yield "", ours, min(scored, key=lambda group: group.metric(metric).mean)


def between_orders(*pairs: tuple[int, int]) -> Models:
    """Orders of the blocks in the paper's backbone; none if the study lacks one of them."""

    def models(study: Study, metric: str) -> Sides:  # noqa: ARG001
        found = orders(study)
        if {order for pair in pairs for order in pair} <= found.keys():
            for ours, other in pairs:
                yield f"order {ours} against order {other}:", found[ours], found[other]

    return models


def highest_order_and_first(study: Study, metric: str) -> Sides:  # noqa: ARG001
    """Blocks of order 4 and of order 1."""
    for target in (2, 3, 4):
        found = blocks(study, target)
        if {1, 4} <= found.keys():
            yield f"T{target}", found[4], found[1]


def order_and_depth(study: Study, metric: str) -> Sides:  # noqa: ARG001
    """A block of the target's order, and as many first-order blocks."""
    for target in (2, 3, 4):
        one, many = blocks(study, target), stacks(study, target)
        if target in one and target in many:
            yield f"T{target}", one[target], many[target]


def second_order_stacks(*pairs: tuple[int, int]) -> Models:
    """So many blocks of order 2, and so many of order 1."""

    def models(study: Study, metric: str) -> Sides:  # noqa: ARG001
        for count, depth in pairs:
            for target in (1, 2, 3, 4):
                tags = {"family": "stack", "order": 2, "depth": count}
                other = stacks(study, target).get(depth)
                for ours in study.find(target=target, **tags)[:1]:
                    if other:
                        yield f"T{target} 2x{count}", ours, other

    return models


def best_and_deepest(study: Study, metric: str) -> Sides:
    """The best of the shallower stacks and the deepest one."""
    for target in (1, 2, 3, 4):
        found = stacks(study, target)
        if len(found) > 2 and all(group.metric(metric).values for group in found.values()):
            *shallower, deepest = found
            best = min(shallower, key=lambda depth: found[depth].metric(metric).mean)
            yield f"T{target} depth {best} against {deepest}:", found[best], found[deepest]


def histories(*lengths: int) -> Models:
    """The paper's CHONN and FNO, given so many frames."""

    def models(study: Study, metric: str) -> Sides:  # noqa: ARG001
        for history in lengths:
            ours = study.find(family="chonn", history=history, role="paper")
            others = study.find(family="fno", history=history, recipe="paper")
            if ours and others:
                yield f"{history} to 1", ours[0], others[0]

    return models


def routings(ours: str, other: str) -> Models:
    """Two routings of the vision model."""

    def models(study: Study, metric: str) -> Sides:  # noqa: ARG001
        for a, b in zip(study.find(routing=ours)[:1], study.find(routing=other)[:1], strict=True):
            yield f"test error, {ours} against {other}:", a, b

    return models


# Comparisons: models, metrics and what is read of them --------------------------------------------

Compare = Callable[[Study], Iterable[Pair]]


def scores(models: Models, *metrics: str, first: Sequence[str] = ()) -> Compare:
    """Scores on the test split, in these metrics or in all; those in `first` are a part."""

    def compare(study: Study) -> Iterator[Pair]:
        for metric in [name for name in study.metrics() if not metrics or name in metrics]:
            for name, ours, other in models(study, metric):
                label = " ".join(
                    filter(None, (name, metric_label(metric) if len(metrics) != 1 else ""))
                )
                part = "first" if metric in first else ""
                yield Pair(label, ours.metric(metric), other.metric(metric), part, (ours, other))

    return compare


def read(models: Models, text: str, value: Callable[[Group], Statistic]) -> Compare:
    """What `value` reads of both models."""

    def compare(study: Study) -> Iterator[Pair]:
        for name, ours, other in models(study, ""):
            yield Pair(f"{text} {name}".strip(), value(ours), value(other), "", (ours, other))

    return compare


def reductions_by_target(study: Study) -> Iterator[Pair]:
    """Derivative errors at matched order: T4, then T2."""
    metric = "derivative"
    for name, ours, other in order_and_depth(study, metric):
        if name in ("T2", "T4"):
            part = "first" if name == "T4" else ""
            yield Pair(name, ours.metric(metric), other.metric(metric), part, (ours, other))


def steps_in_n(study: Study) -> Iterator[Pair]:
    """Errors at n + 1 and n, of one block by its order and of stacks by their depth."""
    for part, family in (("first", blocks), ("second", stacks)):
        for target in (2, 3, 4):
            found = family(study, target)
            for n in (1, 2, 3):
                if {n, n + 1} <= found.keys():
                    more, less = found[n + 1], found[n]
                    for metric in study.metrics():
                        a, b = more.metric(metric), less.metric(metric)
                        yield Pair(f"T{target} n = {n + 1}", a, b, part, (more, less))


def ratio_of_histories(study: Study) -> Iterator[Pair]:
    """Rollout error from 3 frames over that from 10, seed by seed."""
    found = list(histories(3, 10)(study, ROLLOUT))
    if len(found) == 2:
        (_, *short), (_, *long) = found
        ours, other = (_ratio(a, b) for a, b in zip(short, long, strict=True))
        name = "rollout error from 3 frames over that from 10:"
        yield Pair(name, ours, other, "", (*short, *long))


def _ratio(short: Group, long: Group) -> Statistic:
    errors = {run.seed: run.metrics["test"].get(ROLLOUT) for run in long.runs}
    ratios = []
    for run in short.runs:
        error, base = run.metrics["test"].get(ROLLOUT), errors.get(run.seed)
        ratios.append(error / base if error and base else None)
    return Statistic.of(ratios)


def rollout_steps(study: Study) -> Iterator[Pair]:
    """Errors of every step of the rollouts; a history is a part."""
    for name, ours, other in histories(*HISTORIES)(study, ROLLOUT):
        for step in zip(ours.curve(ROLLOUT), other.curve(ROLLOUT), strict=False):
            yield Pair("", *step, name, (ours, other))


def learning(group: Group) -> Statistic:
    """Geometric mean of the validation error over the epochs: lower for faster convergence."""
    means = []
    for run in group.runs:
        curve = run.curve.get("validation_error") or [None]
        errors = [error for error in curve if error is not None and error > 0]
        means.append(statistics.geometric_mean(errors) if len(errors) == len(curve) else None)
    return Statistic.of(means)


def growth(group: Group) -> Statistic:
    """Error in the last quarter of the rollout less that in the first."""
    growths = []
    for run in group.runs:
        curve = [math.nan if v is None else v for v in run.curves.get(ROLLOUT) or [None]]
        quarter = max(len(curve) // 4, 1)
        found = statistics.fmean(curve[-quarter:]) - statistics.fmean(curve[:quarter])
        growths.append(found if math.isfinite(sum(curve)) else None)
    return Statistic.of(growths)


def parameters(group: Group) -> Statistic:
    """Number of parameters, which has no spread."""
    return Statistic((group.parameters,))


def none(study: Study) -> Iterable[Pair]:  # noqa: ARG001
    """Nothing to compare: ImageNet-1K is not trained here."""
    return ()


# The table ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Claim:
    """A row: problem, the paper's words and where they stand, what must hold, how it is judged."""

    problem: str
    quote: str
    place: str
    test: str
    compare: Compare
    relation: Callable[[Sequence[Pair]], Judgement] = lower

    def judge(self, study: Study) -> Judgement:
        """The verdict on a study; smoke runs only check that everything works."""
        try:
            if study.scale.startswith("smoke"):
                raise Untested("a smoke run only checks that everything works")
            pairs = list(self.compare(study))
            if not pairs:
                raise Untested("no results for it")
            models = {group.variant: group for pair in pairs for group in pair.models}
            return dataclasses.replace(self.relation(pairs), models=tuple(models.values()))
        except Untested as reason:
            return Judgement(NOT_TESTED, str(reason))


_STEADY = "Text on Fig. 3a, b"
_STACKS = "Text on Fig. 3c"
_POISSON = "Text on Fig. 4g"
_ROLLOUTS = "Text on Fig. 5e, f"
_AVERAGES = ("relative_l1", "range_nrmse")
_BOUNDARY = ("boundary_rmse", "fourier_rmse_high")
_DERIVATIVE = ("derivative",)
_BOTH = against_family(*BASELINES)
CLAIMS = (
    Claim(
        "order1d",
        "CHONN shows more consistent improvement with increasing order",
        "Fig. 3a",
        "order 4 is lower than order 1 in every metric, on T2 to T4",
        scores(highest_order_and_first),
    ),
    Claim(
        "order1d",
        "increasing the CHONN block order produces a more stable improvement trend than depth "
        "stacking",
        _STEADY,
        "a larger share of the steps from n to n + 1 lowers the error, in every metric, on T2 to "
        "T4",
        steps_in_n,
        lower_more_often,
    ),
    Claim(
        "order1d",
        "for higher-order targets CHONN increasingly outperforms the depth-stacked baseline on "
        "derivative-sensitive errors",
        _STEADY,
        "one block of the target's order has a lower derivative error than as many first-order "
        "blocks, on T2, T3 and T4",
        scores(order_and_depth, "derivative"),
    ),
    Claim(
        "order1d",
        "Larger reductions are observed for higher target orders",
        "Fig. 3b",
        "the relative reduction of the derivative error is larger on T4 than on T2",
        reductions_by_target,
        larger_gain,
    ),
    Claim(
        "order1d",
        "The gains are visible in pointwise and spectral errors",
        _STEADY,
        "one block of the target's order is lower in both metrics than as many first-order "
        "blocks, on T2, T3 and T4",
        scores(order_and_depth, "point", "spectral"),
    ),
    Claim(
        "order1d",
        "but are most pronounced in derivative-sensitive error",
        _STEADY,
        "the mean reduction over T2 to T4 is positive and larger in the derivative error than in "
        "the other metrics",
        scores(order_and_depth, first=_DERIVATIVE),
        largest_gain,
    ),
    Claim(
        "order1d",
        "its derivative error often reaches the best value at a shallow depth and then degrades "
        "as depth continues to increase",
        _STEADY,
        "on more than half of the targets with three depths or more, the deepest stack is above "
        "the best of the others",
        scores(best_and_deepest, "derivative"),
        mostly_lower,
    ),
    *(
        Claim(
            "order1d",
            f"2x{count} improves over depth-{depth}",
            _STACKS,
            "lower in every metric on every target that both learn",
            scores(second_order_stacks((count, depth))),
        )
        for count, depth in ((2, 3), (3, 4))
    ),
    Claim(
        "order1d",
        "with the largest relative gains appearing in derivative-sensitive error",
        _STACKS,
        "the mean reduction of 2x2 over depth 3 and 2x3 over depth 4 is positive and larger in "
        "the derivative error than in the other metrics",
        scores(second_order_stacks((2, 3), (3, 4)), first=_DERIVATIVE),
        largest_gain,
    ),
    *(
        Claim(
            "darcy",
            f"CHONN consistently achieves lower error than {name}",
            "Fig. 4c",
            "lower in every metric",
            scores(against_family(family)),
        )
        for family, name in (("fno", "FNO"), ("unet", "[...] U-Net"))
    ),
    Claim(
        "darcy",
        "The largest improvements appear in boundary-sensitive and frequency-related measures",
        "Fig. 4d",
        "the mean gain over the stronger baseline in boundary and high-frequency error is positive "
        "and larger than in the other metrics",
        scores(against_stronger, first=_BOUNDARY),
        largest_gain,
    ),
    Claim(
        "darcy",
        "CHONN converges more rapidly",
        "Fig. 4f",
        "the geometric mean of the validation error over the epochs is lower than both baselines'",
        read(_BOTH, "validation error, geometric mean over the epochs,", learning),
    ),
    Claim(
        "darcy",
        "and reaches a substantially lower loss floor",
        "Fig. 4f",
        "the last training loss is lower than both baselines'",
        read(_BOTH, "last training loss,", lambda group: group.final("train_loss")),
    ),
    Claim(
        "darcy",
        "CHONN achieves a lower validation error than FNO and U-Net",
        "Text on Fig. 4f",
        "the last validation error is lower than both baselines'",
        read(_BOTH, "last validation error,", lambda group: group.final("validation_error")),
    ),
    Claim(
        "poisson",
        "Compared with the 0-order baseline, CKB variants reduce both relative L1 error and nRMSE",
        _POISSON,
        "orders 1 to 4 are lower than order 0 in both",
        scores(between_orders((1, 0), (2, 0), (3, 0), (4, 0)), *_AVERAGES),
    ),
    Claim(
        "poisson",
        "with the 4-order model achieving the best overall accuracy",
        _POISSON,
        "order 4 is lower than every other order in both",
        scores(between_orders((4, 0), (4, 1), (4, 2), (4, 3)), *_AVERAGES),
    ),
    Claim(
        "poisson",
        "higher orders further strengthen the recovery of localized high-gradient structures",
        _POISSON,
        "order 4 has a lower MaxMSE than order 2",
        scores(between_orders((4, 2)), "max_mse"),
    ),
    Claim(
        "poisson",
        "with only moderate growth in model size",
        "Fig. 4g",
        f"order 4 has at most {MODERATE} times the parameters of order 0; the bound is ours",
        read(between_orders((4, 0)), "parameters,", parameters),
        at_most_moderate,
    ),
    Claim(
        "shallow_water",
        "CHONN consistently achieves lower errors across global reconstruction, boundary "
        "discrepancy, and frequency-band measures",
        "Fig. 5b",
        "lower than FNO in every metric",
        scores(against_family("fno")),
    ),
    Claim(
        "shallow_water",
        "CHONN improves over the stronger baseline across all evaluated metrics",
        "Fig. 5c",
        "lower than the better of U-Net and FNO in every metric",
        scores(against_stronger),
    ),
    *(
        Claim(
            "navier_stokes",
            "CHONN consistently yields lower rollout error than FNO",
            f"Fig. 5e, {history} to 1",
            "the mean error of the rollout is lower",
            scores(histories(history), ROLLOUT),
        )
        for history in HISTORIES
    ),
    Claim(
        "navier_stokes",
        "When fewer historical frames are available, the performance degradation of CHONN is "
        "milder than that of FNO",
        _ROLLOUTS,
        "the ratio of the rollout errors from 3 and from 10 frames is lower",
        ratio_of_histories,
    ),
    Claim(
        "navier_stokes",
        "CHONN remains consistently below FNO through most of the 40-step rollout",
        _ROLLOUTS,
        "lower at more than half of the steps for every history",
        rollout_steps,
        mostly_lower,
    ),
    Claim(
        "navier_stokes",
        "FNO accumulates error more rapidly, whereas CHONN maintains a flatter trajectory",
        _ROLLOUTS,
        "the error rises less from the first to the last quarter, for every history",
        read(histories(*HISTORIES), "last quarter less first,", growth),
    ),
    Claim(
        "imagenet",
        "Across model scales, CHONN consistently improves recognition accuracy while maintaining "
        "competitive parameter and computational costs",
        "Text on Fig. 5h",
        "top-1 accuracy of Tiny, Small and Base above their peers'",
        none,
    ),
    Claim(
        "imagenet",
        "Across Tiny, Small, and Base settings, CHONN achieves higher early-stage accuracy than "
        "VMamba",
        "Fig. 5j",
        "top-1 accuracy after 30 epochs above VMamba's",
        none,
    ),
    *(
        Claim(
            "digits",
            quote,
            "Fig. 5i",
            f"the test error of {ours} is lower than that of {other} on ImageNet-1K; digits show "
            "tendencies at most",
            scores(routings(ours, other), "error"),
            on_other_data,
        )
        for quote, ours, other in (
            ("Parallel expansion provides moderate gains", "parallel", "baseline"),
            ("series cascade brings a larger improvement", "serial", "parallel"),
            (
                "adding explicit Kirchhoff constraints further improves accuracy",
                "serial+constraints",
                "serial",
            ),
        )
    ),
)

# Verdicts ----------------------------------------------------------------------------------------


class Verdict(NamedTuple):
    """A claim judged on a study; no study where the experiment was not run."""

    claim: Claim
    study: Study | None
    judgement: Judgement

    def row(self) -> list[str]:
        """As `HEADER` says."""
        text = f'"{self.claim.quote}" ({self.claim.place})'
        return [text, str(self.judgement), self.judgement.number]


def verdicts(studies: Sequence[Study]) -> list[Verdict]:
    """Every claim on every study of its problem, in the paper's order; what was not run last."""
    found = []
    for claim in CLAIMS:
        matching = [study for study in studies if study.experiment == claim.problem]
        found += [Verdict(claim, study, claim.judge(study)) for study in matching]
        if not matching:
            found.append(Verdict(claim, None, Judgement(NOT_TESTED, "not run")))
    return sorted(found, key=lambda verdict: verdict.study is None)


def by_study(found: Iterable[Verdict]) -> dict[str, list[Verdict]]:
    """Verdicts by a heading for each study, or for an experiment that was not run."""
    boards: dict[str, list[Verdict]] = {}
    for verdict in found:
        study = verdict.study
        scale = study.scale if study else "not run"
        boards.setdefault(f"{title(verdict.claim.problem)}, {scale}", []).append(verdict)
    return boards


def summary(found: Iterable[Verdict]) -> str:
    """How many claims have which verdict."""
    counts = Counter(verdict.judgement.verdict for verdict in found)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)


def scaled_down(study: Study) -> bool:
    """Whether models and training are smaller than those of their publications."""
    scale, _, changes = study.scale.partition("+")
    known = study.experiment in (*TITLES, *FURTHER)
    return known and (scale != "paper" or "sizes=" in changes)


def costs(groups: Iterable[Group]) -> str:
    """Parameters, multiply-adds and training seconds of compared models."""
    return "; ".join(
        f"{full_label(group)}: {group.parameters:,} parameters, "
        + (f"{number(group.multiply_adds / 1e6)} M multiply-adds, " if group.multiply_adds else "")
        + f"{number(group.seconds.mean)} s"
        for group in groups
    )
