"""Actor, critic and MLPs with URLB's shapes and initialisation."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn


def init_weights(module: nn.Module) -> None:
    """Orthogonal weights of gain 1 and zero biases on every linear layer, as in URLB."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            nn.init.orthogonal_(layer.weight)
            nn.init.zeros_(layer.bias)


def layered(*sizes: int, layer: Callable[[int, int], nn.Module] = nn.Linear) -> nn.Sequential:
    """Layers of these sizes with ReLU between them, none after the last; PyTorch's initialisation."""
    parts: list[nn.Module] = []
    for in_dim, out_dim in pairwise(sizes):
        if parts:
            parts.append(nn.ReLU(inplace=True))
        parts.append(layer(in_dim, out_dim))
    return nn.Sequential(*parts)


def mlp(*sizes: int) -> nn.Sequential:
    """`layered` with URLB's initialisation."""
    net = layered(*sizes)
    init_weights(net)
    return net


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
    """`count` MLPs side by side, (count, B, in) -> (count, B, out)."""
    return layered(*sizes, layer=lambda a, b: ParallelLinear(count, a, b, legacy=legacy))


def trunk(in_dim: int, out_dim: int) -> nn.Sequential:
    net = nn.Sequential(nn.Linear(in_dim, out_dim), nn.LayerNorm(out_dim), nn.Tanh())
    init_weights(net)
    return net


class Actor(nn.Module):
    """mu(x) in (-1, 1); x = [obs, skill]. A trunk is as wide as the rest, or `trunk_dim`."""

    def __init__(
        self,
        in_dim: int,
        action_dim: int,
        *,
        hidden_dim: int,
        layers: int,
        trunk_dim: int | None = None,
    ):
        super().__init__()
        width = trunk_dim or hidden_dim
        self.trunk = trunk(in_dim, width)
        self.head = mlp(width, *[hidden_dim] * layers, action_dim)

    def before_tanh(self, x: Tensor) -> Tensor:
        return self.head(self.trunk(x))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.before_tanh(x))


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
        action_input: Literal["trunk", "head"],
        columns: int,
        trunk_dim: int | None = None,
    ):
        super().__init__()
        self.action_in_trunk = action_input == "trunk"
        extra = 0 if self.action_in_trunk else action_dim
        width = trunk_dim or hidden_dim
        self.trunk = trunk(in_dim + action_dim - extra, width)
        sizes = (width + extra, *[hidden_dim] * layers, columns)
        self.q1, self.q2 = mlp(*sizes), mlp(*sizes)

    def forward(self, x: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        if self.action_in_trunk:
            h = self.trunk(torch.cat([x, action], -1))
        else:
            h = torch.cat([self.trunk(x), action], -1)
        return self.q1(h), self.q2(h)  # (B, columns) each
