"""Disagreement: go where an ensemble of forward models has not come to agree."""

from __future__ import annotations

import torch
from torch import nn

from agent.base import Metrics, Objective, RewardStreams, descend
from replay_buffer import Batch
from utils import choose


class Disagreement(Objective):
    """The variance between forward models that differ in their initialisation only (Pathak et al. 2019)."""

    streams = ("disagreement",)

    def __init__(self, *, obs_dim: int, action_dim: int, skill_dim: int, generator: torch.Generator | None,
                 hidden_dim: int, lr: float, models: int, model_error: str):
        super().__init__()
        self.squared = choose("agent.objective.model_error", model_error, ("norm", "squared")) == "squared"
        self.models = nn.ModuleList(  # PyTorch's own initialisation, as in URLB, not the orthogonal one
            nn.Sequential(nn.Linear(obs_dim + action_dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, obs_dim))
            for _ in range(models))
        self.opt = self.adam("models", self.models.parameters(), lr)

    def predictions(self, batch: Batch) -> torch.Tensor:
        x = torch.cat([batch.obs, batch.action], 1)
        return torch.stack([model(x) for model in self.models])  # (models, B, obs_dim)

    def update(self, batch: Batch, *, final: bool = True) -> Metrics:
        error = (batch.next_obs - self.predictions(batch)).norm(dim=2)  # (models, B)
        loss = (error.square() if self.squared else error).mean()
        descend(loss, self.opt)
        return {"disagreement/loss": loss.detach()}

    @torch.no_grad()
    def rewards(self, batch: Batch) -> tuple[RewardStreams, Metrics]:
        return {"disagreement": self.predictions(batch).var(0).mean(1, keepdim=True)}, {}
