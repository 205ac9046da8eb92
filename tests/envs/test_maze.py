"""The mazes are EDL's, nobody passes a wall, and one episode among thousands is the episode that
gymnasium sees."""

import warnings

import gymnasium
import numpy as np
import pytest
import scipy.stats
from gymnasium.utils.env_checker import check_env

import envs
from benchmarks.maze import step_plain, wall_set
from envs.maze import IDS, MazeEnv
from envs.maze.core import MAX_ACTION, MazeBatch, advance
from envs.maze.geometry import EDGE, PLANS, free_cells, geometry, inside, uniform, unit_walls, walls

# maze: cells, unit walls, horizontal wall runs "y: from..to", vertical ones "x: from..to"; +-(a..b)
# stands for both sides, "full" for the box. These are EDL's walls, stated apart from the table of
# open pairs that the code has.
EDL = {
    "square_a": (
        17,
        36,
        "-4.5: -0.5..4.5; -3.5: 0.5..3.5; -2.5: 0.5..2.5; -1.5: 0.5..1.5; "
        "0.5: -0.5..0.5, 1.5..2.5, 3.5..4.5",
        "-0.5: -4.5..0.5; 0.5: -3.5..-2.5, -1.5..0.5; 1.5: -1.5..0.5; 2.5: -2.5..0.5; 3.5: -3.5..0.5; "
        "4.5: -4.5..0.5",
    ),
    "square_b": (
        17,
        36,
        "-4.5: -0.5..4.5; -3.5: 0.5..1.5, 2.5..3.5; 0.5: -0.5..0.5, 1.5..2.5, 3.5..4.5",
        "-0.5: -4.5..0.5; 0.5: -3.5..0.5; 1.5: -3.5..0.5; 2.5: -3.5..0.5; 3.5: -3.5..0.5; 4.5: -4.5..0.5",
    ),
    "square_c": (
        17,
        36,
        "-4.5: -0.5..2.5, 3.5..4.5; -3.5: 0.5..1.5; -0.5: 2.5..3.5; 0.5: -0.5..0.5, 1.5..4.5",
        "-0.5: -4.5..0.5; 0.5: -3.5..0.5; 1.5: -3.5..0.5; 2.5: -4.5..-0.5; 3.5: -4.5..-0.5; 4.5: -4.5..0.5",
    ),
    "square_d": (
        22,
        42,
        "-3.5: -3.5..3.5; -2.5: +-(1.5..2.5); -1.5: +-(0.5..1.5); -0.5: +-(0.5..2.5); 0.5: -3.5..3.5",
        "+-3.5: -3.5..0.5; +-2.5: -2.5..-0.5; +-1.5: -2.5..-1.5; +-0.5: -3.5..-0.5",
    ),
    "tree": (
        31,
        64,
        "-6.5: +-(1.5..2.5), +-(5.5..6.5); -4.5: +-(2.5..5.5); -3.5: +-(1.5..3.5), +-(4.5..6.5); "
        "-2.5: -3.5..3.5; -1.5: +-(0.5..4.5); 0.5: -0.5..0.5",
        "+-6.5: -6.5..-3.5; +-5.5: -6.5..-4.5; +-4.5: -3.5..-1.5; +-3.5: -3.5..-2.5; +-2.5: -6.5..-4.5; "
        "+-1.5: -6.5..-3.5; +-0.5: -1.5..0.5",
    ),
    "corridor": (11, 24, "-0.5: full; 0.5: full", "-5.5: full; 5.5: full"),
    "corridor2": (11, 24, "-0.5: full; 0.5: full", "-5.5: full; 5.5: full"),
    "bottleneck": (
        100,
        61,
        "-0.5: full; 0.5: 6.5..7.5; 1.5: 4.5..6.5, 7.5..9.5; 4.5: -0.5..4.5; 9.5: full",
        "-0.5: full; 4.5: -0.5..0.5, 1.5..4.5; 6.5: 3.5..9.5; 7.5: 0.5..1.5; 9.5: full",
    ),
    "large": (
        100,
        121,
        "-0.5: full; 0.5: 0.5..1.5, 3.5..4.5, 6.5..7.5; 1.5: 1.5..2.5, 4.5..6.5, 7.5..9.5; "
        "2.5: 4.5..5.5, 6.5..7.5, 8.5..9.5; 3.5: -0.5..0.5, 1.5..4.5, 7.5..8.5; "
        "4.5: 1.5..2.5, 3.5..5.5, 7.5..8.5; 5.5: -0.5..0.5, 7.5..8.5; "
        "6.5: 0.5..1.5, 3.5..5.5, 8.5..9.5; 7.5: -0.5..0.5, 3.5..4.5, 5.5..6.5, 7.5..9.5; "
        "8.5: 0.5..1.5, 2.5..7.5; 9.5: full",
        "-0.5: full; 0.5: 0.5..1.5, 2.5..3.5, 4.5..5.5, 6.5..7.5, 8.5..9.5; "
        "1.5: 0.5..1.5, 2.5..3.5, 5.5..6.5, 7.5..8.5; 2.5: -0.5..0.5, 1.5..3.5, 4.5..8.5; "
        "3.5: 1.5..3.5, 5.5..6.5; 4.5: -0.5..0.5, 2.5..3.5, 4.5..8.5; 5.5: 0.5..4.5, 5.5..6.5; 6.5: 3.5..8.5; "
        "7.5: 0.5..1.5, 2.5..3.5, 6.5..7.5, 8.5..9.5; 8.5: -0.5..0.5, 2.5..3.5, 4.5..6.5, 7.5..8.5; 9.5: full",
    ),
}


def runs(text: str, box: tuple[float, float]) -> set[tuple[float, float, float]]:
    """{(line, from, to)} of such a text."""
    found = set()
    for entry in text.split("; "):
        line, pieces = entry.split(": ")
        for piece in pieces.split(", "):
            a, b = (
                box
                if piece == "full"
                else map(float, piece.removeprefix("+-").strip("()").split(".."))
            )
            for sign in (-1, 1) if line.startswith("+-") else (1,):
                found.add((sign * float(line.removeprefix("+-")), a, b))
            if piece.startswith("+-"):
                found.add((float(line), -b, -a))
    return found


def walk(batch, rng, n, steps=50):
    """Positions (steps, n, 2) of uniform actions."""
    batch.reset(rng, n)
    positions = []
    for _ in range(steps):
        batch.step(rng.uniform(-MAX_ACTION, MAX_ACTION, (n, 2)))
        positions.append(batch.position)
    return np.array(positions)


def aimed_at_corners(maze, rng, n):
    """Starts and steps that pass a corner of their cell at a distance of about a thousandth."""
    start = uniform(maze, rng, n)
    corner = np.floor(start + 0.5) + rng.choice([-0.5, 0.5], (n, 2))
    step = (corner - start) * rng.uniform(1, 2, (n, 1)) + rng.normal(0, 1e-3, (n, 2))
    return start, np.clip(step, -MAX_ACTION, MAX_ACTION)


def assert_connected(maze, before, after):
    """Each step (n, 2) leads to its own cell, through an open pair, or through two around a
    corner."""
    shape, number = (
        geometry(maze),
        {tuple(cell): i for i, cell in enumerate(geometry(maze).cells.tolist())},
    )
    step = np.eye(len(number), dtype=int)
    for a, b in shape.pairs:
        step[number[a], number[b]] = step[number[b], number[a]] = 1
    ids = np.full(shape.free.shape, -1)
    for cell, i in number.items():
        ids[cell[0] - shape.origin[0], cell[1] - shape.origin[1]] = i
    left, right = (
        ids[tuple(shape.index(np.floor(p + 0.5)).reshape(-1, 2).T)] for p in (before, after)
    )
    assert left.min() >= 0 and right.min() >= 0  # free cells
    assert (step @ step)[left, right].all()


# ---- geometry


@pytest.mark.parametrize("maze", EDL)
def test_cells_and_walls_are_edls(maze):
    cells, units, horizontal, vertical = EDL[maze]
    shape, segments = geometry(maze), walls(maze)
    assert (len(shape.cells), len(unit_walls(maze))) == (cells, units)
    flat = segments[:, 0, 1] == segments[:, 1, 1]
    found = {(y, x0, x1) for (x0, y), (x1, _) in segments[flat].tolist()}
    assert found == runs(horizontal, (shape.low[0], shape.high[0])) and len(found) == flat.sum()
    found = {(x, y0, y1) for (x, y0), (_, y1) in segments[~flat].tolist()}
    assert found == runs(vertical, (shape.low[1], shape.high[1])) and len(found) == (~flat).sum()


@pytest.mark.parametrize("maze", PLANS)
def test_all_mazes_are_connected_and_all_but_bottleneck_are_trees(maze):
    shape = geometry(maze)
    reached = {tuple(shape.start[0].tolist())}
    for _ in range(len(shape.cells)):
        reached |= {cell for pair in shape.pairs if reached & set(pair) for cell in pair}
    assert len(reached) == len(shape.cells)
    assert (len(shape.pairs) == len(shape.cells) - 1) == (maze != "bottleneck")


def test_boxes_starts_and_goals_are_edls():
    assert geometry("tree").low.tolist() == [-6.5, -6.5] and geometry("tree").high.tolist() == [
        6.5,
        0.5,
    ]
    assert geometry("square_a").goals.tolist() == [[4, -1], [4, 0]]
    assert {maze for maze in PLANS if geometry(maze).start.tolist() != [[0, 0]]} == {"corridor2"}
    assert all(inside(maze, geometry(maze).goals).all() for maze in PLANS)


def test_inside_is_the_union_of_the_cells():
    points = [(0, 0), (0.4, -2), (1, -1), (4.4, 0.4), (4.6, 0), (1e9, 0), (np.inf, 0), (np.nan, 0)]
    assert inside("square_a", points).tolist() == [
        True,
        True,
        False,
        True,
        False,
        False,
        False,
        False,
    ]


def test_free_squares_tile_the_cells_and_the_oracle_fills_them_evenly():
    centres = free_cells("tree")
    assert centres.shape == (31 * 16, 2) and inside("tree", centres).all()
    points = uniform("tree", np.random.default_rng(0), 31 * 16 * 100)
    assert inside("tree", points).all() and inside("tree", points.astype(np.float32)).all()
    # Borders at multiples of 1/4.
    squares, counts = np.unique(np.floor(points / 0.25 + 2), axis=0, return_counts=True)
    assert {tuple(s) for s in squares} == {tuple(s) for s in np.floor(centres / 0.25 + 2)}
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


# ---- dynamics


@pytest.mark.parametrize(
    "maze,n", [("tree", 100_000), ("square_a", 100_000), *((m, 10_000) for m in PLANS)]
)
def test_random_walks_stay_in_free_cells_and_pass_no_wall(maze, n):
    rng = np.random.default_rng(1)
    batch = MazeBatch(maze)
    observation, before = batch.reset(rng, n), batch.position
    for _ in range(50):
        observation = batch.step(rng.uniform(-MAX_ACTION, MAX_ACTION, (n, 2)))[0]
        np.testing.assert_array_equal(
            np.floor(observation.astype(np.float64) + 0.5), np.floor(batch.position + 0.5)
        )
        assert_connected(maze, before, batch.position)
        before = batch.position


# Cell (0, 0) of square_a is open downward only, (0, -1) up and down, (0, -2) to the right too.
@pytest.mark.parametrize(
    "start,action,unit,end",
    [
        ((0.2, 0.0), (0.1, 0.2), (0.5, 0.5), (0.3, 0.2)),  # nothing in the way
        (
            (0.2, 0.0),
            (0.9, -0.2),
            (0.5, 0.9),
            (0.495, -0.2),
        ),  # stopped across the wall, not along it
        ((0.2, 0.2), (0.9, 0.9), (0.5, 0.25), (0.495, 0.4975)),  # into a corner
        (
            (-0.3, 0.0),
            (-0.9, -0.9),
            (0.0, 0.5),
            (-0.5 + EDGE, -0.9),
        ),  # slides into the next cell; no repulsion drawn
        (
            (0.4, -0.4),
            (0.3, -0.5),
            (1.0, 0.5),
            (0.49, -0.9),
        ),  # down first, then the wall of the cell below
        ((0.4, -1.4), (0.3, -0.5), (1.0, 0.5), (0.7, -1.9)),  # down first, then through the opening
        (
            (0.45, -1.4),
            (0.5, -0.2),
            (0.5, 0.5),
            (0.495, -1.6),
        ),  # right first: a wall, though there is none further down
    ],
)
def test_walls_stop_the_motion_across_and_keep_the_motion_along(start, action, unit, end):
    found = advance(geometry("square_a"), np.array([start]), np.array([action]), np.array([unit]))
    np.testing.assert_allclose(found[0], end, rtol=0, atol=1e-15)
    np.testing.assert_allclose(
        step_plain(wall_set("square_a"), start, action, unit), end, rtol=0, atol=1e-15
    )


def test_actions_are_clipped():
    batch = MazeBatch("bottleneck")
    batch.reset(np.random.default_rng(0), 2, start=(2, 2))
    batch.step([(-5, 0.25), (0.96, 5)])
    np.testing.assert_allclose(batch.position, [[1.05, 2.25], [2.95, 2.95]])
    assert step_plain(wall_set("bottleneck"), (2, 2), (0.96, 5), (0, 0)) == [2.95, 2.95]


def test_a_step_exactly_through_a_corner_is_stopped_and_edls_separate_tests_let_it_pass():
    start, step, unit = np.array([[0.25, -3.75]]), np.array([[0.5, 0.5]]), np.array([[0.5, 0.5]])
    # (0, -4) is an elbow: up and right are open, the diagonal is no cell
    shape = geometry("square_a")
    np.testing.assert_allclose(advance(shape, start, step, unit), [[0.75, -3.505]])
    leaked = advance(shape, start, step, unit, legacy_corner=True)
    np.testing.assert_allclose(leaked, [[0.75, -3.25]])
    assert not inside("square_a", leaked).any()


def test_a_start_on_a_border_is_moved_off_it_and_free_to_go():
    batch = MazeBatch("tree")
    batch.reset(np.random.default_rng(0), 2, start=(0, -0.5))  # the start of EDL's figures
    assert batch.position.tolist() == [[0, -0.5 + EDGE]] * 2
    batch.step([(0, -0.5), (0, 0.5)])
    np.testing.assert_allclose(batch.position, [[0, -1 + EDGE], [0, EDGE]], rtol=0, atol=1e-15)


def test_repulsion_is_uniform_up_to_a_hundredth():
    batch = MazeBatch("square_a")
    batch.reset(np.random.default_rng(0), 20_000)
    batch.step(np.tile([MAX_ACTION, 0.0], (20_000, 1)))
    batch.step(np.tile([MAX_ACTION, 0.0], (20_000, 1)))
    gap = 0.5 - batch.position[:, 0]
    assert gap.min() >= EDGE and gap.max() <= 0.01
    assert scipy.stats.kstest(gap, "uniform", (0, 0.01)).pvalue > 1e-3


@pytest.mark.parametrize("legacy_corner", [False, True])
@pytest.mark.parametrize("maze", PLANS)
def test_the_vectorised_step_equals_the_recursion_written_out(maze, legacy_corner):
    rng = np.random.default_rng(2)
    shape, wall = geometry(maze), wall_set(maze)
    free = (uniform(maze, rng, 2000), rng.uniform(-1, 1, (2000, 2)) * MAX_ACTION)
    for start, step in (free, aimed_at_corners(maze, rng, 4000)):
        unit = rng.random(step.shape)
        found = advance(shape, start, step, unit, legacy_corner)
        plain = [
            step_plain(wall, *row, legacy_corner)
            for row in zip(start.tolist(), step.tolist(), unit.tolist())
        ]
        np.testing.assert_allclose(found, plain, rtol=0, atol=1e-12)
        if not legacy_corner:
            assert_connected(maze, start, found)


def test_only_legacy_corners_leak():
    leaked = {}
    for legacy_corner in (False, True):
        positions = walk(
            MazeBatch("tree", legacy_corner=legacy_corner), np.random.default_rng(3), 20_000
        )
        leaked[legacy_corner] = (~inside("tree", positions)).any(0).sum()
    assert leaked[False] == 0
    assert 2 <= leaked[True] <= 40  # EDL's own code: about one episode in 2000


def test_a_step_draws_the_same_numbers_whether_it_meets_a_wall_or_not():
    states = []
    for action in (0.0, MAX_ACTION):
        batch = MazeBatch("corridor")
        batch.reset(np.random.default_rng(4), 10)
        batch.step(np.full((10, 2), action))
        states.append(batch.rng.bit_generator.state)
    assert states[0] == states[1]


# ---- starts and goals


def starts_by_formula(maze, rng, n):
    """Uniform points of cell (0, 0), closed above, without those that EDL rejects."""
    x, y = points = rng.uniform(-0.5, 0.5, (2, n))
    beside, below = np.abs(x) > 0.45, y < -0.45
    # The tree's start has walls at both sides; square_d's is open there and below, but its lower
    # corners touch walls.
    return points.T[~((y > 0.45) | (beside if maze == "tree" else beside & below))]


@pytest.mark.parametrize("maze", ["tree", "square_d"])
def test_starts_are_uniform_in_the_start_cell_but_for_a_twentieth_to_walls(maze):
    batch = MazeBatch(maze)
    batch.reset(np.random.default_rng(5), 50_000)
    x, y = batch.position.T
    assert y.max() <= 0.45 and -0.5 < y.min() < -0.499
    assert not ((np.abs(x) > 0.45) & (y < -0.45)).any()
    assert (np.abs(x).max() <= 0.45) == (maze == "tree")
    expected = starts_by_formula(maze, np.random.default_rng(6), 50_000)
    for direction in ((1, 0), (0, 1), (1, 1), (1, -1)):
        assert scipy.stats.ks_2samp(batch.position @ direction, expected @ direction).pvalue > 1e-3


def test_sampled_goals_are_uniform_over_the_goal_cells_away_from_walls():
    batch = MazeBatch("tree", goal="sample")
    batch.reset(np.random.default_rng(7), 50_000)
    x, y = np.abs(batch.goal[:, 0]) - 6, batch.goal[:, 1] + 6  # both cells are open above only
    assert abs((batch.goal[:, 0] > 0).mean() - 0.5) < 0.01
    assert scipy.stats.kstest(x, "uniform", (-0.325, 0.65)).pvalue > 1e-3
    assert scipy.stats.kstest(y, "uniform", (-0.325, 0.825)).pvalue > 1e-3


def test_success_is_a_distance_of_at_most_15_hundredths():
    batch = MazeBatch("tree", goal=(6, -6))
    batch.reset(np.random.default_rng(0), 3, start=(6, -6))
    observation, reward, success = batch.step([(0.149, 0), (0.151, 0), (0.11, 0.11)])
    assert (observation.dtype, observation.shape, reward.dtype) == (np.float32, (3, 2), np.float32)
    assert reward.tolist() == [1, 0, 0] and success.tolist() == [True, False, False]
    batch = MazeBatch("tree", goal=(6, -6), dense=True)
    batch.reset(np.random.default_rng(0), 2, start=(6, -6))
    np.testing.assert_allclose(batch.step([(0.1, 0), (0.3, 0.4)])[1], [-0.1, -0.5], rtol=1e-6)
    batch = MazeBatch("tree")
    batch.reset(np.random.default_rng(0), 2)
    _, reward, success = batch.step(np.zeros((2, 2)))
    assert reward.tolist() == [0, 0] and success.tolist() == [False, False]


# ---- gymnasium


@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("legacy_corner", [False, True])
def test_gymnasium_finds_nothing_to_complain_about(name, legacy_corner):
    env = gymnasium.make(
        f"envs.maze:amped/{name}-v0", render_mode="rgb_array", legacy_corner=legacy_corner
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)


@pytest.mark.parametrize(
    "name,goal",
    [("SquareMazeReach", (4, 0)), ("TreeMazeReachLeft", (-6, -6)), ("TreeMazeReachRight", (6, -6))],
)
def test_reach_tasks_reward_every_step_that_ends_at_the_goal(name, goal):
    env = gymnasium.make(f"envs.maze:amped/{name}-v0")
    assert not env.reset(seed=0)[1]["success"]
    env.reset(options={"start": goal})
    outcomes = [
        env.step(np.array(action, np.float32)) for action in ((0.1, 0), (0.3, 0), (-0.3, 0))
    ]
    assert [reward for _, reward, _, _, _ in outcomes] == [1.0, 0.0, 1.0]
    assert [info["success"] for *_, info in outcomes] == [True, False, True]
    assert not any(terminated or truncated for _, _, terminated, truncated, _ in outcomes)


def test_an_episode_ends_at_success_only_on_demand():
    env = gymnasium.make("envs.maze:amped/SquareMazeReach-v0", done_on_success=True)
    env.reset(seed=0, options={"start": (4, -0.3)})
    assert [env.step(np.array((0, dy), np.float32))[2] for dy in (-0.1, 0.4)] == [False, True]


@pytest.mark.parametrize(
    "kwargs", [{}, {"goal": "sample"}, {"legacy_corner": True, "goal": (3, 0), "dense": True}]
)
def test_an_episode_of_gymnasium_is_that_of_a_batch_of_one(kwargs):
    env, batch = MazeEnv("square_d", **kwargs), MazeBatch("square_d", **kwargs)
    actions = np.random.default_rng(8).uniform(-1, 1, (50, 2))
    np.testing.assert_array_equal(env.reset(seed=9)[0], batch.reset(np.random.default_rng(9), 1)[0])
    for count, action in enumerate(actions, 1):
        observation, reward, terminated, truncated, _ = env.step(action)
        expected = batch.step(action[None])
        np.testing.assert_array_equal(observation, expected[0][0])
        assert reward == expected[1][0]
        assert (terminated, truncated) == (False, count == 50)


def test_the_picture_shows_walls_path_goal_and_agent():
    env = gymnasium.make("envs.maze:amped/TreeMazeReachLeft-v0", render_mode="rgb_array")
    env.reset(seed=0, options={"start": (0, 0)})

    def at(image, x, y):
        return tuple(image[3 + int(24 * (0.5 - y)), 3 + int(24 * (x + 6.5))].tolist())

    before = env.render()
    assert before.shape == (7 * 24 + 6, 13 * 24 + 6, 3) and before.dtype == np.uint8
    env.step(np.array([0, -0.95], np.float32))
    after = env.render()
    floor, wall, agent, goal = (
        at(before, *point) for point in ((0, -2), (0.5, 0), (0, 0), (-6, -6))
    )
    assert (floor, wall) == ((255, 255, 255), (0, 0, 0)) and len({floor, wall, agent, goal}) == 4
    assert (at(after, 0, -0.95), at(after, -6, -6)) == (agent, goal)
    assert at(after, 0, -0.5) not in (floor, wall, agent, goal)  # the path
    assert MazeEnv().render() is None


@pytest.mark.parametrize("name", ["TreeMaze", "SquareMazeReach"])
@pytest.mark.parametrize("steps", [0, 20, 50])
def test_checkpoints_continue_a_maze_exactly(name, steps):
    actions = np.random.default_rng(0).uniform(-1, 1, (50, 2)).astype(np.float32)
    env, other = (envs.make(f"gymnasium:envs.maze:amped/{name}-v0", seed=seed) for seed in (1, 2))
    assert (env.obs_dim, env.action_dim) == (2, 2)
    here = env.reset()
    for action in actions[:steps]:
        here = env.step(action)
    there = other.set_state(env.get_state())
    for action in [*actions[steps:], None, *actions]:  # None: the next episode
        assert (there.step_type, there.reward, there.discount) == (
            here.step_type,
            here.reward,
            here.discount,
        )
        np.testing.assert_array_equal(there.observation, here.observation)
        assert here.discount == 1.0
        here, there = (e.reset() if action is None else e.step(action) for e in (env, other))
    assert here.last() and there.observation.tolist() == here.observation.tolist()


# ---- errors


@pytest.mark.parametrize(
    "call,part",
    [
        (lambda: MazeBatch("square_e"), "unknown maze 'square_e'; choose from square_a"),
        (
            lambda: MazeBatch("square_a", goal=(1, -1)),
            r"goal \[1.0, -1.0\] lies in no free cell of square_a; the nearest",
        ),
        (
            lambda: MazeBatch("square_a", goal="left"),
            "unknown goal 'left'; choose from None, \"sample\"",
        ),
        (lambda: MazeBatch("square_a", goal=(1, np.nan)), "goal must be two finite numbers"),
        (
            lambda: MazeBatch("tree").reset(np.random.default_rng(0), 1, start=(9, 9)),
            "start .* lies in no free cell",
        ),
        (lambda: MazeEnv(max_steps=0), "max_steps must be an integer >= 1"),
        (
            lambda: MazeEnv(render_mode="human"),
            "unknown render_mode 'human'; choose from rgb_array",
        ),
        (lambda: free_cells("tree", 0.3), "size must be one over an integer"),
    ],
)
def test_wrong_settings_are_explained(call, part):
    with pytest.raises(ValueError, match=part):
        call()


def test_wrong_actions_are_refused_before_anything_moves():
    batch = MazeBatch("tree")
    batch.reset(np.random.default_rng(0), 2)
    before, state = batch.position.copy(), batch.rng.bit_generator.state
    for actions in (np.zeros(2), np.zeros((3, 2)), np.full((2, 2), np.nan)):
        with pytest.raises(ValueError, match=r"actions must be finite, of shape \(2, 2\)"):
            batch.step(actions)
    assert (batch.position == before).all() and batch.rng.bit_generator.state == state
