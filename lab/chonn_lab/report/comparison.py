"""Numbers over seeds: mean and standard deviation, and when one is lower than another.

Welch's t-test [1]_ on the means over the seeds, one-sided: whether a difference is above zero. Its
error is sqrt(s1^2 / n1 + s2^2 / n2) with the standard deviations s over n seeds, its degrees of
freedom are Satterthwaite's. A single seed has no spread and decides nothing. A diverged run counts
as an infinite error.

References
----------
.. [1] B. L. Welch, "The generalization of Student's problem when several different population
   variances are involved", Biometrika 34, 1947.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable
from typing import NamedTuple

from scipy.special import stdtrit

LEVEL = 0.05


@dataclasses.dataclass(frozen=True)
class Statistic:
    """One number over the seeds of a model: `values` of the runs that have a finite one."""

    values: tuple[float, ...]
    diverged: int = 0  # runs that have none

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Statistic:
        given = list(values)
        finite = tuple(float(v) for v in given if v is not None and math.isfinite(v))
        return cls(finite, len(given) - len(finite))

    @property
    def count(self) -> int:
        return len(self.values)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values) if self.values else math.nan

    @property
    def deviation(self) -> float:
        """Standard deviation over the seeds; NaN for fewer than two."""
        return statistics.stdev(self.values) if self.count > 1 else math.nan

    def __str__(self) -> str:
        text = "-"
        if self.values:
            text = _with_spread(self.mean, self.deviation) if self.count > 1 else number(self.mean)
        if self.diverged:
            text += f" ({self.diverged} of {self.count + self.diverged} diverged)"
        return text


def number(value: float, digits: int = 3) -> str:
    """A few significant digits, without an exponent from 0.0001 to a million; "-" for NaN."""
    if math.isnan(value):
        return "-"
    if value == 0 or not 1e-4 <= abs(value) < 1e6:
        return f"{value:.{digits - 1}e}" if value else "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


def _with_spread(mean: float, deviation: float) -> str:
    """Both to the second significant digit of the deviation, an exponent taken out."""
    if not deviation:
        return f"{number(mean)} ± 0"
    power = math.floor(math.log10(max(abs(mean), deviation)))
    power = 0 if -4 <= power < 6 else power
    mean, deviation = mean / 10**power, deviation / 10**power
    decimals = min(max(0, 1 - math.floor(math.log10(deviation))), 6)
    text = f"{mean:,.{decimals}f} ± {deviation:,.{decimals}f}"
    return f"({text})e{power}" if power else text


class Estimate(NamedTuple):
    """A combination of means: its standard error, NaN where one has a single seed, and the
    degrees of freedom of the error."""

    mean: float
    error: float
    freedom: float = math.inf

    def above(self, tests: int = 1) -> bool:
        """Whether it is above zero, one-sided at `LEVEL` over so many tests."""
        return self.mean > float(stdtrit(self.freedom, 1 - LEVEL / tests)) * self.error

    def below(self, tests: int = 1) -> bool:
        """The same below zero."""
        return self._replace(mean=-self.mean).above(tests)

    @property
    def distance(self) -> float:
        """From zero, in standard errors."""
        return self.mean / self.error if self.error else math.copysign(math.inf, self.mean)

    def __str__(self) -> str:
        return f"{self.mean:+.1%} ± {self.error:.1%}"


def combined(mean: float, terms: Iterable[tuple[float, Statistic]]) -> Estimate:
    """A value whose errors are, to first order, weights times those of independent means."""
    parts = [(w * s.deviation / math.sqrt(s.count), s.count - 1) for w, s in terms]
    error = math.hypot(*(part for part, _ in parts))
    if math.isnan(error):
        return Estimate(mean, math.nan, math.nan)
    fourth = sum(part**4 / freedom for part, freedom in parts if part)
    return Estimate(mean, error, error**4 / fourth if fourth else math.inf)


def gap(ours: Statistic, other: Statistic) -> Estimate:
    """By how much `ours` is lower."""
    if not ours.values and not other.values:
        return Estimate(0.0, math.inf)
    if not ours.values or not other.values:
        return Estimate(math.inf if ours.values else -math.inf, 0.0)
    found = combined(other.mean - ours.mean, [(1, ours), (1, other)])
    # Some runs of ours have an infinite error: it is not lower, whatever the others say.
    return Estimate(0.0, math.inf) if ours.diverged and found.mean > 0 else found


def sign(ours: Statistic, other: Statistic) -> str:
    """``<`` or ``>`` by the one-sided test each, ``≈`` if neither; ``?`` without a spread."""
    below, above = gap(ours, other), gap(other, ours)
    if math.isnan(below.error):
        return "?"
    return "<" if below.above() else ">" if above.above() else "≈"
