"""EDL's mazes for gymnasium: gymnasium.make("envs.maze:amped/TreeMaze-v0").

Importing this module registers them. Episodes last 50 steps and end by truncation. Without a goal
the reward is 0: these are mazes to discover skills in.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from envs.maze.core import MAX_ACTION, SUCCESS, MazeBatch
from envs.maze.geometry import EPISODE_STEPS, walls

TILE, MARGIN = 24, 3  # pixels per cell, and around the box
FLOOR = (255, 255, 255)
WALL = (0, 0, 0)
PATH = (90, 140, 220)
GOAL = (60, 170, 80)
AGENT = (210, 50, 40)

# name in gymnasium -> what MazeBatch is told
IDS: dict[str, dict[str, Any]] = {
    "SquareMaze": {"maze": "square_a"},
    "SquareBMaze": {"maze": "square_b"},
    "SquareCMaze": {"maze": "square_c"},
    "SquareDMaze": {"maze": "square_d"},
    "TreeMaze": {"maze": "tree"},
    "CorridorMaze": {"maze": "corridor"},
    "Corridor2Maze": {"maze": "corridor2"},
    "BottleneckMaze": {"maze": "bottleneck"},
    "LargeMaze": {"maze": "large"},
    # The centres of EDL's goal cells.
    "SquareMazeReach": {"maze": "square_a", "goal": (4, 0)},
    "TreeMazeReachLeft": {"maze": "tree", "goal": (-6, -6)},
    "TreeMazeReachRight": {"maze": "tree", "goal": (6, -6)},
}


class MazeEnv(gymnasium.Env):
    """One episode of a `MazeBatch`, whose arguments it takes; np_random is all that it draws
    from."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(
        self,
        maze: str = "tree",
        goal=None,
        dense: bool = False,
        legacy_corner: bool = False,
        max_steps: int = EPISODE_STEPS,
        done_on_success: bool = False,
        render_mode: str | None = None,
    ):
        if isinstance(max_steps, bool) or not isinstance(max_steps, int) or max_steps < 1:
            raise ValueError(f"max_steps must be an integer >= 1, got {max_steps!r}")
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"unknown render_mode {render_mode!r}; choose from rgb_array, None")
        self.batch = MazeBatch(maze, goal=goal, dense=dense, legacy_corner=legacy_corner)
        self.max_steps = max_steps
        self.done_on_success = done_on_success
        self.render_mode = render_mode
        self._walls = walls(maze)
        # how far a corner that leaks can lead out of the box
        slack = max_steps * MAX_ACTION if legacy_corner else 0.0
        shape = self.batch.shape
        self.observation_space = Box(
            (shape.low - slack).astype(np.float32), (shape.high + slack).astype(np.float32)
        )
        self.action_space = Box(-MAX_ACTION, MAX_ACTION, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        """options={"start": (x, y)} starts there."""
        super().reset(seed=seed)
        observation = self.batch.reset(self.np_random, 1, (options or {}).get("start"))[0]
        self.path = [self.batch.position[0]]
        return observation, self._info(self.batch.score()[1][0])

    def step(self, action):
        observation, reward, success = (
            value[0] for value in self.batch.step(np.asarray(action)[None])
        )
        self.path.append(self.batch.position[0])
        terminated = self.done_on_success and bool(success)
        return (
            observation,
            float(reward),
            terminated,
            len(self.path) > self.max_steps,
            self._info(success),
        )

    def _info(self, success) -> dict:
        return (
            {}
            if self.batch.goal is None
            else {"success": bool(success), "goal": self.batch.goal[0].copy()}
        )

    # ---- picture

    def render(self) -> np.ndarray | None:
        """Goal, the positions of this episode joined by lines, walls, agent: (height, width, 3)
        uint8."""
        if self.render_mode is None:
            return None
        columns, rows = ((self.batch.shape.high - self.batch.shape.low) * TILE).astype(
            int
        ) + 2 * MARGIN
        image = np.full((rows, columns, 3), FLOOR, np.uint8)
        if self.batch.goal is not None:
            self._dot(image, self.batch.goal[0], SUCCESS, GOAL)
        path = np.array(self.path)  # (T + 1, 2)
        # A step is shorter than TILE pixels along each axis, so a line of TILE points has no gaps.
        fraction = np.linspace(0, 1, TILE)[:, None, None]
        line = self._pixel(path[:-1] + fraction * np.diff(path, axis=0)).reshape(-1, 2)
        for shift in ((0, 0), (0, 1), (1, 0), (1, 1)):
            paint(image, line + shift, PATH)
        for (bottom, left), (top, right) in self._pixel(self._walls):
            image[top - 1 : bottom + 1, left - 1 : right + 1] = WALL
        self._dot(image, path[-1], 0.15, AGENT)
        return image

    def _pixel(self, points: np.ndarray) -> np.ndarray:
        """Row and column (..., 2): y grows upward in the maze, downward in the picture."""
        shape = self.batch.shape
        scaled = np.stack((shape.high[1] - points[..., 1], points[..., 0] - shape.low[0]), -1)
        return np.floor(MARGIN + TILE * scaled).astype(int)

    def _dot(self, image: np.ndarray, point: np.ndarray, radius: float, colour) -> None:
        reach = np.arange(-int(TILE * radius), int(TILE * radius) + 1)
        rows, columns = np.meshgrid(reach, reach)
        near = rows**2 + columns**2 <= (TILE * radius) ** 2
        paint(image, self._pixel(point) + np.stack((rows[near], columns[near]), -1), colour)


def paint(image: np.ndarray, pixels: np.ndarray, colour) -> None:
    """Colour the pixels (n, 2) that lie in the picture (a leaked agent may be outside)."""
    rows, columns = pixels[((pixels >= 0) & (pixels < image.shape[:2])).all(1)].T
    image[rows, columns] = colour


for name, kwargs in IDS.items():
    gymnasium.register(f"amped/{name}-v0", entry_point="envs.maze:MazeEnv", kwargs=kwargs)
