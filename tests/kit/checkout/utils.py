"""Stand-in: helpers under the names of the public code."""

from itertools import pairwise

import torch
from not_installed_anywhere import Recorder  # such imports are made up in memory
from torch import distributions


class Logger(Recorder):
    """Never made in a comparison."""


class RMS:
    """Running mean M and variance S."""

    def __init__(self, device="cpu", epsilon=1e-4):
        self.M, self.S, self.n = torch.zeros(1), torch.ones(1), epsilon

    def __call__(self, x):
        count, total = len(x), self.n + len(x)
        shift = x.mean(0) - self.M
        spread = self.S * self.n + x.var(0) * count + shift**2 * self.n * count / total
        self.M, self.S, self.n = self.M + shift * count / total, spread / total, total
        return self.M, self.S


class Noisy(distributions.Normal):
    """A normal whose samples stay inside (-1, 1), with the gradient of what was drawn."""

    def sample(self, clip=None):
        noise = self.scale * torch.normal(torch.zeros_like(self.loc), torch.ones_like(self.loc))
        drawn = self.loc + (noise if clip is None else noise.clamp(-clip, clip))
        return drawn + (drawn.clamp(-1 + 1e-6, 1 - 1e-6) - drawn).detach()


def tensors(batch):
    return [torch.as_tensor(each) for each in batch]


def move_towards(slow, fast, tau):
    for late, new in zip(slow.parameters(), fast.parameters(), strict=True):
        late.data.lerp_(new.data, tau)


def dense(*sizes):
    layers = []
    for before, after in pairwise(sizes):
        layers += [torch.nn.Linear(before, after), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def squashed(inputs, outputs):
    return torch.nn.Sequential(
        torch.nn.Linear(inputs, outputs), torch.nn.LayerNorm(outputs), torch.nn.Tanh()
    )
