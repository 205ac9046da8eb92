"""Every task for gymnasium: gymnasium.make("envs:amped/walker_run-v0"), whatever library trains on it.

Importing `envs` registers them, under the names of configs/task and, for the mazes without a goal, of
configs/domain. Actions are in [-1, 1] in all of them, as our policies give them.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from envs.base import Env
from envs.maze.geometry import EPISODE_STEPS

# Steps of an episode. dm_control gives them as seconds; a test compares.
STEPS = {"walker": 1000, "quadruped": 1000, "jaco": 250}
MAZES = {
    "tree_maze": "TreeMaze",
    "tree_maze_reach_left": "TreeMazeReachLeft",
    "tree_maze_reach_right": "TreeMazeReachRight",
    "square_maze": "SquareMaze",
    "square_maze_reach": "SquareMazeReach",
}
# No quantity of these bodies has a bound or comes near this one; gymnasium's checker takes an
# infinite one for a mistake.
FAR = 1e9
FPS = 40  # where an environment does not say how long a step is


class TaskGym(gymnasium.Env):
    """One of our environments by its name for `envs.make`."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": FPS}

    def __init__(self, name: str, render_mode: str | None = None, size: int = 256):
        from envs import make  # which imports this module

        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"unknown render_mode {render_mode!r}; choose from rgb_array, None")
        self.render_mode, self.size = render_mode, size
        self.env: Env = make(name, seed=0)
        self.seeded = self.closed = False
        native: Any = getattr(self.env, "unwrapped", self.env)
        self.metadata = {**self.metadata, "render_fps": frames_per_second(native)}
        self.observation_space = observation_space(native, self.env.obs_dim)
        self.action_space = Box(-1.0, 1.0, (self.env.action_dim,), np.float32)
        self._renderer: Any = None

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        if seed is not None or not self.seeded:
            # Without a seed at all the first episode draws one, as np_random does.
            self.env.seed(int(self.np_random.integers(2**32)) if seed is None else seed % 2**32)
            self.seeded = True
        return self.env.reset().observation, {}

    def step(self, action):
        time_step = self.env.step(action)
        over = time_step.last()
        terminated = over and time_step.discount == 0.0
        return (
            time_step.observation,
            float(time_step.reward),
            terminated,
            over and not terminated,
            {},
        )

    def render(self) -> np.ndarray | None:
        if self.render_mode is None:
            return None
        if self._renderer is None:
            from envs.render import Renderer

            self._renderer = Renderer(self.size, self.size)
        return self._renderer.frame(self.env)

    def close(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
        if not self.closed:  # twice is allowed here, and not in all of dm_control
            self.env.close()
            self.closed = True


def frames_per_second(native: Any) -> int:
    if hasattr(native, "control_timestep"):
        return max(1, round(1 / native.control_timestep()))
    return (getattr(native, "metadata", None) or {}).get("render_fps", FPS)


def observation_space(native: Any, obs_dim: int) -> Box:
    """The native one where it is a gymnasium environment's."""
    known = getattr(native, "observation_space", None)
    if isinstance(known, Box):
        return Box(known.low.ravel(), known.high.ravel(), dtype=np.float32)
    return Box(-FAR, FAR, (obs_dim,), np.float32)


def register(tasks: dict[str, str]) -> None:
    """`tasks`: the names of dm_control's tasks and their domains."""
    named = {name: (name, STEPS[domain]) for name, domain in tasks.items()}
    named |= {
        name: (f"gymnasium:envs.maze:amped/{maze}-v0", EPISODE_STEPS)
        for name, maze in MAZES.items()
    }
    for name, (env, steps) in named.items():
        gymnasium.register(
            f"amped/{name}-v0",
            entry_point="envs.tasks:TaskGym",
            kwargs={"name": env},
            max_episode_steps=steps,
        )
