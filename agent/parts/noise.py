"""Noise on actions, which stay inside (-1, 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from agent.parts.draws import Draws
from utils import NonNegative


def draw_noise(shape: Sequence[int], stddev: float, clip: float | None, generator: Draws) -> Tensor:
    noise = stddev * generator.normal(*shape)
    return noise if clip is None else noise.clamp_(-clip, clip)


def within(action: Tensor) -> Tensor:
    """Clamped to (-1, 1), which the gradient does not feel."""
    inside = action.detach().clamp(-1 + 1e-6, 1 - 1e-6)
    return action + (inside - action).detach() if action.requires_grad else inside


def clipped_noise(mean: Tensor, stddev: float, clip: float | None, generator: Draws) -> Tensor:
    """mean + noise inside (-1, 1); the clamp passes its gradient straight through."""
    return within(mean + draw_noise(mean.shape, stddev, clip, generator))


@dataclass(frozen=True, kw_only=True)
class NoiseSettings:
    """Deviation of the noise on actions, and its clip in the losses (not when acting)."""

    stddev: NonNegative
    stddev_clip: NonNegative
