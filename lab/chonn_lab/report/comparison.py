"""Numbers over seeds: mean and deviation, when one is lower than another, what seeds can show.

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
import functools
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

LEVEL = 0.05
POWER = 0.8


@dataclasses.dataclass(frozen=True)
class Statistic:
    """One number over the seeds of a variant: `values` of the runs that have a finite one."""

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
    """A few significant digits, without an exponent from 0.0001 to a million."""
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
    """A number derived from means: its standard error, NaN where a side has one seed, and the
    degrees of freedom of the error."""

    mean: float
    error: float
    freedom: float = math.inf

    def above(self, tests: int = 1) -> bool | None:
        """Whether it is above zero, one-sided at 5% over so many tests; None without an error."""
        if math.isnan(self.error):
            return None
        return self.mean > _quantile(1 - LEVEL / tests, self.freedom) * self.error

    def below(self, tests: int = 1) -> bool | None:
        """The same below zero."""
        return self._replace(mean=-self.mean).above(tests)

    @property
    def distance(self) -> float:
        """From zero, in standard errors."""
        return self.mean / self.error if self.error else math.copysign(math.inf, self.mean)

    @property
    def detectable(self) -> float:
        """Smallest true value that `above` would find with a probability of 80%."""
        quantiles = _quantile(1 - LEVEL, self.freedom) + _quantile(POWER, self.freedom)
        return quantiles * self.error

    def __str__(self) -> str:
        text = f"{self.mean:+.1%}"
        return text if math.isnan(self.error) else f"{text} ± {self.error:.1%}"


def _quantile(probability: float, freedom: float) -> float:
    """Quantile of Student's distribution."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, probability))


def _combined(mean: float, parts: Sequence[tuple[float, float]]) -> Estimate:
    """A mean whose independent parts have these errors, of these degrees of freedom."""
    error = math.hypot(*(part for part, _ in parts))
    if math.isnan(error):
        return Estimate(mean, math.nan, math.nan)
    fourth = sum(part**4 / freedom for part, freedom in parts if part)
    return Estimate(mean, error, error**4 / fourth if fourth else math.inf)


def _part(value: Statistic, scale: float = 1.0) -> tuple[float, float]:
    """Standard error of a mean and its degrees of freedom."""
    error = value.deviation / math.sqrt(value.count) if value.count else math.nan
    return error * scale, value.count - 1


@functools.lru_cache(1 << 12)
def gap(ours: Statistic, other: Statistic) -> Estimate:
    """By how much `ours` is lower."""
    if not ours.values and not other.values:
        return Estimate(0.0, math.inf)
    if not ours.values or not other.values:
        return Estimate(math.inf if ours.values else -math.inf, 0.0)
    found = _combined(other.mean - ours.mean, [_part(ours), _part(other)])
    # Some runs of ours have an infinite error: it is not lower, whatever the others say.
    return Estimate(0.0, math.inf) if ours.diverged and found.mean > 0 else found


def sign(ours: Statistic, other: Statistic) -> str:
    """``<`` or ``>`` by the one-sided test each, ``≈`` if neither; ``?`` without a spread."""
    below, above = gap(ours, other).above(), gap(other, ours).above()
    if below is None or above is None:
        return "?"
    return "<" if below else ">" if above else "≈"


def against(ours: Statistic, other: Statistic) -> str:
    """Both numbers with the sign between them, and what could have been shown if that is ``≈``."""
    found, detectable = sign(ours, other), gap(ours, other).detectable
    shown = found == "≈" and math.isfinite(detectable)
    return f"{ours} {found} {other}" + (f" (detectable {number(detectable)})" if shown else "")


def reduction(ours: Statistic, other: Statistic) -> Estimate | None:
    """``1 - ours / other``, of the runs that have a number."""
    if not ours.values or not other.values or ours.mean <= 0 or other.mean <= 0:
        return None
    ratio = ours.mean / other.mean
    return _combined(1 - ratio, [_part(v, ratio / v.mean) for v in (ours, other)])


def difference(first: Estimate, second: Estimate) -> Estimate:
    """Difference of two independent estimates."""
    return _combined(first.mean - second.mean, [estimate[1:] for estimate in (first, second)])


def average(estimates: list[Estimate]) -> Estimate:
    """Mean of independent estimates."""
    count = len(estimates)
    parts = [(estimate.error / count, estimate.freedom) for estimate in estimates]
    return _combined(sum(estimate.mean for estimate in estimates) / count, parts)


def share(successes: int, trials: int) -> Estimate:
    """Share of successes; its error is that of one more success and failure, so never zero."""
    likely = (successes + 1) / (trials + 2)
    return Estimate(successes / trials, math.sqrt(likely * (1 - likely) / trials))
