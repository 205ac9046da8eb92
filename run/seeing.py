"""From a config to what the agent sees: states as they are, or pictures and the features of them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from agent.learners.ddpg import DDPG
from agent.parts.draws import Draws
from agent.parts.pixels import Images, PixelSettings
from agent.skills.sources import SkillSource
from envs import RenderSettings
from replay_buffer import ReplayBuffer


def sees_pixels(config: dict[str, Any]) -> bool:
    return config.get("obs_type", "states") == "pixels"


def render_settings(config: dict[str, Any]) -> RenderSettings | None:
    return RenderSettings(**config["render"]) if sees_pixels(config) else None


def images_of(config: dict[str, Any]) -> Images | None:
    """What an encoder is made for; None where there is none."""
    render = render_settings(config)
    return None if render is None else Images(render.shape, config["pixels"]["channels"])


def seen_dim(config: dict[str, Any], obs_dim: int) -> int:
    """How many numbers networks get of an observation of `obs_dim`."""
    images = images_of(config)
    return obs_dim if images is None else images.features


def pixel_settings(config: dict[str, Any]) -> PixelSettings | None:
    if not sees_pixels(config):
        return None
    own = {field.name: config["pixels"][field.name] for field in fields(PixelSettings)}
    return PixelSettings(**own)


@dataclass
class Sight:
    """The learner's eyes for whoever else must see: those who choose skills, and objectives that
    keep recent states. They get features and know of no pictures."""

    learner: DDPG
    memory: ReplayBuffer
    draws: Draws  # of the shift in their batches

    def __len__(self) -> int:
        """How much there is to sample from."""
        return len(self.memory)

    def sample(self, batch_size: int) -> Any:
        return self.learner.look(self.memory.sample(batch_size), self.draws)

    def see(self, obs: np.ndarray) -> np.ndarray:
        return self.learner.see(obs).cpu().numpy()

    def for_choice(self, source: SkillSource, obs: np.ndarray) -> np.ndarray:
        """What a source of skills gets to choose by; most choose blindly."""
        return obs if source.network is None else self.see(obs)
