"""Running mean and variance of what a run has seen."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RunningMoments(nn.Module):
    """Mean and variance of everything seen so far, by the parallel update of two samples."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(1))
        self.register_buffer("var", torch.ones(1))
        self.register_buffer("count", torch.full((1,), 1e-4))

    def update(self, x: Tensor) -> None:
        var, mean = torch.var_mean(
            x
        )  # the batch variance is the unbiased one, as in the public code
        total, delta = self.count + x.numel(), mean - self.mean
        old, new = (
            self.count / total,
            x.numel() / total,
        )  # shares; 1 - new would lose the little that is old at first
        self.var.mul_(old).addcmul_(var, new).addcmul_(delta.square(), old * new)
        self.mean.addcmul_(delta, new)
        self.count.copy_(total)
