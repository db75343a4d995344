"""Claims are judged by what the result files say, and only beyond the spread."""

import functools
import math

import numpy as np
import pytest
import result_files
from result_files import study

from chonn_lab.pages.results import claims_page as page_of
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
from chonn_lab.report.comparison import (
    Estimate,
    Statistic,
    against,
    gap,
    reduction,
    sign,
)
from chonn_lab.report.page import content

LOW, HIGH = Statistic((1.0, 1.1, 0.9)), Statistic((2.0, 2.1, 1.9))


def verdicts(studied):
    """By the beginning of the quote and the place."""
    return {
        (claim.sentence[:24], claim.place): claim.judge(studied).verdict
        for claim in CLAIMS
        if claim.problem == studied.experiment
    }


def shifted(by, *values):
    return Statistic(tuple(value + by for value in values or LOW.values))


def lower(ours, other):
    return gap(ours, other).above()


def test_a_difference_counts_by_a_one_sided_test():
    # Both have s^2 = 0.01 and n = 3: four degrees of freedom, t = 2.132, standard error 0.0816.
    assert lower(LOW, shifted(0.175)) is True
    assert lower(LOW, shifted(0.173)) is False
    assert sign(LOW, shifted(0.173)) == "≈"
    assert (sign(LOW, HIGH), sign(HIGH, LOW)) == ("<", ">")
    # One side without spread leaves two degrees: t = 2.920, standard error 0.0577.
    assert lower(LOW, Statistic((1.17,) * 3)) is True
    assert lower(LOW, Statistic((1.168,) * 3)) is False


def test_it_is_welchs_test():
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(0)
    for _ in range(50):
        ours = rng.normal(0, rng.uniform(0.1, 3), rng.integers(2, 7))
        other = rng.normal(rng.uniform(-1, 3), 1, rng.integers(2, 7))
        expected = stats.ttest_ind(ours, other, equal_var=False, alternative="less")
        found = gap(Statistic(tuple(ours)), Statistic(tuple(other)))
        assert found.freedom == pytest.approx(expected.df)
        for tests in (1, 12):
            assert found.above(tests) == (expected.pvalue < 0.05 / tests)


def test_what_is_detectable_is_found_four_times_in_five():
    seeds, trials = 5, 40_000
    rng = np.random.default_rng(1)
    # Of the true spread: both sides have a deviation of 1.
    size = Estimate(0.0, math.sqrt(2 / seeds), 2 * seeds - 2).detectable
    for shift, low, high in ((size, 0.78, 0.82), (0.0, 0.045, 0.055)):
        ours, other = rng.normal(size=(2, trials, seeds))
        means = (other + shift).mean(1) - ours.mean(1)
        errors = np.sqrt((ours.var(1, ddof=1) + other.var(1, ddof=1)) / seeds)
        found = np.mean(means > 1.8595 * errors)  # Quantile of eight degrees of freedom.
        assert low < found < high
    assert against(LOW, shifted(0.1)).endswith(f"(detectable {0.0816497 * (2.1318 + 0.9410):.3f})")


def pair(difference, spread=0.1):
    """The first number lower by `difference`."""
    other = Statistic((1 - spread, 1.0, 1 + spread))
    return Pair("n", shifted(-difference, *other.values), other)


def test_four_verdicts():
    assert claims.lower([pair(0.5), pair(0.4)]).verdict == SUPPORTED
    assert claims.lower([pair(0.5), pair(-0.5)]).verdict == CONTRADICTED
    found = claims.lower([pair(0.5), pair(0.05), pair(-0.05)])
    assert found.verdict == INCONCLUSIVE
    # Relative to the other number, 1.
    assert found.detectable == pytest.approx(0.0816497 * (2.13185 + 0.94096), rel=1e-4)
    assert str(found) == "inconclusive (25%)"
    # What speaks least for the claim decides.
    assert found.deciding.startswith("1 of 3; n 1.05")
    assert claims.lower([Pair("n", Statistic((0.5,)), LOW)]).verdict == NOT_TESTED
    assert claims.lower([Pair("n", Statistic((), 3), LOW)]).verdict == CONTRADICTED
    assert claims.lower([Pair("n", Statistic((0.1, 0.11), 1), LOW)]).verdict == INCONCLUSIVE


def test_many_comparisons_contradict_at_a_level_of_all_of_them():
    # t = 2.45: beyond the level of one test, not beyond that of twelve.
    reverse = pair(-0.2)
    assert claims.lower([reverse]).verdict == CONTRADICTED
    assert claims.lower([reverse, *[pair(0.5)] * 11]).verdict == INCONCLUSIVE
    rng = np.random.default_rng(2)
    verdicts = [
        claims.lower(
            [Pair("n", *map(Statistic, map(tuple, rng.normal(1, 0.1, (2, 3))))) for _ in range(12)]
        ).verdict
        for _ in range(200)
    ]
    assert verdicts.count(CONTRADICTED) < 0.1 * 200
    assert SUPPORTED not in verdicts


def test_a_diverged_run_is_an_infinite_error():
    assert lower(Statistic((1.0, 1.1), 1), HIGH) is False
    assert lower(LOW, Statistic((), 3)) is True
    assert lower(LOW, Statistic((2.0, 2.1), 1)) is True


def test_reduction_has_the_error_of_the_ratio():
    gain = reduction(LOW, HIGH)
    assert gain is not None
    assert gain.mean == pytest.approx(0.5)
    relative = math.hypot(0.1 / math.sqrt(3) / 1.0, 0.1 / math.sqrt(3) / 2.0)
    assert gain.error == pytest.approx(0.5 * relative)
    assert (Estimate(1.0, 0.60).above(), Estimate(1.0, 0.61).above()) == (True, False)
    assert Estimate(-1.0, 0.60).below()


def test_order1d_claims_follow_the_numbers():
    good = verdicts(study(result_files.order1d()))
    bad = verdicts(study(result_files.order1d(gain=-0.3)))
    section = "Text on Fig. 3a, b"
    for key in (
        ("CHONN shows more consist", "Fig. 3a"),
        ("for higher-order targets", section),
        ("Larger reductions are ob", "Fig. 3b"),
        ("The gains are visible in", section),
    ):
        assert (good[key], bad[key]) == (SUPPORTED, CONTRADICTED), key
    # All metrics gain alike here, and first-order stacks get better with depth.
    assert good["but are most pronounced ", section] == INCONCLUSIVE
    assert good["its derivative error oft", section] == CONTRADICTED


@pytest.mark.parametrize(("ours", "verdict"), [(0.02, SUPPORTED), (0.2, CONTRADICTED)])
def test_darcy_claims_follow_the_numbers(ours, verdict):
    judged = study(result_files.steady("darcy", ours=ours))
    found = verdicts(judged)
    # The gains are the same in all metrics.
    gains = found.pop(("The largest improvements", "Fig. 4d"))
    assert gains == (INCONCLUSIVE if verdict == SUPPORTED else CONTRADICTED)
    assert set(found.values()) == {verdict}


def test_gains_at_the_boundary_and_in_high_frequencies_are_seen():
    runs = list(result_files.steady("darcy"))
    for run in runs:
        if run["tags"]["family"] == "chonn":
            for name in ("boundary_rmse", "fourier_rmse_high"):
                run["metrics"]["test"][name] /= 3
    assert verdicts(study(runs))["The largest improvements", "Fig. 4d"] == SUPPORTED


def test_poisson_claims_follow_the_orders():
    runs = list(result_files.steady("poisson"))
    assert set(verdicts(study(runs)).values()) == {SUPPORTED}
    for run in runs:
        if run["variant"] == "cno4":
            run["metrics"]["test"] = dict.fromkeys(run["metrics"]["test"], 1.0)
            run["parameters"] *= 3
    assert set(verdicts(study(runs)).values()) == {CONTRADICTED}


def test_shallow_water_is_judged_against_the_stronger_baseline():
    runs = list(result_files.shallow_water())
    assert set(verdicts(study(runs)).values()) == {SUPPORTED}
    for run in runs:
        if run["variant"] == "unet":
            run["metrics"]["test"]["csv"] /= 100
    found = verdicts(study(runs))
    assert found["CHONN consistently achie", "Fig. 5b"] == SUPPORTED
    assert found["CHONN improves over the ", "Fig. 5c"] == CONTRADICTED


def test_navier_stokes_claims_follow_the_rollouts():
    runs = list(result_files.navier_stokes())
    found = verdicts(study(runs))
    # Both degrade alike when the history is shortened.
    assert found.pop(("When fewer historical fr", "Text on Fig. 5e, f")) == INCONCLUSIVE
    assert set(found.values()) == {SUPPORTED}
    names = {"fno": "chonn", "chonn": "fno"}
    for run in runs:
        if run["tags"]["recipe"] == "paper":
            family = names[run["tags"]["family"]]
            run["tags"] |= {"family": family, "role": "paper" if family == "chonn" else "baseline"}
    found = verdicts(study(runs))
    assert found.pop(("When fewer historical fr", "Text on Fig. 5e, f")) == INCONCLUSIVE
    assert set(found.values()) == {CONTRADICTED}


SOURCES = {
    "order1d": result_files.order1d,
    "darcy": functools.partial(result_files.steady, "darcy"),
    "poisson": functools.partial(result_files.steady, "poisson"),
    "shallow_water": result_files.shallow_water,
    "navier_stokes": result_files.navier_stokes,
}


@pytest.mark.parametrize("experiment", SOURCES)
def test_one_seed_or_a_smoke_run_supports_nothing(experiment):
    single = verdicts(study(SOURCES[experiment](seeds=1)))
    single.pop(("with only moderate growt", "Fig. 4g"), None)  # Needs no training.
    assert set(single.values()) == {NOT_TESTED}
    smoke = verdicts(study(SOURCES[experiment](), scale="smoke"))
    assert set(smoke.values()) == {NOT_TESTED}


@pytest.mark.parametrize("experiment", SOURCES)
def test_diverged_chonn_supports_nothing(experiment):
    runs = list(SOURCES[experiment]())
    for run in runs:
        if run["tags"]["family"] in ("chonn", "stack") and run["seed"] == 1:
            for scores in (*run["metrics"].values(), run["curve"], run["curves"]):
                for name, value in scores.items():
                    scores[name] = [None] * len(value) if isinstance(value, list) else None
    found = verdicts(study(runs))
    found.pop(("with only moderate growt", "Fig. 4g"), None)
    assert SUPPORTED not in found.values()


@pytest.mark.parametrize("experiment", SOURCES)
def test_missing_models_leave_claims_untested(experiment):
    runs = [run for run in SOURCES[experiment]() if run["tags"]["family"] != "chonn"]
    found = verdicts(study(runs))
    alone = ("its derivative error oft", "2x2 improves", "2x3 improves", "with the largest")
    assert {found[key] for key in found if not key[0].startswith(alone)} == {NOT_TESTED}


def test_a_claim_about_all_orders_needs_all_orders():
    runs = [run for run in result_files.steady("poisson") if run["variant"] != "cno3"]
    found = verdicts(study(runs))
    section = "Text on Fig. 4g"
    assert found["with the 4-order model a", section] == NOT_TESTED
    assert found["higher orders further st", section] == SUPPORTED


def test_every_claim_is_on_the_page_with_its_verdict_and_evidence():
    studies = [study(source()) for source in SOURCES.values()]
    found = claims.verdicts(studies)
    page, report = page_of(studies), content(studies)
    for claim, studied, judgement in found:
        assert judgement.verdict in VERDICTS
        assert claim.sentence in page
        assert f"| {judgement} | {judgement.number} |" in page
        if studied is not None:
            assert judgement.evidence in report
    counts = claims.summary(found)
    assert counts in page
    assert sum(int(part.split()[0]) for part in counts.split(", ")) == len(CLAIMS)
