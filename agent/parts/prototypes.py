"""Prototypes on the unit sphere, and balanced assignments to them."""

from __future__ import annotations

from typing import Literal

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


PrototypeNorm = Literal["gradient", "in_place"]


class Prototypes(nn.Module):
    """K directions on the unit sphere; scores are cosines.

    norm=gradient: the gradient passes through the normalisation, so that a step turns a prototype
    and does not stretch it. in_place: the public codes of ProtoRL and CeSD, which normalise the
    weights before every use and take them as they then are.
    """

    def __init__(self, dim: int, count: int, norm: PrototypeNorm = "gradient"):
        super().__init__()
        self.weight, self.norm = nn.Parameter(nn.init.orthogonal_(torch.empty(count, dim))), norm

    def forward(self, x: Tensor) -> Tensor:
        if self.norm == "gradient":
            x = F.normalize(x, dim=1)
            if torch.compiler.is_compiling():
                # The same with the products divided instead of the weights: torch's compiler for
                # CPUs (2.13) fails on a normalisation whose gradient goes right into Adam's step.
                return x @ self.weight.T / self.weight.norm(dim=1).clamp_min(1e-12)
            return x @ F.normalize(self.weight, dim=1).T  # (B, K)
        self.renormalize()
        return F.normalize(x, dim=1) @ self.weight.T

    @torch.no_grad()
    def renormalize(self) -> None:
        self.weight.copy_(F.normalize(self.weight, dim=1))
