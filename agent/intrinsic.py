"""Parts that methods share: running moments, particle entropy, RND, ICM, CPC, prototypes."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agent.networks import mlp, trunk
from utils import choose


class RunningMoments(nn.Module):
    """Mean and variance of everything seen so far, by the parallel update of two samples."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(1))
        self.register_buffer("var", torch.ones(1))
        self.register_buffer("count", torch.full((1,), 1e-4))

    def update(self, x: Tensor) -> None:
        var, mean = torch.var_mean(x)  # the batch variance is the unbiased one, as in the public code
        total, delta = self.count + x.numel(), mean - self.mean
        old, new = self.count / total, x.numel() / total  # shares; 1 - new would lose the little that is old at first
        self.var.mul_(old).addcmul_(var, new).addcmul_(delta.square(), old * new)
        self.mean.addcmul_(delta, new)
        self.count.copy_(total)


# ------------------------------------------------------------------------------------------- particle entropy


STRIP = 128  # rows at a time: a strip of distances stays in the cache


def nearest_distances(x: Tensor, pool: Tensor, k: int, used: Tensor | None = None) -> Tensor:
    """Euclidean distances to the k nearest rows of the pool, ascending: (B, k). A row finds itself at 0.

    Chosen by a product in double precision: in single it loses the neighbours inside tight clusters, which is what a
    good encoder makes. The k distances themselves are differences. Of a pool only the first `used` rows count.
    """
    a = x.double()
    b = a if pool is x else pool.double()
    square = b.square().sum(1)  # of the pool alone: what a row adds to all its distances moves no neighbour
    if used is not None:
        square = square.masked_fill(torch.arange(len(pool), device=pool.device) >= used, torch.inf)
    index = torch.cat([torch.addmm(square, strip, b.T, alpha=-2).topk(k, largest=False, sorted=False).indices
                       for strip in a.split(STRIP)])  # (B, k), never a (B, N, c)
    d = (x.unsqueeze(1) - pool[index]).square().sum(2).sqrt()
    if used is not None:  # rows not filled yet count as distance 0
        d = d.where(index < used, torch.zeros_like(d))
    return d.sort(1).values


class ParticleEntropy(nn.Module):
    """Reward of a particle: how far its k nearest neighbours are. Larger = rarer.

    form=release: log(1 + mean_j max(d_j / scale - clip, 0)) over the k smallest distances, the zero to itself among
    them; form=paper: log sum_{l<=k} d_l over k true neighbours (section 3.2). In a pool of recent states one that
    is still there meets itself.
    """

    def __init__(self, *, k: int, clip: float, form: str, scale: str):
        super().__init__()
        self.k, self.clip = k, clip
        self.form = choose("agent.objective.entropy_form", form, ("release", "paper"))
        self.scale = choose("agent.objective.knn_scale", scale, ("var", "std", "mean", "none"))
        self.moments = RunningMoments()

    def forward(self, x: Tensor, pool: Tensor | None = None, used: Tensor | None = None) -> Tensor:
        own = pool is None  # the batch is its own pool: each row meets itself
        pool = x if own else pool
        if self.form == "paper":
            k = min(self.k, len(pool) - own)
            d = nearest_distances(x, pool, k + own, used)[:, int(own):]
            return torch.log((d / self._scale(d)).sum(1, keepdim=True) + 1e-8)  # coinciding particles: not -inf
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

    def __init__(self, size: int, obs_dim: int):
        super().__init__()
        self.register_buffer("pairs", torch.zeros(size, 2, obs_dim))
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def add(self, obs: Tensor, next_obs: Tensor) -> None:
        """One transition (obs_dim,), or several (N, obs_dim), of which the last come to stay."""
        pairs = torch.stack([obs, next_obs], -2).view(-1, *self.pairs.shape[1:])[-len(self.pairs):]
        rows = (self.seen + torch.arange(len(pairs), device=pairs.device)) % len(self.pairs)
        self.pairs.index_copy_(0, rows, pairs)
        self.seen += len(pairs)


# --------------------------------------------------------------------------------------------------------- RND


class RND(nn.Module):
    """Error of a predictor of a frozen random network on clamp(batch-normalised input, +-5)."""

    def __init__(self, in_dim: int, *, hidden_dim: int, out_dim: int):
        super().__init__()
        self.normalize = nn.BatchNorm1d(in_dim, affine=False, track_running_stats=False)  # batch statistics, always
        self.predictor = mlp(in_dim, hidden_dim, hidden_dim, out_dim)
        self.target = mlp(in_dim, hidden_dim, hidden_dim, out_dim).requires_grad_(False)
        self.moments = RunningMoments()
        self.last: tuple | None = None  # an input, its version, and the answer

    def forward(self, x: Tensor) -> Tensor:
        """Squared error per row and output: (B, out_dim)."""
        x, wanted = self.wanted(x)
        return (self.predictor(x) - wanted).square()

    @torch.no_grad()
    def wanted(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The normalised input and what the frozen network says of it: the same for the step and the reward of a batch,
        so the last answer is kept."""
        if torch.compiler.is_compiling():  # finds what is computed twice by itself
            normal = self.normalize(x).clamp(-5, 5)
            return normal, self.target(normal)
        if self.last is None or self.last[0] is not x or self.last[1] != x._version:
            normal = self.normalize(x).clamp(-5, 5)
            self.last = (x, x._version, normal, self.target(normal))
        return self.last[2:]

    def novelty(self, x: Tensor) -> Tensor:
        """Mean error over its running standard deviation: (B, 1)."""
        error = self(x).mean(1, keepdim=True)
        self.moments.update(error)
        return error / (self.moments.var.sqrt() + 1e-8)


# --------------------------------------------------------------------------------------------------------- CPC


def cpc_loss(cosine: Tensor, index: Tensor, *, form: str, temperature: float) -> tuple[Tensor, Tensor]:
    """Contrastive loss between skills and transitions, mean over the batch, from their cosines (n, B); `index` (B,) is
    each transition's own skill. And how often that one has the largest cosine.

    A batch pairs every transition with its own skill's row, so rows of equal skills are equal: n are enough.
    form=paper: minus Eq. 3, whose log-mean runs over all transitions, the positive included. form=release: the row
    sum minus the constant e^(1/T). Where the data say nothing of the skill all cosines then sink to -1, and in small
    batches (up to 66 rows for 16 skills and T = 0.5) that is better than alignment even where they do.
    """
    logits = cosine / temperature
    positive = logits.gather(0, index.unsqueeze(0)).squeeze(0)  # (B,)
    accuracy = (logits.detach().argmax(0) == index).float().mean()
    if form == "paper":
        return (logits.logsumexp(1) - math.log(len(index)))[index].mean() - positive.mean(), accuracy
    negatives = (logits.exp().sum(1) - math.exp(1 / temperature)).clamp(min=1e-6)
    return (negatives + 1e-6).log()[index].mean() - positive.mean(), accuracy


class TransitionEncoder(nn.Module):
    """CIC's networks: a state encoder, a predictor on (s, s'), and with `skill_net` one on the skill."""

    def __init__(self, obs_dim: int, skill_dim: int, *, hidden_dim: int, temperature: float, form: str,
                 skill_net: bool = True):
        super().__init__()
        self.state = mlp(obs_dim, hidden_dim, hidden_dim, skill_dim)
        self.predict = mlp(2 * skill_dim, hidden_dim, hidden_dim, skill_dim)
        self.skill = mlp(skill_dim, hidden_dim, hidden_dim, skill_dim) if skill_net else nn.Identity()
        self.temperature, self.form = temperature, choose("agent.objective.cpc", form, ("paper", "release"))
        self.register_buffer("all_skills", torch.eye(skill_dim), persistent=False)

    def pair(self, obs: Tensor, next_obs: Tensor) -> Tensor:
        return self.predict(torch.cat(self.state(torch.cat([obs, next_obs])).chunk(2), 1))

    def loss(self, obs: Tensor, next_obs: Tensor, skill_index: Tensor) -> tuple[Tensor, Tensor]:
        """CPC loss, and how often a transition's own skill has the largest cosine (chance: 1 / n)."""
        skills = self.skill(self.all_skills)  # (n, n): one-hot skills pass the network as n rows, not B
        return self._loss(self.pair(obs, next_obs), skills, skill_index)

    def loss_continuous(self, obs: Tensor, next_obs: Tensor, skill: Tensor) -> tuple[Tensor, Tensor]:
        """The same for skills that are vectors: each row's skill against all others' (chance: 1 / B)."""
        return self._loss(self.pair(obs, next_obs), self.skill(skill), torch.arange(len(obs), device=obs.device))

    def _loss(self, key: Tensor, skills: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        cosine = F.normalize(skills, dim=1) @ F.normalize(key, dim=1).T  # (n, B)
        return cpc_loss(cosine, index, form=self.form, temperature=self.temperature)


# --------------------------------------------------------------------------------------------------------- ICM


class ICM(nn.Module):
    """A forward and an inverse model of a transition, on the observation itself or on a trunk of `rep_dim`."""

    def __init__(self, obs_dim: int, action_dim: int, *, hidden_dim: int, rep_dim: int | None = None):
        super().__init__()
        self.trunk = nn.Identity() if rep_dim is None else trunk(obs_dim, rep_dim)
        rep_dim = rep_dim or obs_dim
        self.forward_model = mlp(rep_dim + action_dim, hidden_dim, rep_dim)
        self.inverse_model = mlp(2 * rep_dim, hidden_dim, action_dim)

    def forward(self, obs: Tensor, action: Tensor, next_obs: Tensor) -> tuple[Tensor, Tensor]:
        """Norms (not squared, as in URLB) of the forward and the inverse error: (B, 1) each."""
        s, following = self.trunk(obs), self.trunk(next_obs)
        forward = following - self.forward_model(torch.cat([s, action], 1))
        inverse = action - torch.tanh(self.inverse_model(torch.cat([s, following], 1)))
        return forward.norm(dim=1, keepdim=True), inverse.norm(dim=1, keepdim=True)


# -------------------------------------------------------------------------------------------------- prototypes


@torch.no_grad()
def sinkhorn(scores: Tensor, iterations: int) -> Tensor:
    """Soft assignments (B, K) with rows of sum 1 and, in the limit, columns of sum B / K: no prototype starves."""
    log_q = scores
    for _ in range(iterations):
        log_q = log_q - log_q.logsumexp(0, keepdim=True)  # columns: every prototype gets the same share
        log_q = log_q - log_q.logsumexp(1, keepdim=True)  # rows: every sample is assigned once
    return log_q.exp()


class Prototypes(nn.Module):
    """K directions on the unit sphere; scores are cosines."""

    def __init__(self, dim: int, count: int):
        super().__init__()
        self.weight = nn.Parameter(nn.init.orthogonal_(torch.empty(count, dim)))

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=1) @ F.normalize(self.weight, dim=1).T  # (B, K)
