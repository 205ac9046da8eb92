"""Running mean and variance of what a run has seen."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RunningMoments(nn.Module):
    """Mean and variance of everything seen so far."""

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, dim: int = 1):
        super().__init__()
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("var", torch.ones(dim))
        self.register_buffer("count", torch.full((1,), 1e-4))  # the start is forgotten at once

    def update(self, x: Tensor) -> None:
        """All entries of x as one sample; its variance is the unbiased one, as in the public code."""
        var, mean = torch.var_mean(x)
        self.merge(mean, var, x.numel())

    def merge(self, mean: Tensor, var: Tensor, count: Tensor | int) -> None:
        """Two samples as one (Chan, Golub and LeVeque 1979), from the moments of the second."""
        total, delta = self.count + count, mean - self.mean
        # Both shares by division: 1 - new would lose the little that the old ones are at first.
        old, new = self.count / total, count / total
        self.var.mul_(old).addcmul_(var, new).addcmul_(delta.square(), old * new)
        self.mean.addcmul_(delta, new)
        self.count.copy_(total)


class FiniteMoments(RunningMoments):
    """Of the finite entries; infinite ones stand for what is not there."""

    def update(self, x: Tensor) -> None:
        there = x.isfinite()
        count = there.sum()
        mean = x.where(there, 0.0).sum() / count.clamp(min=1)
        var = (x - mean).square().where(there, 0.0).sum() / (count - 1).clamp(min=1)
        self.merge(mean, var, count)


class InputNorm(RunningMoments):
    """EDL's: inputs, the skill's too, centred and divided by the deviation of all that was learned
    from; within +-5."""

    def __init__(self, dim: int):
        super().__init__(dim)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return ((x - self.mean) / self.var.clamp(min=0.01).sqrt()).clamp(-5, 5)

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Each column by itself, over the rows of all updates."""
        self.merge(x.mean(0), x.var(0, unbiased=False), len(x))


class WindowedMoments(nn.Module):
    """Means and variances of columns, averaged over about the last `window` updates."""

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, dim: int, window: int):
        super().__init__()
        self.window = window
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("var", torch.zeros(dim))
        self.register_buffer("count", torch.zeros(()))

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        self.count += 1
        share = 1 / self.count.clamp(max=self.window)
        self.mean += share * (x.mean(0) - self.mean)
        self.var += share * (x.var(0) - self.var)

    def standardised(self, x: Tensor) -> Tensor:
        """Columns centred and divided by their deviation."""
        return (x - self.mean) / (self.var.sqrt() + 1e-8)
