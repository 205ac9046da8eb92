"""The particle entropy equals its equation, written out as a loop over particles, and cases worked by
hand."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from sklearn.neighbors import NearestNeighbors

from agent.parts.particles import (
    NeighbourSettings,
    ParticleEntropy,
    RecentStates,
    nearest_distances,
)
from tests.kit.written_out import close, column, moments_of, normal

torch.set_num_threads(1)


@pytest.mark.parametrize("k", [1, 7, 60])
def test_nearest_distances_are_those_of_scikit_learn_and_scipy(k):
    x, pool = normal(40, 5), normal(60, 5, seed=1)
    found = nearest_distances(x, pool, k)
    assert found.shape == (40, k)
    close(
        found,
        NearestNeighbors(n_neighbors=k, algorithm="brute")
        .fit(pool.numpy())
        .kneighbors(x.numpy())[0],
    )
    close(found, np.sort(cdist(x.double(), pool.double()), axis=1)[:, :k])


def test_a_row_finds_itself_at_exactly_zero():
    x = 10 * normal(50, 16)
    assert (nearest_distances(x, x, 3)[:, 0] == 0).all()
    assert (nearest_distances(x, x, 3)[:, 1] > 0).all()


def test_distances_are_exact_where_points_nearly_coincide_far_from_the_origin():
    # 1e-4 apart at 100: squares of 1e4 hold no digit of a squared distance of 1e-8 in single
    # precision
    line = 100 + 1e-4 * torch.randperm(30, generator=torch.Generator().manual_seed(0)).float()
    x = torch.stack([line, torch.full_like(line, 100.0), torch.full_like(line, -100.0)], 1)
    exact = np.sort(cdist(x.double(), x.double()), axis=1)[:, :4]
    assert 0.5e-4 < exact[:, 1].min() and exact[:, 1].max() < 1.5e-4
    close(nearest_distances(x, x, 4), exact, rtol=1e-3, atol=1e-9)


def test_distances_are_exact_inside_two_tight_clusters_far_apart():
    # what separated skills look like: no common offset could be taken away
    centres = torch.tensor([[100.0, 0, 0], [-100.0, 0, 0]]).repeat(15, 1)
    x = centres + 1e-3 * normal(30, 3)
    close(
        nearest_distances(x, x, 4),
        np.sort(cdist(x.double(), x.double()), axis=1)[:, :4],
        rtol=1e-3,
        atol=1e-9,
    )


def entropy_loop(x, k, clip, form, scale, history, pool=None, used=None):
    """The reward as in methods.md 0.4 (release) and section 3.2 (paper); `history` holds the
    distances so far."""
    own = pool is None
    pool = x if own else pool
    used = len(pool) if used is None else min(used, len(pool))
    kept = []
    for i, a in enumerate(x):
        others = [j for j in range(used) if not (form == "paper" and own and j == i)]
        distances = sorted(math.dist(a, pool[j]) for j in others)[:k]
        missing = min(k, len(pool) - (form == "paper" and own)) - len(distances)
        kept.append(distances + [0.0] * missing)
    history.append([d for row in kept for d in row])
    mean, var = moments_of(history)
    divisor = {"var": var, "std": math.sqrt(var), "mean": mean, "none": 1.0}[scale]
    if form == "paper":
        return [[math.log(sum(d / divisor for d in row) + 1e-8)] for row in kept]
    return [[math.log(1 + sum(max(d / divisor - clip, 0) for d in row) / len(row))] for row in kept]


def particle_entropy(*, k, clip, form, scale):
    return ParticleEntropy(NeighbourSettings(k=k, knn_clip=clip, knn_scale=scale), form=form)


@pytest.mark.parametrize(
    "form, scale, clip, k",
    itertools.product(["release", "paper"], ["var", "std", "mean", "none"], [0.0, 0.7], [2, 4, 50]),
)
def test_entropy_reward_equals_the_loop_over_particles(form, scale, clip, k):
    entropy, history = particle_entropy(k=k, clip=clip, form=form, scale=scale), []
    for seed in range(3):  # the scale runs on from batch to batch
        x = (1 + seed) * normal(9, 3, seed=seed)
        reward = entropy(x)
        assert reward.shape == (9, 1)
        close(reward, entropy_loop(x.tolist(), k, clip, form, scale, history))


@pytest.mark.parametrize(
    "scale, near, far",
    [
        ("none", 1.0, 2.0),  # (0 + 2)/2 and (0 + 4)/2
        (
            "var",
            0.375,
            0.75,
        ),  # kept distances 0 2 0 2 0 4: mean 4/3, variance (24 - 6 * 16/9)/5 = 8/3; 2/(8/3)/2
        ("std", 2 / math.sqrt(8 / 3) / 2, 4 / math.sqrt(8 / 3) / 2),
        ("mean", 0.75, 1.5),  # 2/(4/3)/2
    ],
)
def test_release_entropy_by_hand(scale, near, far):
    x = column([0, 2, 6])  # two nearest, itself among them: (0, 2), (0, 2), (0, 4)
    reward = particle_entropy(k=2, clip=0, form="release", scale=scale)(x)
    close(reward, [[math.log(1 + near)], [math.log(1 + near)], [math.log(1 + far)]], rtol=2e-4)


def test_release_entropy_takes_the_clip_off_every_distance_before_the_mean():
    reward = particle_entropy(k=2, clip=3, form="release", scale="none")(column([0, 2, 6]))
    close(reward, [[0.0], [0.0], [math.log(1.5)]])  # max(2 - 3, 0) = 0; (0 + (4 - 3))/2


def test_paper_entropy_by_hand():
    reward = particle_entropy(k=2, clip=9, form="paper", scale="none")(column([0, 2, 6]))
    # True neighbours only, no clip.
    close(reward, [[math.log(2 + 6)], [math.log(2 + 4)], [math.log(4 + 6)]])


@pytest.mark.parametrize("scale", ["var", "std", "mean", "none"])
@pytest.mark.parametrize("k", [1, 4])
def test_identical_points_earn_nothing(scale, k):
    reward = particle_entropy(k=k, clip=5e-4, form="release", scale=scale)(torch.full((6, 3), 2.5))
    assert (reward == 0).all()


def test_identical_points_stay_finite_in_the_papers_form():
    reward = particle_entropy(k=4, clip=0, form="paper", scale="none")(torch.full((6, 3), 2.5))
    close(reward, [[math.log(1e-8)]] * 6)


def test_more_neighbours_than_the_batch_has_means_all_of_them():
    x = column([0, 2, 6])
    release = particle_entropy(k=99, clip=0, form="release", scale="none")(x)
    # itself makes three
    close(release, [[math.log(1 + 8 / 3)], [math.log(1 + 6 / 3)], [math.log(1 + 10 / 3)]])
    paper = particle_entropy(k=99, clip=0, form="paper", scale="none")(x)
    close(paper, [[math.log(8)], [math.log(6)], [math.log(10)]])


@pytest.mark.parametrize("form", ["release", "paper"])
@pytest.mark.parametrize("used", [3, 5, 8, 100])
def test_only_the_used_rows_of_a_pool_are_neighbours(form, used):
    x, pool = normal(4, 3), normal(8, 3, seed=1)
    pool[used:] = x[0] + 1e-3  # would be the nearest of all
    entropy, history = particle_entropy(k=5, clip=0.1, form=form, scale="std"), []
    expected = entropy_loop(x.tolist(), 5, 0.1, form, "std", history, pool=pool.tolist(), used=used)
    close(entropy(x, pool, torch.tensor(used)), expected)


def test_rows_of_a_pool_that_is_not_full_count_as_distance_zero():
    x, pool = column([0]), column([3, 5, 0, 0])
    release = particle_entropy(k=4, clip=0, form="release", scale="none")
    close(release(x, pool, torch.tensor(2)), [[math.log(1 + (3 + 5 + 0 + 0) / 4)]])
    paper = particle_entropy(k=1, clip=0, form="paper", scale="none")
    # The nearest used row; a pool is not the batch itself.
    close(paper(x, pool, torch.tensor(2)), [[math.log(3)]])


def test_rarer_states_earn_more():
    x = torch.cat([0.1 * normal(20, 4), torch.full((1, 4), 3.0)])
    for form in ("release", "paper"):
        assert particle_entropy(k=4, clip=5e-4, form=form, scale="var")(x).argmax() == 20


def test_recent_states_keep_the_last_transitions():
    recent = RecentStates(3, 1)
    for i in range(5):
        recent.add(torch.tensor([float(i)]), torch.tensor([i + 0.5]))
    assert recent.seen == 5
    assert sorted(recent.pairs[:, 0, 0].tolist()) == [2, 3, 4]
    assert (recent.pairs[:, 1] == recent.pairs[:, 0] + 0.5).all()
