"""Disagreement: go where an ensemble of forward models has not come to agree."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from annotated_types import Interval

from agent.base import Metrics, Objective, RewardStreams, descend
from agent.parts.draws import Draws
from agent.parts.networks import parallel_mlp
from replay_buffer import Batch
from utils import Positive, Size


class Disagreement(Objective):
    """The variance between forward models that differ in their initialisation only (Pathak et al.
    2019).

    Metrics:
        disagreement/loss: Error of the forward models. Healthy: stays at 17 to 20, as the policy
            seeks what they cannot predict.
    """

    streams = ("disagreement",)

    def __init__(
        self,
        *,
        obs_dim: int,
        action_dim: int,
        skill_dim: int,
        generator: Draws,
        hidden_dim: Size,
        lr: Positive,
        models: Annotated[int, Interval(ge=2, le=1000)],  # one has no variance
        model_error: Literal["norm", "squared"],
    ):
        super().__init__()
        self.squared, self.count = model_error == "squared", models
        # PyTorch's own initialisation, as in URLB, not the orthogonal one
        self.models = parallel_mlp(models, obs_dim + action_dim, hidden_dim, obs_dim)
        self.opt = self.adam("models", self.models.parameters(), lr)

    def predictions(self, batch: Batch) -> torch.Tensor:
        """What each model says of s': (models, B, obs_dim)."""
        x = torch.cat([batch.obs, batch.action], 1)
        return self.models(x.expand(self.count, *x.shape))

    def update(self, batch: Batch, *, final: bool = True) -> Metrics:
        error = (batch.next_obs - self.predictions(batch)).norm(dim=2)  # (models, B)
        loss = (error.square() if self.squared else error).mean()
        descend(loss, self.opt)
        return {"disagreement/loss": loss.detach()}

    @torch.no_grad()
    def rewards(self, batch: Batch) -> tuple[RewardStreams, Metrics]:
        spread = torch.var(self.predictions(batch), dim=0)  # (B, obs_dim), unbiased
        return {"disagreement": spread.mean(1, keepdim=True)}, {}
