"""ComSD: CIC's entropy plus a contrastive diversity whose weight differs between skills (Liu et
al., 2023)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from agent.base import Metrics, RewardStreams
from agent.cic import CIC
from replay_buffer import Batch
from utils import choose


class ComSD(CIC):
    """r = particle entropy + alpha w(z) exp(cos(skill, transition) / T); w rises evenly from first
    to last skill.

    variant=amped_port: the entropy alone, all that reaches the critic in the AMPED authors' port.
    """

    streams = ("intrinsic",)

    def __init__(
        self,
        *,
        skill_dim: int,
        alpha: float,
        weight_low: float,
        weight_high: float,
        variant: str,
        **cic,
    ):
        super().__init__(skill_dim=skill_dim, discriminative=False, skill_space="one_hot", **cic)
        self.alpha = alpha
        self.variant = choose("agent.objective.variant", variant, ("intended", "amped_port"))
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
