"""Stochastic policies of PPO."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agent.parts.moments import InputNorm
from agent.parts.networks import layered


class BetaPolicy(nn.Module):
    """EDL's: an action is 2x - 1 with x ~ Beta(c0, c1), c = 1.05 + softplus, so that its density has
    one peak."""

    def __init__(
        self, in_dim: int, action_dim: int, *, hidden_dim: int, layers: int, normalize: bool = False
    ):
        super().__init__()
        self.norm = InputNorm(in_dim) if normalize else nn.Identity()
        self.net = layered(in_dim, *[hidden_dim] * layers, 2 * action_dim)

    def concentrations(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """c0 and c1, (..., A) each."""
        c0, c1 = (F.softplus(self.net(self.norm(x))) + 1.05).chunk(2, -1)
        return c0, c1

    def forward(self, x: Tensor) -> Tensor:
        """The mean action."""
        c0, c1 = self.concentrations(x)
        return 2 * c0 / (c0 + c1) - 1

    def sample(self, x: Tensor, rng: np.random.Generator) -> Tensor:
        """Actions (..., A). Drawn by NumPy: torch's Beta takes no generator."""
        c0, c1 = (c.double().cpu().numpy() for c in self.concentrations(x))
        return 2 * torch.from_numpy(rng.beta(c0, c1)).to(x).clamp(1e-6, 1 - 1e-6) - 1

    def evaluate(self, x: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """log-density of actions, up to the constant of 2x - 1, and entropy averaged over their
        entries: (B,) each."""
        c0, c1 = self.concentrations(x)
        both, y = c0 + c1, (action + 1) / 2
        log_beta = torch.lgamma(c0) + torch.lgamma(c1) - torch.lgamma(both)
        log_prob = (c0 - 1) * y.log() + (c1 - 1) * (1 - y).log() - log_beta
        entropy = (
            log_beta
            - (c0 - 1) * torch.digamma(c0)
            - (c1 - 1) * torch.digamma(c1)
            + (both - 2) * torch.digamma(both)
        )
        return log_prob.sum(-1), entropy.mean(-1)


class TanhGaussian(nn.Module):
    """The paper's appendix: a tanh of a Gaussian, with one learned deviation per entry."""

    def __init__(
        self, in_dim: int, action_dim: int, *, hidden_dim: int, layers: int, normalize: bool = False
    ):
        super().__init__()
        self.log_std = nn.Parameter(torch.zeros(action_dim))
        self.norm = InputNorm(in_dim) if normalize else nn.Identity()
        self.net = layered(in_dim, *[hidden_dim] * layers, action_dim)

    def forward(self, x: Tensor) -> Tensor:
        """The action of the mean."""
        return torch.tanh(self.net(self.norm(x)))

    def sample(self, x: Tensor, rng: np.random.Generator) -> Tensor:
        mean = self.net(self.norm(x))
        noise = torch.from_numpy(rng.standard_normal(mean.shape, np.float32)).to(mean)
        return torch.tanh(mean + self.log_std.exp() * noise).clamp(-1 + 1e-6, 1 - 1e-6)

    def evaluate(self, x: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """As BetaPolicy's. The entropy is the Gaussian's: that of its tanh has no closed form."""
        mean = self.net(self.norm(x))
        noise = (torch.atanh(action) - mean) / self.log_std.exp()
        gaussian = -0.5 * noise.square() - self.log_std - 0.5 * math.log(2 * math.pi)
        log_prob = gaussian - torch.log1p(-action.square() + 1e-6)
        entropy = (self.log_std + 0.5 * math.log(2 * math.pi * math.e)).expand_as(mean)
        return log_prob.sum(-1), entropy.mean(-1)


POLICIES: dict[str, type[BetaPolicy] | type[TanhGaussian]] = {
    "beta": BetaPolicy,
    "tanh_gaussian": TanhGaussian,
}
