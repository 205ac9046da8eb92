"""APS: particle entropy plus agreement with a task vector, on a critic of successor features."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agent.base import Metrics, Objective, RewardStreams, descend
from agent.learners.ddpg import DDPG
from agent.parts.draws import Draws
from agent.parts.networks import mlp
from agent.parts.particles import NeighbourSettings, ParticleEntropy
from agent.skills.sources import Fixed, SkillSource, SkillSpace
from replay_buffer import Batch
from utils import Natural, Positive, Rows, Size


class APS(Objective):
    """Features of states point along the task under which they were reached; rare features are
    rewarded.

    Metrics:
        aps/loss: Minus the mean cosine of features and tasks.
        aps/accuracy: How often a state's nearest task is its own (chance 1/B).
        aps/entropy: Particle entropy of the features.
        aps/match: z . features, the second part of the reward. Healthy: 0.19 to 0.40.
    """

    streams = ("exploration",)
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
        neighbours: NeighbourSettings,
    ):
        super().__init__()
        self.phi = mlp(obs_dim, hidden_dim, hidden_dim, skill_dim)
        self.entropy = ParticleEntropy(neighbours, form="release")
        self.opt = self.adam("phi", self.phi.parameters(), lr)

    def update(self, batch: Batch, *, final: bool = True) -> Metrics:
        # (B, B): states, tasks of unit length
        cosine = F.normalize(self.phi(batch.next_obs), dim=1) @ batch.skill.T
        loss = -cosine.diagonal().mean()
        descend(loss, self.opt)
        nearest = cosine.detach().argmax(1) == torch.arange(len(cosine), device=cosine.device)
        return {"aps/loss": loss.detach(), "aps/accuracy": nearest.float().mean()}  # chance: 1 / B

    @torch.no_grad()
    def rewards(self, batch: Batch) -> tuple[RewardStreams, Metrics]:
        features = self.phi(batch.next_obs)
        entropy = self.entropy(features)
        match = (F.normalize(features, dim=1) * batch.skill).sum(1, keepdim=True)
        return {"exploration": entropy + match}, {
            "aps/entropy": entropy.mean(),
            "aps/match": match.mean(),
        }


class APSLearner(DDPG):
    """The critic's heads are successor features psi(s, a, z) of skill_dim numbers, and Q = z .
    psi."""

    def make_critic(self, obs_dim: int, skill_dim: int, action_dim: int, **sizes) -> nn.Module:
        return super().make_critic(
            obs_dim, skill_dim, action_dim, **{**sizes, "columns": skill_dim}
        )

    def values(
        self, critic: nn.Module, obs: Tensor, skill: Tensor, action: Tensor
    ) -> tuple[Tensor, Tensor]:
        psi1, psi2 = super().values(critic, obs, skill, action)  # (B, skill_dim) each
        return (psi1 * skill).sum(1, keepdim=True), (psi2 * skill).sum(1, keepdim=True)


class RegressedSkill(SkillSource):
    """Fine-tuning: random tasks while warming up, then the task that explains the reward, refit
    every `interval` steps.

    `features` maps observations to phi. regression=least_squares: w of unit length along argmin |r
    - w . phi(s')|^2 (paper); release: the public code's least squares with its arguments swapped,
    which is w along sum r * phi(s). The reward is the memory's n-step sum in both.

    Metrics:
        skills/fit: Share of the squared reward that the regressed task explains.
    """

    rule = "regressed"

    def __init__(
        self,
        space: SkillSpace,
        rng: np.random.Generator,
        *,
        features: nn.Module,
        interval: Natural,
        warmup: Natural,
        samples: Rows,
        regression: Literal["least_squares", "release"],
    ):
        super().__init__(space, np.zeros(space.dim, np.float32))
        self.release = regression == "release"
        self.rng, self.features, self.interval = rng, features, interval
        self.warmup, self.samples, self.solved = warmup, samples, False

    def select(self, obs: np.ndarray, step: int, *, first: bool) -> np.ndarray:
        if not self.solved and (first or step % self.interval == 0):
            self.skill = self.space.sample(self.rng)
        return self.skill

    def update(self, memory, step: int) -> Metrics:
        if step <= self.warmup or step % self.interval or len(memory) == 0:
            return {}
        batch = memory.sample(self.samples)
        task, fit = self.regress(batch.obs if self.release else batch.next_obs, batch.reward)
        norm = np.linalg.norm(task)
        if norm > 0:  # a memory without any reward says nothing of the task: keep the one there is
            self.skill, self.solved = (task / norm).astype(np.float32), True
        return {"skills/fit": torch.tensor(fit)}

    @torch.no_grad()
    def regress(self, obs: Tensor, reward: Tensor) -> tuple[np.ndarray, float]:
        """The task before scaling, and the share of the squared reward that least squares
        explains."""
        phi = F.normalize(self.features(obs), dim=1).double().cpu().numpy()  # (N, d)
        r = reward.double().cpu().numpy()[:, 0]
        solution = np.linalg.lstsq(phi, r, rcond=None)[0]
        total = (r**2).sum()
        fit = 1 - ((r - phi @ solution) ** 2).sum() / total if total > 0 else 0.0
        return r @ phi if self.release else solution, float(fit)

    def evaluation(self, rng: np.random.Generator) -> SkillSource:
        """The solved task; before there is one, a random task for the whole evaluation."""
        return (
            SkillSource(self.space, self.skill) if self.solved else Fixed(self.space, rng, index=-1)
        )

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "solved": self.solved}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.solved = state["solved"]
