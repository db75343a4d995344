"""Claims on the order-defined benchmark: order against depth."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from chonn_ops.report.claims._claim import (
    Claim,
    Judgement,
    Pair,
    all_lower,
    diverged,
    judged,
    mostly,
    unique,
    untested,
)
from chonn_ops.report.comparison import (
    Estimate,
    average,
    difference,
    lower,
    reduction,
    share,
)
from chonn_ops.report.results import Group, Study

DERIVATIVE = "derivative"
SECTION = "Text on Fig. 3a, b"
SCALING = "Text on Fig. 3c"
HIGHER = (2, 3, 4)


def _by_size(study: Study, family: str, target: int, end: str) -> dict[int, Group]:
    """Blocks by order, or first-order stacks by depth, as wide as the paper's."""
    groups = study.find(family=family, target=target, termination=end, equal_parameters=False)
    return {g.tags.depth if family == "depth" else g.tags.order: g for g in groups}


def _depths(study: Study, target: int, end: str) -> dict[int, Group]:
    """First-order stacks by depth; depth 1 is the block of order 1."""
    first = _by_size(study, "chonn", target, end).get(1)
    return {**({1: first} if first else {}), **_by_size(study, "depth", target, end)}


def _matched_pairs(study: Study, end: str, equal: bool) -> dict[int, tuple[Group, Group]]:
    """By target: block of its order, and as many first-order blocks, as wide or as large."""
    pairs = {}
    for target in HIGHER:
        ours = _by_size(study, "chonn", target, end).get(target)
        other = study.find(
            family="depth",
            target=target,
            termination=end,
            depth=target,
            equal_parameters=equal,
        )
        if ours and other:
            pairs[target] = (ours, other[0])
    return pairs


def _flat(pairs: Iterable[tuple[Group, ...]]) -> tuple[Group, ...]:
    return tuple(group for pair in pairs for group in pair)


def order_improves(study: Study, end: str) -> Judgement:
    pairs, compared = [], []
    for target in HIGHER:
        groups = _by_size(study, "chonn", target, end)
        if {1, 4} <= groups.keys():
            compared += [groups[4], groups[1]]
            pairs += [
                Pair(f"T{target} {name}", groups[4].metric(name), groups[1].metric(name))
                for name in study.metrics()
            ]
    return all_lower(pairs, unique(compared))


def steadier(study: Study, end: str) -> Judgement:
    """Share of the steps from n to n + 1 that lower the error, over all targets and metrics."""
    shares, compared, counts = [], [], []
    for find in (lambda n: _by_size(study, "chonn", n, end), lambda n: _depths(study, n, end)):
        steps = []
        for target in HIGHER:
            groups = find(target)
            for n in (1, 2, 3):
                if {n, n + 1} <= groups.keys():
                    compared += [groups[n], groups[n + 1]]
                    steps += [
                        lower(groups[n + 1].metric(name), groups[n].metric(name))
                        for name in study.metrics()
                    ]
        if not steps:
            return untested("needs every order and every depth from 1 to 4")
        if None in steps:
            return untested("one seed has no spread")
        shares.append(share(sum(map(bool, steps)), len(steps)))
        counts.append(f"{sum(map(bool, steps))} of {len(steps)}")
    evidence = f"steps to the next n that lower the error: order {counts[0]}, depth {counts[1]}"
    more = difference(*shares)
    return judged([more], f"{evidence}; shares differ by {more}", unique(compared))


def derivative_lower(study: Study, end: str, equal: bool) -> Judgement:
    pairs = _matched_pairs(study, end, equal)
    return all_lower(
        [Pair(f"T{n}", a.metric(DERIVATIVE), b.metric(DERIVATIVE)) for n, (a, b) in pairs.items()],
        _flat(pairs.values()),
    )


def coarse_lower(study: Study, end: str, equal: bool) -> Judgement:
    pairs = _matched_pairs(study, end, equal)
    return all_lower(
        [
            Pair(f"T{n} {name}", a.metric(name), b.metric(name))
            for n, (a, b) in pairs.items()
            for name in study.metrics()
            if name != DERIVATIVE
        ],
        _flat(pairs.values()),
    )


def gap_grows(study: Study, end: str, equal: bool) -> Judgement:
    pairs = _matched_pairs(study, end, equal)
    if any(a.metric(DERIVATIVE).diverged for a, _ in pairs.values()):
        return diverged(_flat(pairs.values()))
    gains = {
        n: gain
        for n, (a, b) in pairs.items()
        if (gain := reduction(a.metric(DERIVATIVE), b.metric(DERIVATIVE)))
    }
    if not {2, 4} <= gains.keys():
        return untested("needs T2 and T4 at matched order")
    growth = difference(gains[4], gains[2])
    evidence = ", ".join(f"T{n} {gain}" for n, gain in gains.items())
    evidence = f"derivative error below depth stacking's: {evidence}; T4 less T2 {growth}"
    return judged([growth], evidence, _flat(pairs.values()))


def most_in_derivative(study: Study, end: str, equal: bool) -> Judgement:
    return _most_in_derivative(study, list(_matched_pairs(study, end, equal).values()))


def _most_in_derivative(study: Study, pairs: list[tuple[Group, Group]]) -> Judgement:
    if any(a.metric(DERIVATIVE).diverged for a, _ in pairs):
        return diverged(_flat(pairs))
    means: dict[str, Estimate] = {}
    for name in study.metrics():
        gains = [reduction(a.metric(name), b.metric(name)) for a, b in pairs]
        kept = [gain for gain in gains if gain]
        if kept:
            means[name] = average(kept)
    others = [means[name] for name in means if name != DERIVATIVE]
    if DERIVATIVE not in means or not others:
        return untested("no results for it")
    gap = difference(means[DERIVATIVE], average(others))
    evidence = ", ".join(f"{name} {gain}" for name, gain in means.items())
    evidence = f"error below depth stacking's: {evidence}; derivative less the others {gap}"
    return judged([gap, means[DERIVATIVE]], evidence, _flat(pairs))


def depth_degrades(study: Study, end: str) -> Judgement:
    pairs, compared = [], []
    for target in (1, *HIGHER):
        groups = _depths(study, target, end)
        if len(groups) < 3:
            continue
        errors = {n: group.metric(DERIVATIVE) for n, group in sorted(groups.items())}
        if not all(error.values for error in errors.values()):
            continue
        deepest = max(errors)
        best = min((n for n in errors if n != deepest), key=lambda n: errors[n].mean)
        pairs.append(Pair(f"T{target} D{best}, D{deepest}:", errors[best], errors[deepest]))
        compared += [groups[best], groups[deepest]]
    if not pairs:
        return untested("needs at least three depths")
    lower_ones = sum(bool(pair.gap.above()) for pair in pairs)
    evidence = f"{lower_ones} of {len(pairs)} targets: {'; '.join(map(str, pairs))}"
    return mostly([pairs], evidence, unique(compared))


def _stacks(study: Study, end: str, blocks: int, depth: int) -> list[tuple[Group, Group]]:
    pairs = []
    for target in (1, *HIGHER):
        ours = study.find(family="stack", target=target, termination=end, order=2, depth=blocks)
        other = _by_size(study, "depth", target, end).get(depth)
        if ours and other:
            pairs.append((ours[0], other))
    return pairs


def stack_lower(study: Study, end: str, blocks: int, depth: int) -> Judgement:
    pairs = _stacks(study, end, blocks, depth)
    return all_lower(
        [
            Pair(f"T{a.tags.target} {name}", a.metric(name), b.metric(name))
            for a, b in pairs
            for name in study.metrics()
        ],
        _flat(pairs),
    )


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


def _claims(end: str, equal: bool, setting: str) -> Iterable[Claim]:
    """In the paper's order; equal parameters concern one block against first-order blocks."""
    for rows, changes in ((_STEADY, {}), (_MATCHED, {"equal": equal}), (_DEPTH, {})):
        if changes or not equal:
            for quote, place, test, judge in rows:
                judged = functools.partial(judge, end=end, **changes)
                yield Claim("order1d", quote, place, test, judged, setting)


CLAIMS = (
    *_claims("matched", False, ""),
    *_claims("matched", True, "equal parameters"),
    *_claims("ring", False, "periodic ends"),
    *_claims("ring", True, "periodic ends, equal parameters"),
)
