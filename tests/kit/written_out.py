"""Seeded numbers, and the comparison of a tensor with an equation written out in plain floats."""

import math
import statistics

import numpy as np
import torch


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def uniform(size, seed=0):
    return torch.rand(size, generator=torch.Generator().manual_seed(seed))


def column(values):
    return torch.tensor(values, dtype=torch.float32).unsqueeze(1)


def close(actual, expected, rtol=1e-4, atol=1e-6):
    np.testing.assert_allclose(
        actual.detach().double().numpy(), np.asarray(expected, np.float64), rtol=rtol, atol=atol
    )


def moments_of(batches):
    """Mean and variance of all groups, the prior among them: 1e-4 values of mean 0 and variance 1.
    Not recursive."""
    groups = [(1e-4, 0.0, 1.0)]
    groups += [(len(b), statistics.fmean(b), statistics.variance(b)) for b in batches]
    total = sum(n for n, _, _ in groups)
    mean = sum(n * m for n, m, _ in groups) / total
    return mean, sum(n * v + n * (m - mean) ** 2 for n, m, v in groups) / total


def cosine_loop(a, b):
    return sum(x * y for x, y in zip(a, b)) / (math.hypot(*a) * math.hypot(*b))
