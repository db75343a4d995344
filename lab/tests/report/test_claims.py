"""Claims are judged by what the result files say, and only beyond the spread."""

import functools
import math

import numpy as np
import pytest
import result_files
from result_files import study

from chonn_lab.pages import results
from chonn_lab.report import claims
from chonn_lab.report.claims import (
    CLAIMS,
    CONTRADICTED,
    INCONCLUSIVE,
    NOT_TESTED,
    SUPPORTED,
    VERDICTS,
    Pair,
)
from chonn_lab.report.comparison import Statistic

SOURCES = {
    "order1d": result_files.order1d,
    "darcy": functools.partial(result_files.steady, "darcy"),
    "poisson": functools.partial(result_files.steady, "poisson"),
    "shallow_water": result_files.shallow_water,
    "navier_stokes": result_files.navier_stokes,
}
SIZE = "with only moderate growt"  # needs no training


def verdicts(runs, scale="small"):
    """By the beginning of the quote and the place."""
    judged = study(runs, scale)
    return {
        f"{claim.sentence[:24]}, {claim.place}": claim.judge(judged).verdict
        for claim in CLAIMS
        if claim.problem == judged.experiment
    }


def pair(difference):
    """The first number lower by `difference`; both have a deviation of 0.1 over three seeds."""
    return Pair("n", *(Statistic((x - 0.1, x, x + 0.1)) for x in (1 - difference, 1.0)))


def test_four_verdicts():
    def verdict(*pairs):
        return claims.decide(claims.lower(pairs)[0])

    assert verdict(pair(0.5), pair(0.4)) == SUPPORTED
    assert verdict(pair(0.5), pair(-0.5)) == CONTRADICTED
    assert verdict(pair(0.5), pair(0.05), pair(-0.05)) == INCONCLUSIVE
    # What speaks least for the claim is shown.
    decided = claims.lower([pair(0.5), pair(0.05), pair(-0.05)])[1]
    assert decided == "1 of 3; n 1.05 ± 0.10 ≈ 1.00 ± 0.10"
    high = Statistic((1.0, 1.1, 0.9))
    assert verdict(Pair("n", Statistic((), 3), high)) == CONTRADICTED
    assert verdict(Pair("n", Statistic((0.1, 0.11), 1), high)) == INCONCLUSIVE


def test_many_comparisons_contradict_at_a_level_of_all_of_them():
    def verdict(pairs):
        return claims.decide(claims.lower(pairs)[0])

    # t = 2.45: beyond the level of one test, not beyond that of twelve.
    assert verdict([pair(-0.2)]) == CONTRADICTED
    assert verdict([pair(-0.2), *[pair(0.5)] * 11]) == INCONCLUSIVE
    rng = np.random.default_rng(2)
    found = [
        verdict([Pair("n", *(Statistic(tuple(x)) for x in y)) for y in rng.normal(size=(12, 2, 3))])
        for _ in range(200)
    ]
    assert found.count(CONTRADICTED) < 0.1 * 200
    assert SUPPORTED not in found


def test_a_gain_has_the_error_of_the_ratio():
    low, high = Statistic((1.0, 1.1, 0.9)), Statistic((2.0, 2.1, 1.9))
    relative = math.hypot(0.1 / math.sqrt(3) / 1.0, 0.1 / math.sqrt(3) / 2.0)
    found = claims.largest_gain([Pair("a", low, high, "first"), Pair("b", high, high)])
    more = math.hypot(0.5 * relative, 0.1 / math.sqrt(3) / 2.0 * math.sqrt(2))
    assert found[1] == (
        f"mean gain +50.0% ± {0.5 * relative:.1%}, less that of the others +50.0% ± {more:.1%}"
    )
    assert claims.decide(found[0]) == SUPPORTED


def test_order1d_claims_follow_the_numbers():
    good, bad = (verdicts(result_files.order1d(gain=gain)) for gain in (0.15, -0.3))
    section = "Text on Fig. 3a, b"
    for key in (
        "CHONN shows more consist, Fig. 3a",
        f"for higher-order targets, {section}",
        "Larger reductions are ob, Fig. 3b",
        f"The gains are visible in, {section}",
    ):
        assert (good[key], bad[key]) == (SUPPORTED, CONTRADICTED), key
    # All metrics gain alike here, and first-order stacks get better with depth.
    assert good[f"but are most pronounced , {section}"] == INCONCLUSIVE
    assert good[f"its derivative error oft, {section}"] == CONTRADICTED


@pytest.mark.parametrize(("ours", "verdict"), [(0.02, SUPPORTED), (0.2, CONTRADICTED)])
def test_darcy_claims_follow_the_numbers(ours, verdict):
    runs = list(result_files.steady("darcy", ours=ours))
    found = verdicts(runs)
    # The gains are the same in all metrics.
    gains = "The largest improvements, Fig. 4d"
    assert found.pop(gains) == (INCONCLUSIVE if verdict == SUPPORTED else CONTRADICTED)
    assert set(found.values()) == {verdict}
    for run in runs:
        if run["tags"]["family"] == "chonn":
            for name in ("boundary_rmse", "fourier_rmse_high"):
                run["metrics"]["test"][name] /= 3
    assert (verdicts(runs)[gains] == SUPPORTED) == (verdict == SUPPORTED)


def test_poisson_claims_follow_the_orders():
    runs = list(result_files.steady("poisson"))
    assert set(verdicts(runs).values()) == {SUPPORTED}
    # A claim about all orders needs all orders.
    found = verdicts([run for run in runs if run["variant"] != "cno3"])
    assert found["with the 4-order model a, Text on Fig. 4g"] == NOT_TESTED
    assert found["higher orders further st, Text on Fig. 4g"] == SUPPORTED
    for run in runs:
        if run["variant"] == "cno4":
            run["metrics"]["test"] = dict.fromkeys(run["metrics"]["test"], 1.0)
            run["parameters"] *= 3
    assert set(verdicts(runs).values()) == {CONTRADICTED}


def test_shallow_water_is_judged_against_the_stronger_baseline():
    runs = list(result_files.shallow_water())
    assert set(verdicts(runs).values()) == {SUPPORTED}
    for run in runs:
        if run["variant"] == "unet":
            run["metrics"]["test"]["csv"] /= 100
    assert [*verdicts(runs).values()] == [SUPPORTED, CONTRADICTED]


def test_navier_stokes_claims_follow_the_rollouts():
    runs = list(result_files.navier_stokes())
    # Both degrade alike when the history is shortened.
    alike = "When fewer historical fr, Text on Fig. 5e, f"
    found = verdicts(runs)
    assert found.pop(alike) == INCONCLUSIVE
    assert set(found.values()) == {SUPPORTED}
    for run in runs:
        family, role = {"fno": ("chonn", "paper"), "chonn": ("fno", "baseline")}[
            run["tags"]["family"]
        ]
        run["tags"] |= {"family": family, "role": role}
    found = verdicts(runs)
    assert found.pop(alike) == INCONCLUSIVE
    assert set(found.values()) == {CONTRADICTED}


@pytest.mark.parametrize("experiment", SOURCES)
def test_what_supports_nothing(experiment):
    """One seed, a smoke run, runs of ours that diverged, and models that are not there."""
    single = verdicts(SOURCES[experiment](seeds=1))
    single.pop(f"{SIZE}, Fig. 4g", None)
    assert set(single.values()) == {NOT_TESTED}
    assert set(verdicts(SOURCES[experiment](), "smoke").values()) == {NOT_TESTED}
    runs = list(SOURCES[experiment]())
    alone = ("its derivative error oft", "2x2 improves", "2x3 improves", "with the largest")
    found = verdicts([run for run in runs if run["tags"]["family"] != "chonn"])
    assert {found[key] for key in found if not key.startswith(alone)} == {NOT_TESTED}
    for run in runs:
        if run["tags"]["family"] in ("chonn", "stack") and run["seed"] == 1:
            for scores in (*run["metrics"].values(), run["curve"], run["curves"]):
                for name, value in scores.items():
                    scores[name] = [None] * len(value) if isinstance(value, list) else None
    found = verdicts(runs)
    found.pop(f"{SIZE}, Fig. 4g", None)
    assert SUPPORTED not in found.values()


def test_every_claim_is_on_the_page_with_its_verdict_and_what_decided():
    studies = [study(source()) for source in SOURCES.values()]
    found = claims.verdicts(studies)
    page = results.verdicts(studies)
    for claim, _, judgement in found:
        assert judgement.verdict in VERDICTS
        row = f'| "{claim.sentence}" ({claim.place}) | {judgement.verdict} | {judgement.decided} |'
        assert row in page
    counts = claims.counted(found)
    assert counts in page
    assert sum(int(part.split()[0]) for part in counts.split(", ")) == len(CLAIMS)
