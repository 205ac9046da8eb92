"""Particle entropy: how far the nearest neighbours of a state are, in a batch or among recent
states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from agent.parts.moments import RunningMoments
from utils import NonNegative, Size

STRIP = 128  # rows at a time: a strip of distances stays in the cache


def nearest_distances(x: Tensor, pool: Tensor, k: int, used: Tensor | None = None) -> Tensor:
    """Euclidean distances to the k nearest rows of the pool, ascending: (B, k). A row finds itself
    at 0.

    Chosen by a product in double precision: in single it loses the neighbours inside tight
    clusters, which is what a good encoder makes. The k distances themselves are differences. Of a
    pool only the first `used` rows count.
    """
    a = x.double()
    b = a if pool is x else pool.double()
    # Of the pool alone: what a row adds to all its distances moves no neighbour.
    square = b.square().sum(1)
    if used is not None:
        square = square.masked_fill(torch.arange(len(pool), device=pool.device) >= used, torch.inf)
    # (B, k), never a (B, N, c)
    index = torch.cat(
        [
            torch.addmm(square, strip, b.T, alpha=-2).topk(k, largest=False, sorted=False).indices
            for strip in a.split(STRIP)
        ]
    )
    d = (x.unsqueeze(1) - pool[index]).square().sum(2).sqrt()
    if used is not None:  # rows not filled yet count as distance 0
        d = d.where(index < used, torch.zeros_like(d))
    return d.sort(1).values


@dataclass(frozen=True, kw_only=True)
class NeighbourSettings:
    """How far neighbours are: their number, itself among them, and what their distances are divided
    by and cut off below."""

    k: Size
    knn_clip: NonNegative
    knn_scale: Literal["var", "std", "mean", "none"]


@dataclass(frozen=True, kw_only=True)
class EntropySettings(NeighbourSettings):
    """With the form of the entropy: release is log(1 + mean), paper is log sum."""

    entropy_form: Literal["release", "paper"]


class ParticleEntropy(nn.Module):
    """Reward of a particle: how far its k nearest neighbours are. Larger = rarer.

    form=release: log(1 + mean_j max(d_j / scale - clip, 0)) over the k smallest distances, the zero
    to itself among them; form=paper: log sum_{l<=k} d_l over k true neighbours (section 3.2). In a
    pool of recent states one that is still there meets itself.
    """

    def __init__(self, neighbours: NeighbourSettings, *, form: Literal["release", "paper"]):
        super().__init__()
        self.k, self.clip, self.scale = neighbours.k, neighbours.knn_clip, neighbours.knn_scale
        self.form = form
        self.moments = RunningMoments()

    def forward(self, x: Tensor, pool: Tensor | None = None, used: Tensor | None = None) -> Tensor:
        own = pool is None  # the batch is its own pool: each row meets itself
        pool = x if pool is None else pool
        if self.form == "paper":
            k = min(self.k, len(pool) - own)
            d = nearest_distances(x, pool, k + own, used)[:, int(own) :]
            # Coinciding particles: not -inf.
            return torch.log((d / self._scale(d)).sum(1, keepdim=True) + 1e-8)
        d = nearest_distances(x, pool, min(self.k, len(pool)), used)
        d = (d / self._scale(d) - self.clip).clamp(min=0)
        return torch.log1p(d.mean(1, keepdim=True))  # (B, 1)

    def _scale(self, d: Tensor) -> Tensor | float:
        if self.scale == "none":
            return 1.0
        self.moments.update(d)
        m = self.moments
        return {"var": m.var, "std": m.var.sqrt(), "mean": m.mean}[self.scale].clamp(min=1e-12)


class RecentStates(nn.Module):
    """The most recent transitions as they came, for entropy over them instead of over the batch."""

    pairs: Tensor
    seen: Tensor

    def __init__(self, size: int, obs_dim: int):
        super().__init__()
        self.register_buffer("pairs", torch.zeros(size, 2, obs_dim))
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def add(self, obs: Tensor, next_obs: Tensor) -> None:
        """One transition (obs_dim,), or several (N, obs_dim), of which the last come to stay."""
        pairs = torch.stack([obs, next_obs], -2).view(-1, *self.pairs.shape[1:])[-len(self.pairs) :]
        rows = (self.seen + torch.arange(len(pairs), device=pairs.device)) % len(self.pairs)
        self.pairs.index_copy_(0, rows, pairs)
        self.seen += len(pairs)
