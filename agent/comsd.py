"""ComSD: CIC's entropy plus a contrastive diversity whose weight differs between skills (Liu et
al., 2023)."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from agent.base import Metrics, RewardStreams
from agent.cic import CIC
from agent.parts.contrast import EncoderSettings
from agent.parts.draws import Draws
from agent.parts.particles import EntropySettings
from replay_buffer import Batch
from utils import NonNegative, Positive, Size


class ComSD(CIC):
    """r = particle entropy + alpha w(z) exp(cos(skill, transition) / T); w rises evenly from first
    to last skill.

    variant=amped_port: the entropy alone, all that reaches the critic in the AMPED authors' port.

    Metrics:
        cpc/accuracy: How often the own skill has the largest cosine (chance 1/n). Healthy: 0.33 to
            0.63.
        diversity/similarity: exp(cos / T) of a transition and its own skill.
    """

    streams = ("intrinsic",)
    weight: Tensor

    def __init__(
        self,
        *,
        obs_dim: int,
        action_dim: int,
        skill_dim: int,
        generator: Draws,
        hidden_dim: Size,
        lr: Positive,
        alpha: NonNegative,
        weight_low: NonNegative,
        weight_high: NonNegative,
        variant: Literal["intended", "amped_port"],
        encoder: EncoderSettings,
        entropy: EntropySettings,
    ):
        super().__init__(
            obs_dim=obs_dim,
            action_dim=action_dim,
            skill_dim=skill_dim,
            generator=generator,
            hidden_dim=hidden_dim,
            lr=lr,
            discriminative=False,
            skill_space="one_hot",
            encoder=encoder,
            entropy=entropy,
        )
        self.alpha, self.variant = alpha, variant
        self.register_buffer(
            "weight", torch.linspace(weight_low, weight_high, skill_dim), persistent=False
        )

    @torch.no_grad()
    def rewards(self, batch: Batch) -> tuple[RewardStreams, Metrics]:
        streams, metrics = super().rewards(batch)
        reward = streams["exploration"]
        if self.variant == "intended":
            similarity = self._similarity(batch)
            reward = reward + self.alpha * (batch.skill @ self.weight).unsqueeze(1) * similarity
            metrics["diversity/similarity"] = similarity.mean()
        return {"intrinsic": reward}, metrics

    def _similarity(self, batch: Batch) -> Tensor:
        """exp(cos / T) between a transition and its own skill: (B, 1), from e^(-1/T) to e^(1/T)."""
        skill = self.encoder.skill(self.encoder.all_skills)[batch.skill.argmax(1)]
        cosine = F.cosine_similarity(skill, self.encoder.pair(batch.obs, batch.next_obs), dim=1)
        return (cosine / self.encoder.temperature).exp().unsqueeze(1)
