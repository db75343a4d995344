"""Claims on the order-defined benchmark: order against depth."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from chonn_ops.report.claims._claim import (
    Claim,
    Judgement,
    Pair,
    Untested,
    claims,
    diverged,
    flat,
    judged,
    lower_in,
    most_in,
    mostly,
)
from chonn_ops.report.comparison import average, difference, lower, reduction, share
from chonn_ops.report.results import Group, Study
from chonn_ops.report.roles import by_size, order_and_depth

DERIVATIVE = "derivative"
SECTION = "Text on Fig. 3a, b"
SCALING = "Text on Fig. 3c"
HIGHER = (2, 3, 4)
Pairs = Iterable[tuple[Group, Group]]


def _matched(study: Study, end: str, equal: bool) -> list[tuple[Group, Group]]:
    """For each target, block of its order, and as many first-order blocks, as wide or as large."""
    found = {target: order_and_depth(study, target, end, equal) for target in HIGHER}
    return [pairs[target] for target, pairs in found.items() if target in pairs]


def _lower(study: Study, pairs: Pairs, *metrics: str) -> Judgement:
    """Whether the first of each pair is lower in these metrics, by default in all."""
    return lower_in(
        (f"T{a.tags.target}{f' {name}' if len(metrics) != 1 else ''}", a, b, name)
        for a, b in pairs
        for name in metrics or study.metrics()
    )


def order_improves(study: Study, end: str) -> Judgement:
    found = [by_size(study, "chonn", target, end) for target in HIGHER]
    return _lower(study, [(blocks[4], blocks[1]) for blocks in found if {1, 4} <= blocks.keys()])


def steadier(study: Study, end: str) -> Judgement:
    """Share of the steps from n to n + 1 that lower the error, over all targets and metrics."""
    shares, compared, counts = [], [], []
    for family in ("chonn", "depth"):
        pairs = [
            (groups[n], groups[n + 1])
            for groups in (by_size(study, family, target, end) for target in HIGHER)
            for n in (1, 2, 3)
            if {n, n + 1} <= groups.keys()
        ]
        steps = [
            lower(b.metric(name), a.metric(name)) for a, b in pairs for name in study.metrics()
        ]
        if not steps:
            raise Untested("needs every order and every depth from 1 to 4")
        if None in steps:
            raise Untested("one seed has no spread")
        compared += pairs
        shares.append(share(sum(map(bool, steps)), len(steps)))
        counts.append(f"{sum(map(bool, steps))} of {len(steps)}")
    evidence = f"steps to the next n that lower the error: order {counts[0]}, depth {counts[1]}"
    more = difference(*shares)
    return judged([more], f"{evidence}; shares differ by {more}", flat(compared))


def derivative_lower(study: Study, end: str, equal: bool) -> Judgement:
    return _lower(study, _matched(study, end, equal), DERIVATIVE)


def coarse_lower(study: Study, end: str, equal: bool) -> Judgement:
    others = [name for name in study.metrics() if name != DERIVATIVE]
    return _lower(study, _matched(study, end, equal), *others)


def gap_grows(study: Study, end: str, equal: bool) -> Judgement:
    pairs = _matched(study, end, equal)
    if any(a.metric(DERIVATIVE).diverged for a, _ in pairs):
        return diverged(flat(pairs))
    gains = {
        a.tags.target: gain
        for a, b in pairs
        if (gain := reduction(a.metric(DERIVATIVE), b.metric(DERIVATIVE)))
    }
    if not {2, 4} <= gains.keys():
        raise Untested("needs T2 and T4 at matched order")
    growth = difference(gains[4], gains[2])
    evidence = ", ".join(f"T{n} {gain}" for n, gain in gains.items())
    evidence = f"derivative error below depth stacking's: {evidence}; T4 less T2 {growth}"
    return judged([growth], evidence, flat(pairs), deciding=f"gain on T4 less that on T2 {growth}")


def most_in_derivative(study: Study, end: str, equal: bool) -> Judgement:
    return _most_in_derivative(study, _matched(study, end, equal))


def _most_in_derivative(study: Study, pairs: Pairs) -> Judgement:
    if any(a.metric(DERIVATIVE).diverged for a, _ in pairs):
        return diverged(flat(pairs))
    means = {
        name: average(gains)
        for name in study.metrics()
        if (gains := [g for a, b in pairs if (g := reduction(a.metric(name), b.metric(name)))])
    }
    evidence = ", ".join(f"{name} {gain}" for name, gain in means.items())
    evidence = f"error below depth stacking's: {evidence}; derivative less the others"
    return most_in([DERIVATIVE], means, evidence, flat(pairs))


def depth_degrades(study: Study, end: str) -> Judgement:
    pairs, compared = [], []
    for target in (1, *HIGHER):
        groups = by_size(study, "depth", target, end)
        errors = {n: group.metric(DERIVATIVE) for n, group in groups.items()}
        if len(groups) < 3 or not all(error.values for error in errors.values()):
            continue
        deepest = max(errors)
        best = min((n for n in errors if n != deepest), key=lambda n: errors[n].mean)
        pairs.append(Pair(f"T{target} D{best}, D{deepest}:", errors[best], errors[deepest]))
        compared.append((groups[best], groups[deepest]))
    if not pairs:
        raise Untested("needs at least three depths")
    count = f"{sum(bool(pair.gap.above()) for pair in pairs)} of {len(pairs)} targets"
    evidence = f"{count}: {'; '.join(map(str, pairs))}"
    return mostly([pairs], evidence, flat(compared), count)


def _stacks(study: Study, end: str, blocks: int, depth: int) -> list[tuple[Group, Group]]:
    """For each target, so many blocks of order 2, and so many of order 1."""
    tags = {"family": "stack", "termination": end, "order": 2, "depth": blocks}
    return [
        (ours, other)
        for target in (1, *HIGHER)
        for ours in study.find(target=target, **tags)[:1]
        if (other := by_size(study, "depth", target, end).get(depth))
    ]


def stack_lower(study: Study, end: str, blocks: int, depth: int) -> Judgement:
    return _lower(study, _stacks(study, end, blocks, depth))


def stack_most_in_derivative(study: Study, end: str) -> Judgement:
    pairs = [*_stacks(study, end, 2, 3), *_stacks(study, end, 3, 4)]
    return _most_in_derivative(study, pairs)


_STEADY = (
    (
        "CHONN shows more consistent improvement with increasing order",
        "Fig. 3a",
        "order 4 is lower than order 1 in all three metrics, on those of T2 to T4 that all orders "
        "learn",
        order_improves,
    ),
    (
        "increasing the CHONN block order produces a more stable improvement trend than depth "
        "stacking",
        SECTION,
        "of the steps from n to n + 1, in all metrics, on those of T2 to T4 that all orders "
        "learn, a larger share lowers the error",
        steadier,
    ),
)
_MATCHED = (
    (
        "for higher-order targets CHONN increasingly outperforms the depth-stacked baseline on "
        "derivative-sensitive errors",
        SECTION,
        "one block of the target's order is lower in the derivative metric than as many "
        "first-order blocks, on T2, T3 and T4",
        derivative_lower,
    ),
    (
        "Larger reductions are observed for higher target orders",
        "Fig. 3b",
        "the relative reduction of the derivative error is larger on T4 than on T2",
        gap_grows,
    ),
    (
        "The gains are visible in pointwise and spectral errors",
        SECTION,
        "one block of the target's order is lower in both metrics than as many first-order "
        "blocks, on T2, T3 and T4",
        coarse_lower,
    ),
    (
        "but are most pronounced in derivative-sensitive error",
        SECTION,
        "the mean reduction over T2 to T4 is positive and larger in the derivative metric than in "
        "the others",
        most_in_derivative,
    ),
)
_DEPTH = (
    (
        "its derivative error often reaches the best value at a shallow depth and then degrades "
        "as depth continues to increase",
        SECTION,
        "on more than half of the targets with three depths or more, the deepest stack is above "
        "the best of the others",
        depth_degrades,
    ),
    (
        "2x2 improves over depth-3",
        SCALING,
        "lower in every metric on every target that both learn",
        functools.partial(stack_lower, blocks=2, depth=3),
    ),
    (
        "2x3 improves over depth-4",
        SCALING,
        "lower in every metric on every target that both learn",
        functools.partial(stack_lower, blocks=3, depth=4),
    ),
    (
        "with the largest relative gains appearing in derivative-sensitive error",
        SCALING,
        "the mean reduction of 2x2 over D3 and 2x3 over D4 is positive and larger in the "
        "derivative metric than in the others",
        stack_most_in_derivative,
    ),
)


def _claims(end: str, setting: str) -> Iterable[Claim]:
    """In the paper's order; then, of equal parameters, one block against first-order blocks."""
    equal = ", ".join(filter(None, (setting, "equal parameters")))
    yield from claims("order1d", _STEADY, setting, end=end)
    yield from claims("order1d", _MATCHED, setting, end=end, equal=False)
    yield from claims("order1d", _DEPTH, setting, end=end)
    yield from claims("order1d", _MATCHED, equal, end=end, equal=True)


CLAIMS = (*_claims("matched", ""), *_claims("ring", "periodic ends"))
