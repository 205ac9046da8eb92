"""What skills make of a maze, from counts of visited squares: coverage, and information in nats."""

from __future__ import annotations

import numpy as np

from envs.maze.geometry import free_cells, geometry

CELL = 0.25  # side of the squares in which visits are counted; a quarter of a maze's cell


def as_points(states) -> np.ndarray:
    points = np.asarray(states, np.float64)
    if points.ndim != 2 or not points.size or not np.isfinite(points).all():
        raise ValueError(
            f"states must be finite, of shape (N, D); got shape {points.shape}, "
            f"{np.count_nonzero(~np.isfinite(points))} numbers not finite"
        )
    return points


def as_labels(skills, length: int) -> tuple[np.ndarray, int]:
    """Labels as 0 .. n - 1, and n: the skills that occur."""
    skills = np.asarray(skills)
    if skills.shape != (length,):
        raise ValueError(
            f"there must be one label per state, shape {(length,)}; got {skills.shape}"
        )
    names, labels = np.unique(skills, return_inverse=True)
    return labels, len(names)


def squares(points: np.ndarray, size: float) -> np.ndarray:
    """Integer coordinates of the square that holds each point; borders lie at i * size - 0.5, as in
    mazes."""
    return np.floor((points + 0.5) / size).astype(np.int64)


def covered(
    states, maze: str, *, size: float = CELL, share: float = 0.05
) -> tuple[np.ndarray, np.ndarray]:
    """Centres of the free squares (M, 2), and which of them are visited at least `share` times as
    often as under uniform visits of the maze. States outside the maze count as visits and for no
    square."""
    points = as_points(states)
    if points.shape[1] != 2:
        raise ValueError(f"states of a maze have two coordinates, got {points.shape[1]}")
    centres = free_cells(maze, size)
    free, low = squares(centres, size), squares(geometry(maze).low[None] + size / 2, size)
    width, height = free.max(0) - low[0] + 1
    visited = squares(points, size) - low
    visited = visited[((visited >= 0) & (visited < (width, height))).all(1)]
    visits = np.bincount(visited @ (height, 1), minlength=width * height)[
        (free - low) @ (height, 1)
    ]
    needed = share * len(points) / len(free)
    # 0.07 * 17600 / 176 rounds to more than 7, and 7 visits must be enough for it.
    return centres, visits >= needed * (1 - 1e-9)


def coverage(states, maze: str, *, size: float = CELL, share: float = 0.05) -> float:
    """Share of the free squares that are `covered`.

    One visit is not enough: random actions (600 episodes of 50 steps) touch 0.82 of the tree's
    squares, a fifth of those in one episode only, and score 0.56 here. A square needs 4 of those N
    = 30,000 states; uniform ones bring 60.
    """
    return float(covered(states, maze, size=size, share=share)[1].mean())


def plug_in_entropy(counts: np.ndarray) -> float:
    shares = counts / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def mi_grid(states, skills, *, size: float = CELL, miller_madow: bool = False) -> float:
    """I(square of S; Z) from counts; at most log n, and at most I(S; Z) but for its bias.

    The plug-in estimate is too high by about (pairs - squares - n + 1) / 2N, for pairs (square,
    skill) that can occur: 0.04 at N = 30,000 if 6 skills visit all of the tree evenly. Miller and
    Madow subtract that with the pairs that did occur, which is too little where visits are rare;
    the result may leave [0, log n] by its error. Neither knows that the states of an episode are
    dependent. Random actions in the tree, 600 episodes, where the truth is 0: plug-in 0.045,
    corrected 0.025 (0.034 and 0.013 with labels shuffled state by state). Shuffling skills between
    whole episodes shows the bias of a sample.
    """
    points = as_points(states)
    labels, n = as_labels(skills, len(points))
    _, square = np.unique(squares(points, size), axis=0, return_inverse=True)
    square = square.reshape(-1)  # NumPy 2.0 alone keeps an axis of 1
    joint = np.bincount(square * n + labels).astype(float)
    joint = joint[joint > 0]
    by_square, by_skill = np.bincount(square), np.bincount(labels)
    information = plug_in_entropy(by_square) + plug_in_entropy(by_skill) - plug_in_entropy(joint)
    if miller_madow:
        information += (len(by_square) + n - len(joint) - 1) / (2 * len(points))
    return information
