"""Dynamics of EDL's mazes for many episodes at once.

A state is a position, an action a displacement. A wall stops the component across it, with a small
random repulsion, and lets the component along it pass.
"""

from __future__ import annotations

import numpy as np

from envs.maze.geometry import Geometry, geometry, keep_off, point_inside

MAX_ACTION = 0.95  # per axis: below 1, so a step crosses at most one border per axis
REPULSION = 0.01  # a wall leaves the agent up to this far away
START_GAP, GOAL_GAP = 0.05, 0.175  # EDL's distances to walls; the second is 0.025 + SUCCESS
SUCCESS = 0.15  # distance to the goal
LEGACY_RATIO = 0.999  # the fraction of the way to a crossing at which EDL looks up the cell


def collide(
    shape: Geometry, offset: np.ndarray, cell: np.ndarray, step: np.ndarray, legacy_corner: bool
):
    """Where each step (n, 2) aims, relative to its cell; which borders it crosses (-1, 0, 1 per
    axis); which stop it.

    EDL recurses after a hit with the motion along the wall. As no axis is crossed twice, that
    second part can only hit a wall across the other axis, which leaves nothing to move: two stops
    decide the whole recursion.
    """
    target = offset + step
    side = (target > 0.5).astype(np.int8) - (target < -0.5)  # (n, 2)
    gap = 0.5 - np.copysign(offset, offset * step)  # to the border ahead
    reach = np.abs(step)
    # gap / reach is the fraction of the step at a crossing; multiplied out, so that nothing divides
    # by zero.
    x, y = gap[:, 0] * reach[:, 1], gap[:, 1] * reach[:, 0]
    order = (y < x).astype(np.intp)  # an exact tie crosses x first
    if legacy_corner:
        order[(LEGACY_RATIO * x <= y) & (LEGACY_RATIO * y <= x)] = 2
    index = shape.index(cell)
    number = index[:, 0] * shape.free.shape[1] + index[:, 1]
    found = shape.stops[number * 27 + order * 9 + side[:, 0] * 3 + side[:, 1] + 4]
    return target, side, np.stack((found & 1, found >> 1), 1).astype(bool)


def advance(
    shape: Geometry,
    position: np.ndarray,
    step: np.ndarray,
    unit: np.ndarray,
    legacy_corner: bool = False,
):
    """Positions (n, 2) after steps within MAX_ACTION; `unit` in [0, 1) sets the repulsion of a wall
    across each axis.

    Crossings count in order from the cell reached so far. EDL tests each crossing alone, at 0.999
    of its fraction, and so lets some steps slip through corners: `legacy_corner` does the same.
    """
    cell = np.floor(position + 0.5)
    target, side, stop = collide(shape, position - cell, cell, step, legacy_corner)
    moved = cell + np.where(stop, side * (0.5 - REPULSION * unit), target)
    return keep_off(moved, cell + np.where(stop, 0, side))


def draw(
    shape: Geometry, rng: np.random.Generator, n: int, cells: np.ndarray, gap: float
) -> np.ndarray:
    """Points uniform in the cells, as EDL draws starts and goals: again while a point that lies
    `gap` further out on both axes would be behind a wall."""
    cell = cells[rng.integers(len(cells), size=n)].astype(float)
    offset, left = np.empty((n, 2)), np.arange(n)
    while len(left):
        offset[left] = keep_off(rng.random((len(left), 2)) - 0.5, np.zeros(2))
        step = gap * np.sign(offset[left])
        left = left[collide(shape, offset[left], cell[left], step, False)[2].any(1)]
    return cell + offset


class MazeBatch:
    """Episodes of equal length side by side. goal: None, "sample" (EDL's goal distribution), or a
    point (x, y).

    Reward is 1 within SUCCESS of the goal and 0 elsewhere; with `dense`, minus the distance; 0
    without a goal.
    """

    def __init__(
        self, maze: str = "tree", *, goal=None, dense: bool = False, legacy_corner: bool = False
    ):
        self.shape, self.dense, self.legacy_corner = geometry(maze), dense, legacy_corner
        if isinstance(goal, str) and goal != "sample":
            raise ValueError(f'unknown goal {goal!r}; choose from None, "sample", a point (x, y)')
        self.maze = maze
        self._goal = (
            goal if goal is None or isinstance(goal, str) else point_inside(maze, goal, "goal")
        )

    def reset(self, rng: np.random.Generator, n: int, start=None) -> np.ndarray:
        """Observations (n, 2). `start` is one point for all, EDL's start distribution by
        default."""
        self.rng, goal = rng, self._goal
        if start is None:
            self.position = draw(self.shape, rng, n, self.shape.start, START_GAP)
        else:
            point = point_inside(self.maze, start, "start")
            self.position = np.tile(keep_off(point, np.floor(point + 0.5)), (n, 1))
        if isinstance(goal, str):
            goal = draw(self.shape, rng, n, self.shape.goals, GOAL_GAP)
        self.goal = None if goal is None else np.broadcast_to(goal, (n, 2))
        return self.position.astype(np.float32)

    def step(self, actions) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Observations (n, 2), rewards (n,), success (n,). Actions are clipped; EDL leaves that to
        the policy."""
        actions = np.asarray(actions, np.float64)
        if actions.shape != self.position.shape or not np.isfinite(actions).all():
            raise ValueError(
                f"actions must be finite, of shape {self.position.shape}; got shape {actions.shape}, "
                f"{np.count_nonzero(~np.isfinite(actions))} of them not finite"
            )
        step = np.minimum(np.maximum(actions, -MAX_ACTION), MAX_ACTION)
        # Two draws per episode whether it hits a wall or not, so that no episode's luck depends on
        # another's walls.
        unit = self.rng.random(step.shape)
        self.position = advance(self.shape, self.position, step, unit, self.legacy_corner)
        reward, success = self.score()
        return self.position.astype(np.float32), reward, success

    def score(self) -> tuple[np.ndarray, np.ndarray]:
        n = len(self.position)
        if self.goal is None:
            return np.zeros(n, np.float32), np.zeros(n, bool)
        distance = np.hypot(*(self.position - self.goal).T)
        success = distance <= SUCCESS
        return (-distance if self.dense else success).astype(np.float32), success
