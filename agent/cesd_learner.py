"""CeSD's learner: one actor for all skills, and one value function per skill."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from agent.ddpg import DDPG
from agent.networks import parallel_mlp, trunk
from replay_buffer import Batch
from utils import choose


class EnsembleCritic(nn.Module):
    """Twin Q's of (s, a), without the skill: `count` heads each on a shared trunk of half the width (512 of 1024)."""

    def __init__(self, obs_dim: int, action_dim: int, count: int, *, hidden_dim: int, layers: int, action_input: str,
                 legacy: bool):
        super().__init__()
        self.count = count
        self.action_in_trunk = choose("learner.action_input", action_input, ("trunk", "head")) == "trunk"
        extra = 0 if self.action_in_trunk else action_dim
        self.trunk = trunk(obs_dim + action_dim - extra, hidden_dim // 2)
        sizes = (hidden_dim // 2 + extra, *[hidden_dim] * layers, 1)
        self.q1, self.q2 = (parallel_mlp(count, *sizes, legacy=legacy) for _ in range(2))

    def forward(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        h = self.trunk(torch.cat([obs, action], 1)) if self.action_in_trunk else torch.cat([self.trunk(obs), action], 1)
        h = h.expand(self.count, *h.shape)
        return self.q1(h)[..., 0].T, self.q2(h)[..., 0].T  # (B, count) each


class CeSDLearner(DDPG):
    """Head i learns from samples of cluster i only, and the actor under skill z follows head z.

    Without clusters (fine-tuning) every head learns from every sample. The public code divides both losses by the
    number of heads once more, which Adam undoes.
    """

    by_hand = False

    def __init__(self, *, skill_dim: int, legacy_head_init: bool, **settings):
        self.heads, self.legacy_head_init = skill_dim, legacy_head_init  # make_critic is called by the base
        super().__init__(skill_dim=skill_dim, **settings)

    def make_critic(self, obs_dim: int, skill_dim: int, action_dim: int, *, columns: int, **sizes) -> nn.Module:
        return EnsembleCritic(obs_dim, action_dim, skill_dim, legacy=self.legacy_head_init, **sizes)

    def values(self, critic: nn.Module, obs: Tensor, skill: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        return critic(obs, action)

    def _columns(self) -> list[list[int]]:
        return [list(range(self.heads))]  # the one stream's targets: each head's own bootstrap, (B, n)

    def critic_losses(self, batch: Batch, targets: dict[str, Tensor], hints: dict[str, Tensor]) -> dict[str, Tensor]:
        (name, y), = targets.items()
        q1, q2 = self.values(self.critic, batch.obs, batch.skill, batch.action)
        error = (q1 - y).square() + (q2 - y).square()  # (B, n)
        return {name: (error * hints["cluster"]).sum(1).mean() if "cluster" in hints else error.mean()}

    def actor_losses(self, q: Tensor, skill: Tensor) -> dict[str, Tensor]:
        return {"q": -(q * skill).sum(1).mean()}
