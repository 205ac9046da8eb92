"""Stochastic policies of PPO, and its small nets, whose gradients for several losses share their
products."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


def layered(in_dim: int, hidden_dim: int, layers: int, out_dim: int) -> nn.Sequential:
    """EDL's MLP: ReLU between linear layers with PyTorch's own initialisation."""
    sizes = [in_dim, *[hidden_dim] * layers, out_dim]
    parts: list[nn.Module] = []
    for a, b in pairwise(sizes):
        parts += [nn.ReLU()] * bool(parts) + [nn.Linear(a, b)]
    return nn.Sequential(*parts)


@torch.no_grad()
def trace(net: nn.Sequential, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """What a `layered` net says of x, and the input of each linear layer."""
    inputs = []
    for layer in net[::2]:
        x = x.relu() if inputs else x
        inputs.append(x)
        x = layer(x)
    return x, inputs


@torch.no_grad()
def pull_back(net: nn.Sequential, inputs: list[Tensor], grad: Tensor) -> Tensor:
    """Gradients (K, P) of K losses over all parameters, from those over the outputs (K, B, out).

    autograd would go through the net once for each loss; the K gradients differ in the first factor
    alone, so here they share every product.
    """
    count, size = grad.shape[:2]
    flat: list[Tensor] = []
    for layer, x in zip(reversed(net[::2]), reversed(inputs), strict=True):
        turned = grad.transpose(1, 2).reshape(-1, size)  # (K * out, B)
        flat = [(turned @ x).view(count, -1), turned.sum(1).view(count, -1), *flat]
        if x is not inputs[0]:
            grad = (grad.reshape(count * size, -1) @ layer.weight).view(count, size, -1).mul_(x > 0)
    return torch.cat(flat, 1)


class InputNorm(nn.Module):
    """EDL's: inputs, the skill's too, centred and divided by the deviation of all that was learned
    from; within +-5."""

    def __init__(self, dim: int):
        super().__init__()
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("var", torch.ones(dim))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return ((x - self.mean) / self.var.clamp(min=0.01).sqrt()).clamp(-5, 5)

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Moments over the rows of all updates."""
        share = len(x) / (self.count + len(x))
        delta, var = x.mean(0) - self.mean, x.var(0, unbiased=False)
        self.var += share * (var - self.var + (1 - share) * delta.square())
        self.mean += share * delta
        self.count += len(x)


class BetaPolicy(nn.Module):
    """EDL's: an action is 2x - 1 with x ~ Beta(c0, c1), c = 1.05 + softplus, so that density has
    one peak."""

    def __init__(
        self, in_dim: int, action_dim: int, *, hidden_dim: int, layers: int, normalize: bool = False
    ):
        super().__init__()
        self.norm = InputNorm(in_dim) if normalize else nn.Identity()
        self.net = layered(in_dim, hidden_dim, layers, 2 * action_dim)

    def concentrations(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        return (F.softplus(raw) + 1.05).chunk(2, -1)

    def forward(self, x: Tensor) -> Tensor:
        """The mean action."""
        c0, c1 = self.concentrations(self.net(self.norm(x)))
        return 2 * c0 / (c0 + c1) - 1

    def sample(self, x: Tensor, rng: np.random.Generator) -> Tensor:
        """Actions (..., A). Drawn by NumPy: torch's Beta takes no generator."""
        c0, c1 = (c.double().cpu().numpy() for c in self.concentrations(self.net(self.norm(x))))
        return 2 * torch.from_numpy(rng.beta(c0, c1)).to(x).clamp(1e-6, 1 - 1e-6) - 1

    def trace(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        return trace(self.net, self.norm(x))

    def pull_back(self, inputs: list[Tensor], grad: Tensor) -> Tensor:
        return pull_back(self.net, inputs, grad)

    def evaluate(self, raw: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """log-density of actions, up to the constant of 2x - 1, and entropy averaged over their
        entries: (B,) each."""
        return self.slopes(raw, action)[:2]

    def slopes(self, raw: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The two of `evaluate`, and their derivatives over raw (B, 2A)."""
        c = F.softplus(raw) + 1.05  # c0, c1
        both, excess = sum(c.chunk(2, -1)), c - 1
        x = (action + 1) / 2
        log_x = torch.cat([x, 1 - x], -1).log()
        psi, psi_both = torch.digamma(c), torch.digamma(both)
        log_beta = sum(torch.lgamma(c).chunk(2, -1)) - torch.lgamma(both)
        log_prob = sum((excess * log_x).chunk(2, -1)) - log_beta
        entropy = log_beta - sum((excess * psi).chunk(2, -1)) + (both - 2) * psi_both
        inner = torch.sigmoid(raw)  # dc / draw
        by_c = torch.polygamma(1, both) * (both - 2)
        d_log_prob = inner * (log_x - psi + psi_both.repeat(1, 2))
        d_entropy = inner * (by_c.repeat(1, 2) - excess * torch.polygamma(1, c)) / action.shape[-1]
        return log_prob.sum(-1), entropy.mean(-1), d_log_prob, d_entropy


class TanhGaussian(nn.Module):
    """The paper's appendix: a tanh of a Gaussian, with one learned deviation per entry."""

    def __init__(
        self, in_dim: int, action_dim: int, *, hidden_dim: int, layers: int, normalize: bool = False
    ):
        super().__init__()
        self.log_std = nn.Parameter(torch.zeros(action_dim))
        self.norm = InputNorm(in_dim) if normalize else nn.Identity()
        self.net = layered(in_dim, hidden_dim, layers, action_dim)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.net(self.norm(x)))

    def sample(self, x: Tensor, rng: np.random.Generator) -> Tensor:
        mean = self.net(self.norm(x))
        noise = torch.from_numpy(rng.standard_normal(mean.shape, np.float32)).to(mean)
        return torch.tanh(mean + self.log_std.exp() * noise).clamp(-1 + 1e-6, 1 - 1e-6)

    def trace(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        mean, inputs = trace(self.net, self.norm(x))
        return torch.cat([mean, self.log_std.detach().expand_as(mean)], -1), inputs

    def pull_back(self, inputs: list[Tensor], grad: Tensor) -> Tensor:
        mean, log_std = grad.chunk(2, -1)
        return torch.cat(
            [log_std.sum(1), pull_back(self.net, inputs, mean)], 1
        )  # in the order of parameters()

    def evaluate(self, raw: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """As BetaPolicy's. The entropy is the Gaussian's: that of its tanh has no closed form."""
        return self.slopes(raw, action)[:2]

    def slopes(self, raw: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        mean, log_std = raw.chunk(2, -1)
        noise = (torch.atanh(action) - mean) / log_std.exp()
        gaussian = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
        log_prob = gaussian - torch.log1p(-action.square() + 1e-6)
        entropy = log_std + 0.5 * math.log(2 * math.pi * math.e)
        d_log_prob = torch.cat([noise / log_std.exp(), noise.square() - 1], -1)
        d_entropy = torch.cat(
            [torch.zeros_like(mean), torch.full_like(log_std, 1 / action.shape[-1])], -1
        )
        return log_prob.sum(-1), entropy.mean(-1), d_log_prob, d_entropy


POLICIES = {"beta": BetaPolicy, "tanh_gaussian": TanhGaussian}
