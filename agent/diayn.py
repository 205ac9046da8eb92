"""DIAYN: a skill is good when the states it visits give it away (Eysenbach et al., 2019)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agent.base import Metrics, Objective, RewardStreams, descend
from agent.parts.draws import Draws
from agent.parts.networks import mlp
from replay_buffer import Batch
from utils import Positive, Size


class SkillDiscriminator(nn.Module):
    """q(z | s): which of n skills visited a state."""

    def __init__(self, obs_dim: int, skill_dim: int, *, hidden_dim: int):
        super().__init__()
        self.net = mlp(obs_dim, hidden_dim, hidden_dim, skill_dim)

    def loss(self, obs: Tensor, skill: Tensor) -> tuple[Tensor, Tensor]:
        """Cross-entropy, and how often the likeliest skill is the right one (chance: 1 / n)."""
        logits, index = self.net(obs), skill.argmax(1)
        return F.cross_entropy(logits, index), (logits.detach().argmax(1) == index).float().mean()

    def log_posterior(self, obs: Tensor, skill: Tensor) -> Tensor:
        """log q(z | s) of each row's own skill: (B, 1)."""
        return F.log_softmax(self.net(obs), 1).gather(1, skill.argmax(1, keepdim=True))


class DIAYN(Objective):
    """r = log q(z | s') - log p(z), at most log n. The action entropy of its paper belongs to SAC,
    not to DDPG.

    Metrics:
        discriminator/loss: Cross-entropy of the skill given the state.
        discriminator/accuracy: How often the skill is recognised (chance 1/n). Healthy: 0.26 to
            0.63.
    """

    streams = ("diversity",)
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
    ):
        super().__init__()
        self.prior_entropy = math.log(skill_dim)  # skills are uniform: -log p(z) = log n
        self.discriminator = SkillDiscriminator(obs_dim, skill_dim, hidden_dim=hidden_dim)
        self.opt = self.adam("discriminator", self.discriminator.parameters(), lr)

    def update(self, batch: Batch, *, final: bool = True) -> Metrics:
        loss, accuracy = self.discriminator.loss(batch.next_obs, batch.skill)
        descend(loss, self.opt)
        return {"discriminator/loss": loss.detach(), "discriminator/accuracy": accuracy}

    @torch.no_grad()
    def rewards(self, batch: Batch) -> tuple[RewardStreams, Metrics]:
        return {
            "diversity": self.discriminator.log_posterior(batch.next_obs, batch.skill)
            + self.prior_entropy
        }, {}
