"""Means over seeds with their intervals, for curves of single settings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

CONFIDENCE, DRAWS = 0.95, 1000


def interval(values: np.ndarray) -> tuple[float, float]:
    """Of the mean, by the percentiles of a bootstrap over seeds; one run has none."""
    rng = np.random.default_rng(0)  # the same runs give the same picture
    means = np.sort(values)[rng.integers(len(values), size=(DRAWS, len(values)))].mean(1)
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def over_seeds(
    frames: Sequence[np.ndarray], values: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Frames, mean, low and high of several runs, at every frame that one of them has."""
    rows: dict[float, list[float]] = {}
    for frame, value in zip(frames, values, strict=True):
        for x, y in zip(frame, value, strict=True):
            if np.isfinite(y):
                rows.setdefault(float(x), []).append(float(y))
    at = sorted(rows)
    bounds = np.array([interval(np.array(rows[x])) for x in at]).reshape(-1, 2)
    means = np.array([np.mean(rows[x]) for x in at])
    return np.array(at), means, bounds[:, 0], bounds[:, 1]
