"""METRA: a skill is a direction in a latent space whose distances are bounded by steps in time."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from agent.base import Metrics, Objective, RewardStreams, descend
from agent.parts.draws import Draws
from agent.parts.networks import mlp
from replay_buffer import Batch
from utils import NonNegative, Positive, Size


def xavier_mlp(*sizes: int) -> nn.Sequential:
    """An MLP with METRA's initialisation: Xavier-uniform weights, zero biases."""
    net = mlp(*sizes)
    for layer in net:
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
    return net


class METRA(Objective):
    """Maximise (phi(s') - phi(s)) . z while a step moves phi by at most 1; s' is one step on, not
    n.

    The multiplier lambda grows while the bound is broken. `constraint` says what is bounded: the
    mean of the squared step over the latent dimensions (public code: ||step||^2 <= d) or their sum
    (paper: ||step||^2 <= 1).

    Metrics:
        metra/loss: Minus the progress along the skill and the room below the bound.
        metra/violation: Share of steps beyond the bound. Healthy: few.
        metra/step: Mean squared step.
        metra/lambda: The multiplier. Healthy: falls from 30 while steps are short.
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
        skill_space: Literal["one_hot", "sphere", "gaussian"],
        constraint: Literal["mean", "sum"],
        lambda_init: Positive,
        slack: NonNegative,
    ):
        super().__init__()
        self.discrete, self.constraint, self.slack = skill_space == "one_hot", constraint, slack
        self.phi = xavier_mlp(obs_dim, hidden_dim, hidden_dim, skill_dim)
        self.log_lambda = nn.Parameter(torch.full((), math.log(lambda_init)))
        self.phi_opt = self.adam("phi", self.phi.parameters(), lr)
        self.lambda_opt = self.adam("lambda", [self.log_lambda], lr)

    def direction(self, skill: Tensor) -> Tensor:
        """Where a skill points: itself, or for one of d one-hots its entry against the mean of the
        others."""
        if not self.discrete:
            return skill
        d = skill.shape[1]
        # 1 at the skill, -1 / (d - 1) elsewhere
        return (skill - skill.mean(1, keepdim=True)) * (d / max(d - 1, 1))

    def step(self, batch: Batch) -> Tensor:
        return self.phi(batch.next_obs_1) - self.phi(batch.obs)  # (B, d)

    def update(self, batch: Batch, *, final: bool = True) -> Metrics:
        step = self.step(batch)
        along = (step * self.direction(batch.skill)).sum(1)  # (B,)
        square = step.square()
        square = square.mean(1) if self.constraint == "mean" else square.sum(1)
        # Negative where broken; beyond the slack more room is worth nothing.
        room = (1 - square).clamp(max=self.slack)
        loss = -(along + self.log_lambda.detach().exp() * room).mean()
        descend(loss, self.phi_opt)
        # On log lambda, as in the public code.
        descend(self.log_lambda * room.detach().mean(), self.lambda_opt)
        return {
            "metra/loss": loss.detach(),
            "metra/violation": (square.detach() > 1).float().mean(),
            "metra/step": square.detach().mean(),
            "metra/lambda": self.log_lambda.detach().exp(),
        }

    @torch.no_grad()
    def rewards(self, batch: Batch) -> tuple[RewardStreams, Metrics]:
        return {
            "diversity": (self.step(batch) * self.direction(batch.skill)).sum(1, keepdim=True)
        }, {}
