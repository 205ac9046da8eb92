"""Errors of predictions as rewards: random network distillation (RND) and forward and inverse
models (ICM)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from agent.parts.moments import RunningMoments
from agent.parts.networks import mlp, trunk
from agent.parts.pixels import Images, ScaledEncoder

RewardForm = Literal["normalized", "squared_norm", "mean"]


@dataclass(frozen=True, kw_only=True)
class NoveltySettings:
    """What RND rewards. normalized: mean error over its running deviation; squared_norm: the sum of
    squares; mean: their mean, as the paper's appendix has it in the mazes."""

    rnd_reward: RewardForm
    rnd_on: Literal["obs", "next_obs"]


class RND(nn.Module):
    """Error of a predictor of a frozen random network on clamp(batch-normalised input, +-5).

    With `images` both begin with an encoder of their own and see pictures, not the features of the
    learner's encoder, which moves: the error would never settle.
    """

    def __init__(self, in_dim: int, *, hidden_dim: int, out_dim: int, images: Images | None = None):
        super().__init__()
        self.images = images

        def network() -> nn.Sequential:
            net = mlp(in_dim, hidden_dim, hidden_dim, out_dim)
            return net if images is None else nn.Sequential(ScaledEncoder(images), *net)

        # batch statistics, always
        if images is None:
            self.normalize: nn.Module = nn.BatchNorm1d(
                in_dim, affine=False, track_running_stats=False
            )
        else:
            self.normalize = nn.BatchNorm2d(
                images.shape[0], affine=False, track_running_stats=False
            )
        self.predictor = network()
        self.target = network().requires_grad_(False)
        self.moments = RunningMoments()
        self.last: tuple | None = None  # an input, its version, and the answer

    def input(self, batch: Any, name: str) -> Tensor:
        """What it looks at, of a batch."""
        return getattr(batch, name) if self.images is None else batch.pictures(name)

    def _normal(self, x: Tensor) -> Tensor:
        """Pictures are whole numbers, and become floats here; states keep their precision."""
        return self.normalize(x if x.is_floating_point() else x.float()).clamp(-5, 5)

    def forward(self, x: Tensor) -> Tensor:
        """Squared error per row and output: (B, out_dim)."""
        x, wanted = self.wanted(x)
        return (self.predictor(x) - wanted).square()

    @torch.no_grad()
    def wanted(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The normalised input and what the frozen network says of it: the same for the step and
        the reward of a batch, so the last answer is kept."""
        if torch.compiler.is_compiling():  # finds what is computed twice by itself
            normal = self._normal(x)
            return normal, self.target(normal)
        if self.last is None or self.last[0] is not x or self.last[1] != x._version:
            normal = self._normal(x)
            self.last = (x, x._version, normal, self.target(normal))
        return self.last[2:]

    def reward(self, x: Tensor, form: RewardForm) -> Tensor:
        """(B, 1)"""
        if form == "normalized":
            return self.novelty(x)
        error = self(x)
        return error.mean(1, keepdim=True) if form == "mean" else error.sum(1, keepdim=True)

    def novelty(self, x: Tensor) -> Tensor:
        """Mean error over its running standard deviation: (B, 1)."""
        error = self(x).mean(1, keepdim=True)
        self.moments.update(error)
        return error / (self.moments.var.sqrt() + 1e-8)


class ICM(nn.Module):
    """A forward and an inverse model of a transition, on the observation itself or on a trunk of
    `rep_dim`."""

    def __init__(
        self, obs_dim: int, action_dim: int, *, hidden_dim: int, rep_dim: int | None = None
    ):
        super().__init__()
        self.trunk = nn.Identity() if rep_dim is None else trunk(obs_dim, rep_dim)
        rep_dim = rep_dim or obs_dim
        self.forward_model = mlp(rep_dim + action_dim, hidden_dim, rep_dim)
        self.inverse_model = mlp(2 * rep_dim, hidden_dim, action_dim)

    def forward(self, obs: Tensor, action: Tensor, next_obs: Tensor) -> tuple[Tensor, Tensor]:
        """Norms (not squared, as in URLB) of the forward and the inverse error: (B, 1) each."""
        s, following = self.trunk(obs), self.trunk(next_obs)
        forward = following - self.forward_model(torch.cat([s, action], 1))
        inverse = action - torch.tanh(self.inverse_model(torch.cat([s, following], 1)))
        return forward.norm(dim=1, keepdim=True), inverse.norm(dim=1, keepdim=True)
