"""The paper's claims, which are in ``claims.yaml``, and the function that judges one on a study.

A claim names pairs of models, the numbers of them to compare and the relation that must hold. Each
comparison is Welch's one-sided t-test over the seeds (`chonn_lab.report.comparison`).
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from scipy.special import stdtr
from scipy.stats import fisher_exact, gmean

from chonn_lab.report.comparison import LEVEL, Statistic, p_lower, sign
from chonn_lab.report.runs import Model, Study, metric_label, title

CLAIMS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
VERDICTS = ("supported", "contradicted", "inconclusive", "not tested")
SUPPORTED, CONTRADICTED, INCONCLUSIVE, NOT_TESTED = VERDICTS
Record = Mapping[str, Any]
# p-values of what a claim says and of the opposite; a rule without a test has 0 or 1.
Test = tuple[float, float]


# Relations: the tests that must pass, and the numbers that decide, in words ----------------------
# `pairs` has a row a comparison: `ours` should be lower than `other`, whose p-values are `below`
# and `above`; `part` is the group that it belongs to, for relations that need groups.


def lower(pairs: pd.DataFrame) -> tuple[list[Test], str]:
    """Every first number is lower."""
    weakest: Any = pairs.loc[pairs.below.idxmax()]
    words = f"{weakest.ours} {sign(weakest.ours, weakest.other)} {weakest.other}"
    if len(pairs) > 1:
        passed = (pairs.below < LEVEL).sum()
        words = f"{passed} of {len(pairs)}; " + f"{weakest.what} {words}".strip()
    return [*zip(pairs.below, pairs.above, strict=True)], words


def mostly_lower(pairs: pd.DataFrame) -> tuple[list[Test], str]:
    """In every part, more than half of the first numbers are lower, and not higher."""
    tests, words = [], []
    for name, part in pairs.groupby("part", sort=False):
        below, above = (part[["below", "above"]] < LEVEL).sum()
        tests.append((float(below <= len(part) / 2), float(above <= len(part) / 2)))
        words.append(f"{name}: lower in {below}, higher in {above} of {len(part)}")
    return tests, "; ".join(words).removeprefix(": ")


def largest_gain(pairs: pd.DataFrame) -> tuple[list[Test], str]:
    """The mean reduction ``1 - ours / other`` in part "first" is positive, and larger than in the
    others."""
    both = pairs[["ours", "other"]].map
    means, deviations = (np.array(both(f)) for f in (lambda x: x.mean, lambda x: x.deviation))
    counts, first = np.array(both(lambda x: len(x.values))), np.array(pairs.part == "first")
    if both(lambda x: x.diverged).ours.any() or not counts.all():
        return [(1.0, 1.0)], "a run diverged"
    ratios = means[:, 0] / means[:, 1]
    tests, words = [], []
    for weights in (first / first.sum(), first / first.sum() - ~first / (~first).sum()):
        gain = weights @ (1 - ratios)
        # Errors of ratios to first order, with Satterthwaite's degrees of freedom of their sum.
        parts = ((weights * ratios)[:, None] * deviations / means) ** 2 / counts
        freedom = parts.sum() ** 2 / (parts**2 / (counts - 1)).sum()
        error = math.sqrt(parts.sum())
        tests.append((stdtr(freedom, -gain / error), stdtr(freedom, gain / error)))
        words.append(f"{gain:+.1%} ± {error:.1%}")
    return tests, "mean gain {}, less that of the others {}".format(*words)


def larger_gain(pairs: pd.DataFrame) -> tuple[list[Test], str]:
    """The mean reduction in part "first" is larger than in the others, positive or not."""
    tests, words = largest_gain(pairs)
    return tests[-1:], words


def lower_more_often(pairs: pd.DataFrame) -> tuple[list[Test], str]:
    """A larger share of the first numbers is lower in the first part than in the second, by
    Fisher's exact test."""
    parts = (pairs.below < LEVEL).groupby(pairs.part, sort=False).agg(["sum", "count"])
    table = [(passed, count - passed) for passed, count in parts.to_numpy()]
    tests: list[Any] = [fisher_exact(table, side) for side in ("greater", "less")]
    words = (f"{name} {passed} of {count}" for name, passed, count in parts.itertuples())
    return [(tests[0].pvalue, tests[1].pvalue)], f"steps that lower the error: {', '.join(words)}"


BETWEEN_PARTS = (largest_gain, larger_gain, lower_more_often)
RELATIONS: Mapping[str, Callable[[pd.DataFrame], tuple[list[Test], str]]] = {
    relation.__name__: relation for relation in (lower, mostly_lower, *BETWEEN_PARTS)
}


def decide(tests: Sequence[Test]) -> str:
    """Supported if every test passes, since all must.

    Contradicted if any passes in the opposite direction at the level divided by their number
    (Bonferroni).
    """
    if all(p < LEVEL for p, _ in tests):
        return SUPPORTED
    return CONTRADICTED if any(p < LEVEL / len(tests) for _, p in tests) else INCONCLUSIVE


# Claims ------------------------------------------------------------------------------------------


def judge(claim: Record, study: Study) -> tuple[str, str]:
    """The verdict on a study, and what decides; smoke runs only check that everything works."""
    relation = RELATIONS[claim.get("relation", "lower")]
    pairs = list(compared(claim, study))
    if study.scale.startswith("smoke"):
        return NOT_TESTED, "a smoke run only checks that everything works"
    if None in pairs or len({pair["part"] for pair in pairs}) < 1 + (relation in BETWEEN_PARTS):
        return NOT_TESTED, "no results for it"
    table = pd.DataFrame(pairs)
    if table.below.isna().any():
        return NOT_TESTED, "one seed has no spread"
    tests, decided = relation(table)
    return decide(tests), decided


def compared(claim: Record, study: Study) -> Iterator[Any]:
    """The pairs of numbers, metric by metric; None where a model is missing."""
    each, named = claim.get("each", {}), claim.get("metrics", ())
    metrics = [name for name in study.metrics() if not named or name in named]
    for metric, *values in itertools.product([""] if "read" in claim else metrics, *each.values()):
        tags = dict(zip(each, values, strict=True))
        for pair in claim.get("pairs", ()):
            models: list[Any] = [
                _choose(study, pair[side], metric, tags) for side in ("ours", "other")
            ]
            if any(model is None for model in models):
                yield from [] if claim.get("partial") else [None]
                continue
            name = pair.get("name", "").format(**tags, other=models[1].label)
            name += f" {metric_label(metric)}" if metric and len(named) != 1 else ""
            part = pair.get("part", "").format(**tags)
            part = "first" if metric in claim.get("first", ()) else part
            numbers = (_numbers(model, metric, claim.get("read")) for model in models)
            for ours, other in zip(*numbers, strict=False):
                bound = Statistic(
                    tuple(pair.get("times", 1) * x for x in other.values), other.diverged
                )
                yield row(ours, bound, name.strip(), part)


def row(ours: Statistic, other: Statistic, what: str = "", part: str = "") -> dict[str, Any]:
    """A comparison as relations take it."""
    below, above = p_lower(ours, other), p_lower(other, ours)
    compared = {"what": what, "part": part, "ours": ours, "other": other}
    return {**compared, "below": below, "above": above}


def _choose(study: Study, wanted: Record, metric: str, tags: Record) -> Model | None:
    """The first model with these tags and those of the loop, or with one of a list; of "best" the
    lowest in the metric."""
    if "best" in wanted:
        best = [_choose(study, choice, metric, tags) for choice in wanted["best"]]
        errors = [math.nan if model is None else model[f"test/{metric}"].mean for model in best]
        return None if np.isnan(errors).any() else best[int(np.argmin(errors))]
    models: Any = study.table
    for name, value in {**tags, **wanted}.items():
        value = tags.get(value, value) if isinstance(value, str) else value
        models = models[models[name].isin(value if isinstance(value, list) else [value])]
    return None if models.empty else models.iloc[0]


def _numbers(model: Model, metric: str, read: Record | None) -> list[Statistic]:
    """The metric over the seeds, or what the entry ``read`` names, one or more numbers."""
    if read is None:
        return [model.get(f"test/{metric}", Statistic((), len(model.runs)))]
    ((how, name),) = read.items()
    if how == "field":
        return [Statistic.of(getattr(run, name) for run in model.runs)]
    recorded = (run.curves.get(name) or run.curve.get(name) or [None] for run in model.runs)
    curves = [np.array(curve, dtype=float) for curve in recorded]
    if how == "steps":
        return [Statistic.of(values) for values in zip(*curves, strict=False)]
    return [Statistic.of(map(REDUCED[how], curves))]


def _growth(curve: np.ndarray) -> float:
    """Mean of the last quarter less that of the first."""
    quarter = max(len(curve) // 4, 1)
    return curve[-quarter:].mean() - curve[:quarter].mean()


REDUCED = {"geometric_mean": gmean, "last": lambda curve: curve[-1], "growth": _growth}


def verdicts(studies: Sequence[Study]) -> pd.DataFrame:
    """Every claim on every study of its problem, by study; what was not run last."""
    there = {study.experiment for study in studies}
    rows = [
        (claim, study, *(judge(claim, study) if study else (NOT_TESTED, "not run")))
        for study in (*studies, None)
        for claim in CLAIMS
        if (claim["problem"] == study.experiment if study else claim["problem"] not in there)
    ]
    return pd.DataFrame(
        {
            "heading": f"{title(claim['problem'])}, {study.scale if study else decided}",
            "study": study,
            "claim": f'"{claim["sentence"]}" ({claim["place"]})',
            "test": claim["test"],
            "verdict": verdict,
            "decided by": decided,
        }
        for claim, study, verdict, decided in rows
    )


def counted(verdicts: pd.DataFrame) -> str:
    """How many claims have which verdict."""
    counts = verdicts.verdict.value_counts()
    return ", ".join(f"{counts.get(verdict, 0)} {verdict}" for verdict in VERDICTS)
