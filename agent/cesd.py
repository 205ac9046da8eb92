"""CeSD: each skill explores its own cluster of states, and is rewarded for leaving the others
alone."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agent.base import Metrics, Objective, RewardStreams, descend
from agent.learners.ddpg import DDPG
from agent.parts.contrast import EncoderSettings, TransitionEncoder
from agent.parts.draws import Draws
from agent.parts.moments import FiniteMoments
from agent.parts.networks import parallel_mlp, trunk
from agent.parts.particles import NeighbourSettings, ParticleEntropy
from agent.parts.prototypes import PrototypeNorm, Prototypes, sinkhorn
from replay_buffer import Batch
from utils import NonNegative, Positive, Repeats, Size, UserError


class ClusterEntropy(ParticleEntropy):
    """Particle entropy among the members of a cluster; 0 in clusters of at most k members.

    The public code goes from cluster to cluster and updates the running variance with each; here
    once per batch.
    """

    def __init__(self, neighbours: NeighbourSettings):
        super().__init__(neighbours, form="release")
        self.moments = FiniteMoments()

    def forward(  # type: ignore[override]  # it asks for clusters instead of a pool
        self, x: Tensor, cluster: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Entropy (B, 1), and which rows are in a large enough cluster (B, 1). `cluster` holds
        indices (B,)."""
        together = cluster.unsqueeze(1) == cluster  # (B, B)
        large = together.sum(1, keepdim=True) > self.k
        d = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").masked_fill(
            ~together, torch.inf
        )
        d = d.topk(min(self.k, len(x)), largest=False).values.where(large, torch.inf)
        d = (d / self._scale(d) - self.clip).clamp(min=0)
        return torch.log1p(d.mean(1, keepdim=True)).where(large, 0.0), large


class CeSD(Objective):
    """CIC's encoder, one prototype per skill on top of it. A state's cluster is drawn, not the
    nearest.

    Prototypes step before the rewards of their batch, in the public code after them: a lag of one
    update.

    Metrics:
        cpc/loss: Contrast of transitions and skills.
        cpc/accuracy: How often the own skill has the largest cosine (chance 1/n).
        cesd/prototype_loss: Cross-entropy of the balanced assignments.
        cesd/entropy: Particle entropy inside the clusters.
        cesd/constraint: Share of the reward for clusters without strangers.
        cesd/purity: Rows in their own skill's cluster (chance 1/n).
        cesd/large: Rows in clusters that are large enough to be rewarded.
        cesd/balance: Entropy of cluster sizes (1 = equal). Healthy: 0.95 to 0.98.
    """

    streams = ("exploration",)
    needs_skills = True

    def __init__(
        self,
        *,
        obs_dim: int,
        action_dim: int,
        skill_dim: int,
        generator: Draws,
        hidden_dim: Size,
        lr: Positive,
        constrain_factor: NonNegative,
        sinkhorn_iterations: Repeats,
        temperature: Positive,
        prototype_norm: PrototypeNorm,
        encoder: EncoderSettings,
        neighbours: NeighbourSettings,
    ):
        super().__init__()
        self.constrain_factor = constrain_factor
        self.iterations = sinkhorn_iterations
        self.temperature = temperature
        self.skill_dim, self.generator = skill_dim, generator
        self.encoder = TransitionEncoder(
            obs_dim, skill_dim, hidden_dim=hidden_dim, settings=encoder
        )
        self.prototypes = Prototypes(skill_dim, skill_dim, prototype_norm)
        self.entropy = ClusterEntropy(neighbours)
        self.encoder_opt = self.adam("encoder", self.encoder.parameters(), lr)
        self.prototypes_opt = self.adam("prototypes", self.prototypes.parameters(), lr)

    def update(self, batch: Batch, *, final: bool = True) -> Metrics:
        cpc, accuracy = self.encoder.loss(batch.obs, batch.next_obs, batch.skill.argmax(1))
        descend(cpc, self.encoder_opt)
        with torch.no_grad():  # prototypes follow the features; the encoder does not feel them
            now, following = self.encoder.state(batch.obs), self.encoder.state(batch.next_obs)
            code = sinkhorn(self.prototypes(following) / self.temperature, self.iterations)
        loss = -(code * F.log_softmax(self.prototypes(now) / self.temperature, 1)).sum(1).mean()
        descend(loss, self.prototypes_opt)
        return {
            "cpc/loss": cpc.detach(),
            "cpc/accuracy": accuracy,
            "cesd/prototype_loss": loss.detach(),
        }

    def draw_clusters(self, features: Tensor) -> Tensor:
        """One index per row from softmax(scores / temperature): (B,)."""
        return self.generator.category(self.prototypes(features) / self.temperature)

    @torch.no_grad()
    def rewards(self, batch: Batch) -> tuple[RewardStreams, Metrics]:
        features = self.encoder.state(batch.next_obs)
        index = self.draw_clusters(features)
        cluster = F.one_hot(index, self.skill_dim).to(features.dtype)  # (B, n)
        self.hints = {"cluster": cluster}  # CeSDLearner: head i learns from cluster i
        entropy, large = self.entropy(features, index)
        # (n,): members of cluster i under a skill other than i
        strangers = (cluster * (1 - batch.skill)).sum(0)
        constraint = (1 / (1 + strangers))[index].unsqueeze(1).where(large, 0.0)
        share = cluster.mean(0)
        return {"exploration": entropy + self.constrain_factor * constraint}, {
            "cesd/entropy": entropy.mean(),
            "cesd/constraint": constraint.mean(),
            "cesd/purity": (cluster * batch.skill).sum(1).mean(),
            "cesd/large": large.float().mean(),
            "cesd/balance": torch.special.entr(share).sum() / max(math.log(self.skill_dim), 1e-8),
        }


# -------------------------------------------------------- its learner: one value function per skill


class EnsembleCritic(nn.Module):
    """Twin Q's of (s, a), without the skill: `count` heads each on a shared trunk of half the width
    (512 of 1024)."""

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        count: int,
        *,
        hidden_dim: int,
        layers: int,
        action_input: Literal["trunk", "head"],
        legacy: bool,
        trunk_dim: int | None = None,
    ):
        super().__init__()
        if hidden_dim < 2:
            raise UserError(
                f"learner.hidden_dim={hidden_dim} is too small; CeSD's critic has half of it: give 2 or more"
            )
        self.count = count
        self.action_in_trunk = action_input == "trunk"
        extra = 0 if self.action_in_trunk else action_dim
        width = trunk_dim or hidden_dim // 2
        self.trunk = trunk(obs_dim + action_dim - extra, width)
        sizes = (width + extra, *[hidden_dim] * layers, 1)
        self.q1, self.q2 = (parallel_mlp(count, *sizes, legacy=legacy) for _ in range(2))

    def forward(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        h = (
            self.trunk(torch.cat([obs, action], 1))
            if self.action_in_trunk
            else torch.cat([self.trunk(obs), action], 1)
        )
        h = h.expand(self.count, *h.shape)
        return self.q1(h)[..., 0].T, self.q2(h)[..., 0].T  # (B, count) each


class CeSDLearner(DDPG):
    """Head i learns from samples of cluster i only, and the actor under skill z follows head z.

    Without clusters (fine-tuning) every head learns from every sample. The public code divides both
    losses by the number of heads once more. Adam divides by the gradient's size and so undoes that
    but for its eps, which leaves up to 6e-5 of a step of 1e-4.
    """

    def __init__(self, *, skill_dim: int, legacy_head_init: bool, **settings):
        # The base class's constructor calls make_critic, which reads these two.
        self.heads, self.legacy_head_init = skill_dim, legacy_head_init
        super().__init__(skill_dim=skill_dim, **settings)

    def make_critic(self, obs_dim: int, skill_dim: int, action_dim: int, **sizes) -> nn.Module:
        del sizes["columns"]  # a value per skill, whatever the streams are
        return EnsembleCritic(obs_dim, action_dim, skill_dim, legacy=self.legacy_head_init, **sizes)

    def values(
        self, critic: nn.Module, obs: Tensor, skill: Tensor, action: Tensor
    ) -> tuple[Tensor, Tensor]:
        return critic(obs, action)

    def _columns(self) -> list[list[int]]:
        # The one stream's targets: each head's own bootstrap, (B, n).
        return [list(range(self.heads))]

    def critic_losses(
        self, batch: Batch, targets: dict[str, Tensor], hints: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        ((name, y),) = targets.items()
        q1, q2 = self.values(self.critic, batch.obs, batch.skill, batch.action)
        error = (q1 - y).square() + (q2 - y).square()  # (B, n)
        return {
            name: (error * hints["cluster"]).sum(1).mean() if "cluster" in hints else error.mean()
        }

    def actor_losses(self, q: Tensor, skill: Tensor) -> dict[str, Tensor]:
        return {"q": -(q * skill).sum(1).mean()}
