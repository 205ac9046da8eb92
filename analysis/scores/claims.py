"""Claims of the kind "A beats B": what the runs at hand establish, and how many would be needed.

A claim is established where the 95 % intervals of the two means are disjoint and there are at least as
many seeds as a t-test at this spread would need to see the difference (error of the first kind 5 %,
power 80 %). Intervals of three seeds alone are too hopeful; the second condition is there for that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from analysis.scores.aggregate import CONFIDENCE, REPS, canonical, drawing, estimate

LEVEL, POWER, MOST = 0.05, 0.8, 1000
WRONG_SIGN = 5  # a difference of so many of its own errors is seen with the wrong sign less than once in a million
SURE = 10  # a difference of so many of its own errors; beyond it scipy's noncentral t is not exact
FEWEST = 3  # seeds: the bootstrap of two has hardly any values to draw from


class Mean(NamedTuple):
    """Of a method: a number per seed, and the mean with its interval."""

    name: str
    seeds: np.ndarray  # (n,), each a mean over tasks
    value: float
    low: float
    high: float


def mean_of(name: str, scores: np.ndarray, *stream: str) -> Mean:
    """Of scores (seeds, tasks), with rliable's interval. `stream` names the random numbers that it
    is drawn with."""
    with drawing(0, *stream):
        point, low, high = estimate(
            canonical(scores), lambda x: np.array([x.mean()]), REPS, CONFIDENCE
        )
    return Mean(name, scores.mean(1), float(point[0]), float(low[0]), float(high[0]))


def power(difference: float, deviation: float, seeds: int) -> float:
    """Chance that Student's t-test of two groups of so many seeds sees a difference of means, both
    groups having this deviation (two-sided; noncentral t)."""
    if seeds < 2:
        return 0.0
    if deviation == 0:
        return 1.0 if difference else LEVEL
    freedom = 2 * seeds - 2
    critical = stats.t.ppf(1 - LEVEL / 2, freedom)
    shift = abs(difference) / (deviation * math.sqrt(2 / seeds))
    if shift > SURE:
        return 1.0
    # Of the wrong sign: next to nothing at a large shift, where scipy gives NaN for some of them.
    wrong = stats.nct.cdf(-critical, freedom, shift) if shift < WRONG_SIGN else 0.0
    return float(stats.nct.sf(critical, freedom, shift) + wrong)


def seeds_needed(a: np.ndarray, b: np.ndarray) -> int | None:
    """The smallest number of seeds per group, three or more, whose power is 80 % at the difference
    and the pooled deviation seen; None where a thousand would not do, or one of the groups has a single seed."""
    if min(len(a), len(b)) < 2:
        return None
    difference = float(np.mean(a) - np.mean(b))
    squares = float(((a - a.mean()) ** 2).sum() + ((b - b.mean()) ** 2).sum())
    deviation = math.sqrt(squares / (len(a) + len(b) - 2))
    enough = (n for n in range(FEWEST, MOST + 1) if power(difference, deviation, n) >= POWER)
    return next(enough, None)


def established(a: Mean, b: Mean) -> bool:
    """A is above B, by both conditions."""
    needed = seeds_needed(a.seeds, b.seeds)
    enough = needed is not None and min(len(a.seeds), len(b.seeds)) >= needed
    return bool(enough and a.low > b.high)


def sentence(a: Mean, b: Mean, where: str) -> str:
    """One claim in words, with its numbers."""
    return sentence_of_all(a, [b], where)


def sentence_of_all(a: Mean, others: Sequence[Mean], where: str) -> str:
    """The claim that A beats each of the others: established where it is against every one."""
    verdict = "established" if all(established(a, b) for b in others) else "not established"
    needs = [seeds_needed(a.seeds, b.seeds) for b in others]
    have = min(len(each.seeds) for each in (a, *others))
    seeds = "seed" if have == 1 else "seeds"
    need = f"over {MOST}" if None in needs else str(max(n for n in needs if n is not None))
    if have < 2:
        need = f"at least {FEWEST}"
    return (
        f"{a.name} beats {' and '.join(b.name for b in others)} {where}: **{verdict}** "
        f"({interval(a)} against {' and '.join(map(interval, others))}; {have} {seeds}, {need} needed)"
    )


def compared(one: Mean, other: Mean, where: str) -> str:
    """The claim that the larger of the two beats the smaller."""
    larger, smaller = sorted((one, other), key=lambda mean: mean.value, reverse=True)
    return sentence(larger, smaller, where)


def compared_to_all(one: Mean, others: Sequence[Mean], where: str) -> list[str]:
    """The claim that one beats all the others, where its mean is the largest; else a claim for each."""
    if all(one.value > other.value for other in others):
        return [sentence_of_all(one, others, where)]
    return [compared(one, other, where) for other in others]


def interval(mean: Mean) -> str:
    """The mean with its interval, which a single seed has not."""
    if math.isnan(mean.low):
        return f"{mean.value:.3f}"
    return f"{mean.value:.3f} [{mean.low:.3f}, {mean.high:.3f}]"


def reaches(a: Mean, best: Mean, share: float, where: str) -> str:
    """The claim that A has at least this share of the best, by the interval of the quotient of the
    two means, both drawn anew; where A is the best itself the quotient is 1."""
    both = [canonical(each.seeds[:, None]) for each in (a, best)]
    with drawing(0, "reaches", a.name, best.name, where):
        found = estimate(both, lambda x, y: np.array([x.mean() / y.mean()]), REPS, CONFIDENCE)
    value, low, high = (1.0, 1.0, 1.0) if a.name == best.name else (float(x[0]) for x in found)
    have = min(len(a.seeds), len(best.seeds))
    verdict = "established" if have >= FEWEST and low >= share else "not established"
    shown = interval(Mean(a.name, a.seeds, value, low, high))
    seeds = "seed" if have == 1 else "seeds"
    return (
        f"{a.name} reaches {share:g} of the best {where}: **{verdict}** ({shown} of {best.name}'s "
        f"{best.value:.3f}; {have} {seeds})"
    )
