"""RND: visit states on which a predictor of a frozen random network still errs."""

from __future__ import annotations

import torch

from agent.base import Metrics, Objective, RewardStreams, descend
from agent.parts.curiosity import RND
from replay_buffer import Batch
from utils import choose


class Novelty(Objective):
    """Exploration by Random Network Distillation (Burda et al. 2019), as in URLB."""

    streams = ("novelty",)

    def __init__(
        self,
        *,
        obs_dim: int,
        action_dim: int,
        skill_dim: int,
        generator: torch.Generator | None,
        hidden_dim: int,
        lr: float,
        out_dim: int,
        rnd_reward: str,
        rnd_on: str,
    ):
        super().__init__()
        self.rnd_reward = choose(
            "agent.objective.rnd_reward", rnd_reward, ("normalized", "squared_norm")
        )
        self.rnd_on = choose("agent.objective.rnd_on", rnd_on, ("obs", "next_obs"))
        self.rnd = RND(obs_dim, hidden_dim=hidden_dim, out_dim=out_dim)
        self.opt = self.adam("rnd", self.rnd.predictor.parameters(), lr)

    def update(self, batch: Batch, *, final: bool = True) -> Metrics:
        loss = self.rnd(getattr(batch, self.rnd_on)).mean()
        descend(loss, self.opt)
        return {"rnd/loss": loss.detach()}

    @torch.no_grad()
    def rewards(self, batch: Batch) -> tuple[RewardStreams, Metrics]:
        x = getattr(batch, self.rnd_on)
        squared = self.rnd_reward == "squared_norm"
        return {"novelty": self.rnd(x).sum(1, keepdim=True) if squared else self.rnd.novelty(x)}, {}
