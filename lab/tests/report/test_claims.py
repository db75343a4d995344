"""Claims are judged by what the result files say, and only beyond the spread."""

import functools
import math

import numpy as np
import pytest
import result_files
from result_files import study

from chonn_lab.pages import results
from chonn_lab.report import claims
from chonn_lab.report.claims import CLAIMS, CONTRADICTED, INCONCLUSIVE, SUPPORTED, Pair
from chonn_lab.report.comparison import Statistic

darcy, poisson = (functools.partial(result_files.steady, name) for name in ("darcy", "poisson"))
SOURCES = {
    "order1d": result_files.order1d,
    "darcy": darcy,
    "poisson": poisson,
    "shallow_water": result_files.shallow_water,
    "navier_stokes": result_files.navier_stokes,
}


def verdicts(runs, scale="small"):
    """First letters of the verdicts on the problem's claims, in the order of claims.yaml."""
    judged = study(runs, scale)
    found = (claim.judge(judged) for claim in CLAIMS if claim.problem == judged.experiment)
    return "".join(one.verdict[0] for one in found)


def changed(runs, change, **tags):
    """Runs, with a function applied to those that have these tags or fields."""
    for run in runs:
        if all({**run, **run["tags"]}[name] == value for name, value in tags.items()):
            change(run)
        yield run


def decided(*pairs):
    return claims.decide(claims.lower(pairs)[0])


def pair(difference):
    """The first number lower by `difference`; both have a deviation of 0.1 over three seeds."""
    return Pair("n", *(Statistic((x - 0.1, x, x + 0.1)) for x in (1 - difference, 1.0)))


def test_what_all_comparisons_decide():
    assert decided(pair(0.5), pair(0.4)) == SUPPORTED
    assert decided(pair(0.5), pair(-0.5)) == CONTRADICTED
    assert decided(pair(0.5), pair(0.05), pair(-0.05)) == INCONCLUSIVE
    # What speaks least for the claim is shown.
    words = claims.lower([pair(0.5), pair(0.05), pair(-0.05)])[1]
    assert words == "1 of 3; n 1.05 ± 0.10 ≈ 1.00 ± 0.10"
    high = Statistic((1.0, 1.1, 0.9))
    assert decided(Pair("n", Statistic((), 3), high)) == CONTRADICTED
    assert decided(Pair("n", Statistic((0.1, 0.11), 1), high)) == INCONCLUSIVE


def test_many_comparisons_contradict_at_a_level_of_all_of_them():
    # t = 2.45: beyond the level of one test, not beyond that of twelve.
    assert decided(pair(-0.2)) == CONTRADICTED
    assert decided(pair(-0.2), *[pair(0.5)] * 11) == INCONCLUSIVE
    numbers = np.random.default_rng(2).normal(size=(200, 12, 2, 3))
    found = [
        decided(*(Pair("n", *(Statistic(tuple(x)) for x in both)) for both in pairs))
        for pairs in numbers
    ]
    assert found.count(CONTRADICTED) < 0.1 * 200
    assert SUPPORTED not in found


def test_a_gain_has_the_error_of_the_ratio():
    low, high = Statistic((1.0, 1.1, 0.9)), Statistic((2.0, 2.1, 1.9))
    relative = math.hypot(0.1 / math.sqrt(3) / 1.0, 0.1 / math.sqrt(3) / 2.0)
    more = math.hypot(0.5 * relative, 0.1 / math.sqrt(3) / 2.0 * math.sqrt(2))
    conditions, words = claims.largest_gain([Pair("", low, high, "first"), Pair("", high, high)])
    gain = f"+50.0% ± {0.5 * relative:.1%}"
    assert words == f"mean gain {gain}, less that of the others +50.0% ± {more:.1%}"
    assert claims.decide(conditions) == SUPPORTED


def worst(run):
    run["metrics"]["test"] = dict.fromkeys(run["metrics"]["test"], 1.0)
    run["parameters"] *= 3


def sharper(run):
    for name in ("boundary_rmse", "fourier_rmse_high"):
        run["metrics"]["test"][name] /= 3


def conservative(run):
    run["metrics"]["test"]["csv"] /= 100


def swapped(runs):
    names = {"fno": ("chonn", "paper"), "chonn": ("fno", "baseline")}
    for run in runs:
        family, role = names[run["tags"]["family"]]
        yield {**run, "tags": {**run["tags"], "family": family, "role": role}}


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        # All metrics gain alike here, and first-order stacks get better with depth.
        (result_files.order1d(), "sisssicssi"),
        (result_files.order1d(gain=-0.3), "cccccccssi"),
        (darcy(), "ssisss"),
        (darcy(ours=0.2), "cccccc"),
        (changed(darcy(), sharper, family="chonn"), "ssssss"),
        (poisson(), "ssss"),
        (changed(poisson(), worst, variant="cno4"), "cccc"),
        # A claim about all orders needs all orders.
        ([run for run in poisson() if run["variant"] != "cno3"], "nnss"),
        (result_files.shallow_water(), "ss"),
        (changed(result_files.shallow_water(), conservative, variant="unet"), "sc"),
        # Both degrade alike when the history is shortened.
        (result_files.navier_stokes(), "sssiss"),
        (swapped(result_files.navier_stokes()), "cccicc"),
    ],
)
def test_claims_follow_the_numbers(runs, expected):
    assert verdicts(runs) == expected


def diverged(run):
    for scores in (*run["metrics"].values(), run["curve"], run["curves"]):
        for name, value in scores.items():
            scores[name] = [None] * len(value) if isinstance(value, list) else None


@pytest.mark.parametrize("experiment", SOURCES)
def test_what_supports_nothing(experiment):
    """One seed, a smoke run, runs of ours that diverged, and models that are not there."""
    source = SOURCES[experiment]
    untrained = "s" * (experiment == "poisson")  # the last claim is about sizes
    assert set(verdicts(source(seeds=1)).removesuffix(untrained)) == {"n"}
    assert set(verdicts(source(), "smoke")) == {"n"}
    runs = [*source()]
    for family in ("chonn", "stack"):
        runs = [*changed(runs, diverged, family=family, seed=1)]
    assert "s" not in verdicts(runs).removesuffix(untrained)
    # Stacks of first-order blocks, and of blocks, are compared without single blocks.
    expected = {"order1d": "nnnnnnnssi"}.get(experiment, "n" * len(verdicts(source())))
    assert verdicts([r for r in source() if r["tags"]["family"] != "chonn"]) == expected


def test_every_claim_is_on_the_page_with_its_verdict_and_what_decided():
    found = claims.verdicts([study(source()) for source in SOURCES.values()])
    page = results.verdicts([study(source()) for source in SOURCES.values()])
    for claim, _, verdict, decided, _ in found:
        assert f'| "{claim.sentence}" ({claim.place}) | {verdict} | {decided} |' in page
    counts = claims.counted(found)
    assert counts in page
    assert sum(int(part.split()[0]) for part in counts.split(", ")) == len(CLAIMS)
