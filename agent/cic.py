"""CIC: entropy of states in a representation that ties transitions to continuous skills (Laskin et
al., 2022)."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from agent.base import Metrics, Objective, RewardStreams, descend
from agent.parts.contrast import EncoderSettings, TransitionEncoder
from agent.parts.draws import Draws
from agent.parts.particles import EntropySettings, ParticleEntropy
from replay_buffer import Batch
from utils import Positive, Size


class CIC(Objective):
    """r = particle entropy of s' in the state encoder, plus log q(tau | z) with
    `discriminative`.

    Metrics:
        cpc/loss: Contrast of transitions and skills, Eq. 3 of AMPED.
        cpc/accuracy: How often the own skill has the largest cosine, among the batch's skills
            (chance 1/B) or, where skills are one-hot, among n. Healthy: 0.14 to 0.30.
        exploration/entropy: Particle entropy of s'.
        diversity/log_likelihood: log q(tau | z) against the batch's mean, at most log B; only with
            agent.objective.discriminative=true.
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
        discriminative: bool,
        skill_space: Literal["one_hot", "cube", "sphere", "gaussian"],
        encoder: EncoderSettings,
        entropy: EntropySettings,
    ):
        super().__init__()
        self.discriminative, self.one_hot = discriminative, skill_space == "one_hot"
        self.encoder = TransitionEncoder(
            obs_dim, skill_dim, hidden_dim=hidden_dim, settings=encoder
        )
        self.entropy = ParticleEntropy(entropy, form=entropy.entropy_form)
        self.opt = self.adam("encoder", self.encoder.parameters(), lr)

    def cpc(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The contrastive loss, and how often a transition finds its own skill among n, or among
        the batch's."""
        if self.one_hot:
            return self.encoder.loss(batch.obs, batch.next_obs, batch.skill.argmax(1))
        return self.encoder.loss_continuous(batch.obs, batch.next_obs, batch.skill)

    def update(self, batch: Batch, *, final: bool = True) -> Metrics:
        loss, accuracy = self.cpc(batch)
        descend(loss, self.opt)
        return {"cpc/loss": loss.detach(), "cpc/accuracy": accuracy}

    @torch.no_grad()
    def rewards(self, batch: Batch) -> tuple[RewardStreams, Metrics]:
        reward = self.entropy(self.encoder.state(batch.next_obs))
        metrics = {"exploration/entropy": reward.mean()}
        if self.discriminative:
            log_likelihood = self._log_likelihood(batch)
            reward = reward + log_likelihood
            metrics["diversity/log_likelihood"] = log_likelihood.mean()
        return {"exploration": reward}, metrics

    def _log_likelihood(self, batch: Batch) -> Tensor:
        """log q(tau | z) against the mean over the batch's transitions (AMPED's Eq. 3): (B, 1), at
        most log B."""
        skill = self.encoder.skill(batch.skill)
        transition = self.encoder.pair(batch.obs, batch.next_obs)
        # (B, B)
        logits = (
            F.normalize(skill, dim=1) @ F.normalize(transition, dim=1).T / self.encoder.temperature
        )
        return logits.log_softmax(1).diagonal().unsqueeze(1) + math.log(len(logits))
