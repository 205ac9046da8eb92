"""Contrastive learning of skills: AnInfoNCE between states (Eq. 4), and CPC between transitions and
skills (Eq. 3)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agent.parts.draws import Draws
from agent.parts.networks import mlp
from utils import Positive

# rows compared at a time where no gradient is wanted: a strip of comparisons stays in the cache
STRIP = 128


def pairwise(a: Tensor, b: Tensor, metric: Tensor) -> Tensor:
    """||a_i - b_j||^2_L for all pairs by matrix products: (A, B). `metric` is a diagonal (c,) or a
    matrix (c, c)."""
    if metric.ndim == 1:
        weighted = a * metric
        of_a = (weighted * a).sum(1, keepdim=True)  # (A, 1)
        of_b = of_a if b is a else (b * metric * b).sum(1, keepdim=True)
        # |a|^2 + |b|^2 - 2 a b in a single product: no sum of two (A, B), nor its backward pass
        left = torch.cat([-2 * weighted, of_a, torch.ones_like(of_a)], 1)
        return (left @ torch.cat([b, torch.ones_like(of_b), of_b], 1).T).clamp(min=0)
    inner, turned = a @ metric, b @ metric  # L need not be symmetric, nor positive
    return (inner * a).sum(1, keepdim=True) + (turned * b).sum(1) - inner @ b.T - a @ turned.T


def occurrences(skill_index: Tensor, num_skills: int) -> Tensor:
    """How often each skill is in the batch: (n,)."""
    return (skill_index.unsqueeze(1) == torch.arange(num_skills, device=skill_index.device)).sum(0)


def random_partner(skill_index: Tensor, num_skills: int, u: Tensor) -> Tensor:
    """For each row another row of the same skill, uniformly (itself where there is none). u ~ U[0,
    1), (B,)."""
    order = skill_index.argsort(stable=True)  # rows grouped by skill
    count = occurrences(skill_index, num_skills)
    start, count = (count.cumsum(0) - count)[skill_index], count[skill_index]
    position = torch.empty_like(order).scatter_(
        0, order, torch.arange(len(order), device=order.device)
    )
    step = 1 + (u * (count - 1)).long().minimum((count - 2).clamp(min=0))  # 1 .. count - 1
    return order[start + (position - start + step) % count]


class Contrast(NamedTuple):
    """What the contrastive module says of a batch; every field (B,)."""

    log_ratio: Tensor  # the term inside the bracket of Eq. 4: minus the loss of an anchor
    ratio: Tensor  # its exponential
    valid: Tensor  # anchors that have a positive at all
    correct: Tensor | None = (
        None  # the nearest other row has the anchor's skill (chance: 1 / n); not without gradients
    )


@dataclass(frozen=True, kw_only=True)
class ContrastSettings:
    """How Eq. 4 is read.

    metric: diag (positive, learned), full (the public code's unconstrained matrix), none
    (isotropic: InfoNCE), cosine (BeCL's InfoNCE on normalised features). Positive and denominator:
    see the fidelity register; positive=all, which is ours, is told at `posterior`. contrast_net:
    two hidden layers and a head with one more (URLB), or the three hidden layers that the paper's
    appendix has in the mazes.
    """

    denominator: Literal["negatives_only", "all"]
    positive: Literal["random", "first", "all"]
    metric: Literal["diag", "full", "none", "cosine"]
    temperature: Positive
    numerics: Literal["logsumexp", "naive"]
    contrast_net: Literal["projected", "three_layers"] = "projected"


class AnInfoNCE(nn.Module):
    """Eq. 4: states of one skill attract, states of other skills repel, under a learned metric."""

    identity: Tensor

    def __init__(
        self, obs_dim: int, skill_dim: int, *, hidden_dim: int, settings: ContrastSettings
    ):
        super().__init__()
        projected = settings.contrast_net == "projected"
        self.embed = mlp(obs_dim, *[hidden_dim] * (2 if projected else 3), skill_dim)
        self.head = mlp(skill_dim, hidden_dim, skill_dim) if projected else nn.Identity()
        self.metric_kind, self.denominator = settings.metric, settings.denominator
        self.positive, self.numerics = settings.positive, settings.numerics
        self.temperature, self.num_skills = settings.temperature, skill_dim
        if self.metric_kind == "diag":
            # Its exponential is positive, and starts at 1.
            self.log_metric = nn.Parameter(torch.zeros(skill_dim))
        elif self.metric_kind == "full":
            self.matrix = nn.Parameter(torch.eye(skill_dim))
        else:
            self.register_buffer("identity", torch.ones(skill_dim), persistent=False)

    @property
    def metric(self) -> Tensor:
        if self.metric_kind == "diag":
            return self.log_metric.exp()
        return self.matrix if self.metric_kind == "full" else self.identity

    def logits(self, obs: Tensor) -> Tensor:
        features = self.features(obs)
        return self.similarity(features, features)

    def features(self, obs: Tensor) -> Tensor:
        features = self.head(self.embed(obs))  # (B, n)
        return F.normalize(features, dim=1) if self.metric_kind == "cosine" else features

    def similarity(self, a: Tensor, b: Tensor) -> Tensor:
        if self.metric_kind == "cosine":
            return (a / self.temperature) @ b.T
        return pairwise(a, b, self.metric / self.temperature).neg_()

    def forward(self, obs: Tensor, skill_index: Tensor, generator: Draws | None = None) -> Contrast:
        u = (generator or Draws(None, obs.device)).uniform(len(obs))
        if torch.is_grad_enabled():
            return self.contrast(self.logits(obs), skill_index, u)
        features, pairs = self.features(obs), self.partners(skill_index, u)
        strips = torch.arange(len(obs), device=obs.device).split(STRIP)
        parts = [
            self.compare(self.similarity(features[rows], features), rows, skill_index, *pairs)
            for rows in strips
        ]
        return Contrast(
            *(torch.cat(field) for field in zip(*(part[:3] for part in parts), strict=True))
        )

    def contrast(self, logits: Tensor, skill_index: Tensor, u: Tensor) -> Contrast:
        rows = torch.arange(len(logits), device=logits.device)
        nearest = logits.detach().clone().fill_diagonal_(-torch.inf).argmax(1)
        return self.compare(logits, rows, skill_index, *self.partners(skill_index, u))._replace(
            correct=(skill_index[nearest] == skill_index).float()
        )

    def partners(self, skill_index: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """The row that is each anchor's positive, and which anchors have one."""
        alone = occurrences(skill_index, self.num_skills)[skill_index] == 1
        if self.positive != "first":
            return random_partner(skill_index, self.num_skills, u), ~alone
        itself = torch.eye(len(skill_index), dtype=torch.bool, device=skill_index.device)
        same = (skill_index.unsqueeze(1) == skill_index) & ~itself
        # The public code: the first other row of the skill; without one, the first other row.
        return same.where(~alone.unsqueeze(1), ~itself).float().argmax(1), torch.ones_like(alone)

    def compare(
        self, logits: Tensor, rows: Tensor, skill_index: Tensor, partner: Tensor, valid: Tensor
    ) -> Contrast:
        """`logits` (R, B) are the anchors `rows` against the batch; `partner` and `valid` are the
        whole batch's."""
        if self.positive == "all":
            log_ratio = self.posterior(logits, rows, skill_index)
            return Contrast(log_ratio, log_ratio.exp(), valid[rows])
        # (R,), (R, 1), (R, 1)
        own, itself, chosen = skill_index[rows], rows.unsqueeze(1), partner[rows].unsqueeze(1)
        positive = logits.gather(1, chosen)
        if self.denominator == "all":
            below = logits.scatter(1, itself, -torch.inf)
        else:  # the other skills, and the positive
            below = logits.masked_fill(own.unsqueeze(1) == skill_index, -torch.inf).scatter_(
                1, chosen, positive
            )
        if self.numerics == "logsumexp":
            log_ratio = positive.squeeze(1) - below.logsumexp(1)
            ratio = log_ratio.exp()
        else:  # as the public codes: where all terms underflow, AMPED's loss stops at -log 1e-6
            if self.metric_kind == "cosine":  # BeCL's, which shifts by the largest term
                largest = below.detach().amax(1, keepdim=True)
                positive, below = positive - largest, below - largest
            ratio = positive.squeeze(1).exp() / (below.exp().sum(1) + 1e-6) + 1e-6
            log_ratio = ratio.log()
        return Contrast(log_ratio, ratio, valid[rows])

    def posterior(self, logits: Tensor, rows: Tensor, skill_index: Tensor) -> Tensor:
        """log p(z | s) of the anchors' own skills, (R,): the mean of exp(logits) over all other
        rows of the skill, as a share of the sum of such means over the skills.

        A single positive pulls an anchor towards one point of its skill, so that a skill is paid
        for staying in one place. Here any near row of the skill will do: how far a skill spreads
        costs nothing, as long as no other is there.
        """
        same = skill_index[rows].unsqueeze(1) == skill_index  # (R, B)
        # Rows of each skill that an anchor is compared with: its own are one fewer.
        count = occurrences(skill_index, self.num_skills)[skill_index] - same.long()
        shares = (logits - count.clamp(min=1).log()).scatter(1, rows.unsqueeze(1), -torch.inf)
        own = shares.masked_fill(~same, -torch.inf).logsumexp(1)
        # An anchor alone with its skill has no such rows, and is not valid: 0, never -inf.
        alone = own == -torch.inf
        return own.where(~alone, 0.0) - shares.logsumexp(1).where(~alone, 0.0)


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    return (x * mask).sum() / mask.sum().clamp(min=1)


# ---------------------------------------------------------------------------------------------- CPC


def cpc_loss(
    cosine: Tensor, index: Tensor, *, form: str, temperature: float
) -> tuple[Tensor, Tensor]:
    """Contrastive loss between skills and transitions, mean over the batch, from their cosines (n,
    B); `index` (B,) is each transition's own skill. And how often that one has the largest cosine.

    A batch pairs every transition with its own skill's row, so rows of equal skills are equal: n
    are enough. form=paper: minus Eq. 3, whose log-mean runs over all transitions, the positive
    included. form=release: the row sum minus the constant e^(1/T). Where the data say nothing of
    the skill all cosines then sink to -1, and in small batches (up to 66 rows for 16 skills and T =
    0.5) that is better than alignment even where they do.
    """
    logits = cosine / temperature
    positive = logits.gather(0, index.unsqueeze(0)).squeeze(0)  # (B,)
    accuracy = (logits.detach().argmax(0) == index).float().mean()
    if form == "paper":
        return (logits.logsumexp(1) - math.log(len(index)))[
            index
        ].mean() - positive.mean(), accuracy
    negatives = (logits.exp().sum(1) - math.exp(1 / temperature)).clamp(min=1e-6)
    return (negatives + 1e-6).log()[index].mean() - positive.mean(), accuracy


@dataclass(frozen=True, kw_only=True)
class EncoderSettings:
    """How transitions and skills are compared. skill_net=false: with the skill itself instead of a
    network's answer to it."""

    cpc: Literal["paper", "release"]
    cpc_temperature: Positive
    skill_net: bool


class TransitionEncoder(nn.Module):
    """CIC's networks: a state encoder, a predictor on (s, s'), and with `skill_net` one on the
    skill."""

    all_skills: Tensor

    def __init__(self, obs_dim: int, skill_dim: int, *, hidden_dim: int, settings: EncoderSettings):
        super().__init__()
        self.state = mlp(obs_dim, hidden_dim, hidden_dim, skill_dim)
        self.predict = mlp(2 * skill_dim, hidden_dim, hidden_dim, skill_dim)
        self.skill: nn.Module = nn.Identity()
        if settings.skill_net:
            self.skill = mlp(skill_dim, hidden_dim, hidden_dim, skill_dim)
        self.temperature, self.form = settings.cpc_temperature, settings.cpc
        self.register_buffer("all_skills", torch.eye(skill_dim), persistent=False)

    def pair(self, obs: Tensor, next_obs: Tensor) -> Tensor:
        return self.predict(torch.cat(self.state(torch.cat([obs, next_obs])).chunk(2), 1))

    def loss(self, obs: Tensor, next_obs: Tensor, skill_index: Tensor) -> tuple[Tensor, Tensor]:
        """CPC loss, and how often a transition's own skill has the largest cosine (chance: 1 /
        n)."""
        # (n, n): one-hot skills pass the network as n rows, not B
        skills = self.skill(self.all_skills)
        return self._loss(self.pair(obs, next_obs), skills, skill_index)

    def loss_continuous(
        self, obs: Tensor, next_obs: Tensor, skill: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The same for skills that are vectors: each row's skill against all others' (chance: 1 /
        B)."""
        return self._loss(
            self.pair(obs, next_obs), self.skill(skill), torch.arange(len(obs), device=obs.device)
        )

    def _loss(self, key: Tensor, skills: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        cosine = F.normalize(skills, dim=1) @ F.normalize(key, dim=1).T  # (n, B)
        return cpc_loss(cosine, index, form=self.form, temperature=self.temperature)
