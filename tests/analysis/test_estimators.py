"""The estimators of coverage, entropy and mutual information give the answers that are known, and
say how far off."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors

from analysis.maze.estimators import (
    dv_step,
    halves,
    kl_entropy,
    mi_mine,
    particle_entropy,
    separability,
)
from envs.maze.core import MAX_ACTION, MazeBatch
from envs.maze.geometry import free_cells, geometry, uniform
from envs.maze.measures import coverage, mi_grid, squares
from utils import Streams

SKILLS = 6
LOG_N = math.log(SKILLS)


def rng(seed=0):
    return np.random.default_rng(seed)


def random_actions(seed=0, episodes=600, steps=50):
    """States (episodes * steps, 2) in the tree and the episode of each."""
    source, batch = rng(seed), MazeBatch("tree")
    batch.reset(source, episodes)
    path = [
        batch.step(source.uniform(-MAX_ACTION, MAX_ACTION, (episodes, 2)))[0] for _ in range(steps)
    ]
    return np.array(path).transpose(1, 0, 2).reshape(-1, 2), np.repeat(np.arange(episodes), steps)


def disjoint(count=500, skills=SKILLS, seed=0):
    """Each skill uniform in a square of its own, 0.2 from the next."""
    z = np.repeat(np.arange(skills), count)
    return geometry("square_a").cells[z] + rng(seed).uniform(-0.4, 0.4, (len(z), 2)), z


def independent(count=5000, skills=SKILLS, seed=0):
    z = np.repeat(np.arange(skills), count)
    return uniform("tree", rng(seed), len(z)), z


def ring(radius):
    """Means of the Gaussians (unit variance) in `mixture`."""
    angle = 2 * np.pi * np.arange(SKILLS) / SKILLS
    return radius * np.stack([np.cos(angle), np.sin(angle)], 1)


def mixture(radius, count=5000, seed=0):
    z = np.repeat(np.arange(SKILLS), count)
    return ring(radius)[z] + rng(seed).normal(size=(len(z), 2)), z


def information(joint):
    """I from a table of probabilities (skills, ...)."""
    joint = joint.reshape(len(joint), -1)
    product = joint.sum(1, keepdims=True) * joint.sum(0)
    seen = joint > 0
    return float((joint[seen] * np.log(joint[seen] / product[seen])).sum())


def ring_information(radius, size=0.05):
    """I of `mixture` by integration: the exact I of a grid, the continuous one as squares
    shrink."""
    half = round(10 / size)
    edges = np.arange(-half, half + 1) * size
    # (squares per axis, skills, 2)
    share = np.diff(norm.cdf(edges[:, None, None] - ring(radius)), axis=0)
    return information(np.einsum("xz,yz->zxy", share[..., 0], share[..., 1]) / SKILLS)


# ---- coverage


def visits(counts):
    """States at the centres of the corridor's 176 squares, so many each."""
    return np.repeat(free_cells("corridor"), counts, axis=0)


def test_uniform_states_cover_their_maze_and_one_square_is_one_of_its_squares():
    for maze in ("square_a", "tree"):
        assert coverage(uniform(maze, rng(), 20_000), maze) == 1
    assert coverage(np.zeros((1000, 2)), "corridor") == 1 / 176
    assert coverage(np.zeros((1000, 2)), "tree") == 1 / (31 * 16)


@pytest.mark.parametrize("share, length", [(0.05, 7 * 176 * 20), (0.07, 17_600)])
def test_a_square_counts_from_exactly_its_share_of_the_uniform_visits(share, length):
    counts = np.array([7] * 88 + [6] * 87 + [0])  # seven visits are needed, six are one too few
    counts[-1] = length - counts.sum()
    assert coverage(visits(counts), "corridor", share=share) == 89 / 176
    counts[-1] += 176  # more states in all: seven are no longer enough
    assert coverage(visits(counts), "corridor", share=share) == 1 / 176


def test_states_outside_the_free_cells_cover_nothing_but_count_as_visits():
    inside = visits(np.ones(176, int))
    assert coverage(inside, "corridor") == 1
    far, hole = np.full((20 * 176, 2), 100.0), np.full((100, 2), [1.0, 0.0])
    # one of 20 is the share
    assert coverage(np.concatenate([inside, far[: 19 * 176]]), "corridor") == 1
    assert coverage(np.concatenate([inside, far]), "corridor") == 0
    assert coverage(hole, "square_a") == 0  # in its box, between corridors
    for beyond in ([-5.6, 0], [5.6, 0], [0, -0.6], [0, 0.6]):
        assert coverage([beyond], "corridor") == 0


def test_a_finer_grid_asks_for_finer_visits():
    centres = geometry("tree").cells.astype(float)
    assert coverage(centres, "tree", size=1) == 1
    assert coverage(centres, "tree", size=1 / 3) == pytest.approx(1 / 9)
    assert coverage(centres, "tree") == 1 / 16


def test_random_actions_touch_most_squares_once_and_cover_far_fewer():
    states, _ = random_actions()
    assert coverage(states, "tree", share=1e-9) > 0.75
    assert coverage(states, "tree") < 0.65


# ---- entropy


def test_particle_entropy_by_hand():
    line = np.array([[0.0, 0], [1, 0], [3, 0]])
    assert particle_entropy(line, k=1) == pytest.approx((2 * math.log(2) + math.log(3)) / 3)
    assert particle_entropy(line, k=2) == pytest.approx(
        (math.log(3) + math.log(2.5) + math.log(3.5)) / 3
    )
    assert particle_entropy(np.ones((20, 3))) == 0


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_particle_entropy_agrees_with_sklearns_neighbours(dim):
    states = rng(dim).normal(size=(800, dim))
    states[:50] = states[50:100]  # duplicates are neighbours too
    # without itself
    distance = NearestNeighbors(n_neighbors=16, algorithm="brute").fit(states).kneighbors()[0]
    assert particle_entropy(states) == pytest.approx(np.log1p(distance.mean(1)).mean(), abs=1e-7)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_kl_entropy_of_a_gaussian_is_the_closed_form(dim):
    spread = np.array([0.5, 2.0, 3.0])[:dim]
    turn = np.linalg.qr(rng(dim).normal(size=(dim, dim)))[0]
    states = (rng().normal(size=(20_000, dim)) * spread) @ turn
    expected = dim / 2 * math.log(2 * math.pi * math.e) + np.log(spread).sum()
    for k in (4, 16):
        assert kl_entropy(states, k) == pytest.approx(expected, abs=0.04)


def test_kl_entropy_of_a_uniform_square_is_the_logarithm_of_its_area():
    assert kl_entropy(rng().uniform(0, 1, (30_000, 2)), k=3) == pytest.approx(0, abs=0.02)
    assert kl_entropy(rng().uniform(-5, 2, (30_000, 2)), k=3) == pytest.approx(
        math.log(49), abs=0.02
    )


@pytest.mark.parametrize("maze, cells", [("square_a", 17), ("tree", 31)])
@pytest.mark.parametrize("n", [6000, 30_000])
def test_kl_entropy_of_the_oracle_is_log_cells_plus_the_stated_bias_of_walls(maze, cells, n):
    states = uniform(maze, rng(), n)
    for k in (4, 16):
        bias = kl_entropy(states, k) - math.log(cells)
        assert bias == pytest.approx(0.33 * math.sqrt(k * cells / n), abs=0.02)


def test_kl_entropy_follows_units_and_both_entropies_ignore_where_and_in_which_order():
    states = rng().normal(size=(2000, 2))
    assert kl_entropy(3 * states) == pytest.approx(kl_entropy(states) + 2 * math.log(3))
    for entropy in (kl_entropy, particle_entropy):
        assert entropy(states + [5, -7]) == pytest.approx(entropy(states))
        assert entropy(rng().permutation(states)) == pytest.approx(entropy(states))


def test_duplicates_leave_kl_entropy_finite_and_mass_points_lower_it_to_the_floor():
    states = rng().uniform(0, 4, (3000, 2))
    pairs = np.repeat(states[:1500], 2, axis=0)  # fewer than k copies: every radius stays positive
    assert kl_entropy(pairs) == kl_entropy(pairs, floor=1e-300)
    floor = 1e-3
    # psi(100) - psi(1)
    expected = np.euler_gamma + sum(1 / i for i in range(1, 100)) - np.euler_gamma
    expected += math.log(math.pi) + 2 * math.log(floor)
    assert kl_entropy(np.ones((100, 2)), k=1, floor=floor) == pytest.approx(expected)
    stuck = states.copy()
    stuck[:300] = states[0]
    assert math.isfinite(kl_entropy(stuck)) and kl_entropy(stuck) < kl_entropy(states) - 1


# ---- mutual information on the grid


def test_states_that_tell_their_skill_hold_log_n_and_no_more():
    states, z = disjoint()
    assert mi_grid(states, z) == pytest.approx(LOG_N)
    assert mi_grid(z[:, None].astype(float), z) == pytest.approx(LOG_N)  # S = Z, one dimension
    assert mi_grid(states, z // 2) == pytest.approx(math.log(3))  # two cells per skill
    assert mi_grid(np.zeros((len(z), 2)), z) == pytest.approx(0)


def test_the_grid_by_hand():
    table = np.array([[3, 1, 0], [1, 1, 2]])  # skills, squares
    z, square = (
        np.repeat(index, table.ravel()) for index in np.indices(table.shape).reshape(2, -1)
    )
    states = np.stack([square * 0.25 - 0.4, np.zeros(len(z))], 1)
    expected = information(table / table.sum())
    assert mi_grid(states, z) == pytest.approx(expected)
    corrected = expected + (3 - 1 + 2 - 1 - (5 - 1)) / (2 * 8)  # of H(S), H(Z), H(S, Z)
    assert mi_grid(states, z, miller_madow=True) == pytest.approx(corrected)


def test_borders_of_the_grid_are_those_of_the_free_squares():
    for size in (1, 1 / 3, 0.25):
        cells = free_cells("tree", size)
        assert len(np.unique(squares(cells, size), axis=0)) == len(cells)
        for shift in (-0.49 * size, 0.49 * size):
            assert (squares(cells + shift, size) == squares(cells, size)).all()


def test_miller_madow_removes_the_stated_bias_on_independent_data():
    bias = 30 * 16 * (SKILLS - 1) / (2 * 30_000)
    plain, corrected = np.array(
        [[mi_grid(*independent(seed=s), miller_madow=m) for m in (False, True)] for s in range(5)]
    ).T
    assert plain.mean() == pytest.approx(bias, rel=0.1)
    assert (np.abs(corrected) < plain / 5).all() and abs(corrected.mean()) < 0.003


def test_dependent_states_of_episodes_leave_a_bias_that_miller_madow_does_not_see():
    states, episode = random_actions()
    skills = episode % SKILLS  # random actions know no skill
    plain, corrected = (mi_grid(states, skills, miller_madow=m) for m in (False, True))
    state_by_state = mi_grid(states, rng().permutation(skills), miller_madow=True)
    assert plain > corrected > state_by_state + 0.005 > 0.005
    # Skills shuffled between whole episodes.
    another = rng(1).permutation(episode.max() + 1)[episode] % SKILLS
    assert mi_grid(states, another, miller_madow=True) == pytest.approx(corrected, abs=0.01)


@pytest.mark.parametrize("radius", [1.0, 1.5, 3.0])
def test_the_grid_agrees_with_integration_on_gaussian_mixtures(radius):
    states, z = mixture(radius, count=40_000)
    on_grid, continuous = ring_information(radius, size=0.25), ring_information(radius)
    assert 0 < continuous - on_grid < 0.01  # a square tells less than the point in it
    assert mi_grid(states, z, miller_madow=True) == pytest.approx(on_grid, abs=0.006)
    assert mi_grid(states, z) > on_grid


def test_the_grid_ignores_order_names_of_skills_and_shifts_by_whole_squares():
    states, z = mixture(1.5, count=500)
    order, names = rng().permutation(len(z)), np.array(list("fadbce"))
    for option in (False, True):
        expected = mi_grid(states, z, miller_madow=option)
        assert mi_grid(states[order], z[order], miller_madow=option) == pytest.approx(expected)
        assert mi_grid(states, names[z], miller_madow=option) == pytest.approx(expected)
        assert mi_grid(states + [0.5, -64], z, miller_madow=option) == pytest.approx(expected)


# ---- separability


def test_disjoint_regions_are_told_apart_and_independent_skills_only_by_chance():
    assert separability(*disjoint(), seed=0) == 1
    states, z = independent(count=2000)
    assert separability(states, z, seed=0) == pytest.approx(1 / SKILLS, abs=0.02)
    assert separability(z[:, None] * 10.0, z, seed=0, k=1) == 1


@pytest.mark.parametrize("k", [1, 5])
def test_separability_agrees_with_sklearns_classifier(k):
    states, z = mixture(1.5, count=200)
    known, asked = halves(z, np.arange(len(z)), Streams(3).numpy("separability"))
    expected = KNeighborsClassifier(k).fit(states[known], z[known]).score(states[asked], z[asked])
    assert separability(states, z, seed=3, k=k) == pytest.approx(expected)


def test_separability_approaches_the_best_classifier():
    states, z = mixture(1.5, count=4000)
    best = (((states[:, None] - ring(1.5)) ** 2).sum(-1).argmin(1) == z).mean()
    assert best - 0.04 < separability(states, z, seed=0) < best + 0.01


def test_halves_keep_episodes_whole_and_skills_balanced():
    z, episode = np.repeat(np.arange(SKILLS), 40), np.repeat(np.arange(48), 5)
    known, asked = halves(z, episode, rng())
    assert sorted([*known, *asked]) == list(range(len(z)))
    assert not set(episode[known]) & set(episode[asked])
    assert (np.bincount(z[known]) == 20).all() and (np.bincount(z[asked]) == 20).all()
    assert not np.array_equal(halves(z, episode, rng(1))[0], known)


def test_neighbours_in_time_leak_the_skill_unless_episodes_stay_whole():
    episodes, steps = 300, 50
    start = rng().uniform(0, 5, (episodes, 1, 2))
    # The same walk whatever the skill.
    slow = start + rng(1).normal(0, 0.05, (episodes, steps, 2)).cumsum(1)
    states, episode = slow.reshape(-1, 2), np.repeat(np.arange(episodes), steps)
    skills = episode % SKILLS
    assert separability(states, skills, seed=0) > 0.5
    assert separability(states, skills, seed=0, episode=episode) == pytest.approx(
        1 / SKILLS, abs=0.04
    )


def test_separability_repeats_from_its_seed_and_ignores_where_and_which_name():
    states, z = mixture(1.5, count=300)
    accuracy = separability(states, z, seed=1)
    assert separability(states, z, seed=1) == accuracy != separability(states, z, seed=2)
    assert separability(states + 8, z, seed=1) == pytest.approx(accuracy, abs=0.005)
    assert separability(states, z * 10 - 3, seed=1) == accuracy


# ---- MINE, in fewer and larger steps than the protocol's; what its own settings give is in the
# docstring of mi_mine.

FAST = {"seed": 0, "steps": 1300, "lr": 3e-3}


def test_the_bound_and_its_gradient_by_hand():
    joint, marginal = (
        torch.tensor([1.0, 3.0], requires_grad=True),
        torch.tensor([0.0, 2.0], requires_grad=True),
    )
    mean = (1 + math.exp(2)) / 2
    bound, loss, log_mean = dv_step(joint, marginal, torch.tensor(math.log(10.0)))
    running = 0.99 * 10 + 0.01 * mean
    assert bound.item() == pytest.approx(2 - math.log(mean)) and log_mean.item() == pytest.approx(
        math.log(running)
    )
    loss.backward()
    assert joint.grad.tolist() == [-0.5, -0.5]
    assert marginal.grad.tolist() == pytest.approx([0.5 / running, 0.5 * math.exp(2) / running])
    # The first batch starts it.
    assert dv_step(joint, marginal, None)[2].item() == pytest.approx(math.log(mean))
    assert torch.isfinite(dv_step(joint + 500, marginal + 500, None)[1])


def test_mine_finds_log_n_where_states_tell_their_skill_and_passes_it_only_by_the_bias_of_a_batch():
    states, z = disjoint(count=2000)
    slack = (SKILLS - 1) / (2 * 512)  # log of a mean over 512: Jensen's gap, to first order
    assert LOG_N - 0.04 < mi_mine(states, z, **FAST) < LOG_N + slack + 0.01


def test_mine_finds_nothing_where_there_is_nothing():
    assert mi_mine(*independent(), seed=0, steps=1000) == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("radius", [1.5, 4.0])
def test_mine_agrees_with_integration_on_gaussian_mixtures(radius):
    assert mi_mine(*mixture(radius), **FAST) == pytest.approx(ring_information(radius), abs=0.05)


@pytest.mark.slow
def test_four_thousand_steps_of_mine_come_close_to_the_whole_protocol_on_gaussians():
    short, whole = (mi_mine(*mixture(4.0), seed=0, steps=steps) for steps in (4000, 20_000))
    assert whole == pytest.approx(ring_information(4.0), abs=0.015)
    assert short == pytest.approx(whole, abs=0.015)


def test_mine_repeats_from_its_seed_and_leaves_the_global_streams_alone():
    states, z = mixture(4.0, count=300)
    torch.manual_seed(5)
    before, legacy = torch.get_rng_state(), np.random.get_state()[1].copy()
    first = mi_mine(states, z, seed=1, steps=40)
    assert torch.equal(torch.get_rng_state(), before) and (np.random.get_state()[1] == legacy).all()
    torch.manual_seed(6)
    assert mi_mine(states, z, seed=1, steps=40) == first != mi_mine(states, z, seed=2, steps=40)


def test_mine_ignores_place_units_and_names_of_skills():
    states, z = mixture(4.0, count=300)
    expected = mi_mine(states, z, seed=1, steps=100)
    assert expected > 0.1
    assert mi_mine(states * [1000, 0.01] + 50, z, seed=1, steps=100) == pytest.approx(
        expected, abs=1e-3
    )
    assert mi_mine(states, z * 7 - 2, seed=1, steps=100) == expected


def test_mine_stands_a_constant_coordinate_and_a_single_skill():
    states, z = mixture(4.0, count=100)
    flat = np.concatenate([states, np.ones((len(z), 1))], 1)
    assert math.isfinite(mi_mine(flat, z, seed=0, steps=20))
    assert mi_mine(states, np.zeros(len(z)), seed=0, steps=20) == pytest.approx(0, abs=0.02)


# ---- wrong input


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: kl_entropy(np.zeros(5)), r"of shape \(N, D\); got shape \(5,\)"),
        (lambda: particle_entropy([[0.0, np.nan], [1, 2]]), "1 numbers not finite"),
        (lambda: kl_entropy(np.zeros((16, 2))), "k must be at least 1 and at most 15"),
        (lambda: particle_entropy(np.zeros((16, 2)), k=0), "got 0"),
        (
            lambda: mi_grid(np.zeros((4, 2)), [1, 2, 3]),
            r"one label per state, shape \(4,\); got \(3,\)",
        ),
        (
            lambda: separability(np.zeros((4, 2)), [0, 0, 1, 1], seed=0, episode=[0, 0, 1, 2]),
            "needs two episodes",
        ),
        (lambda: separability(np.zeros((8, 2)), [0, 1] * 4, seed=0, k=5), "at most 4"),
        (
            lambda: mi_mine(np.zeros((4, 2)), [0, 1, 0, 1], seed=0, steps=0),
            "steps must be at least 1",
        ),
        (lambda: coverage(np.zeros((4, 3)), "tree"), "two coordinates, got 3"),
        (lambda: coverage(np.zeros((4, 2)), "trees"), "unknown maze 'trees'"),
    ],
)
def test_wrong_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
