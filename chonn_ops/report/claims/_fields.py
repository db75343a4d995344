"""Claims that one model is better than others: on Darcy, Poisson and shallow water, and on images.

ImageNet is not run here, digits stand in for the routing.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable

from chonn_ops.report.claims._claim import (
    NOT_TESTED,
    Judgement,
    Pair,
    Untested,
    all_lower,
    claims,
    decided,
    diverged,
    lower_in,
    most_in,
)
from chonn_ops.report.comparison import Statistic, number, reduction
from chonn_ops.report.results import Group, Study
from chonn_ops.report.roles import BASELINES, baseline, baselines, best, orders, papers, stronger
from chonn_ops.report.tables import metric_label

BOUNDARY_AND_HIGH = ("boundary_rmse", "fourier_rmse_high")
MODERATE = 1.5
OURS = "CHONN beyond the paper"
ONE_LAYER = "the same, one layer"
Choose = Callable[[Study], "Group | None"]


def _sides(study: Study, choose: Choose, least: int = 1) -> tuple[Group, list[Group]]:
    """The model that `choose` finds, and the baselines, at least so many."""
    ours, others = choose(study), baselines(study)
    if ours is None or len(others) < least:
        raise Untested
    return ours, others


def lower_everywhere(study: Study, choose: Choose, family: str) -> Judgement:
    ours, other = choose(study), baseline(study, family)
    if ours is None or other is None:
        raise Untested
    return lower_in((metric_label(name), ours, other, name) for name in study.metrics())


def lower_than_stronger(study: Study, choose: Choose) -> Judgement:
    ours, others = _sides(study, choose, len(BASELINES))
    cases = [
        (f"{metric_label(name)}, {other.label}:", ours, other, name)
        for name in study.metrics()
        if (other := stronger(study, name))
    ]
    return lower_in(cases, (ours, *others))


def largest_gains(study: Study, choose: Choose) -> Judgement:
    ours, others = _sides(study, choose, len(BASELINES))
    if any(ours.metric(name).diverged for name in study.metrics()):
        return diverged((ours, *others))
    gains = {
        name: gain
        for name in study.metrics()
        if (other := stronger(study, name))
        and (gain := reduction(ours.metric(name), other.metric(name)))
    }
    if not gains.keys() & set(BOUNDARY_AND_HIGH):
        raise Untested("no boundary or frequency metrics")
    evidence = "; ".join(f"{metric_label(name)} {gain}" for name, gain in gains.items())
    evidence = f"below the stronger baseline by {evidence}; those two less the others"
    return most_in(BOUNDARY_AND_HIGH, gains, evidence, (ours, *others))


def _learning(group: Group) -> Statistic:
    """Geometric mean of the validation error over the epochs: lower for faster convergence."""
    means = []
    for run in group.runs:
        curve = run.curve.get("validation_error") or [None]
        errors = [error for error in curve if error is not None and error > 0]
        complete = len(errors) == len(curve)
        means.append(statistics.geometric_mean(errors) if complete else None)
    return Statistic.of(means)


def lower_in_training(
    study: Study, choose: Choose, name: str, read: Callable[[Group], Statistic]
) -> Judgement:
    ours, others = _sides(study, choose)
    pairs = [Pair(f"{name}, against {b.label}:", read(ours), read(b)) for b in others]
    return all_lower(pairs, (ours, *others))


converges_faster = functools.partial(
    lower_in_training, name="validation error, geometric mean over the epochs", read=_learning
)
lower_loss = functools.partial(
    lower_in_training, name="last training loss", read=lambda group: group.final("train_loss")
)
lower_validation = functools.partial(
    lower_in_training,
    name="last validation error",
    read=lambda group: group.final("validation_error"),
)


def _averages(study: Study) -> list[str]:
    return [name for name in ("relative_l1", "range_nrmse") if name in study.metrics()]


def better_than_none(study: Study) -> Judgement:
    groups = orders(study)
    if 0 not in groups or len(groups) < 2:
        raise Untested("needs order 0 and others")
    cases = [
        (f"order {n} {metric_label(name)}", group, groups[0], name)
        for n, group in groups.items()
        if n
        for name in _averages(study)
    ]
    return lower_in(cases, groups.values())


def fourth_best(study: Study, ladder: str = "ablation") -> Judgement:
    groups = orders(study, ladder)
    if 4 not in groups or len(groups) < 3:
        raise Untested("needs orders up to 4")
    cases = [
        (f"{metric_label(name)} than order {n}:", groups[4], group, name)
        for n, group in groups.items()
        if n != 4
        for name in _averages(study)
    ]
    return lower_in(cases, groups.values())


def peaks_lower(study: Study, ladder: str = "ablation") -> Judgement:
    groups = orders(study, ladder)
    if not {2, 4} <= groups.keys():
        raise Untested("needs orders 2 and 4")
    return lower_in([("order 4 against order 2:", groups[4], groups[2], "max_mse")])


def moderate_growth(study: Study) -> Judgement:
    groups = orders(study)
    if not {0, 4} <= groups.keys():
        raise Untested("needs orders 0 and 4")
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
_VISION = "Text on Fig. 5h"


def _not_trained(study: Study) -> Judgement:  # noqa: ARG001
    raise Untested("ImageNet-1K is not trained here")


def _routing(study: Study, ours: str, other: str) -> Judgement:
    first, second = study.find(routing=ours), study.find(routing=other)
    if not first or not second:
        raise Untested
    names = f"test error, {ours} against {other}:"
    pair = Pair(names, first[0].metric("error"), second[0].metric("error"))
    return Judgement(NOT_TESTED, f"on digits instead: {pair}", (first[0], second[0]))


_IMAGENET = (
    (
        "Across model scales, CHONN consistently improves recognition accuracy while maintaining "
        "competitive parameter and computational costs",
        _VISION,
        "top-1 accuracy of Tiny, Small and Base above their peers'",
        _not_trained,
    ),
    (
        "Across Tiny, Small, and Base settings, CHONN achieves higher early-stage accuracy than "
        "VMamba",
        "Fig. 5j",
        "top-1 accuracy after 30 epochs above VMamba's",
        _not_trained,
    ),
)
_ROUTING = tuple(
    (
        quote,
        "Fig. 5i",
        f"the test error of {ours} is lower than that of {other} on ImageNet-1K; digits, small "
        "and nearly solved, show tendencies at most",
        functools.partial(_routing, ours=ours, other=other),
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
)
_BY_LADDER = [row for row in _POISSON_ROWS if row[3] in (fourth_best, peaks_lower)]
CLAIMS = (
    *claims("darcy", _DARCY_ROWS, choose=papers),
    *claims("darcy", _DARCY_ROWS, OURS, choose=best),
    *claims("poisson", _POISSON_ROWS),
    *claims("poisson", _BY_LADDER, OURS, ladder="mixer"),
    *claims("poisson", _BY_LADDER, ONE_LAYER, ladder="layer"),
    *claims("shallow_water", _SHALLOW_WATER_ROWS, choose=papers),
    *claims("shallow_water", _SHALLOW_WATER_ROWS, OURS, choose=best),
)
IMAGES = (*claims("imagenet", _IMAGENET), *claims("digits", _ROUTING))
