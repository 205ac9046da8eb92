"""DADS's skill dynamics and its reward against the log-sum that it stands for."""

import math

import numpy as np
import pytest
import torch

import agent.dads
from tests.kit.objectives import (
    array,
    assert_learns_on_meta,
    assert_rewards_are_sound,
    assert_state_round_trip,
    assert_updates_lower,
    close,
    depends_on,
    make,
    make_batch,
    moved,
)
from utils import UserError

KINDS = pytest.mark.parametrize("kind", ["gaussian", "one_hot"])
L = 7


def make3(kind="gaussian", *overrides, count=L, **kwargs):
    return make(
        "dads",
        "skill_dim=3",
        f"agent.skill_space={kind}",
        f"agent.objective.resampled_skills={count}",
        *overrides,
        **kwargs,
    )


def batch3(kind="gaussian", **kwargs):
    return make_batch(skills=3, kind=kind, **kwargs)


def log_gaussian(change, mean):
    """log N(change; mean, 1)."""
    return sum(-0.5 * (c - m) ** 2 - 0.5 * math.log(2 * math.pi) for c, m in zip(change, mean))


def predict(objective, state, skill):
    return array(objective.dynamics(torch.tensor(np.concatenate([state, skill])).float()))


@KINDS
def test_the_loss_is_minus_the_log_likelihood_of_the_normalised_change(kind):
    objective, batch = make3(kind), batch3(kind)
    state, change = array(batch.obs), array(batch.next_obs_1 - batch.obs)
    state, change = ((x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5) for x in (state, change))
    logs = [
        log_gaussian(c, predict(objective, s, z))
        for s, c, z in zip(state, change, array(batch.skill))
    ]
    constant = 4 / 2 * math.log(2 * math.pi)  # left out of the loss
    close(objective.update(batch)["dads/loss"], -np.mean(logs) - constant)


@KINDS
def test_the_reward_is_the_log_ratio_to_the_mean_over_the_own_and_the_resampled_skills(kind):
    objective = make3(kind)
    running = {"state": [np.zeros(4), np.ones(4)], "change": [np.zeros(4), np.ones(4)]}
    for seed in range(5):
        batch = batch3(kind, seed=seed)
        objective.update(batch)
        for name, x in (("state", batch.obs), ("change", batch.next_obs_1 - batch.obs)):
            mean, var = running[name]
            running[name] = [
                0.99 * mean + 0.01 * array(x).mean(0),
                0.99 * var + 0.01 * array(x).var(0, ddof=1),
            ]
    generator = torch.Generator()
    generator.set_state(objective.generator.get_state())
    if kind == "gaussian":
        others = array(torch.randn(L, len(batch.obs), 3, generator=generator))
    else:
        others = np.eye(3)[torch.randint(3, (L, len(batch.obs)), generator=generator).numpy()]
    expected = []
    for row in range(len(batch.obs)):
        state, change = (
            (array(x[row]) - m) / np.sqrt(v + 1e-5)
            for x, (m, v) in (
                (batch.obs, running["state"]),
                (batch.next_obs_1 - batch.obs, running["change"]),
            )
        )
        own, *rest = (
            math.exp(log_gaussian(change, predict(objective, state, z)))
            for z in (array(batch.skill[row]), *others[:, row])
        )
        expected.append([math.log(own) - math.log((own + sum(rest)) / (L + 1))])
    close(objective.rewards(batch)[0]["diversity"], expected, atol=1e-5)


def test_the_reward_by_hand():
    """Own log q 0, three others at log(1/2): log 4 - log(1 + 3/2) = log 1.6 = 0.47."""
    objective, batch = make3(count=3), batch3(size=2)
    objective.log_q = lambda state, change, skill: (
        torch.zeros(2) if skill is batch.skill else torch.full((len(skill),), math.log(0.5))
    )
    rewards, metrics = objective.rewards(batch)
    close(rewards["diversity"], [[0.4700036], [0.4700036]])
    assert metrics["dads/accuracy"] == 1


@pytest.mark.parametrize(
    "gap, expected",
    [
        (1e6, math.log(L + 1)),  # no other skill could have done it
        (-1e6, math.log(L + 1) - 50 - math.log(L)),  # every other one could: clipped at e^50 each
        (0.0, 0.0),
    ],
)
def test_the_reward_lies_between_the_clip_and_log_of_l_plus_one(gap, expected):
    objective, batch = make3(), batch3()
    objective.log_q = lambda state, change, skill: torch.full(
        (len(skill),), gap if skill is batch.skill else 0.0
    )
    close(objective.rewards(batch)[0]["diversity"], np.full((24, 1), expected), rtol=1e-6)


@KINDS
def test_the_reward_is_zero_where_the_skill_does_not_matter(kind):
    objective, batch = make3(kind), batch3(kind)
    objective.dynamics[0].weight.data[:, 4:] = 0  # blind to the skill
    close(objective.rewards(batch)[0]["diversity"], np.zeros((24, 1)), atol=1e-5)


@KINDS
def test_it_learns_that_the_skill_moves_the_state_and_that_it_does_not(kind):
    for effect in (1, 0):
        objective = make3(kind, "learner.lr=3e-3", count=50)
        for seed in range(200):
            batch = batch3(kind, size=64, seed=seed)
            moved_by = (
                torch.nn.functional.pad(effect * batch.skill, (0, 1)) + 0.05 * batch.action[:, :1]
            )
            batch = batch._replace(next_obs_1=batch.obs + moved_by)
            objective.update(batch)
        reward, metrics = objective.rewards(batch)
        if effect:
            assert reward["diversity"].mean() > 0.3 and metrics["dads/accuracy"] > (
                0.6 if kind == "one_hot" else 0.75
            )
        else:
            assert reward["diversity"].mean().abs() < 0.05
        assert reward["diversity"].max() <= math.log(51) + 1e-5


@KINDS
def test_the_size_of_a_pass_moves_no_number(kind, monkeypatch):
    objective, batch = make3(kind), batch3(kind)
    state = objective.generator.get_state()
    expected = array(objective.rewards(batch)[0]["diversity"])
    for rows in (1, 50, 100):
        monkeypatch.setattr(agent.dads, "ROWS_AT_ONCE", rows)
        objective.generator.set_state(state)
        close(objective.rewards(batch)[0]["diversity"], expected, atol=1e-6)


def test_resampled_skills_come_from_the_skill_space():
    one_hot = make3("one_hot").resample(500, batch3("one_hot").skill)
    assert one_hot.shape == (500, 24, 3) and torch.equal(one_hot.sum(-1), torch.ones(500, 24))
    close(one_hot.mean((0, 1)), np.full(3, 1 / 3), rtol=0.05)
    gaussian = make3().resample(500, batch3().skill)
    close(gaussian.mean((0, 1)), np.zeros(3), atol=0.05)
    close(gaussian.std((0, 1)), np.ones(3), rtol=0.05)


def test_it_reads_one_step_pairs_and_skills():
    assert depends_on(make3(), "diversity", skills=3, kind="gaussian") == {
        "obs",
        "next_obs_1",
        "skill",
    }


def test_updates_move_the_dynamics_and_the_running_statistics_and_rewards_move_nothing():
    objective, batch = make3(), batch3()
    assert moved(objective, lambda: objective.update(batch)) == {
        "dynamics",
        "state_norm",
        "change_norm",
    }
    assert moved(objective, lambda: objective.rewards(batch)) == set()


@KINDS
def test_what_every_method_owes(kind):
    own = (f"agent.skill_space={kind}", "agent.objective.resampled_skills=3")
    assert_rewards_are_sound(make3(kind), skills=3, kind=kind)
    assert_state_round_trip("dads", "skill_dim=3", *own, skills=3, kind=kind)
    assert_updates_lower(make3(kind), "dads/loss", skills=3, kind=kind)
    assert_learns_on_meta("dads", *own)


def test_a_space_that_it_cannot_resample_is_refused():
    with pytest.raises(
        UserError, match=r"agent.skill_space='cube' is not valid; choose from gaussian, one_hot"
    ):
        make3("cube")
