"""Many episodes of a maze side by side, as PPO needs them: actions in [-1, 1], one length."""

from __future__ import annotations

import importlib
import re

import numpy as np

from envs.maze.core import MAX_ACTION, MazeBatch
from envs.maze.env import IDS
from envs.maze.geometry import EPISODE_STEPS


def make_batch(name: str) -> MazeBatch:
    """Of a maze by its registered name, or of the one that `some.module:function` makes."""
    found = re.fullmatch(r"gymnasium:envs\.maze:amped/(\w+)-v0", name)
    if found and found[1] in IDS:
        return MazeBatch(**IDS[found[1]])
    module, _, function = name.partition(":")
    if re.fullmatch(r"[A-Za-z_]\w*", function) and module != "gymnasium":
        try:
            made = getattr(importlib.import_module(module), function)(seed=0)
        except (ImportError, AttributeError) as error:
            raise ValueError(f"unknown environment {name} ({error})") from error
        if isinstance(getattr(made, "batch", None), MazeBatch):
            return made.batch
    raise ValueError(
        f"{name} does not run side by side; learner=ppo is for the mazes, use learner=ddpg"
    )


class Lanes:
    """`count` episodes of `steps` steps, all at the same step. Random numbers come from the
    generator given to reset."""

    obs_dim = action_dim = 2

    def __init__(self, name: str, count: int, steps: int | None = None):
        self.batch = make_batch(name)
        self.count, self.steps = count, steps or EPISODE_STEPS
        self.maze = self.batch.maze

    def reset(self, rng: np.random.Generator, count: int | None = None) -> np.ndarray:
        return self.batch.reset(rng, count or self.count)  # (N, 2)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Observations (N, 2) and rewards (N,)."""
        obs, reward, _ = self.batch.step(MAX_ACTION * action)
        return obs, reward
