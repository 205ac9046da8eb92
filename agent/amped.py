"""AMPED: exploration (particle entropy + RND) and diversity (AnInfoNCE) as two reward streams
(section 3)."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from agent.base import Metrics, Objective, RewardStreams, descend
from agent.parts.contrast import (
    AnInfoNCE,
    ContrastSettings,
    EncoderSettings,
    TransitionEncoder,
    masked_mean,
)
from agent.parts.curiosity import RND, NoveltySettings
from agent.parts.draws import Draws
from agent.parts.particles import EntropySettings, ParticleEntropy, RecentStates
from agent.parts.pixels import Images
from replay_buffer import Batch
from utils import NonNegative, Positive, Repeats, Rows, Size, UserError


@dataclass(frozen=True, kw_only=True)
class ParticleSettings:
    """What the entropy is of (s' or the pair s, s' in the features of CPC's encoder, or s' itself; s'
    one or n steps on), and among which others: the batch, or the last pool_size transitions.

    CPC learns to tell skills apart: in its features the states of one skill lie close together and
    the borders between skills far from everything, so that it is the borders that are paid. `raw`
    pays for room in the states themselves, and needs no encoder.
    """

    particle: Literal["next_state", "pair", "raw"]
    transition: Literal["nstep", "one_step"]
    pool: Literal["batch", "recent"]
    pool_size: Rows


class AMPED(Objective):
    """Rewards are computed after this call's own encoder steps, on the same batch (Algorithm 2).

    Metrics:
        diversity/loss: AnInfoNCE, Eq. 4. Healthy: 4.54 around frame 13,000, 4.79 at the end
            (uninformative: 4.80).
        diversity/accuracy: How often the nearest other row has the same skill (chance 1/16).
            Healthy: 0.23 around frame 13,000, then 0.07.
        cpc/loss: Contrast of transitions and skills, Eq. 3. Healthy: -1.17 around frame 8000, then
            -0.36 (0 = it says nothing).
        cpc/accuracy: How often the own skill has the largest cosine (chance 1/16). Healthy: 0.74
            around frame 8000, 0.26 at the end.
        rnd/loss: Error of the predictor of the random network. Healthy: falls, with bumps where new
            states appear.
        exploration/entropy: Particle entropy, without its weight alpha. Healthy: 1.14 to 0.31.
        exploration/rnd: RND's novelty, without its weight beta. Healthy: 0.52 to 0.14.
    """

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
        alpha: NonNegative,
        beta: NonNegative,
        diversity: bool,
        div_reward: Literal["ratio", "log_ratio"],
        contrastive_updates: Repeats,
        rnd_dim: Size,
        contrast: ContrastSettings,
        encoder: EncoderSettings,
        entropy: EntropySettings,
        particles: ParticleSettings,
        novelty: NoveltySettings,
        images: Images | None = None,
    ):
        super().__init__()
        self.alpha, self.beta, self.diversity, self.generator = alpha, beta, diversity, generator
        # A stream that is switched off is left out, not set to zero: a zero target would halve the
        # other's reward.
        wanted = {"diversity": diversity, "exploration": alpha > 0 or beta > 0}
        self.streams = tuple(stream for stream, on in wanted.items() if on)
        if not self.streams:
            raise UserError(
                "alpha=0, beta=0 and agent.objective.diversity=false leave no reward; switch one on"
            )
        self.batches_per_update, self.div_reward = contrastive_updates, div_reward
        self.particles, self.novelty = particles, novelty

        self.contrast = AnInfoNCE(obs_dim, skill_dim, hidden_dim=hidden_dim, settings=contrast)
        self.encoder = None
        if particles.particle != "raw":
            self.encoder = TransitionEncoder(
                obs_dim, skill_dim, hidden_dim=hidden_dim, settings=encoder
            )
        self.rnd = RND(obs_dim, hidden_dim=hidden_dim, out_dim=rnd_dim, images=images)
        self.entropy = ParticleEntropy(entropy, form=entropy.entropy_form)
        recent = particles.pool == "recent"
        self.recent = RecentStates(particles.pool_size, obs_dim) if recent else None
        self.contrast_opt = self.adam("contrast", self.contrast.parameters(), lr)
        encoders = [] if self.encoder is None else [*self.encoder.parameters()]
        explorers = [*encoders, *self.rnd.predictor.parameters()]
        self.exploration_opt = self.adam("exploration", explorers, lr)

    @property
    def observes(self) -> bool:
        return self.recent is not None

    def observe(self, obs: np.ndarray, next_obs: np.ndarray) -> None:
        if self.recent is not None:
            device = self.recent.pairs.device
            self.recent.add(torch.from_numpy(obs).to(device), torch.from_numpy(next_obs).to(device))

    def update(self, batch: Batch, *, final: bool = True) -> Metrics:
        skill_index = batch.skill.argmax(1)
        losses: dict[str, torch.Tensor] = {}
        metrics: Metrics = {}
        optimizers = []
        if self.diversity:
            contrast = self.contrast(batch.next_obs, skill_index, self.generator)
            losses["diversity/loss"] = -masked_mean(contrast.log_ratio, contrast.valid)
            metrics["diversity/accuracy"] = contrast.correct.mean()
            optimizers.append(self.contrast_opt)
        if final:
            if self.encoder is not None:
                losses["cpc/loss"], metrics["cpc/accuracy"] = self.encoder.loss(
                    batch.obs, self._successor(batch), skill_index
                )
            losses["rnd/loss"] = self.rnd(self._rnd_input(batch)).mean()
            optimizers.append(self.exploration_opt)
        # The losses share no parameter: their sum has the gradients of each.
        if losses:
            descend(functools.reduce(torch.add, losses.values()), *optimizers)
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
        x = self._particle(batch.obs, self._successor(batch))
        if self.recent is None:
            return self.entropy(x)
        pool = self._particle(self.recent.pairs[:, 0], self.recent.pairs[:, 1])
        return self.entropy(x, pool, self.recent.seen)

    def _particle(self, obs: torch.Tensor, next_obs: torch.Tensor) -> torch.Tensor:
        if self.encoder is None:
            return next_obs
        if self.particles.particle == "pair":
            return self.encoder.pair(obs, next_obs)
        return self.encoder.state(next_obs)

    def _novelty(self, batch: Batch) -> torch.Tensor:
        return self.rnd.reward(self._rnd_input(batch), self.novelty.rnd_reward)

    def _successor(self, batch: Batch) -> torch.Tensor:
        return batch.next_obs if self.particles.transition == "nstep" else batch.next_obs_1

    def _rnd_input(self, batch: Batch) -> torch.Tensor:
        return self.rnd.input(batch, self.novelty.rnd_on)
