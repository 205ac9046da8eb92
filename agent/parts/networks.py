"""Actor, critic and MLPs with URLB's shapes and initialisation."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agent.parts.backprop import LinearReLU, trace_actor, trace_twin
from utils import choose


def init_weights(module: nn.Module) -> nn.Module:
    """Orthogonal weights of gain 1 and zero biases on every linear layer, as in URLB."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            nn.init.orthogonal_(layer.weight)
            nn.init.zeros_(layer.bias)
    return module


class MLP(nn.Sequential):
    """Linear layers with ReLU between them, none after the last; for autograd a single step."""

    def __init__(self, *layers: nn.Module):
        super().__init__(*layers)
        self.linears = [layer for layer in self if isinstance(layer, nn.Linear)]

    def forward(self, x: Tensor) -> Tensor:
        learns = torch.is_grad_enabled() and (
            x.requires_grad or self.linears[0].weight.requires_grad
        )
        if learns and x.ndim == 2 and not torch._C._are_functorch_transforms_active():
            return LinearReLU.apply(
                x, *(p for layer in self.linears for p in (layer.weight, layer.bias))
            )
        for layer in self.linears[:-1]:
            x = F.relu_(F.linear(x, layer.weight, layer.bias))
        return F.linear(x, self.linears[-1].weight, self.linears[-1].bias)


def mlp(*sizes: int) -> MLP:
    layers: list[nn.Module] = []
    for i, (a, b) in enumerate(pairwise(sizes)):
        layers += [nn.ReLU()] * (i > 0) + [nn.Linear(a, b)]
    return init_weights(MLP(*layers))


class ParallelLinear(nn.Module):
    """`count` linear layers side by side, initialised as nn.Linear.

    legacy: CeSD's public code takes the fan of the transposed shape, so that a last layer starts at
    U(-1, 1).
    """

    def __init__(self, count: int, in_dim: int, out_dim: int, *, legacy: bool = False):
        super().__init__()
        bound = (out_dim if legacy else in_dim) ** -0.5
        self.weight = nn.Parameter(torch.empty(count, in_dim, out_dim).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(count, 1, out_dim).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, x, self.weight)  # (count, B, out_dim)


def parallel_mlp(count: int, *sizes: int, legacy: bool = False) -> nn.Sequential:
    """`count` MLPs side by side, (count, B, in) -> (count, B, out), with PyTorch's own
    initialisation."""
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [nn.ReLU()] * bool(layers) + [ParallelLinear(count, a, b, legacy=legacy)]
    return nn.Sequential(*layers)


def trunk(in_dim: int, out_dim: int) -> nn.Sequential:
    return init_weights(nn.Sequential(nn.Linear(in_dim, out_dim), nn.LayerNorm(out_dim), nn.Tanh()))


class Actor(nn.Module):
    """mu(x) in (-1, 1); x = [obs, skill]."""

    def __init__(self, in_dim: int, action_dim: int, *, hidden_dim: int, layers: int):
        super().__init__()
        self.trunk = trunk(in_dim, hidden_dim)
        self.head = mlp(*[hidden_dim] * (layers + 1), action_dim)

    def forward(self, x: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return trace_actor(self, x).mean
        return torch.tanh(self.head(self.trunk(x)))


class Critic(nn.Module):
    """Twin Q with a shared trunk; each head gives one value per column (one, or one per reward
    stream)."""

    def __init__(
        self,
        in_dim: int,
        action_dim: int,
        *,
        hidden_dim: int,
        layers: int,
        action_input: str,
        columns: int,
    ):
        super().__init__()
        self.action_in_trunk = (
            choose("learner.action_input", action_input, ("trunk", "head")) == "trunk"
        )
        extra = 0 if self.action_in_trunk else action_dim
        self.trunk = trunk(in_dim + action_dim - extra, hidden_dim)
        sizes = (hidden_dim + extra, *[hidden_dim] * layers, columns)
        self.q1, self.q2 = mlp(*sizes), mlp(*sizes)

    def forward(self, x: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        if not torch.is_grad_enabled():
            return trace_twin(self, x, action).q
        if self.action_in_trunk:
            h = self.trunk(torch.cat([x, action], -1))
        else:
            h = torch.cat([self.trunk(x), action], -1)
        return self.q1(h), self.q2(h)  # (B, columns) each
