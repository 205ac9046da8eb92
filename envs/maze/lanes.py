"""Many episodes of a maze side by side, as PPO needs them: actions in [-1, 1], one length."""

from __future__ import annotations

import re

import numpy as np

from envs.maze.core import MAX_ACTION, MazeBatch
from envs.maze.env import IDS
from envs.maze.geometry import EPISODE_STEPS


class Lanes:
    """`count` episodes of `steps` steps, all at the same step. Random numbers come from the
    generator given to reset."""

    obs_dim = action_dim = 2

    def __init__(self, name: str, count: int, steps: int | None = None):
        found = re.fullmatch(r"gymnasium:envs\.maze:amped/(\w+)-v0", name)
        if not found or found[1] not in IDS:
            raise ValueError(
                f"{name} does not run side by side; learner=ppo is for the mazes, use learner=ddpg"
            )
        self.batch = MazeBatch(**IDS[found[1]])
        self.count, self.steps = count, steps or EPISODE_STEPS
        self.maze = self.batch.maze

    def reset(self, rng: np.random.Generator, count: int | None = None) -> np.ndarray:
        return self.batch.reset(rng, count or self.count)  # (N, 2)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Observations (N, 2) and rewards (N,)."""
        obs, reward, _ = self.batch.step(MAX_ACTION * action)
        return obs, reward
