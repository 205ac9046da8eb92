"""How many seeds a claim needs, and what counts as established."""

import math

import numpy as np
import pytest

from analysis.scores import claims
from analysis.scores.claims import Mean


def spread(mean, deviation, count):
    """So many numbers with exactly this mean and sample deviation."""
    x = np.random.default_rng(0).normal(size=count)
    return mean + deviation * (x - x.mean()) / x.std(ddof=1)


@pytest.mark.parametrize(("effect", "seeds"), [(0.5, 64), (0.8, 26), (1.0, 17)])
def test_the_numbers_of_the_textbooks_tables(effect, seeds):
    """Cohen (1988), table 2.4.1: two-sided t-test, 5 %, power 0.80."""
    assert claims.power(effect, 1.0, seeds) >= 0.8 > claims.power(effect, 1.0, seeds - 1)
    assert claims.seeds_needed(spread(effect, 1, 50), spread(0, 1, 50)) == seeds


def test_power_is_how_often_a_simulated_test_sees_the_difference():
    from scipy import stats

    rng = np.random.default_rng(1)
    a, b = rng.normal(1.5, 1, (4000, 6)), rng.normal(0, 1, (4000, 6))
    seen = (stats.ttest_ind(a, b, axis=1).pvalue < 0.05).mean()
    assert claims.power(1.5, 1.0, 6) == pytest.approx(seen, abs=0.03)


def test_a_difference_far_beyond_the_spread_needs_no_more_than_the_fewest():
    a, b = spread(0.72, 0.01, 3), spread(0.18, 0.013, 3)
    assert claims.seeds_needed(a, b) == 3
    assert all(claims.power(d, 1.0, 3) >= 0.99 for d in (10, 16, 20, 100, 1e6))


@pytest.mark.parametrize("seeds", [2, 3, 4, 5, 8, 20])
def test_power_only_grows_with_the_difference(seeds):
    """At every size: scipy's noncentral t has holes (NaN) in the tail of the wrong sign."""
    found = np.array([claims.power(d, 1.0, seeds) for d in np.arange(0, 16, 0.02)])
    assert np.isfinite(found).all() and (np.diff(found) >= -1e-9).all() and found[-1] > 0.99


def test_no_difference_needs_more_seeds_than_anyone_has():
    assert claims.seeds_needed(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0])) is None
    assert claims.seeds_needed(np.array([1.0]), np.array([1.0, 2.0])) is None


def mean(name, seeds, low, high):
    return Mean(name, np.array(seeds), float(np.mean(seeds)), low, high)


def test_a_claim_needs_disjoint_intervals_and_enough_seeds():
    good, bad = mean("A", [0.9, 0.91, 0.92], 0.89, 0.93), mean("B", [0.1, 0.11, 0.12], 0.09, 0.13)
    assert claims.established(good, bad) and not claims.established(bad, good)
    touching = good._replace(low=0.12)
    assert not claims.established(touching, bad)
    few = mean("A", [0.2, 0.5, 0.9], 0.19, 0.91)  # disjoint from B, but its seeds differ by 0.7
    assert few.low > bad.high and claims.seeds_needed(few.seeds, bad.seeds) > 3
    assert not claims.established(few, bad)


def test_two_seeds_establish_nothing():
    good, bad = mean("A", [0.9, 0.91], 0.9, 0.91), mean("B", [0.1, 0.11], 0.1, 0.11)
    assert good.low > bad.high and not claims.established(good, bad)


def test_of_two_the_larger_is_claimed_to_be_ahead_whichever_is_named_first():
    good, bad = mean("A", [0.9, 0.91, 0.92], 0.89, 0.93), mean("B", [0.1, 0.11, 0.12], 0.09, 0.13)
    claim = claims.sentence(good, bad, "here")
    assert claim == claims.compared(good, bad, "here") == claims.compared(bad, good, "here")


def test_a_sentence_says_what_is_known_and_what_is_needed():
    good, bad = mean("A", [0.9, 0.91, 0.92], 0.89, 0.93), mean("B", [0.1, 0.11, 0.12], 0.09, 0.13)
    assert claims.sentence(good, bad, "here") == (
        "A beats B here: **established** (0.910 [0.890, 0.930] against 0.110 [0.090, 0.130]; "
        "3 seeds, 3 needed)"
    )
    single = mean("A", [0.9], math.nan, math.nan)
    assert "not established" in claims.sentence(single, bad, "here")
    assert "1 seed, at least 3 needed" in claims.sentence(single, bad, "here")


def test_a_claim_about_several_is_as_weak_as_the_weakest_of_them():
    best = mean("A", [0.9, 0.91, 0.92], 0.89, 0.93)
    low, near = (mean("B", [0.1, 0.11, 0.12], 0.09, 0.13), mean("C", [0.7, 0.9, 1.0], 0.7, 1.0))
    assert claims.compared_to_all(best, [low], "here") == [claims.sentence(best, low, "here")]
    (both,) = claims.compared_to_all(best, [low, near], "here")
    assert both.startswith(
        "A beats B and C here: **not established** (0.910 [0.890, 0.930] against "
    )
    needed = claims.seeds_needed(best.seeds, near.seeds)
    assert both.endswith(f"; 3 seeds, {needed} needed)") and needed > 3
    (both,) = claims.compared_to_all(best, [low, low._replace(name="D")], "here")
    assert both.startswith("A beats B and D here: **established**")


def test_between_two_there_is_a_claim_against_each():
    a, low, high = (
        mean(n, [x, x + 0.01, x + 0.02], x, x + 0.02) for n, x in zip("ABC", (0.5, 0.1, 0.9))
    )
    assert claims.compared_to_all(a, [low, high], "here") == [
        claims.sentence(a, low, "here"),
        claims.sentence(high, a, "here"),
    ]
