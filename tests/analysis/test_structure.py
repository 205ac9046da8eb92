"""The conflict that one critic with two targets has built in, and p as a weight of the two
rewards."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from agent.learners.surgery import ProjectConflict, SumGradients, flat_grad, similarity
from agent.parts.networks import mlp
from analysis.theory import structure
from analysis.theory.critics import (
    GivenRewards,
    Transitions,
    amped_run,
    evaluate_policy,
    late_means,
    make_transitions,
    offset_share,
)
from analysis.theory.structure import (
    halves,
    make_surgery,
    position,
    sample_conflicts,
    settle,
    surgery_weights,
)
from utils import Streams


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def outcomes(g, h):
    """Both sides of Algorithm 1's coin."""
    return [
        ProjectConflict(p=p, first="diversity")({"diversity": g, "exploration": h})
        for p in (1.0, 0.0)
    ]


def one_critic(seed=0, rows=40):
    torch.manual_seed(seed)
    net = mlp(3, 8, 1).double()
    x, y1, y2 = (
        normal(rows, 3, seed=seed),
        normal(rows, 1, seed=seed + 1),
        normal(rows, 1, seed=seed + 2),
    )
    return net, x, y1, y2


def gradient(net, x, y):
    return flat_grad((net(x) - y).square().mean(), list(net.parameters()), retain_graph=False)


# ------------------------------------------------------------------------------------ facts 1 and 2


@pytest.mark.parametrize("seed", range(3))
def test_a_sample_conflicts_exactly_where_q_lies_between_its_targets(seed):
    net, x, y1, y2 = one_critic(seed)
    found = sample_conflicts(net(x), y1, y2).squeeze(1)
    for i in range(len(x)):
        g, h = (gradient(net, x[i : i + 1], y[i : i + 1]) for y in (y1, y2))
        q, low, high = net(x[i : i + 1]).item(), *sorted((y1[i].item(), y2[i].item()))
        assert bool(found[i]) == (low < q < high) == (g @ h < 0).item()
        assert abs(similarity(g, h)["cosine"].item()) == pytest.approx(1)  # never anything between
    assert 0 < found.sum() < len(x)


def test_the_bootstrap_does_not_move_what_separates_the_gradients():
    net, x, y1, y2 = one_critic()
    shift = 100 * normal(40, 1, seed=9)
    _, before = halves(gradient(net, x, y1), gradient(net, x, y2))
    _, after = halves(gradient(net, x, y1 + shift), gradient(net, x, y2 + shift))
    torch.testing.assert_close(before, after)
    common, _ = halves(gradient(net, x, y1), gradient(net, x, y2))
    # The error against the mean target.
    torch.testing.assert_close(common, gradient(net, x, (y1 + y2) / 2))


@pytest.mark.parametrize("seed", range(5))
def test_gradients_conflict_where_their_difference_is_longer_than_their_sum(seed):
    g, h = normal(2, 6, seed=seed)
    common, gap = halves(g, h)
    assert (g @ h).item() == pytest.approx((common @ common - gap @ gap).item())
    assert bool(similarity(g, h)["conflict"]) == bool(gap.norm() > common.norm())


@pytest.mark.parametrize("scale", [1.01, 3.0, 50.0])
def test_at_a_stationary_point_rewards_that_differ_only_in_scale_have_cosine_minus_one(scale):
    # a linear critic, so that the stationary point of the summed loss is known: least squares on
    # the mean target
    x, reward = (
        torch.cat([normal(50, 4), torch.ones(50, 1, dtype=torch.float64)], 1),
        normal(50, 1, seed=1).exp(),
    )
    net = nn.Linear(5, 1, bias=False).double()
    net.weight.data = torch.linalg.lstsq(x, (1 + scale) / 2 * reward).solution.T
    g, h = gradient(net, x, reward), gradient(net, x, scale * reward)
    assert similarity(g, h)["cosine"].item() == pytest.approx(-1, abs=1e-6)  # similarity's own EPS
    assert g.norm() > 1e-3


# ------------------------------------------------------------------------------ fact 3: what p does


@pytest.mark.parametrize("seed, p", itertools.product(range(6), (0.0, 0.3, 0.8, 1.0)))
def test_expected_surgery_is_a_weighted_sum(seed, p):
    g, h = normal(2, 5, seed=seed)
    projected, other = outcomes(g, h)
    w, v = surgery_weights(g, h, p)
    torch.testing.assert_close(w * g + v * h, p * projected + (1 - p) * other, atol=1e-9, rtol=1e-9)
    assert w >= 1 and v >= 1 and ((g @ h < 0) or w == v == 1)


@pytest.mark.parametrize("c", [0.1, 1.0, 7.0])
def test_of_opposite_gradients_surgery_keeps_one_and_p_is_its_weight(c):
    g = normal(5)
    h = -c * g
    projected, other = outcomes(g, h)
    torch.testing.assert_close(projected, h, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(other, g, atol=1e-9, rtol=1e-9)
    for p in (0.0, 0.25, 1.0):
        w, v = surgery_weights(g, h, p)
        torch.testing.assert_close(w * g + v * h, (1 - p) * g + p * h, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("p", [0.0, 0.25, 0.6, 1.0])
def test_q_settles_at_p_between_the_diversity_and_the_exploration_target(p):
    # the expected step 2 (1 - p) q + 2 p (q - 1) vanishes at q = p
    mean, deviation = settle(make_surgery(p, torch.Generator().manual_seed(0)), steps=3000)
    assert mean == pytest.approx(p, abs=0.05)
    assert (deviation > 0.01) == (0 < p < 1)  # the coin goes on shaking it, unlike the sum


def test_the_plain_sum_settles_in_the_middle_and_stays():
    mean, deviation = settle(SumGradients(), steps=800)
    assert mean == pytest.approx(0.5) and deviation < 1e-6


# ----------------------------------------------------------------------------- the learner's critic


def critic(
    relation="unrelated", scale=4.0, discount=0.0, updates=150, words=("surgery=sum",), watch=False
):
    batch = make_transitions(relation, scale, discount, Streams(1).torch("rewards"))
    learner, metrics = evaluate_policy(batch, 1, words, updates, watch=watch)
    return learner, metrics, batch


def test_made_rewards_have_the_means_and_the_relation_that_they_are_asked_for():
    for relation, sign in (("aligned", 1), ("opposed", -1), ("unrelated", 0)):
        reward = make_transitions(relation, 4.0, 0.9, Streams(0).torch("rewards")).reward
        np.testing.assert_allclose(reward.mean(0), [1, 4], rtol=1e-5)
        correlation = np.corrcoef(reward.T)[0, 1]
        assert abs(correlation - sign) < (1e-5 if sign else 0.5)


def test_a_fixed_memory_gives_rows_as_they_are():
    batch = make_transitions("unrelated", 2.0, 0.9, Streams(0).torch("rewards"))
    sample = Transitions(batch, torch.Generator().manual_seed(0)).sample(7)
    rows = [int((batch.obs == obs).all(1).nonzero()) for obs in sample.obs]
    assert torch.equal(sample.reward, batch.reward[rows]) and torch.equal(
        sample.skill, batch.skill[rows]
    )


@pytest.mark.parametrize("p, expected", [(0.0, 0.0), (1.0, 1.0), (None, 0.5)])
def test_p_moves_the_critic_from_one_reward_to_the_other(p, expected):
    learner, _, batch = critic(words=("surgery=sum",) if p is None else (f"p={p}",))
    (weight,) = position(learner, batch)
    # Near an end the winner's gradient is noise: see structure.py.
    assert weight == pytest.approx(expected, abs=0.2)


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_with_a_head_per_stream_p_moves_nothing(p):
    learner, _, batch = critic(words=(f"p={p}", "learner.critic_heads=per_stream"))
    np.testing.assert_allclose(position(learner, batch), [0, 1], atol=0.08)


def test_agreeing_rewards_oppose_each_other_in_one_critic_once_their_scales_differ_but_not_in_two_heads():
    same, apart = (
        late_means(critic("aligned", scale, 0.9, watch=True)[1]) for scale in (1.0, 30.0)
    )
    assert (
        same["conflict"] == 0
        and same["cosine"] == pytest.approx(1)
        and same["sample_conflict"] == 0
    )
    assert apart["conflict"] > 0.95 and apart["cosine"] < -0.6 and apart["sample_conflict"] > 0.5
    words = ("surgery=sum", "learner.critic_heads=per_stream")
    heads = late_means(critic("aligned", 30.0, 0.9, words=words, watch=True)[1])
    assert heads["cosine"] > -0.3


def test_the_offset_share_is_one_for_constant_rewards_and_small_for_rewards_of_one_mean():
    learner, _, batch = critic(updates=3, discount=0.9)
    level = torch.ones(len(batch.obs), 1)
    assert offset_share(learner, batch, {"a": level, "b": 5 * level}).item() == pytest.approx(
        1, abs=1e-4
    )
    rewards, _ = GivenRewards().rewards(batch)
    centred = {name: r - r.mean() for name, r in rewards.items()}
    assert abs(offset_share(learner, batch, centred).item()) < 1e-3


def test_a_short_run_of_amped_reports_rewards_and_conflict():
    row = amped_run(2.0, "shared", 1, 240)
    assert row["exploration"] > row["diversity"] > 0
    assert 0 <= row["sample_conflict"] <= 1 and -1 <= row["cosine"] <= 1 and row["conflict"] > 0.5
    assert 0 < row["offset_share"] < 2


def test_the_study_draws_every_part(monkeypatch):
    monkeypatch.setattr(structure, "SCALES", (1.0,))
    monkeypatch.setattr(structure, "PROBABILITIES", (0.5,))
    monkeypatch.setattr(structure, "FACTORS", (1.0,))
    monkeypatch.setattr(structure, "settle", lambda surgery: (0.5, 0.0))
    monkeypatch.setattr(
        structure,
        "amped_run",
        lambda factor, heads, seed, frames: {
            "conflict": 1.0,
            "sample_conflict": 0.5,
            "cosine": -0.9,
            "diversity": 0.1,
            "exploration": 3.0,
        },
    )
    rows, figure, summary = structure.study(1, updates=12, frames=0)
    assert {row["part"] for row in rows} == {"scale", "mixing", "run"} and len(figure.axes) == 4
    assert "ratio 30: conflict 1.00 per update" in summary
