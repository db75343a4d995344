"""Numbers over seeds: mean and standard deviation, and when one is lower than another.

By Welch's t-test on the means over the seeds, one-sided. A single seed has no spread and decides
nothing. A diverged run counts as an infinite error.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Iterable

from scipy.stats import ttest_ind_from_stats

LEVEL = 0.05


@dataclasses.dataclass(frozen=True)
class Statistic:
    """One number over the seeds of a model: `values` of the runs that have a finite one."""

    values: tuple[float, ...]
    diverged: int = 0  # runs that have none

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Statistic:
        every = list(values)
        finite = tuple(float(v) for v in every if v is not None and math.isfinite(v))
        return cls(finite, len(every) - len(finite))

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values) if self.values else math.nan

    @property
    def deviation(self) -> float:
        """Standard deviation over the seeds; NaN for fewer than two."""
        return statistics.stdev(self.values) if len(self.values) > 1 else math.nan

    def __str__(self) -> str:
        text, spread = number(self.mean), self.deviation
        if spread > 0 and not 1e-4 <= max(abs(self.mean), spread) < 1e6:
            text = f"{self.mean:.2e} ± {spread:.1e}"
        elif spread > 0:
            # Both to the second significant digit of the deviation.
            decimals = max(0, 1 - math.floor(math.log10(spread)))
            text = f"{self.mean:,.{decimals}f} ± {spread:,.{decimals}f}"
        elif spread == 0:
            text += " ± 0"
        if self.diverged:
            text += f" ({self.diverged} of {len(self.values) + self.diverged} diverged)"
        return text


def number(value: float, digits: int = 3) -> str:
    """A few significant digits, without an exponent from 0.0001 to a million; "-" for NaN."""
    if math.isnan(value):
        return "-"
    if value == 0 or not 1e-4 <= abs(value) < 1e6:
        return f"{value:.{digits - 1}e}" if value else "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


def p_lower(ours: Statistic, other: Statistic) -> float:
    """The p-value of `ours` being lower, by Welch's test; NaN for a single seed.

    If some of ours diverged, it is not lower whatever the others say.
    """
    if ours.diverged or not other.values:
        return 1.0 if ours.diverged else 0.0
    samples = ((s.mean, s.deviation, len(s.values)) for s in (ours, other))
    numbers = itertools.chain.from_iterable(samples)
    return float(ttest_ind_from_stats(*numbers, equal_var=False, alternative="less").pvalue)


def sign(ours: Statistic, other: Statistic) -> str:
    """``<`` or ``>`` by the one-sided test each, ``≈`` if neither; ``?`` without a spread."""
    below, above = p_lower(ours, other), p_lower(other, ours)
    if math.isnan(below + above):
        return "?"
    return "<" if below < LEVEL else ">" if above < LEVEL else "≈"
