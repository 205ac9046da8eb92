"""Two measures at once: the area that points dominate, and how sure one can be of it.

A point is a pair of shares, each from 0 to 1 (coverage, and information in shares of log n). It
dominates the rectangle between it and the origin; the hypervolume of several points is the area of
the union of their rectangles, 1 at most.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from analysis.scores.aggregate import CONFIDENCE, REPS, canonical
from utils import stream_seed

Runs = Mapping[str, np.ndarray]  # setting -> (seeds, 2)


def hypervolume(points: np.ndarray) -> float:
    """Area of the union of the rectangles from the origin to points (n, 2). From the right to the
    left, each point adds a strip as wide as it is far from the origin and as high as it exceeds
    what was there."""
    area, height = 0.0, 0.0
    for x, y in sorted(np.clip(points, 0, None).tolist(), reverse=True):
        if y > height:
            area += x * (y - height)
            height = y
    return area


def of_means(runs: Runs) -> float:
    """The hypervolume of the settings' mean points."""
    return hypervolume(np.stack([seeds.mean(0) for seeds in runs.values()]))


def with_interval(runs: Runs, *, reps: int = REPS) -> tuple[float, float, float]:
    """Hypervolume of the mean points with its interval: percentiles of a bootstrap that draws the
    seeds of each setting anew. A setting of a single seed has no spread to draw from: NaN."""
    value = of_means(runs)
    if min(len(seeds) for seeds in runs.values()) < 2:
        return value, np.nan, np.nan
    rng = np.random.default_rng(stream_seed(0, "hypervolume", *runs))
    means = [
        canonical(seeds)[rng.integers(len(seeds), size=(reps, len(seeds)))].mean(1)
        for seeds in runs.values()
    ]  # each (reps, 2)
    drawn = [hypervolume(points) for points in np.stack(means, 1)]
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return value, float(low), float(high)
