"""APT: spread over the state space, measured by distances in a representation that ICM learns."""

from __future__ import annotations

import torch

from agent.base import Metrics, Objective, RewardStreams, descend
from agent.parts.curiosity import ICM
from agent.parts.particles import ParticleEntropy
from replay_buffer import Batch
from utils import choose


class APT(Objective):
    """Active Pre-Training (Liu and Abbeel 2021) in URLB's form: ICM's representation instead of a
    contrastive one."""

    streams = ("entropy",)

    def __init__(
        self,
        *,
        obs_dim: int,
        action_dim: int,
        skill_dim: int,
        generator: torch.Generator | None,
        hidden_dim: int,
        lr: float,
        rep_dim: int,
        particle: str,
        entropy_form: str,
        knn_scale: str,
        k: int,
        knn_clip: float,
    ):
        super().__init__()
        self.particle = choose("agent.objective.particle", particle, ("state", "next_state"))
        self.icm = ICM(obs_dim, action_dim, hidden_dim=hidden_dim, rep_dim=rep_dim)
        self.opt = self.adam("icm", self.icm.parameters(), lr)
        self.entropy = ParticleEntropy(k=k, clip=knn_clip, form=entropy_form, scale=knn_scale)

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
