"""The paper's claims, which are in ``claims.yaml``, and the function that judges one on a study.

A claim names two models, the metrics and the relation that must hold between them. `verdicts`
judges every claim on the studies of its problem, by Welch's one-sided t-test over the seeds
(`chonn_lab.report.comparison`).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from chonn_lab.report.comparison import (
    Estimate,
    Statistic,
    against,
    average,
    difference,
    gap,
    number,
    reduction,
    share,
    sign,
)
from chonn_lab.report.results import Group, Study
from chonn_lab.report.tables import full_label, metric_label, title

SUPPORTED = "supported"
CONTRADICTED = "contradicted"
INCONCLUSIVE = "inconclusive"
NOT_TESTED = "not tested"
VERDICTS = (SUPPORTED, CONTRADICTED, INCONCLUSIVE, NOT_TESTED)
SINGLE = "one seed has no spread"
MODERATE = 1.5
HEADER = ("claim", "verdict", "decided by")


class Pair(NamedTuple):
    """Two numbers of which the claim says that the first is lower.

    `part` names the group of comparisons that it belongs to, for relations that need groups.
    """

    name: str
    ours: Statistic
    other: Statistic
    part: str = ""
    models: tuple[Group, ...] = ()

    @property
    def gap(self) -> Estimate:
        return gap(self.ours, self.other)

    @property
    def detectable(self) -> float:
        """Detectable difference relative to the other number."""
        return self.gap.detectable / abs(self.other.mean) if self.other.mean else math.inf

    def __str__(self) -> str:
        return f"{self.name} {against(self.ours, self.other)}"

    @property
    def plain(self) -> str:
        return f"{self.ours} {sign(self.ours, self.other)} {self.other}"


@dataclasses.dataclass(frozen=True)
class Judgement:
    """What a study says about a claim.

    `evidence` are all comparisons in words, `number` the one that decides, `detectable`, of an
    inconclusive verdict, the smallest relative difference that the seeds would have shown in every
    open comparison with a probability of `POWER`, `models` what was compared.
    """

    verdict: str
    evidence: str
    deciding: str = ""
    detectable: float | None = None
    models: tuple[Group, ...] = ()

    @property
    def number(self) -> str:
        return self.deciding or self.evidence

    def __str__(self) -> str:
        return self.verdict + (f" ({self.detectable:.0%})" if self.detectable is not None else "")


class Untested(Exception):
    """A study lacks what a claim is about; the message says what."""


# Relations ---------------------------------------------------------------------------------------


def lower(pairs: Sequence[Pair]) -> Judgement:
    """Every first number is lower."""
    evidence, deciding = "; ".join(map(str, pairs)), pairs[0].plain
    if len(pairs) > 1:
        count = f"{sum(bool(pair.gap.above()) for pair in pairs)} of {len(pairs)}"
        weakest = min(pairs, key=lambda pair: pair.gap.distance)
        evidence, deciding = f"{count}: {evidence}", f"{count}; {weakest.name} {weakest.plain}"
    return _decide([p.gap for p in pairs], evidence, deciding, [p.detectable for p in pairs])


def mostly_lower(pairs: Sequence[Pair]) -> Judgement:
    """In every part, more than half of the first numbers are lower.

    Contradicted if in any part more than half are higher, both by one-sided tests.
    """
    parts = _by_part(pairs)
    below, above = (
        {name: sum(bool(test(pair.gap)) for pair in part) for name, part in parts.items()}
        for test in (Estimate.above, Estimate.below)
    )
    counts = "; ".join(
        f"{name + ': ' if name else ''}lower in {below[name]}, higher in {above[name]} of "
        f"{len(part)}"
        for name, part in parts.items()
    )
    if any(math.isnan(pair.gap.error) for pair in pairs):
        return Judgement(NOT_TESTED, f"{SINGLE}: {counts}", SINGLE)
    if all(below[name] > len(part) / 2 for name, part in parts.items()):
        return Judgement(SUPPORTED, counts)
    if any(above[name] > len(part) / 2 for name, part in parts.items()):
        return Judgement(CONTRADICTED, counts)
    # Half of the comparisons of a part would have shown this difference.
    sizes = [statistics.median(pair.detectable for pair in part) for part in parts.values()]
    return Judgement(
        INCONCLUSIVE, counts, detectable=max(filter(math.isfinite, sizes), default=None)
    )


def larger_gain(pairs: Sequence[Pair], positive: bool = False) -> Judgement:
    """The mean relative reduction of the error is larger in part "first" than in the others."""
    if any(pair.ours.diverged for pair in pairs):
        return Judgement(INCONCLUSIVE, "a run diverged")
    found = [(pair, gain) for pair in pairs if (gain := reduction(pair.ours, pair.other))]
    first = [gain for pair, gain in found if pair.part == "first"]
    rest = [gain for pair, gain in found if pair.part != "first"]
    if not first or not rest:
        raise Untested("no results for it")
    gain = average(first)
    more = difference(gain, average(rest))
    evidence = ", ".join(f"{pair.name} {gain}" for pair, gain in found)
    deciding = f"mean gain {gain}, less that of the others {more}"
    gaps = [more, gain] if positive else [more]
    return _decide(gaps, f"reduction of the error: {evidence}; {deciding}", deciding)


def largest_gain(pairs: Sequence[Pair]) -> Judgement:
    """The mean reduction in part "first" is positive and larger than in the others."""
    return larger_gain(pairs, positive=True)


def lower_more_often(pairs: Sequence[Pair]) -> Judgement:
    """A larger share of the first numbers is lower in the first part than in the second."""
    steps = {name: [p.gap.above() for p in part] for name, part in _by_part(pairs).items()}
    if len(steps) < 2:
        raise Untested("needs every order and every depth from 1 to 4")
    if any(None in found for found in steps.values()):
        raise Untested(SINGLE)
    counts = {name: sum(map(bool, found)) for name, found in steps.items()}
    more = difference(*(share(counts[name], len(found)) for name, found in steps.items()))
    text = ", ".join(f"{name} {counts[name]} of {len(found)}" for name, found in steps.items())
    return _decide([more], f"steps that lower the error: {text}; shares differ by {more}")


def at_most_moderate(pairs: Sequence[Pair]) -> Judgement:
    """The first number is at most `MODERATE` times the second; both are known exactly."""
    (pair,) = pairs
    ratio = pair.ours.mean / pair.other.mean
    verdict = SUPPORTED if ratio <= MODERATE else CONTRADICTED
    return Judgement(verdict, f"{pair.name} {number(ratio)} times")


RELATIONS: Mapping[str, Callable[[Sequence[Pair]], Judgement]] = {
    relation.__name__: relation
    for relation in (
        *(lower, mostly_lower, larger_gain, largest_gain, lower_more_often, at_most_moderate),
    )
}


def _by_part(pairs: Iterable[Pair]) -> dict[str, list[Pair]]:
    parts: dict[str, list[Pair]] = {}
    for pair in pairs:
        parts.setdefault(pair.part, []).append(pair)
    return parts


def _decide(
    gaps: Sequence[Estimate],
    evidence: str,
    deciding: str = "",
    detectable: Sequence[float] | None = None,
) -> Judgement:
    """Whether all estimates are above zero.

    Supported if each passes its one-sided test, since all of them must; contradicted if any is
    below zero by a one-sided test at the level divided by their number (Bonferroni).
    """
    if any(math.isnan(one.error) for one in gaps):
        return Judgement(NOT_TESTED, f"{SINGLE}: {evidence}", SINGLE)
    if all(one.above() for one in gaps):
        return Judgement(SUPPORTED, evidence, deciding)
    if any(one.below(len(gaps)) for one in gaps):
        return Judgement(CONTRADICTED, evidence, deciding)
    sizes = detectable or [one.detectable for one in gaps]
    still_open = [
        size for one, size in zip(gaps, sizes, strict=True) if not one.above() and size < math.inf
    ]
    return Judgement(INCONCLUSIVE, evidence, deciding, max(still_open, default=None))


# Numbers of a run --------------------------------------------------------------------------------

Record = Mapping[str, Any]


def read(group: Group, what: Record) -> list[Statistic]:
    """One or more numbers of every seed, as a claim's entry ``read`` names them."""
    ((how, name),) = what.items()
    if how == "parameters":
        return [Statistic((group.parameters,))]
    if how == "score":
        return [group.metric(name)]
    if how == "last":
        return [group.final(name)]
    if how == "steps":
        return group.curve(name)
    reduced = {"geometric_mean": _geometric_mean, "growth": _growth}[how]
    curves = (run.curves.get(name) or run.curve.get(name) or [None] for run in group.runs)
    return [Statistic.of(map(reduced, curves))]


def _geometric_mean(curve: Sequence[float | None]) -> float | None:
    """Of the errors over the epochs: lower for faster convergence."""
    errors = [error for error in curve if error is not None and error > 0]
    return statistics.geometric_mean(errors) if len(errors) == len(curve) else None


def _growth(curve: Sequence[float | None]) -> float | None:
    """Mean of the last quarter less that of the first."""
    values = [math.nan if value is None else value for value in curve]
    quarter = max(len(values) // 4, 1)
    found = statistics.fmean(values[-quarter:]) - statistics.fmean(values[:quarter])
    return found if math.isfinite(sum(values)) else None


def _ratio(group: Group, base: Group, name: str) -> Statistic:
    """Of the same score of two models, seed by seed."""
    errors = {run.seed: run.metrics["test"].get(name) for run in base.runs}
    ratios = []
    for run in group.runs:
        error, below = run.metrics["test"].get(name), errors.get(run.seed)
        ratios.append(error / below if error and below else None)
    return Statistic.of(ratios)


# Claims ------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Claim:
    """An entry of ``claims.yaml``."""

    problem: str
    sentence: str
    place: str
    test: str
    pairs: Sequence[Record] = ()
    metrics: Sequence[str] = ()
    first: Sequence[str] = ()
    read: Record = dataclasses.field(default_factory=dict)
    relation: str = "lower"
    partial: bool = False
    # "for" in the file, a keyword here.
    loop: Record = dataclasses.field(default_factory=dict)

    @classmethod
    def parse(cls, entry: Record) -> Claim:
        """From the file; unknown entries are a TypeError, an unknown relation a ValueError."""
        entry = {{"for": "loop"}.get(name, name): value for name, value in entry.items()}
        claim = cls(**entry)
        if claim.relation not in RELATIONS:
            raise ValueError(f"relation: expected one of {[*RELATIONS]}, got {claim.relation!r}")
        return claim

    def judge(self, study: Study) -> Judgement:
        """The verdict on a study; smoke runs only check that everything works."""
        try:
            if study.scale.startswith("smoke"):
                raise Untested("a smoke run only checks that everything works")
            pairs = list(self.compared(study))
            if not pairs:
                raise Untested("no results for it")
            models = {group.variant: group for pair in pairs for group in pair.models}
            judgement = RELATIONS[self.relation](pairs)
            return dataclasses.replace(judgement, models=tuple(models.values()))
        except Untested as reason:
            return Judgement(NOT_TESTED, str(reason))

    def compared(self, study: Study) -> Iterator[Pair]:
        """The pairs of numbers, metric by metric."""
        metrics = [name for name in study.metrics() if not self.metrics or name in self.metrics]
        for metric in [""] if self.read else metrics:
            for values in itertools.product(*self.loop.values()):
                loop = dict(zip(self.loop, values, strict=True))
                for pair in self.pairs:
                    yield from self._pairs(study, metric, pair, loop)

    def _pairs(self, study: Study, metric: str, pair: Record, loop: Record) -> Iterator[Pair]:
        models = [_choose(study, pair[side], metric, loop) for side in ("ours", "other")]
        if "over" in pair:
            sides = ({**pair[side], **pair["over"]} for side in ("ours", "other"))
            models += [_choose(study, side, metric, loop) for side in sides]
        if not all(models):
            if self.partial:
                return
            raise Untested("no results for it")
        ours, other, *below = found = tuple(group for group in models if group)
        label = pair.get("name", "").format(**loop, other=other.label)
        part = pair.get("part", "").format(**loop)
        if not self.read:
            named = "" if len(self.metrics) == 1 else metric_label(metric)
            label = " ".join(filter(None, (label, named)))
            part = "first" if metric in self.first else part
            yield Pair(label, ours.metric(metric), other.metric(metric), part, found)
        elif below:
            name, (under, beneath) = self.read["score"], below
            ratios = _ratio(ours, under, name), _ratio(other, beneath, name)
            yield Pair(label, *ratios, part, found)
        else:
            for first, second in zip(read(ours, self.read), read(other, self.read), strict=False):
                yield Pair(label, first, second, part, found)


def _choose(study: Study, tags: Record, metric: str, loop: Record) -> Group | None:
    """The first model with these tags and those of the loop; of "best" the lowest in the metric."""
    if "best" in tags:
        found = [_choose(study, one, metric, loop) for one in tags["best"]]
        if any(group is None or not group.metric(metric).values for group in found):
            return None
        return min(filter(None, found), key=lambda group: group.metric(metric).mean)
    common = {name: value for name, value in loop.items() if name != "n"}
    wanted = common | {
        name: loop.get(value, value) if isinstance(value, str) else value
        for name, value in tags.items()
    }
    return next(iter(study.find(**wanted)), None)


CLAIMS = tuple(
    map(Claim.parse, yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8")))
)


class Verdict(NamedTuple):
    """A claim judged on a study; no study where the experiment was not run."""

    claim: Claim
    study: Study | None
    judgement: Judgement

    def row(self) -> list[str]:
        """As `HEADER` says."""
        text = f'"{self.claim.sentence}" ({self.claim.place})'
        return [text, str(self.judgement), self.judgement.number]

    @property
    def heading(self) -> str:
        scale = self.study.scale if self.study else "not run"
        return f"{title(self.claim.problem)}, {scale}"

    @property
    def costs(self) -> str:
        """Parameters, multiply-adds and training seconds of the compared models."""
        return "; ".join(
            f"{full_label(g)}: {g.parameters:,} parameters, "
            + (f"{number(g.multiply_adds / 1e6)} M multiply-adds, " if g.multiply_adds else "")
            + f"{number(g.seconds.mean)} s"
            for g in self.judgement.models
        )


def verdicts(studies: Sequence[Study]) -> list[Verdict]:
    """Every claim on every study of its problem, in the paper's order; what was not run last."""
    found = []
    for claim in CLAIMS:
        matching = [study for study in studies if study.experiment == claim.problem]
        found += [Verdict(claim, study, claim.judge(study)) for study in matching]
        if not matching:
            found.append(Verdict(claim, None, Judgement(NOT_TESTED, "not run")))
    return sorted(found, key=lambda verdict: verdict.study is None)


def boards(found: Iterable[Verdict]) -> dict[str, list[list[str]]]:
    """Rows of the verdicts by a heading for each study, or for an experiment that was not run."""
    rows: dict[str, list[list[str]]] = {}
    for verdict in found:
        rows.setdefault(verdict.heading, []).append(verdict.row())
    return rows


def summary(found: Iterable[Verdict]) -> str:
    """How many claims have which verdict."""
    counts = Counter(verdict.judgement.verdict for verdict in found)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)
