"""The mazes of EDL (Campos et al. 2020, Explore, Discover and Learn), as one table of open ways.

A cell (x, y) is the unit square around that point; y grows upward. Neighbours are connected only if
their pair is open.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

EPISODE_STEPS = 50  # EDL's
# The least distance of a position to a border. x.5 +- EDGE is a float32 number for |x| < 16, so that
# rounding to float32 leaves a position in its cell.
EDGE = 2.0**-20
MOVES = {"R": (1, 0), "L": (-1, 0), "U": (0, 1), "D": (0, -1)}

Cell = tuple[int, int]


class Plan(NamedTuple):
    """Open pairs, each with its smaller cell first."""

    pairs: frozenset[tuple[Cell, Cell]]
    goals: tuple[Cell, ...]
    start: Cell = (0, 0)


def chains(*texts: str) -> frozenset[tuple[Cell, Cell]]:
    """Open pairs along chains: "0,-2 R2 U1" goes from (0, -2) two cells right and one up."""
    pairs: set[tuple[Cell, Cell]] = set()
    for text in texts:
        first, *moves = text.split()
        x, y = first.split(",")
        cell = (int(x), int(y))
        for move in moves:
            (dx, dy), times = MOVES[move[0]], int(move[1:])
            for _ in range(times):
                ahead = (cell[0] + dx, cell[1] + dy)
                pairs.add((min(cell, ahead), max(cell, ahead)))
                cell = ahead
    return frozenset(pairs)


def grid(above: str, right: str) -> frozenset[tuple[Cell, Cell]]:
    """All pairs of a 10 x 10 grid but the closed ones: word y of `above` lists each x with a wall
    above (x, y), word x of `right` each y with a wall right of (x, y); "-" is none."""
    closed = {
        ((int(x), y), (int(x), y + 1))
        for y, word in enumerate(above.split())
        for x in word.strip("-")
    }
    closed |= {
        ((x, int(y)), (x + 1, int(y)))
        for x, word in enumerate(right.split())
        for y in word.strip("-")
    }
    return chains(*(f"0,{i} R9" for i in range(10)), *(f"{i},0 U9" for i in range(10))) - closed


FAR = ((9, 9),)
PLANS = {
    # EDL's "square maze"
    "square_a": Plan(chains("0,0 D4 R4 U4", "0,-2 R2 U2"), goals=((4, -1), (4, 0))),
    "square_b": Plan(chains("0,0 D4 R4 U4", "2,-4 U4"), goals=((4, -1), (4, 0))),
    "square_c": Plan(chains("0,0 D4 R2 U4 R2 D4"), goals=((4, -3), (4, -4))),
    "square_d": Plan(
        chains("-3,0 R6", "-3,0 D3 R2 U1", "3,0 D3 L2 U1", "0,0 D3"),
        goals=((-1, -2), (-1, -3), (1, -2), (1, -3)),
    ),
    "tree": Plan(
        chains(
            "0,0 D2",
            "-4,-2 R8",
            "-4,-2 D2",
            "4,-2 D2",
            "-6,-4 R4",
            "2,-4 R4",
            "-6,-4 D2",
            "-2,-4 D2",
            "2,-4 D2",
            "6,-4 D2",
        ),
        goals=((-6, -6), (6, -6)),
    ),
    "corridor": Plan(chains("-5,0 R10"), goals=((5, 0),)),
    "corridor2": Plan(chains("-5,0 R10"), goals=((5, 0),), start=(-5, 0)),
    "bottleneck": Plan(grid("7 5689 - - 01234", "- - - - 0234 - 456789 1"), goals=FAR),
    "large": Plan(
        grid(
            "147 25689 579 02348 2458 08 1459 04689 134567",
            "13579 1368 0235678 236 035678 12346 45678 1379 03568",
        ),
        goals=FAR,
    ),
}


class Geometry:
    """What follows from a plan: cells, box, and the table in which the dynamics look up
    collisions."""

    def __init__(self, plan: Plan):
        self.pairs = plan.pairs
        self.start = np.array([plan.start])
        self.goals = np.array(plan.goals)
        self._cells = {cell for pair in plan.pairs for cell in pair}
        self.cells = np.array(sorted(self._cells))  # (C, 2)
        self.low, self.high = self.cells.min(0) - 0.5, self.cells.max(0) + 0.5  # the bounding box
        # Two rings around the cells: the outer one touches no wall, so it stands for all that lies
        # farther out.
        self.origin, self.last = self.cells.min(0) - 2, self.cells.max(0) - self.cells.min(0) + 4
        self.free = np.zeros(self.last + 1, bool)
        self.free[tuple((self.cells - self.origin).T)] = True
        # Stops of a step by [cell, order, side x, side y]: bit 0 at a wall across x, bit 1 at one
        # across y.
        stops = np.zeros((*self.free.shape, 3, 3, 3), np.uint8)
        for index in np.ndindex(stops.shape):
            cell = (int(self.origin[0]) + index[0], int(self.origin[1]) + index[1])
            stops[index] = self._stops(cell, index[2], index[3] - 1, index[4] - 1)
        self.stops = stops.ravel()

    def closed(self, cell: Cell, dx: int, dy: int) -> bool:
        """Is there a wall between a cell and its neighbour? Two places outside of the maze have
        none between them."""
        ahead = (cell[0] + dx, cell[1] + dy)
        pair = (min(cell, ahead), max(cell, ahead))
        return (
            (cell in self._cells or ahead in self._cells)
            and cell != ahead
            and pair not in self.pairs
        )

    def _stops(self, cell: Cell, order: int, dx: int, dy: int) -> int:
        """Order 0 crosses x first, 1 y first: the second wall is that of the cell which the first
        crossing led to. Order 2 looks at both walls of the first cell (`legacy_corner`)."""
        x, y = self.closed(cell, dx, 0), self.closed(cell, 0, dy)
        if order == 0 and not x:
            y = self.closed((cell[0] + dx, cell[1]), 0, dy)
        elif order == 1 and not y:
            x = self.closed((cell[0], cell[1] + dy), dx, 0)
        return x + 2 * y

    def index(self, cell: np.ndarray) -> np.ndarray:
        """Column and row (..., 2) in `free` of cells given as floats; fmax sends NaN outside."""
        return np.minimum(np.fmax(cell - self.origin, 0), self.last).astype(np.intp)


@functools.cache
def geometry(maze: str) -> Geometry:
    if maze not in PLANS:
        raise ValueError(f"unknown maze {maze!r}; choose from {', '.join(PLANS)}")
    return Geometry(PLANS[maze])


# ---- points and segments


def keep_off(position: np.ndarray, cell: np.ndarray) -> np.ndarray:
    """Inside its cell by EDGE: the float64 position and its float32 cast then lie in the same
    cell."""
    return np.minimum(np.maximum(position, cell - (0.5 - EDGE)), cell + (0.5 - EDGE))


def inside(maze: str, points) -> np.ndarray:
    """Which points (..., 2) lie in free cells; a border belongs to the cell above or right of
    it."""
    shape = geometry(maze)
    index = shape.index(np.floor(np.asarray(points, np.float64) + 0.5))
    return shape.free[index[..., 0], index[..., 1]]


def point_inside(maze: str, point, what: str) -> np.ndarray:
    """The point as an array; ValueError if it is none or lies in no free cell."""
    point = np.asarray(point, np.float64)
    if point.shape != (2,) or not np.isfinite(point).all():
        raise ValueError(f"{what} must be two finite numbers (x, y), got {point.tolist()}")
    if not inside(maze, point):
        cells = geometry(maze).cells
        nearest = cells[np.abs(cells - point).max(1).argmin()]
        raise ValueError(
            f"{what} {point.tolist()} lies in no free cell of {maze}; "
            f"the nearest has its centre at {nearest.tolist()}"
        )
    return point


def uniform(maze: str, rng: np.random.Generator, n: int) -> np.ndarray:
    """Points (n, 2) uniform over the free cells: EDL's oracle sampler."""
    cells = geometry(maze).cells
    cell = cells[rng.integers(len(cells), size=n)]
    return keep_off(cell + (rng.random((n, 2)) - 0.5), cell)


def free_cells(maze: str, size: float = 0.25) -> np.ndarray:
    """Centres (M, 2) of the squares of that size that tile the free cells."""
    parts = round(1 / size)
    if parts < 1 or abs(parts * size - 1) > 1e-9:
        raise ValueError(f"size must be one over an integer, such as 0.25; got {size}")
    ticks = (np.arange(parts) + 0.5) / parts - 0.5
    tile = np.stack(np.meshgrid(ticks, ticks, indexing="ij"), -1).reshape(-1, 2)
    return (geometry(maze).cells[:, None] + tile).reshape(-1, 2)


def unit_walls(maze: str) -> np.ndarray:
    """Walls as segments (U, 2, 2) of length one, each once, from the lower or left end to the
    other."""
    shape, found = geometry(maze), set()
    for x, y in shape.cells.tolist():
        for dx, dy in MOVES.values():
            if shape.closed((x, y), dx, dy):
                middle = (x + dx / 2, y + dy / 2)
                half = (abs(dy) / 2, abs(dx) / 2)  # along the wall
                found.add(
                    tuple((middle[0] + s * half[0], middle[1] + s * half[1]) for s in (-1, 1))
                )
    return np.array(sorted(found))


def walls(maze: str) -> np.ndarray:
    """Walls as maximal segments (W, 2, 2): horizontal ones first, then vertical ones, by line."""
    units = unit_walls(maze)
    runs: list[list[list[float]]] = []  # [[x, y] of one end, [x, y] of the other]
    for along in (0, 1):
        across = 1 - along
        for segment in sorted(
            units[units[:, 0, across] == units[:, 1, across]].tolist(),
            key=lambda s: (s[0][across], s[0][along]),
        ):
            if runs and runs[-1][1] == segment[0] and runs[-1][0][across] == segment[0][across]:
                runs[-1][1] = segment[1]
            else:
                runs.append(segment)
    return np.array(runs)
