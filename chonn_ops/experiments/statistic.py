"""A number over seeds: mean, standard deviation, and both as text."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable


@dataclasses.dataclass(frozen=True)
class Statistic:
    """One number over the seeds of a variant.

    Parameters
    ----------
    values : tuple of float
        Of the runs that have a finite one.
    diverged : int
        Runs that have none.
    """

    values: tuple[float, ...]
    diverged: int = 0

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
    if -4 <= power < 6:
        power = 0
    mean, deviation = mean / 10**power, deviation / 10**power
    decimals = min(max(0, 1 - math.floor(math.log10(deviation))), 6)
    text = f"{mean:,.{decimals}f} ± {deviation:,.{decimals}f}"
    return f"({text})e{power}" if power else text
