"""Maze steps per second, vectorised and one by one, by turns.

python -m benchmarks.maze [maze=tree] [repeats]
"""

from __future__ import annotations

import math
import statistics
import time

import numpy as np

from benchmarks import make_parser
from envs.maze.core import MazeBatch
from envs.maze.geometry import EDGE, PLANS, unit_walls

MAZES, STEPS, PLAIN_MAZES = 4096, 50, 20


def wall_set(maze: str) -> set[tuple[float, float]]:
    """Unit walls by their middle: (0.5, 0) is the wall on the right of cell (0, 0)."""
    return {tuple(middle) for middle in unit_walls(maze).mean(1).tolist()}


def crossings(cell: list[int], start: list[float], motion: list[float]) -> list[tuple[float, int]]:
    """(fraction of the motion, axis) of every cell border on the way, in order."""
    found = []
    for axis in (0, 1):
        side = math.copysign(1, motion[axis])
        border = cell[axis] + side / 2
        while side * (start[axis] + motion[axis] - border) > 0:
            found.append(((border - start[axis]) / motion[axis], axis))
            border += side
    return sorted(found)


def step_plain(
    walls: set[tuple[float, float]], position, action, unit, legacy_corner: bool = False
) -> list[float]:
    """The dynamics of envs/maze/core.py written out for one episode, with EDL's recursion. Tests
    compare the vectorised ones with it."""
    here = [float(v) for v in position]
    motion = [min(max(float(a), -0.95), 0.95) for a in action]
    cell = [math.floor(v + 0.5) for v in here]
    for _ in range(4):  # the motion and at most three recursions
        hit, current = None, list(cell)
        for fraction, axis in crossings(cell, here, motion):
            if legacy_corner:
                # the cell shortly before this crossing, whatever the other crossings met
                current = [math.floor(p + 0.999 * fraction * m + 0.5) for p, m in zip(here, motion)]
            side = math.copysign(1, motion[axis])
            middle = list(current)
            middle[axis] += side / 2
            if tuple(middle) in walls:
                hit = (fraction, axis, side)
                break
            current[axis] += int(side)
        fraction, axis, side = hit or (1.0, 0, 0.0)
        here = [p + fraction * m for p, m in zip(here, motion)]
        here[axis] -= side * 0.01 * unit[axis]
        cell = [math.floor(v + 0.5) for v in here] if legacy_corner else current
        if hit is None:
            break
        motion = [(1 - fraction) * m for m in motion]
        motion[axis] = 0.0
    return [min(max(p, c - 0.5 + EDGE), c + 0.5 - EDGE) for p, c in zip(here, cell)]


def measure(
    repeats: int, maze: str = "tree", mazes: int = MAZES, steps: int = STEPS
) -> dict[str, float]:
    """Steps per second of `mazes` side by side, and of mazes one at a time; medians of interleaved
    repeats."""
    rng = np.random.default_rng(0)
    batch, walls = MazeBatch(maze), wall_set(maze)
    actions = rng.uniform(-0.95, 0.95, (steps, mazes, 2))
    units = rng.random((steps, PLAIN_MAZES, 2)).tolist()
    plain_actions = actions[:, :PLAIN_MAZES].tolist()
    fast, slow = [], []
    for repeat in range(repeats + 1):
        batch.reset(rng, mazes)
        positions = batch.position[:PLAIN_MAZES].tolist()
        begun = time.perf_counter()
        for step in range(steps):
            batch.step(actions[step])
        middle = time.perf_counter()
        for step in range(steps):
            positions = [
                step_plain(walls, *row) for row in zip(positions, plain_actions[step], units[step])
            ]
        if repeat:  # the first one warms up
            fast.append(steps * mazes / (middle - begun))
            slow.append(steps * PLAIN_MAZES / (time.perf_counter() - middle))
    return {
        "steps_s": statistics.median(fast),
        "plain_steps_s": statistics.median(slow),
        "ratio": statistics.median(a / b for a, b in zip(fast, slow)),
    }


def main() -> None:
    given = make_parser(__doc__, 15, maze=PLANS).parse_args()
    maze, repeats = given.maze, given.repeats
    result = measure(repeats, maze)
    print(
        f"maze={maze}, 1 thread, {repeats} interleaved repeats of {STEPS} random steps; median steps per second"
    )
    print(f"MazeBatch, {MAZES} mazes {result['steps_s']:12,.0f}")
    print(f"one at a time          {result['plain_steps_s']:12,.0f}")
    print(f"ratio                  {result['ratio']:12,.1f}")


if __name__ == "__main__":
    main()
