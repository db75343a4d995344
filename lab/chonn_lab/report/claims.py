"""The paper's claims, which are in ``claims.yaml``, and the function that judges one on a study.

A claim names pairs of models, the numbers of them to compare and the relation that must hold. Each
comparison is Welch's one-sided t-test over the seeds (`chonn_lab.report.comparison`).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from scipy.stats import fisher_exact, gmean

from chonn_lab.report.comparison import (
    LEVEL,
    Estimate,
    Statistic,
    combined,
    gap,
    number,
    sign,
)
from chonn_lab.report.runs import Model, Study, metric_label, title

SUPPORTED = "supported"
CONTRADICTED = "contradicted"
INCONCLUSIVE = "inconclusive"
NOT_TESTED = "not tested"
VERDICTS = (SUPPORTED, CONTRADICTED, INCONCLUSIVE, NOT_TESTED)
MODERATE = 1.5
Record = Mapping[str, Any]


class Pair(NamedTuple):
    """Two numbers of which the claim says that the first is lower.

    `part` names the group of comparisons that it belongs to, for relations that need groups.
    """

    name: str
    ours: Statistic
    other: Statistic
    part: str = ""

    @property
    def gap(self) -> Estimate:
        return gap(self.ours, self.other)

    def __str__(self) -> str:
        return f"{self.name} {self.ours} {sign(self.ours, self.other)} {self.other}".strip()


class Untested(Exception):
    """A study lacks what a claim is about; the message says what."""


# Relations ---------------------------------------------------------------------------------------

# What must be above zero, and the numbers that decide, in words.
Conditions = tuple[Sequence[Estimate], str]


def lower(pairs: Sequence[Pair]) -> Conditions:
    """Every first number is lower."""
    gaps = [pair.gap for pair in pairs]
    if len(pairs) == 1:
        return gaps, str(pairs[0]._replace(name=""))
    weakest = min(pairs, key=lambda pair: pair.gap.distance)
    return gaps, f"{sum(gap.above() for gap in gaps)} of {len(pairs)}; {weakest}"


def mostly_lower(pairs: Sequence[Pair]) -> Conditions:
    """In every part, more than half of the first numbers are lower, and not higher."""
    conditions, words = [], []
    for name, part in _by_part(pairs).items():
        below, above = (sum(test(pair.gap) for pair in part) for test in _SIDES)
        conditions.append(_known((below > len(part) / 2) - (above > len(part) / 2)))
        counts = f"lower in {below}, higher in {above} of {len(part)}"
        words.append(f"{name}: {counts}" if name else counts)
    return conditions, "; ".join(words)


def largest_gain(pairs: Sequence[Pair]) -> Conditions:
    """The mean reduction ``1 - ours / other`` in part "first" is positive, and larger than in the
    others."""
    if any(pair.ours.diverged or not pair.other.values for pair in pairs):
        return [_known(0)], "a run diverged"
    parts = _by_part(pairs)
    first = parts.pop("first", [])
    rest = [pair for part in parts.values() for pair in part]
    if not first or not rest:
        raise Untested("no results for it")
    gain, more = _mean_gain({1: first}), _mean_gain({1: first, -1: rest})
    return [more, gain], f"mean gain {gain}, less that of the others {more}"


def lower_more_often(pairs: Sequence[Pair]) -> Conditions:
    """A larger share of the first numbers is lower in the first part than in the second.

    By Fisher's exact test, one-sided.
    """
    parts = _by_part(pairs)
    if len(parts) < 2:
        raise Untested("needs every order and every depth from 1 to 4")
    counts = {name: sum(pair.gap.above() for pair in part) for name, part in parts.items()}
    table = [(counts[name], len(part) - counts[name]) for name, part in parts.items()]
    tests: list[Any] = [fisher_exact(table, side) for side in ("greater", "less")]
    more, less = (test.pvalue < LEVEL for test in tests)
    words = ", ".join(f"{name} {counts[name]} of {len(part)}" for name, part in parts.items())
    return [_known(int(more) - int(less))], f"steps that lower the error: {words}"


def at_most_moderate(pairs: Sequence[Pair]) -> Conditions:
    """The first number is at most `MODERATE` times the second; both are known exactly."""
    (pair,) = pairs
    ratio = pair.ours.mean / pair.other.mean
    return [_known(MODERATE - ratio)], f"{pair.name} {number(ratio)} times"


_RELATIONS = (lower, mostly_lower, largest_gain, lower_more_often, at_most_moderate)
RELATIONS: Mapping[str, Callable[[Sequence[Pair]], Conditions]] = {
    relation.__name__: relation for relation in _RELATIONS
}
_SIDES = (Estimate.above, Estimate.below)


def _known(value: float) -> Estimate:
    """A number without an error."""
    return Estimate(value, 0.0)


def _by_part(pairs: Sequence[Pair]) -> dict[str, list[Pair]]:
    parts: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        parts[pair.part].append(pair)
    return parts


def _mean_gain(parts: Mapping[int, Sequence[Pair]]) -> Estimate:
    """Sum over the parts of a sign times the mean of ``1 - ours / other``."""
    mean, terms = 0.0, []
    for factor, pairs in parts.items():
        for pair in pairs:
            weight = factor / len(pairs)
            ratio = pair.ours.mean / pair.other.mean
            mean += weight * (1 - ratio)
            terms += [(weight * ratio / value.mean, value) for value in pair[1:3]]
    return combined(mean, terms)


def decide(conditions: Sequence[Estimate]) -> str:
    """Supported if each condition is above zero by its one-sided test, since all must be.

    Contradicted if any is below zero by a one-sided test at the level divided by their number
    (Bonferroni).
    """
    if all(one.above() for one in conditions):
        return SUPPORTED
    return CONTRADICTED if any(one.below(len(conditions)) for one in conditions) else INCONCLUSIVE


# Claims ------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Claim:
    """An entry of ``claims.yaml``, which describes the fields."""

    problem: str
    sentence: str
    place: str
    test: str
    pairs: Sequence[Record] = ()
    each: Record = dataclasses.field(default_factory=dict)
    metrics: Sequence[str] = ()
    first: Sequence[str] = ()
    read: Record = dataclasses.field(default_factory=dict)
    relation: str = "lower"
    partial: bool = False

    def judge(self, study: Study) -> Verdict:
        """The verdict on a study; smoke runs only check that everything works."""
        try:
            if study.scale.startswith("smoke"):
                raise Untested("a smoke run only checks that everything works")
            pairs = list(self.compared(study))
            if not pairs:
                raise Untested("no results for it")
            if "parameters" not in self.read and any(math.isnan(p.gap.error) for p in pairs):
                raise Untested("one seed has no spread")
            conditions, decided = RELATIONS[self.relation](pairs)
        except Untested as reason:
            return Verdict(self, study, NOT_TESTED, str(reason))
        return Verdict(self, study, decide(conditions), decided, "; ".join(map(str, pairs)))

    def compared(self, study: Study) -> Iterator[Pair]:
        """The pairs of numbers, metric by metric."""
        metrics = [name for name in study.metrics() if not self.metrics or name in self.metrics]
        for metric in [""] if self.read else metrics:
            for values in itertools.product(*self.each.values()):
                tags = dict(zip(self.each, values, strict=True))
                for pair in self.pairs:
                    yield from self._pairs(study, metric, pair, tags)

    def _pairs(self, study: Study, metric: str, pair: Record, tags: Record) -> Iterator[Pair]:
        over = pair.get("over")
        ours, other = (
            self._side(study, metric, pair[side], over, tags) for side in ("ours", "other")
        )
        if ours is None or other is None:
            if self.partial:
                return
            raise Untested("no results for it")
        words = [pair.get("name", "").format(**tags, other=other[0])]
        words += [metric_label(metric)] if metric and len(self.metrics) != 1 else []
        part = "first" if metric in self.first else pair.get("part", "").format(**tags)
        for first, second in zip(ours[1], other[1], strict=False):
            yield Pair(" ".join(filter(None, words)), first, second, part)

    def _side(
        self, study: Study, metric: str, wanted: Record, over: Record | None, tags: Record
    ) -> tuple[str, list[Statistic]] | None:
        """Label and numbers of a model, over those of the model that differs in some tags."""
        model = _choose(study, wanted, metric, tags)
        below = _choose(study, {**wanted, **over}, metric, tags) if over else model
        # Ratios are those of the same seeds.
        if model is None or below is None or _seeds(model) != _seeds(below):
            return None
        read = self.read or {"score": metric}
        numbers = _numbers(model, read)
        if over:
            numbers = [_ratio(*both) for both in zip(numbers, _numbers(below, read), strict=True)]
        return model.label, numbers


def _seeds(model: Model) -> list[int]:
    return [run.seed for run in model.runs]


def _choose(study: Study, wanted: Record, metric: str, tags: Record) -> Model | None:
    """The first model with these tags and those of the loop; of "best" the lowest in the metric."""
    if "best" in wanted:
        found = [_choose(study, one, metric, tags) for one in wanted["best"]]
        errors = [math.nan if one is None else one[f"test/{metric}"].mean for one in found]
        return None if np.isnan(errors).any() else found[int(np.argmin(errors))]
    common = {name: value for name, value in tags.items() if name != "n"}
    own = {n: tags.get(x, x) if isinstance(x, str) else x for n, x in wanted.items()}
    models = study.find(**common | own)
    return None if models.empty else models.iloc[0]


def _numbers(model: Model, read: Record) -> list[Statistic]:
    """One or more numbers of every seed, as a claim's entry ``read`` names them."""
    ((how, name),) = read.items()
    if how == "parameters":
        return [Statistic((model.parameters,))]
    if how == "score":
        return [model.get(f"test/{name}", Statistic((), len(model.runs)))]
    found = (run.curves.get(name) or run.curve.get(name) or [None] for run in model.runs)
    curves = [np.array(curve, dtype=float) for curve in found]
    if how == "steps":
        return [Statistic.of(values) for values in zip(*curves, strict=False)]
    reduced = {"geometric_mean": gmean, "last": lambda curve: curve[-1], "growth": _growth}[how]
    return [Statistic.of(map(reduced, curves))]


def _growth(curve: np.ndarray) -> float:
    """Mean of the last quarter less that of the first."""
    quarter = max(len(curve) // 4, 1)
    return curve[-quarter:].mean() - curve[:quarter].mean()


def _ratio(ours: Statistic, below: Statistic) -> Statistic:
    """Seed by seed."""
    if ours.diverged or below.diverged or ours.count != below.count:
        return Statistic((), 1)
    return Statistic.of(np.divide(ours.values, below.values))


CLAIMS = tuple(
    Claim(**entry)
    for entry in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
)


class Verdict(NamedTuple):
    """A claim judged on a study, None where the experiment was not run: what decides, and all
    comparisons in words."""

    claim: Claim
    study: Study | None
    verdict: str = NOT_TESTED
    decided: str = "not run"
    evidence: str = ""

    @property
    def heading(self) -> str:
        return f"{title(self.claim.problem)}, {self.study.scale if self.study else 'not run'}"


def verdicts(studies: Sequence[Study]) -> list[Verdict]:
    """Every claim on every study of its problem, by study; what was not run last."""
    found = [
        claim.judge(study)
        for study in studies
        for claim in CLAIMS
        if claim.problem == study.experiment
    ]
    there = {study.experiment for study in studies}
    return found + [Verdict(claim, None) for claim in CLAIMS if claim.problem not in there]


def boards(found: Iterable[Verdict]) -> dict[str, list[Verdict]]:
    """The verdicts by heading."""
    rows: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in found:
        rows[verdict.heading].append(verdict)
    return rows


def counted(found: Iterable[Verdict]) -> str:
    """How many claims have which verdict."""
    counts = Counter(one.verdict for one in found)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)
