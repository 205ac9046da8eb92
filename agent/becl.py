"""BeCL: states of one skill attract, states of other skills repel (Yang et al., 2023)."""

from __future__ import annotations

import torch

from agent.base import Metrics, Objective, RewardStreams, descend
from agent.parts.contrast import AnInfoNCE, masked_mean
from replay_buffer import Batch


class BeCL(Objective):
    """r = the ratio inside InfoNCE on cosines of s': the share of an anchor's positive among what
    it is compared to."""

    streams = ("diversity",)

    def __init__(
        self,
        *,
        obs_dim: int,
        action_dim: int,
        skill_dim: int,
        generator: torch.Generator | None,
        hidden_dim: int,
        lr: float,
        temperature: float,
        denominator: str,
        positive: str,
        contrastive_updates: int,
    ):
        super().__init__()
        self.generator, self.batches_per_update = generator, contrastive_updates
        # Cosines over T = 0.5 stay within +-2: nothing underflows, so no other numerics are needed.
        self.contrast = AnInfoNCE(
            obs_dim,
            skill_dim,
            hidden_dim=hidden_dim,
            temperature=temperature,
            metric="cosine",
            denominator=denominator,
            positive=positive,
            numerics="logsumexp",
        )
        self.opt = self.adam("contrast", self.contrast.parameters(), lr)

    def update(self, batch: Batch, *, final: bool = True) -> Metrics:
        contrast = self.contrast(batch.next_obs, batch.skill.argmax(1), self.generator)
        loss = -masked_mean(contrast.log_ratio, contrast.valid)
        descend(loss, self.opt)
        return {"diversity/loss": loss.detach(), "diversity/accuracy": contrast.correct.mean()}

    @torch.no_grad()
    def rewards(self, batch: Batch) -> tuple[RewardStreams, Metrics]:
        contrast = self.contrast(batch.next_obs, batch.skill.argmax(1), self.generator)
        mean = masked_mean(
            contrast.ratio, contrast.valid
        )  # for anchors alone with their skill: it favours nothing
        return {"diversity": contrast.ratio.where(contrast.valid, mean).unsqueeze(1)}, {}
