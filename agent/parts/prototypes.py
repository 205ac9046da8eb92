"""Prototypes on the unit sphere, and balanced assignments to them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@torch.no_grad()
def sinkhorn(scores: Tensor, iterations: int) -> Tensor:
    """Soft assignments (B, K) with rows of sum 1 and, in the limit, columns of sum B / K: no
    prototype starves."""
    log_q = scores
    for _ in range(iterations):
        # Columns: every prototype gets the same share.
        log_q = log_q - log_q.logsumexp(0, keepdim=True)
        log_q = log_q - log_q.logsumexp(1, keepdim=True)  # rows: every sample is assigned once
    return log_q.exp()


class Prototypes(nn.Module):
    """K directions on the unit sphere; scores are cosines."""

    def __init__(self, dim: int, count: int):
        super().__init__()
        self.weight = nn.Parameter(nn.init.orthogonal_(torch.empty(count, dim)))

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=1) @ F.normalize(self.weight, dim=1).T  # (B, K)
