"""RND: visit states on which a predictor of a frozen random network still errs."""

from __future__ import annotations

import torch

from agent.base import Metrics, Objective, RewardStreams, descend
from agent.parts.curiosity import RND, NoveltySettings
from agent.parts.draws import Draws
from agent.parts.pixels import Images
from replay_buffer import Batch
from utils import Positive, Size


class Novelty(Objective):
    """Exploration by Random Network Distillation (Burda et al. 2019), as in URLB.

    Metrics:
        rnd/loss: Error of the predictor of the random network. Healthy: 0.0018 to 0.0003.
    """

    streams = ("novelty",)

    def __init__(
        self,
        *,
        obs_dim: int,
        action_dim: int,
        skill_dim: int,
        generator: Draws,
        hidden_dim: Size,
        lr: Positive,
        out_dim: Size,
        novelty: NoveltySettings,
        images: Images | None = None,
    ):
        super().__init__()
        self.novelty = novelty
        self.rnd = RND(obs_dim, hidden_dim=hidden_dim, out_dim=out_dim, images=images)
        self.opt = self.adam("rnd", self.rnd.predictor.parameters(), lr)

    def update(self, batch: Batch, *, final: bool = True) -> Metrics:
        loss = self.rnd(self.rnd.input(batch, self.novelty.rnd_on)).mean()
        descend(loss, self.opt)
        return {"rnd/loss": loss.detach()}

    @torch.no_grad()
    def rewards(self, batch: Batch) -> tuple[RewardStreams, Metrics]:
        x = self.rnd.input(batch, self.novelty.rnd_on)
        return {"novelty": self.rnd.reward(x, self.novelty.rnd_reward)}, {}
