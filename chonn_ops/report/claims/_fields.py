"""Claims that one model is better than others on fields: Darcy, Poisson, shallow water."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable

from chonn_ops.report.claims._claim import (
    Claim,
    Judgement,
    Pair,
    all_lower,
    decided,
    diverged,
    judged,
    untested,
)
from chonn_ops.report.comparison import (
    Estimate,
    Statistic,
    average,
    difference,
    number,
    reduction,
)
from chonn_ops.report.results import Group, Study
from chonn_ops.report.roles import baseline, baselines, best, orders, papers, stronger
from chonn_ops.report.tables import metric_label

BOUNDARY_AND_HIGH = ("boundary_rmse", "fourier_rmse_high")
MODERATE = 1.5
OURS = "CHONN beyond the paper"
ONE_LAYER = "the same, one layer"
Choose = Callable[[Study], "Group | None"]


def lower_everywhere(study: Study, choose: Choose, family: str) -> Judgement:
    ours, other = choose(study), baseline(study, family)
    if ours is None or other is None:
        return untested("no results for it")
    return all_lower(
        [
            Pair(metric_label(name), ours.metric(name), other.metric(name))
            for name in study.metrics()
        ],
        (ours, other),
    )


def lower_than_stronger(study: Study, choose: Choose) -> Judgement:
    ours = choose(study)
    others = baselines(study)
    if ours is None or len(others) < 2:
        return untested("no results for it")
    pairs = []
    for name in study.metrics():
        other = stronger(study, name)
        if other:
            pairs.append(
                Pair(f"{metric_label(name)}, {other.label}:", ours.metric(name), other.metric(name))
            )
    return all_lower(pairs, (ours, *others))


def largest_gains(study: Study, choose: Choose) -> Judgement:
    ours = choose(study)
    others = baselines(study)
    if ours is None or len(others) < 2:
        return untested("no results for it")
    if any(ours.metric(name).diverged for name in study.metrics()):
        return diverged((ours, *others))
    gains: dict[str, Estimate] = {}
    for name in study.metrics():
        other = stronger(study, name)
        gain = other and reduction(ours.metric(name), other.metric(name))
        if gain:
            gains[name] = gain
    special = [gains[name] for name in BOUNDARY_AND_HIGH if name in gains]
    rest = [gain for name, gain in gains.items() if name not in BOUNDARY_AND_HIGH]
    if not special or not rest:
        return untested("no boundary or frequency metrics")
    gap = difference(average(special), average(rest))
    evidence = "; ".join(f"{metric_label(name)} {gain}" for name, gain in gains.items())
    evidence = f"below the stronger baseline by {evidence}; those two less the others {gap}"
    return judged([gap, average(special)], evidence, (ours, *others))


def _learning(group: Group) -> Statistic:
    """Geometric mean of the validation error over the epochs: lower for faster convergence."""
    means = []
    for run in group.runs:
        curve = run.curve.get("validation_error") or [None]
        errors = [error for error in curve if error is not None and error > 0]
        complete = len(errors) == len(curve)
        means.append(statistics.geometric_mean(errors) if complete else None)
    return Statistic.of(means)


def _training(study: Study, choose: Choose, name: str, read: Callable[[Group], Statistic]):
    ours = choose(study)
    others = baselines(study)
    if ours is None or not others:
        return untested("no results for it")
    pairs = [Pair(f"{name}, against {b.label}:", read(ours), read(b)) for b in others]
    return all_lower(pairs, (ours, *others))


def converges_faster(study: Study, choose: Choose) -> Judgement:
    return _training(study, choose, "validation error, geometric mean over the epochs", _learning)


def lower_loss(study: Study, choose: Choose) -> Judgement:
    return _training(study, choose, "last training loss", lambda g: g.final("train_loss"))


def lower_validation(study: Study, choose: Choose) -> Judgement:
    return _training(study, choose, "last validation error", lambda g: g.final("validation_error"))


AVERAGE = ("relative_l1", "range_nrmse")


def better_than_none(study: Study) -> Judgement:
    groups = orders(study)
    plain = groups.get(0)
    if plain is None or len(groups) < 2:
        return untested("needs order 0 and others")
    pairs = [
        Pair(f"order {n} {metric_label(name)}", group.metric(name), plain.metric(name))
        for n, group in groups.items()
        if n
        for name in AVERAGE
        if name in study.metrics()
    ]
    return all_lower(pairs, tuple(groups.values()))


def fourth_best(study: Study, ladder: str = "ablation") -> Judgement:
    groups = orders(study, ladder)
    if 4 not in groups or len(groups) < 3:
        return untested("needs orders up to 4")
    pairs = [
        Pair(f"{metric_label(name)} than order {n}:", groups[4].metric(name), group.metric(name))
        for n, group in groups.items()
        if n != 4
        for name in AVERAGE
        if name in study.metrics()
    ]
    return all_lower(pairs, tuple(groups.values()))


def peaks_lower(study: Study, ladder: str = "ablation") -> Judgement:
    groups = orders(study, ladder)
    if not {2, 4} <= groups.keys():
        return untested("needs orders 2 and 4")
    pair = Pair("order 4 against order 2:", *(groups[n].metric("max_mse") for n in (4, 2)))
    return all_lower([pair], (groups[4], groups[2]))


def moderate_growth(study: Study) -> Judgement:
    groups = orders(study)
    if not {0, 4} <= groups.keys():
        return untested("needs orders 0 and 4")
    ratio = groups[4].parameters / groups[0].parameters
    evidence = f"order 4 has {number(ratio)} times the parameters of order 0"
    return decided(ratio <= MODERATE, evidence, (groups[4], groups[0]))


_DARCY = "Text on Fig. 4f"
_DARCY_ROWS = (
    (
        "CHONN consistently achieves lower error than FNO",
        "Fig. 4c",
        "lower than FNO in every metric",
        functools.partial(lower_everywhere, family="fno"),
    ),
    (
        "CHONN consistently achieves lower error than [...] U-Net",
        "Fig. 4c",
        "lower than U-Net in every metric",
        functools.partial(lower_everywhere, family="unet"),
    ),
    (
        "The largest improvements appear in boundary-sensitive and frequency-related measures",
        "Fig. 4d",
        "the mean gain over the stronger baseline in boundary and high-frequency error is positive "
        "and larger than in the other metrics",
        largest_gains,
    ),
    (
        "CHONN converges more rapidly",
        "Fig. 4f",
        "the validation error, averaged over the epochs on a logarithmic scale, is lower than both "
        "baselines'",
        converges_faster,
    ),
    (
        "and reaches a substantially lower loss floor",
        "Fig. 4f",
        "the last training loss is lower than both baselines'",
        lower_loss,
    ),
    (
        "CHONN achieves a lower validation error than FNO and U-Net",
        _DARCY,
        "the last validation error is lower than both baselines'",
        lower_validation,
    ),
)
_POISSON = "Text on Fig. 4g"
_POISSON_ROWS = (
    (
        "Compared with the 0-order baseline, CKB variants reduce both relative L1 error and nRMSE",
        _POISSON,
        "orders 1 to 4 are all lower than order 0 in both",
        better_than_none,
    ),
    (
        "with the 4-order model achieving the best overall accuracy",
        _POISSON,
        "order 4 is lower than every other order in both",
        fourth_best,
    ),
    (
        "higher orders further strengthen the recovery of localized high-gradient structures",
        _POISSON,
        "order 4 is lower than order 2 in MaxMSE",
        peaks_lower,
    ),
    (
        "with only moderate growth in model size",
        "Fig. 4g",
        f"order 4 has at most {MODERATE} times the parameters of order 0; the bound is ours",
        moderate_growth,
    ),
)
_SHALLOW_WATER_ROWS = (
    (
        "CHONN consistently achieves lower errors across global reconstruction, boundary "
        "discrepancy, and frequency-band measures",
        "Fig. 5b",
        "lower than FNO in every metric",
        functools.partial(lower_everywhere, family="fno"),
    ),
    (
        "CHONN improves over the stronger baseline across all evaluated metrics",
        "Fig. 5c",
        "lower than the better of U-Net and FNO in every metric",
        lower_than_stronger,
    ),
)
CLAIMS = (
    *(
        Claim("darcy", quote, place, test, functools.partial(judge, choose=choose), setting)
        for choose, setting in ((papers, ""), (best, OURS))
        for quote, place, test, judge in _DARCY_ROWS
    ),
    *(Claim("poisson", *row) for row in _POISSON_ROWS),
    *(
        Claim("poisson", quote, place, test, functools.partial(judge, ladder=ladder), setting)
        for ladder, setting in (("mixer", OURS), ("layer", ONE_LAYER))
        for quote, place, test, judge in _POISSON_ROWS
        if judge in (fourth_best, peaks_lower)
    ),
    *(
        Claim("shallow_water", quote, place, test, functools.partial(judge, choose=choose), setting)
        for choose, setting in ((papers, ""), (best, OURS))
        for quote, place, test, judge in _SHALLOW_WATER_ROWS
    ),
)
