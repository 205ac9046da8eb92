"""The toy of AnInfoNCE: production mathematics against Eq. 4 written out, and what the distance
does to each term."""

import itertools
import math
import sys

import numpy as np
import pytest
import torch
from scipy.stats import norm

from agent.cesd import CeSD
from agent.parts.contrast import EncoderSettings, random_partner
from agent.parts.particles import NeighbourSettings
from analysis.theory import study as theory
from analysis.theory import toy
from analysis.theory.toy import (
    DIM,
    apart,
    cesd_term,
    contrast,
    flat_from,
    measure,
    objective,
    strangers,
    study,
)
from replay_buffer import Batch
from utils import Streams


def gaussians(distance, samples=12, seed=0):
    noise = torch.randn(2, samples, DIM, generator=torch.Generator().manual_seed(seed))
    return (apart(distance).unsqueeze(1) + noise).flatten(0, 1), torch.arange(2).repeat_interleave(
        samples
    )


def equation_4(states, skill, partner, similarity):
    """Line by line: the positive above, the positive and the other skill's states below."""
    total = 0.0
    for i in range(len(states)):
        positive = math.exp(similarity(states[i], states[partner[i]]))
        negatives = sum(
            math.exp(similarity(states[i], states[j]))
            for j in range(len(states))
            if skill[j] != skill[i]
        )
        total += math.log(positive / (positive + negatives))
    return total / len(states)


def euclid(a, b):
    return -sum((x - y) ** 2 for x, y in zip(a.tolist(), b.tolist()))


def cosine(a, b):
    a, b = a.tolist(), b.tolist()
    return sum(x * y for x, y in zip(a, b)) / (math.hypot(*a) * math.hypot(*b))


@pytest.mark.parametrize(
    "metric, similarity", [("diag", euclid), ("none", euclid), ("cosine", cosine)]
)
@pytest.mark.parametrize("distance", [0.0, 1.5, 4.0])
def test_the_production_objective_is_equation_4_with_identity_encoder_and_metric(
    metric, similarity, distance
):
    states, skill = gaussians(distance)
    u = torch.rand(len(states), generator=Streams(3).torch("positives"))
    expected = equation_4(states, skill, random_partner(skill, DIM, u).tolist(), similarity)
    found = objective(contrast(metric), states, skill, Streams(3).torch("positives"))
    assert float(found) == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_with_an_identity_metric_aninfonce_is_infonce_and_with_another_it_is_not():
    states, skill = gaussians(2.0)
    ours, isotropic = (contrast(metric) for metric in ("diag", "none"))
    values = [
        float(objective(module, states, skill, Streams(0).torch("positives")))
        for module in (ours, isotropic)
    ]
    assert values[0] == values[1]
    ours.log_metric.data[0] = 1.0
    assert float(objective(ours, states, skill, Streams(0).torch("positives"))) != values[1]


def test_the_objective_rises_with_the_distance_so_the_loss_falls_and_ends_at_zero():
    noise = torch.randn(2, 100, DIM, generator=torch.Generator().manual_seed(1))
    values = [measure(apart(distance), noise, 0)["AnInfoNCE"] for distance in (0, 1, 2, 4, 6, 8)]
    assert all(a < b for a, b in itertools.pairwise(values))
    # Worse than not knowing: the mean of logarithms is below the logarithm of means.
    assert values[0] < -math.log(100)
    assert measure(apart(30.0), noise, 0)["AnInfoNCE"] == 0


def test_a_single_negative_far_away_is_worth_nothing_by_hand():
    # two states of one skill at the origin, one of the other at distance 2: log(1 / (1 + e^-4)) for
    # each of the two
    states, skill = torch.zeros(3, DIM), torch.tensor([0, 0, 1])
    states[2, 0] = 2.0
    found = objective(contrast("diag"), states, skill, Streams(0).torch("positives"))
    assert float(found) == pytest.approx(-math.log(1 + math.exp(-4)), rel=1e-5)
    ratio = objective(contrast("diag"), states, skill, Streams(0).torch("positives"), "ratio")
    assert float(ratio) == pytest.approx(1 / (1 + math.exp(-4)), rel=1e-5)


def test_strangers_are_the_samples_nearer_to_the_other_mean():
    states, skill = gaussians(1.0, samples=40)
    wrong = [0, 0]
    for state, own in zip(states.tolist(), skill.tolist()):
        far = [math.dist(state, mean) for mean in apart(1.0).tolist()]
        wrong[far.index(min(far))] += far.index(min(far)) != own
    assert strangers(states, skill, apart(1.0)).tolist() == wrong and min(wrong) > 0


def test_the_number_of_strangers_is_a_normal_tail():
    states, skill = gaussians(3.0, samples=20_000)
    expected = 20_000 * norm.cdf(-1.5)
    np.testing.assert_allclose(
        strangers(states, skill, apart(3.0)), expected, atol=4 * math.sqrt(expected)
    )


def test_the_cesd_term_is_the_one_that_cesd_rewards():
    states, skill = gaussians(1.0, samples=30)
    agent = CeSD(
        obs_dim=DIM,
        action_dim=1,
        skill_dim=2,
        generator=None,
        hidden_dim=4,
        lr=1e-3,
        constrain_factor=0.7,
        sinkhorn_iterations=1,
        temperature=0.1,
        prototype_norm="gradient",
        encoder=EncoderSettings(cpc="paper", cpc_temperature=0.5, skill_net=False),
        neighbours=NeighbourSettings(k=1, knn_clip=0.0, knn_scale="none"),
    )
    agent.encoder.state = torch.nn.Identity()
    agent.draw_clusters = lambda features: torch.cdist(features, apart(1.0)).argmin(1)
    empty = torch.zeros(len(states), 1)
    batch = Batch(states, empty, empty, empty, states, torch.eye(2)[skill], states)
    _, metrics = agent.rewards(batch)
    assert float(cesd_term(states, skill, apart(1.0))) == pytest.approx(
        float(metrics["cesd/constraint"])
    )


def test_the_cesd_term_cannot_tell_apart_from_far_apart_and_aninfonce_can():
    noise = torch.randn(2, 200, DIM, generator=torch.Generator().manual_seed(2))
    near, far = (measure(apart(distance), noise, 0) for distance in (8.5, 10.5))
    assert near["CeSD"] == far["CeSD"] == 1
    assert near["AnInfoNCE"] < far["AnInfoNCE"] <= 0


def test_flat_is_where_99_percent_of_the_rise_are_reached():
    assert flat_from(np.array([0.0, 1.0, 2.0, 3.0]), np.array([-100.0, -50.0, -0.9, 0.0])) == 2.0


def test_the_study_repeats_by_seed_and_writes_every_term(monkeypatch):
    monkeypatch.setattr(toy, "DISTANCES", (0.0, 4.0, 8.0, 12.0))
    first, second, other = (study(seed, samples=20, pairs=3) for seed in (1, 1, 2))
    assert first[0] == second[0] != other[0]
    assert len(first[0]) == 7 * 5 and all(row["loss"] == -row["objective"] for row in first[0])


@pytest.fixture
def command(monkeypatch, capsys):
    """The command line on a tiny study: exit code, and what it said."""
    monkeypatch.setattr(toy, "DISTANCES", (0.0, 8.0, 12.0))

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["toy", *map(str, words)])
        code = 0
        try:
            theory.run("toy", "a title", lambda seed: study(seed, samples=10, pairs=3))
        except SystemExit as stop:
            code = stop.code
        return code, capsys.readouterr()

    return call


def test_the_same_seed_writes_the_same_table_and_pictures_byte_for_byte(command, tmp_path):
    for place in ("a", "b"):
        code, said = command("--out", tmp_path / place, "--seed", 3)
        assert code == 0 and "toy.csv" in said.out
    for name in ("toy.csv", "toy.png", "toy.pdf"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    lines = (tmp_path / "a" / "toy.csv").read_text().splitlines()
    assert lines[0] == "means,distance,term,objective,loss" and len(lines) == 1 + 6 * 5


def test_a_place_that_is_a_file_and_a_seed_that_is_none_are_one_line_errors(command, tmp_path):
    (tmp_path / "file").write_text("")
    code, said = command("--out", tmp_path / "file")
    assert code == 2 and said.err.startswith("error: ") and said.err.count("\n") == 1
    code, said = command("--seed", "-1")
    assert code == 2
