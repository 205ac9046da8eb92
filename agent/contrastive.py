"""States of one skill attract, states of other skills repel: AnInfoNCE and InfoNCE over a batch."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agent.networks import mlp
from utils import choose


def pairwise(features: Tensor, metric: Tensor) -> Tensor:
    """||f_i - f_j||^2_L for all pairs by matrix products: (B, B). `metric` is a diagonal (c,) or a matrix (c, c)."""
    if metric.ndim == 1:
        weighted = features * metric
        square = (weighted * features).sum(1)
        return (square.unsqueeze(1) + square - 2 * weighted @ features.T).clamp(min=0)
    inner = features @ metric @ features.T  # f_i^T L f_j; L need not be symmetric, nor positive
    square = inner.diagonal()
    return square.unsqueeze(1) + square - inner - inner.T


def random_partner(skill_index: Tensor, num_skills: int, u: Tensor) -> Tensor:
    """For each row another row of the same skill, uniformly (itself where there is none). u ~ U[0, 1), (B,)."""
    order = skill_index.argsort(stable=True)  # rows grouped by skill
    count = F.one_hot(skill_index, num_skills).sum(0)  # (n,)
    start, count = (count.cumsum(0) - count)[skill_index], count[skill_index]
    position = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
    step = 1 + (u * (count - 1)).long().minimum((count - 2).clamp(min=0))  # 1 .. count - 1
    return order[start + (position - start + step) % count]


class Contrast(NamedTuple):
    """What the contrastive module says of a batch; every field (B,)."""

    log_ratio: Tensor  # the term inside the bracket of Eq. 4: minus the loss of an anchor
    ratio: Tensor  # its exponential
    valid: Tensor  # anchors that have a positive at all
    correct: Tensor  # the nearest other row has the anchor's skill (chance: 1 / n)


class AnInfoNCE(nn.Module):
    """Eq. 4: states of one skill attract, states of other skills repel, under a learned metric.

    metric: diag (positive, learned), full (the public code's unconstrained matrix), none (isotropic: InfoNCE),
    cosine (BeCL's InfoNCE on normalised features). Positive and denominator: see the fidelity register.
    """

    def __init__(self, obs_dim: int, skill_dim: int, *, hidden_dim: int, temperature: float, metric: str,
                 denominator: str, positive: str, numerics: str):
        super().__init__()
        self.embed = mlp(obs_dim, hidden_dim, hidden_dim, skill_dim)
        self.head = mlp(skill_dim, hidden_dim, skill_dim)
        self.metric_kind = choose("agent.objective.metric", metric, ("diag", "full", "none", "cosine"))
        self.denominator = choose("agent.objective.denominator", denominator, ("negatives_only", "all"))
        self.positive = choose("agent.objective.positive", positive, ("random", "first"))
        self.numerics = choose("agent.objective.numerics", numerics, ("logsumexp", "naive"))
        self.temperature, self.num_skills = temperature, skill_dim
        if metric == "diag":
            self.log_metric = nn.Parameter(torch.zeros(skill_dim))  # exp keeps it positive; starts at 1
        elif metric == "full":
            self.matrix = nn.Parameter(torch.eye(skill_dim))
        else:
            self.register_buffer("identity", torch.ones(skill_dim), persistent=False)

    @property
    def metric(self) -> Tensor:
        if self.metric_kind == "diag":
            return self.log_metric.exp()
        return self.matrix if self.metric_kind == "full" else self.identity

    def logits(self, obs: Tensor) -> Tensor:
        features = self.head(self.embed(obs))  # (B, n)
        if self.metric_kind == "cosine":
            features = F.normalize(features, dim=1)
            return features @ features.T / self.temperature
        return -pairwise(features, self.metric) / self.temperature

    def forward(self, obs: Tensor, skill_index: Tensor, generator: torch.Generator | None = None) -> Contrast:
        u = torch.rand(len(obs), generator=generator, device=obs.device)
        return self.contrast(self.logits(obs), skill_index, u)

    def contrast(self, logits: Tensor, skill_index: Tensor, u: Tensor) -> Contrast:
        size = len(logits)
        itself = torch.eye(size, dtype=torch.bool, device=logits.device)
        same = (skill_index.unsqueeze(1) == skill_index) & ~itself  # (B, B)
        has_positive = same.any(1)
        if self.positive == "random":
            partner, valid = random_partner(skill_index, self.num_skills, u), has_positive
        else:  # the public code: the first other row of the skill; without one, the first other row
            partner = same.where(has_positive.unsqueeze(1), ~itself).float().argmax(1)
            valid = torch.ones_like(has_positive)
        chosen = F.one_hot(partner, size).bool()
        others = ~itself if self.denominator == "all" else (~same & ~itself) | chosen
        positive = logits.gather(1, partner.unsqueeze(1)).squeeze(1)
        if self.numerics == "logsumexp":
            log_ratio = positive - logits.masked_fill(~others, -torch.inf).logsumexp(1)
            ratio = log_ratio.exp()
        else:  # exp without a shift: where all terms underflow, the loss stops at -log 1e-6
            total = (logits.exp() * others).sum(1)
            ratio = positive.exp() / (total + 1e-6) + 1e-6
            log_ratio = ratio.log()
        nearest = logits.detach().masked_fill(itself, -torch.inf).argmax(1)
        return Contrast(log_ratio, ratio, valid, (skill_index[nearest] == skill_index).float())


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    return (x * mask).sum() / mask.sum().clamp(min=1)
