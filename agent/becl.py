"""BeCL: states of one skill attract, states of other skills repel (Yang et al., 2023)."""

from __future__ import annotations

from typing import Literal

import torch

from agent.base import Metrics, Objective, RewardStreams, descend
from agent.parts.contrast import AnInfoNCE, ContrastSettings, masked_mean
from agent.parts.draws import Draws
from replay_buffer import Batch
from utils import Positive, Repeats, Size


class BeCL(Objective):
    """r = the ratio inside InfoNCE on cosines of s': the share of an anchor's positive among what
    it is compared to.

    Metrics:
        diversity/loss: InfoNCE on cosines.
        diversity/accuracy: How often the nearest other row has the same skill (chance 1/n).
            Healthy: 0.16 to 0.25.
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
        temperature: Positive,
        denominator: Literal["negatives_only", "all"],
        positive: Literal["random", "first"],
        numerics: Literal["logsumexp", "naive"],
        contrastive_updates: Repeats,
    ):
        super().__init__()
        self.generator, self.batches_per_update = generator, contrastive_updates
        # Cosines over T = 0.5 stay within +-2, so nothing underflows; naive differs by the two small
        # numbers that the public code adds.
        settings = ContrastSettings(
            metric="cosine",
            numerics=numerics,
            temperature=temperature,
            denominator=denominator,
            positive=positive,
        )
        self.contrast = AnInfoNCE(obs_dim, skill_dim, hidden_dim=hidden_dim, settings=settings)
        self.opt = self.adam("contrast", self.contrast.parameters(), lr)

    def update(self, batch: Batch, *, final: bool = True) -> Metrics:
        contrast = self.contrast(batch.next_obs, batch.skill.argmax(1), self.generator)
        loss = -masked_mean(contrast.log_ratio, contrast.valid)
        descend(loss, self.opt)
        return {"diversity/loss": loss.detach(), "diversity/accuracy": contrast.correct.mean()}

    @torch.no_grad()
    def rewards(self, batch: Batch) -> tuple[RewardStreams, Metrics]:
        contrast = self.contrast(batch.next_obs, batch.skill.argmax(1), self.generator)
        # For anchors alone with their skill: it favours nothing.
        mean = masked_mean(contrast.ratio, contrast.valid)
        return {"diversity": contrast.ratio.where(contrast.valid, mean).unsqueeze(1)}, {}
