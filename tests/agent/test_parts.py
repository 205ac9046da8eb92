"""Every reward and loss equals its equation, written out as loops over plain floats, and a case
worked by hand."""

import itertools
import math
import statistics

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.spatial.distance import cdist
from sklearn.neighbors import NearestNeighbors

from agent.parts.contrast import (
    AnInfoNCE,
    ContrastSettings,
    EncoderSettings,
    TransitionEncoder,
    masked_mean,
    pairwise,
    random_partner,
)
from agent.parts.contrast import cpc_loss as cpc_loss_of_cosines
from agent.parts.curiosity import RND
from agent.parts.draws import Draws
from agent.parts.moments import RunningMoments
from agent.parts.particles import (
    NeighbourSettings,
    ParticleEntropy,
    RecentStates,
    nearest_distances,
)

torch.set_num_threads(1)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def uniform(size, seed=0):
    return torch.rand(size, generator=torch.Generator().manual_seed(seed))


def column(values):
    return torch.tensor(values, dtype=torch.float32).unsqueeze(1)


def close(actual, expected, rtol=1e-4, atol=1e-6):
    np.testing.assert_allclose(
        actual.detach().double().numpy(), np.asarray(expected, np.float64), rtol=rtol, atol=atol
    )


# ---------------------------------------------------------------------------------- running moments


def moments_of(batches):
    """Mean and variance of all groups, the prior among them: 1e-4 values of mean 0 and variance 1.
    Not recursive."""
    groups = [(1e-4, 0.0, 1.0)]
    groups += [(len(b), statistics.fmean(b), statistics.variance(b)) for b in batches]
    total = sum(n for n, _, _ in groups)
    mean = sum(n * m for n, m, _ in groups) / total
    return mean, sum(n * v + n * (m - mean) ** 2 for n, m, v in groups) / total


def test_running_moments_are_those_of_all_data_and_a_tiny_prior():
    moments, seen = RunningMoments(), []
    for i, shape in enumerate([(3, 2), (7,), (2, 2, 2), (50, 3)]):
        x = 3 * normal(*shape, seed=i) + i
        moments.update(x)
        seen.append(x.flatten().tolist())
        mean, var = moments_of(seen)
        close(moments.mean, [mean])
        close(moments.var, [var])
        close(moments.count, [1e-4 + sum(map(len, seen))])


def test_running_moments_by_hand():
    moments = RunningMoments()
    assert (moments.mean.item(), moments.var.item()) == (0, 1)
    moments.update(torch.tensor([1.0, 3.0]))  # mean 2, unbiased variance 2; the prior weighs 1e-4
    close(moments.mean, [2], rtol=2e-4)
    close(moments.var, [2], rtol=2e-4)
    # Mean (2*2 + 2*5)/4; variance (2*2 + 2*0 + 3^2 * 2*2/4)/4 = 13/4.
    moments.update(torch.tensor([[5.0], [5.0]]))
    close(moments.mean, [3.5], rtol=2e-4)
    close(moments.var, [3.25], rtol=2e-4)


def test_running_moments_start_from_a_variance_of_one_with_weight_1e_4():
    moments = RunningMoments()
    moments.update(torch.zeros(4))
    close(moments.var, [1e-4 / 4.0001], atol=0)


# --------------------------------------------------------------------------------- particle entropy


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


# ---------------------------------------------------------------------------------------------- RND


def mlp_loop(net, row):
    """Linear layers with ReLU between them, neuron by neuron."""
    layers = [m for m in net if isinstance(m, torch.nn.Linear)]
    for depth, layer in enumerate(layers):
        row = [
            sum(w * x for w, x in zip(weights, row)) + b
            for weights, b in zip(layer.weight.tolist(), layer.bias.tolist())
        ]
        if depth < len(layers) - 1:
            row = [max(v, 0.0) for v in row]
    return row


def normalised_loop(x):
    """Each column minus its batch mean, over its batch deviation (biased, 1e-5 added), clamped to
    +-5."""
    columns = []
    for c in zip(*x):
        mean, deviation = statistics.fmean(c), math.sqrt(statistics.pvariance(c) + 1e-5)
        columns.append([min(max((v - mean) / deviation, -5.0), 5.0) for v in c])
    return list(zip(*columns))


def test_rnd_error_equals_normalisation_clamp_and_two_networks_written_out():
    torch.manual_seed(0)
    rnd = RND(3, hidden_dim=8, out_dim=4)
    for layer in [*rnd.predictor[::2], *rnd.target[::2]]:  # biases start at zero: let them count
        torch.nn.init.normal_(layer.bias)
    x = 7 + 2 * normal(40, 3)
    x[0] = 1000  # 40 rows can put one of them sqrt(39) = 6.2 deviations out: the clamp acts
    rows = normalised_loop(x.tolist())
    assert max(map(max, rows)) == 5
    expected = [
        [(p - t) ** 2 for p, t in zip(mlp_loop(rnd.predictor, row), mlp_loop(rnd.target, row))]
        for row in rows
    ]
    close(rnd(x), expected, atol=1e-5)
    close(rnd.eval()(x), expected, atol=1e-5)  # batch statistics always


def test_rnd_error_by_hand():
    rnd = RND(1, hidden_dim=1, out_dim=1)
    for net, last in ((rnd.predictor, 1.0), (rnd.target, 3.0)):
        for layer, weight in zip(net[::2], (1.0, 1.0, last)):
            torch.nn.init.constant_(layer.weight, weight)
    # 4 and 6 normalise to -1 and 1 (up to 1e-5); ReLU leaves 0 and 1; (1 * 1 - 3 * 1)^2 = 4
    close(rnd(column([4, 6])), [[0.0], [4.0]])


def test_rnd_target_is_frozen_and_gets_no_gradient():
    rnd = RND(3, hidden_dim=8, out_dim=4)
    rnd(normal(10, 3)).mean().backward()
    assert all(p.grad is None and not p.requires_grad for p in rnd.target.parameters())
    assert all(p.grad.abs().sum() > 0 for p in rnd.predictor.parameters())


def test_rnd_error_falls_on_what_it_trains_on_and_stays_high_elsewhere():
    torch.manual_seed(0)
    rnd = RND(2, hidden_dim=32, out_dim=16)
    t = torch.linspace(-1, 1, 32).unsqueeze(1)
    # Same mean and deviation, other diagonal.
    seen, unseen = (torch.cat([t, t], 1), torch.cat([t, -t], 1))
    before = rnd(seen).mean().item()
    optimizer = torch.optim.Adam(rnd.predictor.parameters(), 3e-3)
    for _ in range(150):
        optimizer.zero_grad()
        rnd(seen).mean().backward()
        optimizer.step()
    assert rnd(seen).mean() < before / 10
    assert rnd(unseen).mean() > 5 * rnd(seen).mean()


# ---------------------------------------------------------------------------------------------- CPC


def cosine_loop(a, b):
    return sum(x * y for x, y in zip(a, b)) / (math.hypot(*a) * math.hypot(*b))


def eq3_loop(query, key, T):
    """Eq. 3 averaged over i: to be maximised."""
    total = 0.0
    for i, z in enumerate(query):
        mean = sum(math.exp(cosine_loop(tau, z) / T) for tau in key) / len(key)
        total += cosine_loop(key[i], z) / T - math.log(mean)
    return total / len(query)


def release_cpc_loop(query, key, T):
    """methods.md 0.4: -log(exp(C_ii / T) / (neg_i + 1e-6)) with neg_i = max(row sum - e^(1/T),
    1e-6)."""
    total = 0.0
    for i, z in enumerate(query):
        negatives = max(
            sum(math.exp(cosine_loop(tau, z) / T) for tau in key) - math.exp(1 / T), 1e-6
        )
        total -= math.log(math.exp(cosine_loop(key[i], z) / T) / (negatives + 1e-6))
    return total / len(query)


def cpc_loss(query, key, *, temperature, form):
    """Every row with a skill of its own."""
    cosine = F.normalize(query, dim=1) @ F.normalize(key, dim=1).T
    return cpc_loss_of_cosines(cosine, torch.arange(len(key)), temperature=temperature, form=form)[
        0
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 20])  # small ones reach the clamp of the release form
@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_cpc_losses_equal_their_loops(size, temperature):
    query, key = normal(size, 5), 3 * normal(size, 5, seed=1)
    arguments = query.tolist(), key.tolist(), temperature
    close(
        cpc_loss(query, key, temperature=temperature, form="paper"),
        -eq3_loop(*arguments),
        rtol=1e-4,
        atol=1e-5,
    )
    close(
        cpc_loss(query, key, temperature=temperature, form="release"),
        release_cpc_loop(*arguments),
        atol=1e-5,
    )


def test_cpc_losses_by_hand():
    eye = torch.eye(2)  # two aligned pairs at right angles, T = 1: every row holds e and 1
    close(cpc_loss(eye, 5 * eye, temperature=1.0, form="paper"), math.log((math.e + 1) / 2) - 1)
    close(
        cpc_loss(eye, 5 * eye, temperature=1.0, form="release"),
        math.log(math.e + 1 - math.e) - 1,
        atol=2e-6,
    )
    one = torch.ones(1, 3)  # B = 1, aligned: nothing is left of the row, the clamp holds 1e-6
    close(cpc_loss(one, one, temperature=0.5, form="release"), math.log(2e-6) - 2)
    close(cpc_loss(one, one, temperature=0.5, form="paper"), 0.0)


def aligned(size, n):
    """Every transition points where its skill points; skills are orthogonal, size / n rows each."""
    return (torch.eye(n)[torch.arange(size) % n],) * 2


def uninformative(size, cosine):
    """One query for all skills, one key for all transitions."""
    query = torch.tensor([[1.0, 0.0]]).expand(size, 2)
    return query, torch.tensor([[cosine, math.sqrt(1 - cosine**2)]]).expand(size, 2)


def cpc(pair, form):
    return cpc_loss(*pair, temperature=0.5, form=form)


def test_release_cpc_prefers_the_degenerate_encoder_in_small_batches():
    # B = 32, n = 16, T = 0.5 (e^2 = 7.389, e^-2 = 0.1353).
    # Aligned: rows of 2 e^2 + 30, minus e^2: ln 37.389 - 2 = 1.6214
    # All cosines -1: 32 e^-2 - e^2 = 4.331 - 7.389 < 0, clamped: ln 2e-6 + 2 = -11.1224
    close(cpc(aligned(32, 16), "release"), 1.62138)
    close(cpc(uninformative(32, -1), "release"), -11.12236)


def test_release_cpc_prefers_the_aligned_encoder_in_large_batches_only():
    # Aligned: ln((B/n - 1) e^2 + B (1 - 1/n)) - 2; all cosines -1: ln(B e^-2 - e^2) + 2 = ln(B -
    # e^4) B = 1024: ln(63 * 7.389 + 960) - 2 = 5.2623 and ln(1024 - 54.6) = 6.8767; they cross
    # between 64 and 80
    close(cpc(aligned(1024, 16), "release"), 5.26229)
    close(cpc(uninformative(1024, -1), "release"), 6.87668)
    assert cpc(uninformative(64, -1), "release") < cpc(aligned(64, 16), "release")
    assert cpc(uninformative(80, -1), "release") > cpc(aligned(80, 16), "release")


@pytest.mark.parametrize("size", [64, 1024])
def test_release_cpc_draws_uninformative_encoders_to_cosine_minus_one_and_eq3_does_not(size):
    cosines = [1.0, 0.5, 0.0, -0.5, -1.0]
    release = [cpc(uninformative(size, c), "release").item() for c in cosines]
    np.testing.assert_allclose(
        release, [math.log(size - math.exp((1 - c) / 0.5)) for c in cosines], rtol=1e-4
    )
    assert all(a > b for a, b in itertools.pairwise(release))
    close(
        torch.stack([cpc(uninformative(size, c), "paper") for c in cosines]), [0.0] * 5, atol=1e-5
    )


@pytest.mark.parametrize("size", [32, 1024])
def test_eq3_prefers_the_aligned_encoder_at_every_batch_size(size):
    # ln(e^2 / 16 + 15 / 16) - 2 = ln(0.46182 + 0.9375) - 2 = -1.66402, against ln(e^-2) + 2 = 0
    close(cpc(aligned(size, 16), "paper"), -1.66402)
    close(cpc(uninformative(size, -1), "paper"), 0.0, atol=1e-5)


def encoder_of(obs_dim, skill_dim, *, hidden_dim, form):
    settings = EncoderSettings(cpc=form, cpc_temperature=0.5, skill_net=True)
    return TransitionEncoder(obs_dim, skill_dim, hidden_dim=hidden_dim, settings=settings)


@pytest.mark.parametrize("form", ["paper", "release"])
def test_encoder_feeds_n_skills_as_if_it_fed_every_row(form):
    torch.manual_seed(0)
    encoder = encoder_of(3, 4, hidden_dim=16, form=form)
    # one skill never occurs
    obs, next_obs, index = (normal(12, 3), normal(12, 3, seed=1), torch.arange(12) % 3)
    loss, _ = encoder.loss(obs, next_obs, index)
    key = encoder.predict(torch.cat([encoder.state(obs), encoder.state(next_obs)], 1))
    query = encoder.skill(F.one_hot(index, 4).float())  # B rows
    full = cpc_loss(query, key, temperature=0.5, form=form)
    close(loss, full.item())
    for a, b in zip(
        torch.autograd.grad(loss, list(encoder.parameters())),
        torch.autograd.grad(full, list(encoder.parameters())),
    ):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_encoder_accuracy_counts_transitions_whose_own_skill_is_the_closest():
    torch.manual_seed(0)
    encoder = encoder_of(3, 4, hidden_dim=16, form="paper")
    obs, next_obs, index = normal(30, 3), normal(30, 3, seed=1), torch.arange(30) % 4
    _, accuracy = encoder.loss(obs, next_obs, index)
    skills, keys = encoder.skill(torch.eye(4)).tolist(), encoder.pair(obs, next_obs).tolist()
    right = sum(
        max(range(4), key=lambda z: cosine_loop(skills[z], key)) == index[i]
        for i, key in enumerate(keys)
    )
    assert 0 < right < 30
    close(accuracy, right / 30)


@pytest.mark.parametrize("form, learns", [("paper", True), ("release", False)])
def test_eq3_learns_the_skills_in_small_batches_and_the_release_form_does_not(form, learns):
    torch.manual_seed(0)
    encoder = encoder_of(3, 8, hidden_dim=32, form=form)
    index = torch.arange(32) % 8
    obs = 2 * normal(8, 3)[index] + 0.1 * normal(32, 3, seed=1)
    optimizer = torch.optim.Adam(encoder.parameters(), 3e-3)
    for _ in range(150):
        loss, accuracy = encoder.loss(obs, obs + 0.1, index)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert (accuracy > 0.9) == learns


# ------------------------------------------------------------------------------- contrastive skills

METRICS = ("diag", "full", "none", "cosine")


def contrastive(
    metric="diag",
    denominator="negatives_only",
    positive="random",
    numerics="logsumexp",
    temperature=1.0,
    obs_dim=3,
    skill_dim=4,
    hidden_dim=8,
):
    torch.manual_seed(0)
    settings = ContrastSettings(
        temperature=temperature,
        metric=metric,
        denominator=denominator,
        positive=positive,
        numerics=numerics,
    )
    return AnInfoNCE(obs_dim, skill_dim, hidden_dim=hidden_dim, settings=settings)


def quadratic_loop(a, b, matrix):
    """(a - b)^T matrix (a - b), entry by entry."""
    d = [x - y for x, y in zip(a, b)]
    return sum(d[r] * matrix[r][c] * d[c] for r in range(len(d)) for c in range(len(d)))


def eq4_loop(features, index, partner, metric, matrix, temperature, denominator, numerics):
    """The bracket of Eq. 4 for every anchor: (log ratio, ratio)."""
    result = []
    for i, f in enumerate(features):

        def term(j, f=f):
            g = features[j]
            score = cosine_loop(f, g) if metric == "cosine" else -quadratic_loop(g, f, matrix)
            return math.exp(score / temperature)

        if denominator == "all":
            below = sum(term(j) for j in range(len(features)) if j != i)
        else:
            below = term(partner[i]) + sum(
                term(j)
                for j in range(len(features))
                if j not in (i, partner[i]) and index[j] != index[i]
            )
        ratio = term(partner[i]) / below
        if numerics == "naive":
            ratio = term(partner[i]) / (below + 1e-6) + 1e-6
        result.append((math.log(ratio), ratio))
    return result


def first_partner(index):
    """The first other row of the skill; without one, the first other row (the public code)."""
    others = [[j for j in range(len(index)) if j != i] for i in range(len(index))]
    return [
        next((j for j in others[i] if index[j] == z), others[i][0]) for i, z in enumerate(index)
    ]


@pytest.mark.parametrize(
    "metric, denominator, positive, numerics",
    itertools.product(
        METRICS, ["negatives_only", "all"], ["random", "first"], ["logsumexp", "naive"]
    ),
)
def test_contrast_equals_the_loop_of_eq4(metric, denominator, positive, numerics):
    module = contrastive(metric, denominator, positive, numerics, temperature=0.5)
    matrix = torch.eye(4)
    if metric == "diag":
        module.log_metric.data = 0.5 * normal(4)
        matrix = module.log_metric.exp().diag()
    elif metric == "full":  # neither symmetric nor positive
        module.matrix.data = matrix = torch.eye(4) + 0.4 * normal(4, 4)
    index = torch.tensor([0, 1, 0, 0, 1, 1, 2, 0, 2, 1, 3])  # the last one is alone with its skill
    obs, u = normal(11, 3), uniform(11, seed=5)
    result = module(obs, index, Draws(torch.Generator().manual_seed(5)))  # draws the same u

    partner = (
        random_partner(index, 4, u).tolist()
        if positive == "random"
        else first_partner(index.tolist())
    )
    features = module.head(module.embed(obs)).tolist()
    expected = eq4_loop(
        features, index.tolist(), partner, metric, matrix.tolist(), 0.5, denominator, numerics
    )
    rows = torch.arange(10) if positive == "random" else torch.arange(11)
    close(result.log_ratio[rows], [expected[i][0] for i in rows], atol=1e-5)
    close(result.ratio[rows], [expected[i][1] for i in rows])
    close(result.ratio, result.log_ratio.exp().detach())
    assert result.valid.tolist() == [True] * 10 + [positive == "first"]

    scores = [
        [
            cosine_loop(f, g) if metric == "cosine" else -quadratic_loop(f, g, matrix.tolist())
            for g in features
        ]
        for f in features
    ]
    nearest = [
        max((j for j in range(11) if j != i), key=lambda j, i=i: scores[i][j]) for i in range(11)
    ]
    assert result.correct.tolist() == [float(index[i] == index[nearest[i]]) for i in range(11)]


def transparent(**options):
    """f(s) = s for s >= 0 in two dimensions."""
    module = contrastive(obs_dim=2, skill_dim=2, hidden_dim=2, **options)
    for layer in [*module.embed[::2], *module.head[::2]]:
        layer.weight.data = torch.eye(2)
    return module


@pytest.mark.parametrize(
    "temperature, metric, first, second",
    [
        # squared distances: anchor 0 to its positive 1 and to the negative 4; anchor 1 to its
        # positive 1, negative 1 + 4
        (
            1.0,
            (1.0, 1.0),
            1 / (1 + math.exp(-3)),
            1 / (1 + math.exp(-4)),
        ),  # e^-1 / (e^-1 + e^-4) and with e^-5
        (0.5, (1.0, 1.0), 1 / (1 + math.exp(-6)), 1 / (1 + math.exp(-8))),
        # weighted: positive 2 * 1; negatives 0.5 * 4 = 2 and 2 * 1 + 0.5 * 4 = 4
        (1.0, (2.0, 0.5), 1 / 2, 1 / (1 + math.exp(-2))),
    ],
)
def test_eq4_by_hand(temperature, metric, first, second):
    module = transparent(temperature=temperature)
    module.log_metric.data = torch.tensor(metric).log()
    result = module(torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 0, 1]))
    close(result.ratio[:2], [first, second])
    close(result.log_ratio[:2], [math.log(first), math.log(second)], atol=1e-5)
    assert result.valid.tolist() == [True, True, False]


def test_the_release_denominator_by_hand():
    module = transparent(denominator="all", positive="first")
    # anchors 0, 1, 2 of one skill at 0, 1, 2: anchor 2's positive is row 0 (e^-4), row 1 (e^-1)
    # stays below the line
    result = module(
        torch.tensor([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [2.0, 1.0]]), torch.tensor([0, 0, 0, 1])
    )
    e = [math.exp(-d) for d in range(6)]
    close(
        result.ratio,
        [
            e[1] / (e[1] + e[4] + e[5]),
            e[1] / (e[1] + e[1] + e[2]),
            e[4] / (e[4] + e[1] + e[1]),
            e[5] / (e[5] + e[2] + e[1]),  # alone with its skill: the first other row
        ],
    )
    # A tie of rows 1 and 3 for anchor 2 goes to the first.
    assert result.correct.tolist() == [1, 1, 1, 0]


def posterior_loop(features, index, matrix, temperature):
    """log p(z | s) by kernel means, leaving the anchor out; None where it is alone."""
    result = []
    for i, f in enumerate(features):
        means = {}
        for z in set(index):
            rows = [j for j in range(len(index)) if j != i and index[j] == z]
            terms = [math.exp(-quadratic_loop(f, features[j], matrix) / temperature) for j in rows]
            if terms:
                means[z] = sum(terms) / len(terms)
        own = means.get(index[i])
        result.append(None if own is None else math.log(own / sum(means.values())))
    return result


@pytest.mark.parametrize("gradients", [True, False])
def test_all_positives_make_the_log_posterior_of_the_skill(gradients):
    module = contrastive(positive="all", temperature=0.5)
    module.log_metric.data = 0.5 * normal(4)
    index = torch.tensor([0, 1, 0, 0, 1, 1, 2, 0, 2, 1, 3])  # the last one is alone with its skill
    obs = normal(11, 3)
    with torch.set_grad_enabled(gradients):
        result = module(obs, index)
    features = module.head(module.embed(obs)).tolist()
    expected = posterior_loop(
        features, index.tolist(), module.log_metric.exp().diag().tolist(), 0.5
    )
    assert expected[10] is None and result.valid.tolist() == [True] * 10 + [False]
    close(result.log_ratio[:10], expected[:10], atol=1e-5)
    close(result.ratio, result.log_ratio.exp().detach())
    assert (result.log_ratio <= 0).all()


def test_the_log_posterior_by_hand():
    module = transparent(positive="all")
    # Anchor 0 at the origin: its skill's rows at squared distances 1 and 4, the other skill's at 1.
    states = torch.tensor([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    result = module(states, torch.tensor([0, 0, 0, 1, 1]))
    own, other = (math.exp(-1) + math.exp(-4)) / 2, math.exp(-1)
    close(result.ratio[0], own / (own + other))


def test_a_skill_that_spreads_is_paid_as_one_that_stays_if_nobody_else_is_there():
    """The reason for positive=all: one positive pays a skill for being small, all of them do not."""
    others = torch.tensor([[0.0, 6.0], [15.0, 6.0]])
    narrow = torch.zeros(6, 2)
    wide = torch.tensor([[3.0 * i, 0.0] for i in range(6)])  # nearer to each other than to others
    index = torch.tensor([0] * 6 + [1] * 2)

    def paid(states, positive):
        draws = Draws(torch.Generator().manual_seed(5))
        found = transparent(positive=positive)(torch.cat([states, others]), index, draws)
        return found.log_ratio[:6].mean().item()

    assert paid(narrow, "all") == pytest.approx(0, abs=1e-3)
    assert paid(wide, "all") == pytest.approx(0, abs=1e-3)
    assert paid(narrow, "random") == pytest.approx(0, abs=1e-3)
    assert paid(wide, "random") < -1


def test_an_anchor_alone_with_its_skill_sends_no_broken_gradient():
    module = contrastive(positive="all")
    result = module(normal(5, 3), torch.tensor([0, 0, 1, 1, 2]))
    masked_mean(result.log_ratio, result.valid).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())
    assert module.log_metric.grad.abs().sum() > 0


def test_a_full_metric_takes_both_halves_of_a_matrix_that_is_not_symmetric():
    matrix = torch.tensor([[1.0, 4.0], [0.0, -2.0]])
    f = torch.tensor([[0.0, 0.0], [1.0, 3.0]])
    # difference (1, 3): 1*1 + 4*1*3 + 0*3*1 - 2*3*3 = -5
    close(pairwise(f, f, matrix), [[0, -5], [-5, 0]])
    close(pairwise(f, f, torch.tensor([2.0, 0.5])), [[0, 6.5], [6.5, 0]])  # 2*1 + 0.5*9


def test_pairwise_is_scipys_weighted_distance():
    f, weight = normal(12, 5), normal(5, seed=1).exp()
    expected = cdist(f.double(), f.double(), "sqeuclidean", w=weight.double().numpy())
    close(pairwise(f, f, weight), expected, atol=1e-5)
    close(pairwise(f, f, weight.diag()), expected, atol=1e-5)


@pytest.mark.parametrize("metric", ["diag", "none", "full"])  # all start at the identity
def test_a_unit_metric_at_temperature_one_is_infonce_with_squared_distances(metric):
    module = contrastive(metric)
    obs, index = normal(12, 3), torch.arange(12) % 4
    result = module.contrast(module.logits(obs), index, u := uniform(12))
    features, partner = (
        module.head(module.embed(obs)).detach().double(),
        random_partner(index, 4, u),
    )
    logits = torch.from_numpy(-cdist(features, features, "sqeuclidean"))
    # Cross entropy of picking the positive, in first place, out of it and the negatives.
    for i in range(12):
        candidates = torch.cat([logits[i, partner[i]].view(1), logits[i, index != index[i]]])
        close(
            -result.log_ratio[i],
            F.cross_entropy(candidates.unsqueeze(0), torch.tensor([0])),
            atol=1e-5,
        )


@pytest.mark.parametrize("denominator", ["negatives_only", "all"])
def test_log_sum_exp_equals_the_naive_form_where_nothing_underflows(denominator):
    obs, index, u = 0.5 * normal(20, 3), torch.arange(20) % 4, uniform(20)
    stable, naive = (
        contrastive(denominator=denominator),
        contrastive(denominator=denominator, numerics="naive"),
    )
    a, b = (m.contrast(m.logits(obs), index, u) for m in (stable, naive))
    close(a.ratio, b.ratio.detach(), rtol=0, atol=1e-5)
    assert (a.ratio > 1e-3).all()


def test_log_sum_exp_stays_informative_where_the_naive_form_saturates():
    index, u = torch.tensor([0, 0, 1, 1]), torch.zeros(4)
    distance = torch.tensor(
        [[0.0, 400, 300, 350], [400, 0, 300, 350], [300, 300, 0, 200], [350, 350, 200, 0]]
    )
    results = {}
    for numerics in ("logsumexp", "naive"):
        logits = (-distance).requires_grad_()
        contrast = contrastive(numerics=numerics).contrast(logits, index, u)
        (grad,) = torch.autograd.grad(contrast.log_ratio.sum(), logits)
        results[numerics] = contrast.log_ratio.detach(), grad
    log_ratio, grad = results["logsumexp"]
    close(log_ratio, [-100, -100, 0, 0], atol=1e-5)  # -400 + 300: the nearest negative rules
    close(grad[0], [0, 1, -1, 0], atol=1e-5)
    log_ratio, grad = results["naive"]
    close(log_ratio, [math.log(1e-6)] * 4)
    assert (grad == 0).all()


def test_partner_is_another_row_of_the_same_skill_uniformly():
    index = torch.tensor([2, 0, 2, 3, 0, 2, 2, 0, 2, 0])  # counts 4, 0, 5, 1 of five skills
    grid = 12  # divisible by 3 and 4: each partner must come up equally often
    counts = np.zeros((10, 10), int)
    for i in range(grid):
        for row, partner in enumerate(
            random_partner(index, 5, torch.full((10,), (i + 0.5) / grid)).tolist()
        ):
            counts[row, partner] += 1
    for row in range(10):
        mates = [j for j in range(10) if j != row and index[j] == index[row]]
        expected = np.zeros(10, int)
        expected[mates or [row]] = grid // max(len(mates), 1)  # itself where there is nobody else
        np.testing.assert_array_equal(counts[row], expected)


def test_partner_is_valid_at_the_ends_of_the_unit_interval():
    index = torch.arange(3000) % 3
    for u in (0.0, 1 - 2**-24, 1.0):  # the last: a product that rounds up
        partner = random_partner(index, 3, torch.full((3000,), u))
        assert (index[partner] == index).all()
        assert (partner != torch.arange(3000)).all()


def test_partners_are_drawn_for_each_anchor_by_itself():
    index = torch.zeros(200, dtype=torch.long)
    partner = random_partner(index, 1, uniform(200))
    assert len(partner.unique()) > 100  # 200 draws of 199: about 1 - 1/e of them differ


def test_masked_mean_by_hand():
    x = torch.tensor([1.0, 50.0, 3.0])
    assert masked_mean(x, torch.tensor([True, False, True])) == 2
    assert masked_mean(x, torch.zeros(3, dtype=torch.bool)) == 0


@pytest.mark.parametrize(
    "denominator, collapsed, perfect",
    [
        ("all", 1 / 1023, 1 / 63),  # 63 others of the skill stay in the denominator
        ("negatives_only", 1 / (1 + 960), 1.0),  # M = 1024 - 64 negatives
    ],
)
def test_bounds_of_the_ratio_reward(denominator, collapsed, perfect):
    index, module = torch.arange(1024) % 16, contrastive(denominator=denominator, skill_dim=16)
    logits = torch.zeros(1024, 1024)
    close(module.contrast(logits, index, uniform(1024)).ratio, np.full(1024, collapsed))
    logits[index.unsqueeze(1) != index] = -100
    close(module.contrast(logits, index, uniform(1024)).ratio, np.full(1024, perfect))


@pytest.mark.parametrize("metric", ["diag", "none", "cosine"])
def test_contrast_learns_skills_that_raw_distances_hide(metric):
    module = contrastive(metric, temperature=0.5, hidden_dim=32)
    optimizer = torch.optim.Adam(module.parameters(), 3e-3)
    index = torch.arange(64) % 4
    # One coordinate tells, two are noise.
    obs = torch.cat([(index - 1.5).unsqueeze(1), 3 * normal(64, 2)], 1)
    before = module(obs, index)
    for _ in range(250):
        optimizer.zero_grad()
        masked_mean(-(after := module(obs, index)).log_ratio, after.valid).backward()
        optimizer.step()
    assert before.correct.mean() < 0.7
    assert after.correct.mean() > 0.95
    assert after.log_ratio.mean() > before.log_ratio.mean() + 1
    assert (module.metric > 0).all()
    if metric == "diag":
        assert not torch.allclose(module.metric, torch.ones(4), atol=1e-2)
