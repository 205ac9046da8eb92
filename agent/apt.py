"""APT: spread over the state space, measured by distances in a representation that ICM learns."""

from __future__ import annotations

from typing import Literal

import torch

from agent.base import Metrics, Objective, RewardStreams, descend
from agent.parts.curiosity import ICM
from agent.parts.draws import Draws
from agent.parts.particles import EntropySettings, ParticleEntropy
from replay_buffer import Batch
from utils import Positive, Size


class APT(Objective):
    """Active Pre-Training (Liu and Abbeel 2021) in URLB's form: ICM's representation instead of a
    contrastive one.

    Metrics:
        icm/forward_loss: Error of the forward model in the representation. Healthy: 3.4 to 0.2.
        icm/inverse_loss: Error of the inverse model.
    """

    streams = ("entropy",)

    def __init__(
        self,
        *,
        obs_dim: int,
        action_dim: int,
        skill_dim: int,
        generator: Draws,
        hidden_dim: Size,
        lr: Positive,
        rep_dim: Size,
        particle: Literal["state", "next_state"],
        entropy: EntropySettings,
    ):
        super().__init__()
        self.particle = particle
        self.icm = ICM(obs_dim, action_dim, hidden_dim=hidden_dim, rep_dim=rep_dim)
        self.opt = self.adam("icm", self.icm.parameters(), lr)
        self.entropy = ParticleEntropy(entropy, form=entropy.entropy_form)

    def update(self, batch: Batch, *, final: bool = True) -> Metrics:
        forward, inverse = (
            error.mean() for error in self.icm(batch.obs, batch.action, batch.next_obs)
        )
        descend(forward + inverse, self.opt)
        return {"icm/forward_loss": forward.detach(), "icm/inverse_loss": inverse.detach()}

    @torch.no_grad()
    def rewards(self, batch: Batch) -> tuple[RewardStreams, Metrics]:
        return {
            "entropy": self.entropy(
                self.icm.trunk(batch.obs if self.particle == "state" else batch.next_obs)
            )
        }, {}
