"""AMPED: exploration (particle entropy + RND) and diversity (AnInfoNCE) as two reward streams
(section 3)."""

from __future__ import annotations

import numpy as np
import torch

from agent.base import Metrics, Objective, RewardStreams, descend
from agent.parts.contrast import AnInfoNCE, TransitionEncoder, masked_mean
from agent.parts.curiosity import RND
from agent.parts.particles import ParticleEntropy, RecentStates
from replay_buffer import Batch
from utils import UserError, choose


class AMPED(Objective):
    """Rewards are computed after this call's own encoder steps, on the same batch (Algorithm 2)."""

    def __init__(
        self,
        *,
        obs_dim: int,
        action_dim: int,
        skill_dim: int,
        generator: torch.Generator | None,
        hidden_dim: int,
        lr: float,
        alpha: float,
        beta: float,
        diversity: bool,
        div_reward: str,
        denominator: str,
        positive: str,
        metric: str,
        temperature: float,
        numerics: str,
        contrastive_updates: int,
        particle: str,
        entropy_form: str,
        pool: str,
        pool_size: int,
        knn_scale: str,
        k: int,
        knn_clip: float,
        cpc: str,
        cpc_temperature: float,
        skill_net: bool,
        transition: str,
        rnd_reward: str,
        rnd_on: str,
        rnd_dim: int,
    ):
        super().__init__()
        self.alpha, self.beta, self.diversity, self.generator = alpha, beta, diversity, generator
        # A stream that is switched off is left out, not set to zero: a zero target would halve the
        # other's reward.
        self.streams = ("diversity",) * diversity + ("exploration",) * (alpha > 0 or beta > 0)
        if not self.streams:
            raise UserError(
                "alpha=0, beta=0 and agent.objective.diversity=false leave no reward; switch one on"
            )
        self.batches_per_update = contrastive_updates
        self.div_reward = choose("agent.objective.div_reward", div_reward, ("ratio", "log_ratio"))
        self.particle = choose("agent.objective.particle", particle, ("next_state", "pair"))
        self.transition = choose("agent.objective.transition", transition, ("nstep", "one_step"))
        self.rnd_reward = choose(
            "agent.objective.rnd_reward", rnd_reward, ("normalized", "squared_norm")
        )
        self.rnd_on = choose("agent.objective.rnd_on", rnd_on, ("obs", "next_obs"))
        choose("agent.objective.pool", pool, ("batch", "recent"))

        self.contrast = AnInfoNCE(
            obs_dim,
            skill_dim,
            hidden_dim=hidden_dim,
            temperature=temperature,
            metric=metric,
            denominator=denominator,
            positive=positive,
            numerics=numerics,
        )
        self.encoder = TransitionEncoder(
            obs_dim,
            skill_dim,
            hidden_dim=hidden_dim,
            temperature=cpc_temperature,
            form=cpc,
            skill_net=skill_net,
        )
        self.rnd = RND(obs_dim, hidden_dim=hidden_dim, out_dim=rnd_dim)
        self.entropy = ParticleEntropy(k=k, clip=knn_clip, form=entropy_form, scale=knn_scale)
        self.recent = RecentStates(pool_size, obs_dim) if pool == "recent" else None
        self.contrast_opt = self.adam("contrast", self.contrast.parameters(), lr)
        explorers = [*self.encoder.parameters(), *self.rnd.predictor.parameters()]
        self.exploration_opt = self.adam("exploration", explorers, lr)

    def observe(self, obs: np.ndarray, next_obs: np.ndarray) -> None:
        if self.recent is not None:
            device = self.recent.pairs.device
            self.recent.add(torch.from_numpy(obs).to(device), torch.from_numpy(next_obs).to(device))

    def update(self, batch: Batch, *, final: bool = True) -> Metrics:
        skill_index = batch.skill.argmax(1)
        losses, metrics = {}, {}
        if self.diversity:
            contrast = self.contrast(batch.next_obs, skill_index, self.generator)
            losses["diversity/loss"] = -masked_mean(contrast.log_ratio, contrast.valid)
            metrics["diversity/accuracy"] = contrast.correct.mean()
        if final:
            losses["cpc/loss"], metrics["cpc/accuracy"] = self.encoder.loss(
                batch.obs, self._successor(batch), skill_index
            )
            losses["rnd/loss"] = self.rnd(self._rnd_input(batch)).mean()
        # The losses share no parameter: their sum has the gradients of each.
        if losses:
            descend(
                sum(losses.values()),
                *[self.contrast_opt] * self.diversity,
                *[self.exploration_opt] * final,
            )
        return metrics | {name: loss.detach() for name, loss in losses.items()}

    @torch.no_grad()
    def rewards(self, batch: Batch) -> tuple[RewardStreams, Metrics]:
        streams: RewardStreams = {}
        metrics: Metrics = {}
        if "diversity" in self.streams:
            streams["diversity"] = self._diversity(batch)
        if "exploration" in self.streams:
            entropy, novelty = self._entropy(batch), self._novelty(batch)
            streams["exploration"] = self.alpha * entropy + self.beta * novelty
            metrics = {"exploration/entropy": entropy.mean(), "exploration/rnd": novelty.mean()}
        return streams, metrics

    def _diversity(self, batch: Batch) -> torch.Tensor:
        contrast = self.contrast(batch.next_obs, batch.skill.argmax(1), self.generator)
        reward = contrast.ratio if self.div_reward == "ratio" else contrast.log_ratio
        # An anchor alone with its skill has no positive: it gets the mean of the others, which
        # favours nothing.
        return reward.where(contrast.valid, masked_mean(reward, contrast.valid)).unsqueeze(1)

    def _entropy(self, batch: Batch) -> torch.Tensor:
        embed = (
            self.encoder.pair
            if self.particle == "pair"
            else lambda _, next_obs: self.encoder.state(next_obs)
        )
        x = embed(batch.obs, self._successor(batch))
        if self.recent is None:
            return self.entropy(x)
        pool = embed(self.recent.pairs[:, 0], self.recent.pairs[:, 1])
        return self.entropy(x, pool, self.recent.seen)

    def _novelty(self, batch: Batch) -> torch.Tensor:
        x = self._rnd_input(batch)
        return (
            self.rnd(x).sum(1, keepdim=True)
            if self.rnd_reward == "squared_norm"
            else self.rnd.novelty(x)
        )

    def _successor(self, batch: Batch) -> torch.Tensor:
        return batch.next_obs if self.transition == "nstep" else batch.next_obs_1

    def _rnd_input(self, batch: Batch) -> torch.Tensor:
        return batch.obs if self.rnd_on == "obs" else batch.next_obs
