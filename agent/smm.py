"""SMM: skills whose state marginals together are flat (state marginal matching, Lee et al.,
2019)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from agent.base import Metrics, Objective, RewardStreams, descend
from agent.diayn import SkillDiscriminator
from agent.parts.draws import Draws
from agent.parts.networks import mlp
from replay_buffer import Batch
from utils import NonNegative, Positive, Size


@dataclass(frozen=True, kw_only=True)
class DensitySettings:
    """The VAE: its sizes, the weight of its divergence, its learning rate."""

    vae_hidden_dim: Size
    vae_code_dim: Size
    vae_beta: NonNegative
    vae_lr: Positive


class VAEDensity(nn.Module):
    """-log p(x) by the reconstruction error of a VAE (up to a constant and a factor, as in the
    public code)."""

    def __init__(self, in_dim: int, settings: DensitySettings):
        super().__init__()
        hidden_dim, code_dim = settings.vae_hidden_dim, settings.vae_code_dim
        self.features = nn.Sequential(mlp(in_dim, hidden_dim, hidden_dim), nn.ReLU())
        self.mean, self.log_var = mlp(hidden_dim, code_dim), mlp(hidden_dim, code_dim)
        self.decode = mlp(code_dim, hidden_dim, hidden_dim, in_dim)
        self.beta = settings.vae_beta

    def forward(self, x: Tensor, generator: Draws) -> tuple[Tensor, Tensor]:
        """Squared reconstruction error (B, in_dim) under one draw of the code, and KL(code || N(0,
        1)): (B,)."""
        features = self.features(x)
        mean, log_var = self.mean(features), self.log_var(features)
        noise = generator.normal(*mean.shape)
        error = (self.decode(mean + noise * (log_var / 2).exp()) - x).square()
        return error, (mean.square() + log_var.exp() - log_var - 1).sum(1) / 2

    def loss(self, x: Tensor, generator: Draws) -> Tensor:
        error, divergence = self(x, generator)
        return error.mean() + self.beta * divergence.mean()  # error: also the mean over inputs


class SMM(Objective):
    """r = -log p(s | z) + log n + log q(z | s): H[s | z] + H[z] - H[z | s], for a uniform target
    distribution.

    Metrics:
        density/loss: Loss of the VAE.
        discriminator/loss: Cross-entropy of the skill given the state.
        discriminator/accuracy: How often the skill is recognised (chance 1/n).
        exploration/surprise: Reconstruction error of the VAE. Healthy: dwarfs the rest.
        diversity/log_posterior: log q(z | s) of the own skill.
    """

    streams = ("intrinsic",)
    needs_skills = True

    def __init__(
        self,
        *,
        obs_dim: int,
        action_dim: int,
        skill_dim: int,
        generator: Draws,
        hidden_dim: Size,
        discriminator_lr: Positive,
        density: DensitySettings,
        density_weight: NonNegative,
        sign: Literal["paper", "release"],
    ):
        super().__init__()
        self.generator = generator
        self.density_weight = density_weight
        self.prior_entropy = math.log(skill_dim)
        self.sign = 1 if sign == "paper" else -1
        self.discriminator = SkillDiscriminator(obs_dim, skill_dim, hidden_dim=hidden_dim)
        self.density = VAEDensity(obs_dim + skill_dim, density)
        self.discriminator_opt = self.adam(
            "discriminator", self.discriminator.parameters(), discriminator_lr
        )
        self.density_opt = self.adam("density", self.density.parameters(), density.vae_lr)

    def update(self, batch: Batch, *, final: bool = True) -> Metrics:
        density_loss = self.density.loss(self._pair(batch), self.generator)
        descend(density_loss, self.density_opt)
        loss, accuracy = self.discriminator.loss(batch.obs, batch.skill)
        descend(loss, self.discriminator_opt)
        return {
            "density/loss": density_loss.detach(),
            "discriminator/loss": loss.detach(),
            "discriminator/accuracy": accuracy,
        }

    @torch.no_grad()
    def rewards(self, batch: Batch) -> tuple[RewardStreams, Metrics]:
        surprise = self.density(self._pair(batch), self.generator)[0].sum(1, keepdim=True)
        log_posterior = self.discriminator.log_posterior(batch.obs, batch.skill)
        reward = self.density_weight * surprise + self.prior_entropy + self.sign * log_posterior
        return {"intrinsic": reward}, {
            "exploration/surprise": surprise.mean(),
            "diversity/log_posterior": log_posterior.mean(),
        }

    def _pair(self, batch: Batch) -> Tensor:
        """(s, z). Skills are uniform, so log p(s, z) and log p(s | z) differ by a constant."""
        return torch.cat([batch.obs, batch.skill], 1)
