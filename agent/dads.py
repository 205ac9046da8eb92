"""DADS: a skill is what makes the next state predictable. Skill dynamics q(s' | s, z) and its
log-ratio as reward."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agent.base import Metrics, Objective, RewardStreams, descend
from agent.metra import xavier_mlp
from agent.parts.draws import Draws
from replay_buffer import Batch
from utils import Positive, Share, Size

# of the B * L rows of a reward: bounds memory (33 MB per layer at width 1024), moves no number
ROWS_AT_ONCE = 8192


class DADS(Objective):
    """Learn the change of state that a skill brings; reward changes that other skills would not
    have brought.

    q is a Gaussian of unit variance on batch-normalised states and changes: batch statistics while
    it learns, running ones in the reward. s' is one step on, not n.

    Metrics:
        dads/loss: -log q of the change of state.
        dads/accuracy: How often the own skill explains a step better than another (chance 1/2).
            Healthy: 0.54 to 0.68.
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
        skill_space: Literal["gaussian", "one_hot"],
        resampled_skills: Size,
        logit_clip: Positive,
        norm_momentum: Share,
    ):
        super().__init__()
        self.skill_space, self.skill_dim, self.generator = skill_space, skill_dim, generator
        self.count, self.clip = resampled_skills, logit_clip
        self.dynamics = xavier_mlp(obs_dim + skill_dim, hidden_dim, hidden_dim, obs_dim)
        # The public code's scale and shift of the state's norm are in no optimiser: they stay 1 and
        # 0.
        self.state_norm = nn.BatchNorm1d(obs_dim, momentum=norm_momentum, affine=False)
        self.change_norm = nn.BatchNorm1d(obs_dim, momentum=norm_momentum, affine=False)
        self.opt = self.adam("dynamics", self.dynamics.parameters(), lr)

    def normalized(self, batch: Batch, *, learn: bool) -> tuple[Tensor, Tensor]:
        """The state, and the change of state to predict."""
        self.state_norm.train(learn)
        self.change_norm.train(learn)
        return self.state_norm(batch.obs), self.change_norm(batch.next_obs_1 - batch.obs)

    def log_q(self, state: Tensor, change: Tensor, skill: Tensor) -> Tensor:
        """(rows,), without the constant -obs_dim / 2 * log(2 pi)."""
        return -0.5 * (change - self.dynamics(torch.cat([state, skill], 1))).square().sum(1)

    def resample(self, count: int, like: Tensor) -> Tensor:
        """`count` skills of the space for each row: (count, B, d)."""
        size = (count, *like.shape)
        if self.skill_space == "gaussian":
            return self.generator.normal(*size)
        index = self.generator.integers(self.skill_dim, *size[:2])
        return F.one_hot(index, self.skill_dim).to(like.dtype)

    def update(self, batch: Batch, *, final: bool = True) -> Metrics:
        state, change = self.normalized(batch, learn=True)
        loss = -self.log_q(state, change, batch.skill).mean()
        descend(loss, self.opt)
        return {"dads/loss": loss.detach()}

    @torch.no_grad()
    def rewards(self, batch: Batch) -> tuple[RewardStreams, Metrics]:
        """log q(s'|s,z) - log of the mean of q(s'|s,.) over z itself and L other skills: at most
        log(L + 1)."""
        state, change = self.normalized(batch, learn=False)
        others = []
        for skills in self.resample(self.count, batch.skill).split(
            max(ROWS_AT_ONCE // len(state), 1)
        ):
            states, changes = (
                x.expand(len(skills), *x.shape).flatten(0, 1) for x in (state, change)
            )
            log_q = self.log_q(states, changes, skills.flatten(0, 1))
            others.append(log_q.view(len(skills), -1))
        # (L, B)
        margin = (torch.cat(others) - self.log_q(state, change, batch.skill)).clamp(
            -self.clip, self.clip
        )
        reward = math.log(self.count + 1) - torch.cat(
            [torch.zeros_like(margin[:1]), margin]
        ).logsumexp(0)
        # Health: how often the own skill explains the change better than another one (chance: 1/2).
        return {"diversity": reward.unsqueeze(1)}, {"dads/accuracy": (margin < 0).float().mean()}
