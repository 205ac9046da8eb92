"""ICM: go where a forward model of the transition still errs."""

from __future__ import annotations

from typing import Literal

import torch

from agent.base import Metrics, Objective, RewardStreams, descend
from agent.parts.curiosity import ICM
from agent.parts.draws import Draws
from replay_buffer import Batch
from utils import NonNegative, Positive, Size


class Curiosity(Objective):
    """The Intrinsic Curiosity Module (Pathak et al. 2017), as in URLB: on the observation itself.

    model_error=norm (URLB): losses are mean norms, the reward is log(1 + scale * norm); squared
    (the paper): losses are half squared norms, the reward is scale / 2 * norm^2. The inverse model
    shares no weight with the forward model here and moves no reward; the paper's weight between the
    two losses would cancel in Adam.

    Metrics:
        icm/forward_loss: Error of the forward model. Healthy: stays at 17 to 20, as the policy
            seeks what it cannot predict.
        icm/inverse_loss: Error of the inverse model.
    """

    streams = ("prediction_error",)

    def __init__(
        self,
        *,
        obs_dim: int,
        action_dim: int,
        skill_dim: int,
        generator: Draws,
        hidden_dim: Size,
        lr: Positive,
        model_error: Literal["norm", "squared"],
        scale: NonNegative,
    ):
        super().__init__()
        self.squared = model_error == "squared"
        self.icm = ICM(obs_dim, action_dim, hidden_dim=hidden_dim)
        self.opt = self.adam("icm", self.icm.parameters(), lr)
        self.scale = scale

    def update(self, batch: Batch, *, final: bool = True) -> Metrics:
        forward, inverse = (
            self._loss(e).mean() for e in self.icm(batch.obs, batch.action, batch.next_obs)
        )
        descend(forward + inverse, self.opt)
        return {"icm/forward_loss": forward.detach(), "icm/inverse_loss": inverse.detach()}

    @torch.no_grad()
    def rewards(self, batch: Batch) -> tuple[RewardStreams, Metrics]:
        error = self._loss(self.icm(batch.obs, batch.action, batch.next_obs)[0])
        return {
            "prediction_error": self.scale * error
            if self.squared
            else torch.log1p(self.scale * error)
        }, {}

    def _loss(self, norm: torch.Tensor) -> torch.Tensor:
        return norm.square() / 2 if self.squared else norm
