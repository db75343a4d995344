"""Claims are judged by what the result files say, and only beyond the spread."""

import dataclasses
import math

import pandas as pd
import pytest

from chonn_lab.paths import RUNS
from chonn_lab.report import claims
from chonn_lab.report.claims import CLAIMS, CONTRADICTED, INCONCLUSIVE, SUPPORTED
from chonn_lab.report.comparison import Statistic
from chonn_lab.report.runs import read_studies

PROBLEMS = ("order1d", "darcy", "poisson", "shallow_water", "navier_stokes")


def decided(*pairs):
    return claims.decide(claims.lower(pd.DataFrame(pairs))[0])


def pair(difference):
    """The first number lower by `difference`; both have a deviation of 0.1 over three seeds."""
    return claims.row(*(Statistic((x - 0.1, x, x + 0.1)) for x in (1 - difference, 1.0)), "n")


def test_what_all_comparisons_decide():
    assert decided(pair(0.5), pair(0.4)) == SUPPORTED
    assert decided(pair(0.5), pair(-0.5)) == CONTRADICTED
    assert decided(pair(0.5), pair(0.05), pair(-0.05)) == INCONCLUSIVE
    # What speaks least for the claim is shown.
    words = claims.lower(pd.DataFrame([pair(0.5), pair(0.05), pair(-0.05)]))[1]
    assert words == "1 of 3; n 1.05 ± 0.10 ≈ 1.00 ± 0.10"
    high = Statistic((1.0, 1.1, 0.9))
    assert decided(claims.row(Statistic((), 3), high)) == CONTRADICTED
    assert decided(claims.row(Statistic((0.1, 0.11), 1), high)) == INCONCLUSIVE


def test_many_comparisons_contradict_at_a_level_of_all_of_them():
    # t = 2.45: beyond the level of one test, not beyond that of twelve.
    assert decided(pair(-0.2)) == CONTRADICTED
    assert decided(pair(-0.2), *[pair(0.5)] * 11) == INCONCLUSIVE


def test_a_gain_has_the_error_of_the_ratio():
    low, high = Statistic((1.0, 1.1, 0.9)), Statistic((2.0, 2.1, 1.9))
    relative = math.hypot(0.1 / math.sqrt(3) / 1.0, 0.1 / math.sqrt(3) / 2.0)
    more = math.hypot(0.5 * relative, 0.1 / math.sqrt(3) / 2.0 * math.sqrt(2))
    rows = pd.DataFrame([claims.row(low, high, "", "first"), claims.row(high, high)])
    tests, words = claims.largest_gain(rows)
    gain = f"+50.0% ± {0.5 * relative:.1%}"
    assert words == f"mean gain {gain}, less that of the others +50.0% ± {more:.1%}"
    assert claims.decide(tests) == SUPPORTED


def judged(problem, change=None, scale="small", wanted=lambda _: True):
    """First letters of the verdicts on the kept runs, in the order of claims.yaml."""
    (study,) = read_studies(RUNS / f"{problem}-small.json")
    runs = tuple(change(run) if change else run for run in study.runs if wanted(run))
    study = dataclasses.replace(study, runs=runs, scale=scale)
    return "".join(claims.judge(one, study)[0][0] for one in CLAIMS if one["problem"] == problem)


def times(factor, *metrics, **tags):
    """Multiplies these metrics, or all and the curves, of models with these tags."""

    def change(run):
        if any(run.tags.get(name) != value for name, value in tags.items()):
            return run
        test = run.metrics["test"]
        test = {n: x * factor if n in (metrics or test) else x for n, x in test.items()}
        changes = {
            part: {n: [factor * x for x in values] for n, values in getattr(run, part).items()}
            for part in (() if metrics else ("curve", "curves"))
        }
        return dataclasses.replace(run, metrics={"test": test}, **changes)

    return change


SHARP = ("boundary_rmse", "fourier_rmse_high")


@pytest.mark.parametrize(
    ("problem", "change", "expected"),
    [
        # Stacks of first-order blocks are much better than blocks of a higher order, or much worse.
        ("order1d", times(0.01, family="depth"), "iccccciccc"),
        ("order1d", times(100, family="depth"), "iisisisssi"),
        # All metrics gain alike.
        ("darcy", times(0.01, family="chonn"), "ssisss"),
        ("darcy", times(0.01, *SHARP, family="chonn"), "iisici"),
        ("darcy", times(100, family="chonn"), "cccccc"),
        ("poisson", times(0.01, order=4), "isss"),
        ("poisson", times(100, order=4), "cccs"),
        ("shallow_water", times(100, family="chonn"), "cc"),
        ("navier_stokes", times(0.01, family="chonn"), "sssiss"),
        ("navier_stokes", times(100, family="chonn"), "cccicc"),
        ("navier_stokes", times(0.01, family="chonn", history=3), "iissii"),
    ],
)
def test_claims_follow_the_numbers(problem, change, expected):
    assert judged(problem, change) == expected


@pytest.mark.parametrize("problem", PROBLEMS)
def test_what_supports_nothing(problem):
    """One seed, a smoke run, runs of ours that diverged, and models that are not there."""
    (first, *_) = read_studies(RUNS / f"{problem}-small.json")[0].runs
    untested = "n" * len(judged(problem))
    assert judged(problem, wanted=lambda run: run.seed == first.seed) == untested
    assert judged(problem, scale="smoke") == untested
    lost = dict.fromkeys(first.metrics["test"])

    def diverged(run):
        if run.tags["family"] not in ("chonn", "stack") or run.seed != first.seed:
            return run
        return dataclasses.replace(run, metrics={"test": lost}, curve={}, curves={})

    sizes = "s" * (problem == "poisson")  # its last claim is about sizes
    assert "s" not in judged(problem, diverged).removesuffix(sizes)
    # Stacks are compared without single blocks; a claim about all orders needs all.
    assert set(judged(problem, wanted=lambda run: run.tags["family"] != "chonn")[:7]) == {"n"}
    orders = {"poisson": "nnis"}.get(problem, "")
    assert judged(problem, wanted=lambda run: run.tags.get("order") != 3).startswith(orders)
