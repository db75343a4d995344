"""When one number over seeds is lower than another.

A difference counts when it exceeds twice its standard error, sqrt(s1^2 / n1 + s2^2 / n2) with the
standard deviations s over n seeds. With three seeds a side that is a weak test: about one in ten
comparisons of equal models passes it. A single seed has no spread and decides nothing. A diverged
run counts as an infinite error.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from chonn_ops.experiments.statistic import Statistic, number

ERRORS = 2.0


class Estimate(NamedTuple):
    """A number derived from means, and its standard error (NaN where a side has one seed)."""

    mean: float
    error: float

    @property
    def positive(self) -> bool | None:
        """Whether it is above zero beyond its error; None if the error is unknown."""
        return None if math.isnan(self.error) else self.mean > ERRORS * self.error

    def __str__(self) -> str:
        text = f"{self.mean:+.1%}"
        return text if math.isnan(self.error) else f"{text} ± {self.error:.1%}"


def standard_error(value: Statistic) -> float:
    return value.deviation / math.sqrt(value.count) if value.count else math.nan


def lower(ours: Statistic, other: Statistic) -> bool | None:
    """Whether `ours` is lower beyond the spread; None if that cannot be told."""
    if ours.diverged:
        return False
    if other.diverged and not other.values:
        return True if ours.values else None
    error = math.hypot(standard_error(ours), standard_error(other))
    return Estimate(other.mean - ours.mean, error).positive


def sign(ours: Statistic, other: Statistic) -> str:
    """``<``, ``>`` or, for a difference within the spread, ``≈``; ``?`` without a spread."""
    below, above = lower(ours, other), lower(other, ours)
    if below is None or above is None:
        return "?"
    return "<" if below else ">" if above else "≈"


def against(ours: Statistic, other: Statistic) -> str:
    """Both numbers with the sign between them."""
    return f"{ours} {sign(ours, other)} {other}"


def reduction(ours: Statistic, other: Statistic) -> Estimate | None:
    """``1 - ours / other``, of the runs that have a number."""
    if not ours.values or not other.values or ours.mean <= 0 or other.mean <= 0:
        return None
    ratio = ours.mean / other.mean
    relative = math.hypot(standard_error(ours) / ours.mean, standard_error(other) / other.mean)
    return Estimate(1 - ratio, ratio * relative)


def difference(first: Estimate, second: Estimate) -> Estimate:
    return Estimate(first.mean - second.mean, math.hypot(first.error, second.error))


def average(estimates: list[Estimate]) -> Estimate:
    """Mean of independent estimates."""
    count = len(estimates)
    return Estimate(
        sum(estimate.mean for estimate in estimates) / count,
        math.hypot(*(estimate.error for estimate in estimates)) / count,
    )


def percent(value: float) -> str:
    return f"{number(100 * value)}%"
